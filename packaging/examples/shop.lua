-- shop.lua - an example script of a virtual server; see docs/scripts.md.

-- Right after the connection was accepted: addresses and link are known.
function on_connect(conn)
  if tables.blocked:match(conn.client) then
    conn:count("blocked")
    conn:drop()
  end
end

-- The ClientHello is there, and the pre-policies have decided: conn.rule says which.
function on_client_hello(conn)
  local pool = tables.tenants[conn.sni or ""]
  if pool then
    conn:server_pool(pool)
  end
  if conn.tls_version == "1.2" and not conn:within("10.0.0.0/8") then
    conn:log("old client for " .. (conn.sni or "no name"))
    conn:count("old-clients")
    conn:chain("inspect")
  end
end
