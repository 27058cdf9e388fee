package app

import (
	"crypto/tls"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sslo/chain"
	"sslo/config"
	"sslo/datapath"
	"sslo/monitor/probe"
	"sslo/policy"
	"sslo/proxy"
	"sslo/proxy/pool"
	"sslo/test/lab/pki"
)

const sample = `
links:
  ext: {nic: eth0, gateway: 192.0.2.1}
  dmz: {nic: eth6}
  int: {nic: eth1}
  a1: {nic: eth2}
  a2: {nic: eth3}
  b1: {nic: eth4}
  b2: {nic: eth5}
devices:
  ips1: {in: a1, out: a2, monitor: [fast], offload: off}
  waf1: {in: b1, out: b2, monitor: [mgmt]}
device_pools:
  ips: {devices: [{device: ips1, weight: 3}], method: weighted, on_down: reset}
  waf: {devices: [waf1], return: never}
chains:
  inspect: {pools: [ips, waf]}
monitors:
  fast: {type: path, interval: 200ms, timeout: 150ms}
  mgmt: {type: tcp, address: "10.9.9.9:22"}
certificates:
  www: {cert: www.pem, key: www.key}
server_pools:
  web: {members: ["10.0.0.1:443", "10.0.0.2:443"], tls: {ca: ca.pem, server_name: origin.test, sni: configured}}
  plain: {members: ["10.0.0.9:80"], monitor: [], tls: {enabled: off}}
virtual_servers:
  shop:
    links: [ext, dmz]
    listen: ["192.0.2.10:443", "192.0.2.10:8443"]
    announce: off
    certificates: [www]
    chain: inspect
    server_pool: web
    limits: {connections: 7, connections_per_client: 3}
    timeouts: {client_hello: 1s, handshake: 2s, idle: 3s, connect: 4s, drop: 5s}
    rules: [{name: bank, when: {sni: bank.test, tls_version: 1.2}, action: bypass, chain: none}]
  pop: {type: tls, links: [ext], listen: ["192.0.2.10:995", "0.0.0.0:996"], plaintext_port: 110, certificates: [www], server_pool: plain}
`

type host struct{}

func (host) NIC(string) (config.NIC, bool) { return config.NIC{MTU: 1500}, true }

// parse reads a configuration whose files are made for the occasion.
func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	authority, err := pki.New("test")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := authority.Issue(pki.KeyType(0), "origin.test")
	if err != nil {
		t.Fatal(err)
	}
	if err := leaf.Write(dir, "www"); err != nil {
		t.Fatal(err)
	}
	certPEM, err := os.ReadFile(filepath.Join(dir, "www.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), certPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Loader{Host: host{}}.Parse(filepath.Join(dir, "sslo.yml"), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPlan(t *testing.T) {
	p := plan(parse(t, sample))
	vip := netip.MustParsePrefix("192.0.2.10/32")
	if want := []datapath.Address{{Link: "ext", Prefix: vip, Announce: true}, {Link: "dmz", Prefix: vip}}; !slices.Equal(p.Addresses, want) {
		t.Errorf("addresses %v, want %v", p.Addresses, want)
	}
	links := map[string]datapath.Link{}
	for _, l := range p.Links {
		links[l.Name] = l
	}
	for name, want := range map[string]datapath.Link{
		"ext": {Name: "ext", NIC: "eth0", Role: datapath.RoleClient, Gateway: netip.MustParseAddr("192.0.2.1")},
		"int": {Name: "int", NIC: "eth1", Role: datapath.RoleServer},
		"a1":  {Name: "a1", NIC: "eth2", Role: datapath.RoleDevice},
	} {
		if !reflect.DeepEqual(links[name], want) {
			t.Errorf("link %+v, want %+v", links[name], want)
		}
	}
	wantPool := chain.Pool{Name: "ips", Devices: []chain.PoolMember{{Device: "ips1", Weight: 3}}, Method: chain.Weighted,
		OnDown: chain.Reset, MinActive: 1}
	if !reflect.DeepEqual(p.Pools[0], wantPool) {
		t.Errorf("pool %+v, want %+v", p.Pools[0], wantPool)
	}
	if want := (chain.Device{Name: "ips1", In: "a1", Out: "a2"}); p.Devices[0] != want {
		t.Errorf("device %+v, want %+v", p.Devices[0], want)
	}
	if !reflect.DeepEqual(p.Chains, []chain.Chain{{Name: "inspect", Pools: []string{"ips", "waf"}}}) {
		t.Errorf("chains %v", p.Chains)
	}
	if p.Timeouts.Established != time.Hour || p.MaxSessions != 262144 || p.ChainShift != 16 || p.TripAfter != time.Second {
		t.Errorf("system %+v", p)
	}
}

func TestProxyConfig(t *testing.T) {
	c := proxyConfig(parse(t, sample))
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	shop, pop := c.VirtualServers[0], c.VirtualServers[1]
	if want := []proxy.Link{{Name: "ext", NIC: "eth0"}, {Name: "dmz", NIC: "eth6"}}; !slices.Equal(shop.Links, want) {
		t.Errorf("links %v, want %v", shop.Links, want)
	}
	if shop.Type != proxy.HTTPS || pop.Type != proxy.TLS || pop.PlaintextPort != 110 || shop.Chain != "inspect" || shop.ServerPool != "web" {
		t.Errorf("virtual servers %+v, %+v", shop, pop)
	}
	times := proxy.Timeouts{ClientHello: time.Second, Handshake: 2 * time.Second, Idle: 3 * time.Second, Connect: 4 * time.Second, Drop: 5 * time.Second}
	if shop.Timeouts != times || shop.Limits != (proxy.Limits{Connections: 7, ConnectionsPerClient: 3}) {
		t.Errorf("timeouts %+v, limits %+v", shop.Timeouts, shop.Limits)
	}
	if shop.Certificates[0].Name != "www" || len(shop.Certificates[0].Certificate.Certificate) == 0 {
		t.Errorf("certificates %v", shop.Certificates)
	}
	if shop.TLS.MinVersion != tls.VersionTLS12 || shop.TLS.MaxVersion != tls.VersionTLS13 || !slices.Equal(shop.TLS.ALPN, []string{"http/1.1"}) {
		t.Errorf("TLS %+v", shop.TLS)
	}
	want := policy.Rule{Name: "bank", Action: policy.Bypass, Chain: policy.NoChain,
		When: policy.Conditions{SNI: []string{"bank.test"}, TLSVersion: []uint16{tls.VersionTLS12}}}
	if !reflect.DeepEqual(shop.Rules, []policy.Rule{want}) {
		t.Errorf("rules %+v, want %+v", shop.Rules, want)
	}
	web, plain := c.ServerPools[0], c.ServerPools[1]
	if plain.TLS != nil || web.TLS.CA == nil || web.TLS.SkipVerify || web.TLS.ServerName != "origin.test" || web.TLS.SNI != pool.SNIConfigured {
		t.Errorf("server pools %+v, %+v", web, plain)
	}
	if c.BufferMemory != 256<<20 {
		t.Errorf("buffer memory %d", c.BufferMemory)
	}
}

func TestTargets(t *testing.T) {
	c := parse(t, sample)
	devices := deviceTargets(c)
	if got := devices[0].Monitors[0].Probe; got != (probe.PathSpec{In: "eth2", Out: "eth3"}) {
		t.Errorf("probe of ips1 %v", got)
	}
	if got := devices[1].Monitors[0].Probe; got != (probe.TCPSpec{Address: netip.MustParseAddrPort("10.9.9.9:22")}) {
		t.Errorf("probe of waf1 %v", got)
	}
	if devices[0].ReturnNever || !devices[1].ReturnNever || !slices.Equal(devices[0].Links, []string{"a1", "a2"}) {
		t.Errorf("devices %+v", devices)
	}
	if m := devices[0].Monitors[0].Config; m.Interval != 200*time.Millisecond || m.Fall != 3 || m.HoldDown != 10*time.Second || m.Verify == 0 {
		t.Errorf("timing %+v", m)
	}
	servers := serverTargets(c)
	if len(servers) != 2 || servers[1].Name != "web/10.0.0.2:443" {
		t.Fatalf("servers %+v: only monitored pools have targets", servers)
	}
	if got := servers[1].Monitors[0].Probe; got != (probe.TCPSpec{Address: netip.MustParseAddrPort("10.0.0.2:443")}) {
		t.Errorf("probe of a server %v", got)
	}
}

func TestDifference(t *testing.T) {
	old := parse(t, sample)
	if d := difference(old, old); len(d) != 0 {
		t.Errorf("a configuration differs from itself: %v", d)
	}
	text := strings.NewReplacer("chains:\n", "chains:\n  light: {pools: [waf]}\n", "weight: 3", "weight: 4",
		`"0.0.0.0:996"`, `"0.0.0.0:997"`, "  dmz: {nic: eth6}\n", "", "[ext, dmz]", "[ext]").Replace(sample)
	next := parse(t, text)
	d := difference(old, next)
	want := []string{"link dmz: removed", "device pool ips: changed", "chain light: added", "certificate www: changed",
		"server pool web: changed", "virtual server shop: changed", "virtual server pop: changed"}
	if !slices.Equal(d, want) {
		t.Errorf("difference\n%q\nwant\n%q", d, want)
	}
	next.System.PinPath = "/elsewhere"
	if err := unchangeable(old, next); err == nil || !strings.Contains(err.Error(), "system.pin_path") {
		t.Errorf("a reload may not move the pins: %v", err)
	}
}

func TestLingering(t *testing.T) {
	at := func(link, prefix string) datapath.Address {
		return datapath.Address{Link: link, Prefix: netip.MustParsePrefix(prefix)}
	}
	next := datapath.Plan{Links: []datapath.Link{{Name: "ext"}}, Addresses: []datapath.Address{at("ext", "192.0.2.1/32")}}
	before := []datapath.Address{at("ext", "192.0.2.1/32"), at("ext", "192.0.2.2/32"), at("dmz", "192.0.2.2/32"), at("ext", "192.0.2.2/32")}
	if got := lingering(before, next); !slices.Equal(got, []datapath.Address{at("ext", "192.0.2.2/32")}) {
		t.Errorf("lingering %v: what is in the plan, or on a link that is gone, does not", got)
	}
}
