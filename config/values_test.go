package config

import (
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sslo/chain"
	"sslo/monitor"
	"sslo/policy"
	"sslo/session"
)

func loadFull(t *testing.T) *Config {
	t.Helper()
	c, err := testLoader(t).Load("testdata/full.good.yml")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLinksAndDevices(t *testing.T) {
	c := loadFull(t)
	roles := map[string]Role{}
	for _, l := range c.Links {
		roles[l.Name] = l.Role
	}
	want := map[string]Role{"ext": RoleClient, "dmz": RoleClient, "int": RoleServer, "a1": RoleDevice, "a2": RoleDevice,
		"b1": RoleDevice, "b2": RoleDevice, "c1": RoleDevice, "c2": RoleDevice}
	if diff := cmp.Diff(want, roles); diff != "" {
		t.Error(diff)
	}
	var devices []chain.Device
	for _, d := range c.Devices {
		devices = append(devices, d.Domain())
	}
	if diff := cmp.Diff([]chain.Device{
		{Name: "ips1", In: "a1", Out: "a2", Offload: true},
		{Name: "ips2", In: "b1", Out: "b2"}, // by merge key, with its own links
		{Name: "waf1", In: "c1", Out: "c2", Offload: true},
	}, devices, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
	if l := c.Link("ext"); l.Gateway != netip.MustParseAddr("192.0.2.1") || l.Gateway6 != netip.MustParseAddr("2001:db8::1") {
		t.Errorf("gateways: %v, %v", l.Gateway, l.Gateway6)
	}
}

func TestPoolsAndChains(t *testing.T) {
	c := loadFull(t)
	want := []chain.Pool{
		{Name: "ips", Devices: []chain.PoolMember{{Device: "ips1", Weight: 1}, {Device: "ips2", Weight: 3}},
			Method: chain.Weighted, OnDown: chain.Reset, Established: chain.Reset, MinActive: 2},
		{Name: "waf", Devices: []chain.PoolMember{{Device: "waf1", Weight: 1}}, Return: chain.ReturnImmediate, MinActive: 1},
	}
	if diff := cmp.Diff(want, []chain.Pool{c.DevicePool("ips").Domain(), c.DevicePool("waf").Domain()}); diff != "" {
		t.Error(diff)
	}
	if got := c.Chain("inspect").Domain(); !slices.Equal(got.Pools, []string{"ips", "waf"}) {
		t.Errorf("chain: %+v", got)
	}
}

// What a monitor leaves open depends on what it is used for.
func TestMonitorDefaults(t *testing.T) {
	c := loadFull(t)
	waf, web := c.Device("waf1").Monitors, c.ServerPool("web").Monitors
	if got := waf[0].Timing(); got != monitor.DeviceDefaults {
		t.Errorf("path: %+v, want %+v", got, monitor.DeviceDefaults)
	}
	if got := web[0].Timing(); got != monitor.ServerDefaults {
		t.Errorf("tcp: %+v, want %+v", got, monitor.ServerDefaults)
	}
	if m := waf[1]; m.Interval != 2*time.Second || m.Timeout != 1800*time.Millisecond || m.Target != netip.MustParseAddrPort("10.9.9.9:22") {
		t.Errorf("mgmt: %+v", m)
	}
	if m := web[1]; m.Type != MonitorICMP || m.Interval != 30*time.Second || m.Timeout != 91*time.Second || m.Fall != 3 {
		t.Errorf("slow: %+v", m)
	}
	if got := c.Device("ips2").Monitors[0]; got.Timeout != 150*time.Millisecond || got.Rise != 5 {
		t.Errorf("path-fast: %+v", got)
	}
	if len(c.ServerPool("plain").Monitors) != 0 {
		t.Error("an empty list of monitors is none")
	}
}

func TestVirtualServers(t *testing.T) {
	c := loadFull(t)
	shop, pop := c.VirtualServers[0], c.VirtualServers[1]
	if got := []uint16{shop.PortOf(shop.Listen[0]), pop.PortOf(pop.Listen[0])}; !slices.Equal(got, []uint16{80, 110}) {
		t.Errorf("plaintext ports: %v", got)
	}
	if !slices.Equal(shop.ALPN, []string{"http/1.1"}) || pop.ALPN != nil {
		t.Errorf("ALPN: %q, %q", shop.ALPN, pop.ALPN)
	}
	if got := shop.Addresses(); len(got) != 2 || len(pop.Addresses()) != 0 {
		t.Errorf("addresses: %v, %v", got, pop.Addresses())
	}
	if shop.Timeouts != (Timeouts{5 * time.Second, 10 * time.Second, time.Hour, 5 * time.Second, 30 * time.Second}) {
		t.Errorf("timeouts: %+v", shop.Timeouts)
	}
	var rules []policy.Rule
	for i := range shop.Rules {
		rules = append(rules, shop.Rules[i].Policy())
	}
	want := []policy.Rule{
		{Name: "bank", Action: policy.Bypass, OnFailure: policy.FailNext, When: policy.Conditions{SNI: []string{"*.bank.test", "bank.test"}}},
		{Name: "staff", Match: policy.Any, Chain: policy.NoChain, ServerPool: "plain", When: policy.Conditions{
			Source: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:5::/48")},
			Link:   []string{"dmz"}, Port: []policy.PortRange{{From: 400, To: 500}}, TLSVersion: []uint16{0x0303}}},
		{Name: "rest", Chain: "light", When: policy.Conditions{ALPN: []string{"h2"}, SNI: []string{""},
			Destination: []netip.Prefix{netip.MustParsePrefix("192.0.2.10/32")}, Protocol: []session.Protocol{session.TCP}}},
	}
	if diff := cmp.Diff(want, rules, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Error(diff)
	}
}

func TestFilesAndSystem(t *testing.T) {
	c := loadFull(t)
	if got := c.Certificate("www"); got.Cert != filepath.Join("testdata", "www.pem") || got.TLS.PrivateKey == nil {
		t.Errorf("certificate: %s, key %T", got.Cert, got.TLS.PrivateKey)
	}
	if tls := c.ServerPool("web").TLS; !tls.Enabled || !tls.Verify || tls.Trust == nil || tls.MinVersion != 0x0303 {
		t.Errorf("server TLS: %+v", tls)
	}
	s := c.System
	if s.RoutingTable != 300 || s.RulePriority != 1000 || s.Sessions != 262144 || s.Timeouts.Established != time.Hour ||
		s.Limits.BufferMemory != 3<<29 || s.TripAfter != time.Second {
		t.Errorf("system: %+v", s)
	}
	if c.Log != (Log{Level: -4, Format: LogJSON}) || c.Admin.Socket != "/run/x.sock" {
		t.Errorf("log %+v, admin %+v", c.Log, c.Admin)
	}
}

// The words of every enumeration are read back as the value that they are written for.
func TestEnumsBothWays(t *testing.T) {
	for typ, words := range enums {
		for _, w := range words {
			v := reflect.New(typ).Elem()
			if err := parseScalar(w, v); err != nil || Word(v.Interface()) != w {
				t.Errorf("%v: %q is read as %v and written as %q (%v)", typ, w, v, Word(v.Interface()), err)
			}
		}
	}
	for a := policy.Intercept; a <= policy.Drop; a++ {
		if Word(a) != a.String() {
			t.Errorf("policy says %q, config %q", a, Word(a))
		}
	}
	for m := chain.RoundRobin; m <= chain.ActiveStandby; m++ {
		if slices.Index(enums[reflect.TypeFor[chain.Method]()], Word(m)) != int(m) {
			t.Errorf("method %d is %q", m, Word(m))
		}
	}
	for want, a := range map[string]any{"bypass": chain.Bypass, "reset": chain.Reset, "drop": chain.Drop,
		"new-sessions": chain.ReturnNewSessions, "never": chain.ReturnNever, "immediate": chain.ReturnImmediate,
		"weighted": chain.Weighted, "source-hash": chain.SourceHash, "least-sessions": chain.LeastSessions, "next-rule": policy.FailNext} {
		if Word(a) != want {
			t.Errorf("%q is written as %q", want, Word(a))
		}
	}
}
