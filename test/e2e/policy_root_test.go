package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sslo/admin/api"
	"sslo/test/lab"
)

// name is one below the virtual server's.
func name(sub string) string { return sub + "." + lab.ShopName }

// ruled is a bed with a chain [a, b], chains of one device, two servers in pools of their own, and rules.
func ruled(t *testing.T) *bed {
	topology := lab.Line(2, lab.Bridge)
	topology.Servers = 2
	b := build(t, topology)
	c := b.config
	c.Set("chains.only-a.pools", []string{"pool-a"}).Set("chains.only-b.pools", []string{"pool-b"})
	web := c["server_pools"].(map[string]any)["web"].(map[string]any)
	members := []string{fmt.Sprintf("%s:%d", b.Servers[0].Addr4, lab.TLSPort), fmt.Sprintf("%s:%d", b.Servers[1].Addr4, lab.TLSPort)}
	c.Set("server_pools.web.members", members[:1])
	c.Set("server_pools.second", map[string]any{"members": members[1:], "tls": web["tls"]})
	c.Set("server_pools.dead", map[string]any{"members": []string{fmt.Sprintf("%s:1", b.Servers[1].Addr4)}, "tls": web["tls"]})
	c.Set("monitors.tcp", map[string]any{"type": "tcp", "interval": "200ms", "timeout": "1s", "fall": 2})
	c.Set("virtual_servers.shop.timeouts.drop", "1500ms")
	c.Set("virtual_servers.shop.rules", []any{
		rule("by-name", "sni", []string{name("a"), "*." + name("a")}, "chain", "only-a"),
		rule("by-source", "source", []string{"198.51.100.0/24", "fd00:c::/64"}, "chain", "only-b"),
		rule("by-alpn", "alpn", "h2", "chain", "none"),
		rule("pool-only", "sni", name("second"), "server_pool", "second"),
		rule("pool-and-chain", "sni", name("both"), "server_pool", "second", "chain", "only-b"),
		rule("rejected", "sni", name("reject"), "action", "reject"),
		rule("dropped", "sni", name("drop"), "action", "drop"),
		rule("bank", "sni", name("bank"), "action", "bypass"),
		rule("bank-seen", "sni", name("seen"), "action", "bypass", "chain", "inspect", "server_pool", "second"),
		rule("dead", "sni", name("next"), "server_pool", "dead", "on_failure", "next-rule"),
		rule("after-dead", "sni", name("next"), "server_pool", "second"),
		rule("dead-silent", "sni", name("silent"), "server_pool", "dead", "on_failure", "drop"),
		rule("dead-end", "sni", name("dead"), "server_pool", "dead"),
		map[string]any{"name": "old-or-listed", "match": "any", "chain": "only-b",
			"when": map[string]any{"sni": name("listed"), "tls_version": []string{"1.2"}}},
		map[string]any{"name": "both-hold", "match": "all", "chain": "only-a",
			"when": map[string]any{"sni": name("all"), "source": b.Client().Addr4.String()}},
	})
	b.start()
	for _, d := range b.DeviceNames() {
		b.awaitDevice(d, "up")
	}
	b.eventually(15*time.Second, func() error { return b.memberIs("dead", "down") })
	return b
}

func (b *bed) memberIs(pool, state string) error {
	for _, p := range get[[]api.ServerPool](b, "/v1/servers") {
		if p.Name == pool && p.Members[0].State == state {
			return nil
		}
	}
	return fmt.Errorf("pool %s has no member that is %s", pool, state)
}

// Rules name the chain, the server pool or both, by what is known when the ClientHello is there.
func TestRules(t *testing.T) {
	b := ruled(t)
	for _, tt := range []struct {
		name        string
		o           lab.ClientOptions
		way, server string
	}{
		{"no rule fits", lab.ClientOptions{}, "a b", "server1"},
		{"name", lab.ClientOptions{SNI: name("a")}, "a", "server1"},
		{"name in capitals", lab.ClientOptions{SNI: strings.ToUpper(name("a"))}, "a", "server1"},
		{"source", lab.ClientOptions{Source: netip.AddrPortFrom(lab.Roam4, 0)}, "b", "server1"},
		{"source, IPv6", lab.ClientOptions{Source: netip.AddrPortFrom(lab.Roam6, 0), IPv6: true}, "b", "server1"},
		{"the first that fits decides", lab.ClientOptions{Source: netip.AddrPortFrom(lab.Roam4, 0), SNI: name("a")}, "a", "server1"},
		{"ALPN", lab.ClientOptions{TLS: &tls.Config{NextProtos: []string{"h2", "http/1.1"}}}, "", "server1"},
		{"ALPN of another kind", lab.ClientOptions{TLS: &tls.Config{NextProtos: []string{"http/1.1"}}}, "a b", "server1"},
		{"server pool", lab.ClientOptions{SNI: name("second")}, "a b", "server2"},
		{"server pool and chain", lab.ClientOptions{SNI: name("both")}, "b", "server2"},
		{"next rule on failure", lab.ClientOptions{SNI: name("next")}, "a b", "server2"},
		{"any: the name", lab.ClientOptions{SNI: name("listed")}, "b", "server1"},
		{"any: the version", lab.ClientOptions{TLS: &tls.Config{MaxVersion: tls.VersionTLS12}}, "b", "server1"},
		{"all", lab.ClientOptions{SNI: name("all")}, "a", "server1"},
		{"all: not both", lab.ClientOptions{SNI: name("all"), IPv6: true}, "a b", "server1"},
	} {
		b.sub(tt.name, func(b *bed) { b.checkRoute(tt.o, tt.way, tt.server) })
	}
	b.sub("reject", func(b *bed) { b.refusedByRule("reject", "policy-reject", unix.ECONNRESET) })
	b.sub("drop", func(b *bed) { b.refusedByRule("drop", "policy-drop", os.ErrDeadlineExceeded) })
	b.sub("no server", func(b *bed) { b.refusedByRule("dead", "no-server", unix.ECONNRESET) })
	b.sub("no server, in silence", func(b *bed) { b.refusedByRule("silent", "no-server", os.ErrDeadlineExceeded) })
	b.sub("bypass", (*bed).relayed)
	b.sub("bypass through the chain", (*bed).relayedThroughTheChain)
}

func (b *bed) checkRoute(o lab.ClientOptions, way, server string) {
	c := b.dial(b.Client(), o)
	body, err := b.request(c, "/")
	b.must(err)
	if !strings.HasPrefix(body, "hello from "+server+" ") {
		b.t.Errorf("answer %q, want it of %s", body, server)
	}
	if got := b.way(c); got != way {
		b.t.Errorf("way %q, want %q", got, way)
	}
	c.Close()
}

// refusedByRule is a connection that a rule ends before the handshake, in the way that want says.
func (b *bed) refusedByRule(sub, reason string, want error) {
	before := b.counter("ended/" + reason)
	tcp, err := b.DialTCP(b.context(5*time.Second), b.Client(), lab.ClientOptions{})
	b.must(err)
	defer tcp.Close()
	c := tls.Client(tcp, b.TLSConfig(lab.ClientOptions{SNI: name(sub)}))
	tcp.SetDeadline(time.Now().Add(time.Second))
	start := time.Now()
	if err := c.Handshake(); !errors.Is(err, want) || want == unix.ECONNRESET && time.Since(start) > 500*time.Millisecond {
		b.t.Errorf("ended after %s with %v, want %v", time.Since(start), err, want)
	}
	b.awaitCounter("ended/"+reason, before+1)
	b.awaitLog("connection ended", reason, name(sub), "rule=")
	if legs := b.tree(local(tcp)); len(legs) != 0 {
		b.t.Errorf("sessions of a connection that was refused: %+v", legs)
	}
}

// dialBypassed gets the server's own certificate, not the box's.
func (b *bed) dialBypassed(sub string) *tls.Conn {
	b.t.Helper()
	c := b.dial(b.Client(), lab.ClientOptions{SNI: name(sub)})
	if leaf := c.ConnectionState().PeerCertificates[0]; leaf.Subject.CommonName != lab.OriginName || !b.same(leaf, "origin.pem") {
		b.t.Errorf("certificate of %q: TLS was not bypassed", leaf.Subject.CommonName)
	}
	return c
}

// same says whether a certificate is the one of a file.
func (b *bed) same(leaf *x509.Certificate, file string) bool {
	b.t.Helper()
	pair, err := tls.LoadX509KeyPair(b.Path(file), b.Path(strings.TrimSuffix(file, ".pem")+".key"))
	b.must(err)
	return slices.Equal(pair.Certificate[0], leaf.Raw)
}

func (b *bed) relayed() {
	before := b.skipped(api.LedgerEntry{Reason: "policy", Source: "proxy"})
	c := b.dialBypassed("bank")
	body, err := b.request(c, "/")
	if err != nil || !strings.HasPrefix(body, "hello from server1 ") || !strings.Contains(body, fmt.Sprintf("sni=%q", name("bank"))) {
		b.t.Errorf("answer %q %v", body, err)
	}
	if legs := b.tree(local(c)); len(legs) != 0 {
		b.t.Errorf("it went through the chain: %+v", legs)
	}
	if n := b.skipped(api.LedgerEntry{Reason: "policy", Source: "proxy"}); n != before+1 {
		b.t.Errorf("not counted as uninspected: %+v", b.ledger())
	}
}

func (b *bed) relayedThroughTheChain() {
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	seen := map[string]*sighting{"a": b.watch(ctx, "a"), "b": b.watch(ctx, "b")}
	c := b.dialBypassed("seen")
	body, err := b.request(c, "/secret")
	if err != nil || !strings.HasPrefix(body, "hello from server2 ") {
		b.t.Errorf("answer %q %v", body, err)
	}
	if way := b.way(c); way != "a b" {
		b.t.Errorf("way %q", way)
	}
	vip := netip.AddrPortFrom(lab.VIP4, lab.TLSPort) // ciphertext keeps its port
	for device, s := range seen {
		b.eventually(3*time.Second, func() error { return s.ciphertext(local(c), vip) })
		for _, p := range s.packets() {
			if strings.Contains(string(p.payload), "secret") || p.src == local(c) && p.dst != vip {
				b.t.Errorf("device %s saw %s: %q", device, p, p.payload)
			}
		}
	}
}

// ciphertext looks for records of TLS in both directions.
func (s *sighting) ciphertext(client, server netip.AddrPort) error {
	for _, from := range []netip.AddrPort{client, server} {
		if !slices.ContainsFunc(s.from(from), packet.isTLS) {
			return fmt.Errorf("no TLS from %s", from)
		}
	}
	return nil
}
