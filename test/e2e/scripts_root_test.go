package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sslo/admin/api"
	"sslo/test/lab"
)

// TestScript: a script chooses chain and server pool after the rules, refuses, counts, and when it fails the
// connection goes on as the rules decided. A reload with a broken script changes nothing.
func TestScript(t *testing.T) {
	topology := lab.Line(2, lab.Bridge)
	topology.Servers = 2
	b := build(t, topology)
	web := b.config["server_pools"].(map[string]any)["web"].(map[string]any)
	members := []string{fmt.Sprintf("%s:%d", b.Servers[0].Addr4, lab.TLSPort), fmt.Sprintf("%s:%d", b.Servers[1].Addr4, lab.TLSPort)}
	b.config.Set("server_pools.web.members", members[:1])
	b.config.Set("server_pools.second", map[string]any{"members": members[1:], "tls": web["tls"]})
	b.config.Set("chains.only-a.pools", []string{"pool-a"}).Set("chains.only-b.pools", []string{"pool-b"})
	b.config.Set("tables.tenants.entries", map[string]string{name("tenant"): "second"})
	b.config.Set("virtual_servers.shop.script", "shop.lua")
	b.config.Set("virtual_servers.shop.rules", []any{rule("to-b", "sni", name("ruled"), "chain", "only-b", "server_pool", "second")})
	b.script(`
function on_connect(conn)
  if conn:within("198.51.100.0/24") then conn:server_pool("second") end -- early, and kept
end
function on_client_hello(conn)
  local pool = tables.tenants[conn.sni]
  if pool then conn:server_pool(pool) conn:chain("only-a") end
  if conn.rule == "to-b" then conn:chain("only-a") end
  if conn.sni:starts("reject.") then conn:count("refused") conn:reject() end
  if conn.sni:starts("broken.") then conn:chain("only-a") local x = nil + 1 end
end`)
	b.start()
	b.awaitReady()
	for _, tt := range []struct {
		name        string
		o           lab.ClientOptions
		way, server string
	}{
		{"nothing to say", lab.ClientOptions{}, "a b", "server1"},
		{"a table", lab.ClientOptions{SNI: name("tenant")}, "a", "server2"},
		{"a rule's server pool, the script's chain", lab.ClientOptions{SNI: name("ruled")}, "a", "server2"},
		{"a server pool named before anything is known", lab.ClientOptions{Source: netip.AddrPortFrom(lab.Roam4, 0), SNI: name("other")}, "a b", "server2"},
		{"an error", lab.ClientOptions{SNI: name("broken")}, "a b", "server1"},
	} {
		b.sub(tt.name, func(b *bed) { b.checkRoute(tt.o, tt.way, tt.server) })
	}
	b.sub("reject", func(b *bed) { b.refusedByRule("reject", "policy-reject", unix.ECONNRESET) })
	if n := b.counter("script/refused"); n != 1 {
		t.Errorf("counted %d", n)
	}
	if n := b.counter("script-error/shop.lua:9"); n != 1 {
		t.Errorf("errors %d: %v", n, b.counters().VirtualServers["shop"])
	}
	b.script("function on_client_hello(conn)\n  conn:chain('only-a'\nend")
	_, err := b.admin.Reload(b.context(quick))
	var problem *api.Problem
	if !errors.As(err, &problem) || len(problem.Errors) != 1 || !strings.HasSuffix(problem.Errors[0].File, "shop.lua") || problem.Errors[0].Line != 3 {
		t.Errorf("reload: %+v", err)
	}
	b.checkRoute(lab.ClientOptions{SNI: name("tenant")}, "a", "server2")
	b.script("function on_client_hello(conn) conn:chain('only-b') end")
	b.reload()
	b.checkRoute(lab.ClientOptions{SNI: name("tenant")}, "b", "server1")
}

// script writes the virtual server's script next to the configuration.
func (b *bed) script(text string) {
	b.t.Helper()
	b.must(os.WriteFile(b.Path("shop.lua"), []byte(strings.TrimPrefix(text, "\n")), 0o600))
}
