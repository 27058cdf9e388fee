function on_connect(conn)
  if conn:within("192.0.2.0/24") then conn:reject() end
end
function on_client_hello(conn)
  if conn.sni == "tenant.test" then conn:server_pool("second") conn:log("a tenant") end
  if conn.sni == "early.test" then conn:server_pool("second") conn:chain("light") end
  if conn.sni == "broken.test" then local x = nil + 1 end
end
