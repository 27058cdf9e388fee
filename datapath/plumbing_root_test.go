package datapath

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"sslo/chain"
)

func TestTeardownLeavesTheHostAsBefore(t *testing.T) {
	b := newBox(t, "a", "b")
	b.run("ip addr add 2001:db8:9::1/64 dev a1 nodad; echo 2 > /proc/sys/net/ipv4/conf/all/rp_filter; sleep 0.2")
	before := b.snapshot()
	p := plan("a", "b")
	p.Devices[1].Offload = false
	p.Links[0].Gateway = netip.MustParseAddr("192.0.2.254")
	p.Links[0].Gateway6 = netip.MustParseAddr("2001:db8:1::fe")
	d := b.open()
	b.apply(d, p)
	if during := b.snapshot(); during == before {
		t.Fatal("Apply changed nothing")
	}
	must(t, d.Teardown())
	b.settle() // IPv6 link-local addresses come back
	b.same("after teardown", before, b.snapshot())
}

func TestApplyTwiceIsNoChange(t *testing.T) {
	b := newBox(t, "a")
	d := b.open()
	b.apply(d, plan("a"))
	b.settle()
	once := b.snapshot()
	b.apply(d, plan("a"))
	b.same("second apply", once, b.snapshot())
	must(t, d.Teardown())
}

// A changed plan and the same plan from the start must end alike.
func TestApplyOfAChangedPlan(t *testing.T) {
	b := newBox(t, "a", "b")
	small := plan("a")
	small.Addresses = small.Addresses[:1]
	d := b.open()
	before := b.snapshot()
	b.apply(d, small)
	b.settle()
	want := b.snapshot()
	b.apply(d, plan("a", "b"))
	b.apply(d, small)
	b.settle()
	b.same("back to the small plan", want, b.snapshot())
	must(t, d.Teardown())
	b.settle()
	b.same("after teardown", strings.ReplaceAll(before, "state directory left\n", ""), b.snapshot())
}

// What kill -9 leaves is adopted, and can be torn down without a plan.
func TestAdoptionAfterACrash(t *testing.T) {
	b := newBox(t, "a")
	before := b.snapshot()
	d := b.open()
	b.apply(d, plan("a"))
	up(t, d, "a")
	b.settle()
	during := b.snapshot()
	must(t, d.Close()) // all that the kernel sees of a killed process

	d = b.open()
	if st, ok := d.DeviceStatus("a"); !ok || st.Service != chain.Full {
		t.Errorf("adopted device status = %v, %v", st, ok)
	}
	b.apply(d, plan("a"))
	b.same("adopted", during, b.snapshot())
	if st, _ := d.DeviceStatus("a"); st.Service != chain.Full {
		t.Errorf("device status after Apply = %v", st)
	}
	must(t, d.Close())

	d = b.open()
	must(t, d.Teardown())
	b.settle()
	b.same("torn down without a plan", before, b.snapshot())
}

func TestOneProcessOnly(t *testing.T) {
	b := newBox(t)
	b.open()
	if _, err := Open(b.opt); !errors.Is(err, ErrBusy) {
		t.Errorf("second Open: %v", err)
	}
}

func TestClashes(t *testing.T) {
	for name, tc := range map[string]struct{ setup, want string }{
		"priority":  {"ip rule add priority 501 from all lookup main", "rule priority 501"},
		"table":     {"ip rule add priority 7 from all lookup 301", "routing table 301"},
		"route":     {"ip route add 203.0.113.0/24 dev ext table 302", "routing table 302"},
		"mark":      {"ip -6 rule add priority 7 fwmark 0x100 lookup main", "mark bits"},
		"interface": {"ip link add front0 type veth peer name x", "interface front0"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, "a")
			b.run(tc.setup)
			before := b.snapshot()
			d := b.open()
			err := d.Apply(t.Context(), plan("a"))
			if !errors.Is(err, ErrClash) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Apply: %v, want a clash naming %q", err, tc.want)
			}
			must(t, d.Teardown())
			b.same("after teardown", before, b.snapshot())
		})
	}
}

func TestUnequalMTUIsRefused(t *testing.T) {
	b := newBox(t, "a")
	b.run("ip link set a2 mtu 1400")
	err := b.open().Apply(t.Context(), plan("a"))
	if !errors.Is(err, ErrMTU) || !strings.Contains(err.Error(), "1400") {
		t.Errorf("Apply: %v", err)
	}
}

func TestRulesAndRoutes(t *testing.T) {
	b := newBox(t, "a")
	b.run("ip link set a1 mtu 1400; ip link set a2 mtu 1400")
	d := b.open()
	p := plan("a")
	p.Links[0].Gateway = netip.MustParseAddr("192.0.2.254")
	b.apply(d, p)
	for cmd, want := range map[string]string{
		"ip route get 203.0.113.9 iif front0 from 203.0.113.1":    "local 203.0.113.9",
		"ip -6 route get 2001:db8:ff::9 oif front0":               "dev front0",
		"ip route get 203.0.113.9 oif front0":                     "dev front0",
		"ip route get 203.0.113.9 oif ext":                        "via 192.0.2.254",
		"ip route get 192.0.2.77 oif ext":                         "192.0.2.77 dev ext",
		"ip route show table 301":                                 "mtu 1400 rto_min lock 20ms",
		"ip -6 route show table 303":                              "mtu 1400 rto_min lock 20ms",
		"ip -d link show front0":                                  "addrgenmode none",
		"cat /proc/sys/net/ipv4/conf/back0/accept_local":          "1",
		"ip -o addr show ext":                                     "198.51.100.7/32",
		"ip route show table 304":                                 "local 198.51.100.7",
		"ip -6 -o addr show front0 | wc -l":                       "0",
		"ip -o link show a1":                                      "NOARP",
		"cat /proc/sys/net/ipv6/conf/a2/disable_ipv6":             "1",
		"ip -6 route get 2001:db8:ff::9 iif front0 from fd00::1 ": "local 2001:db8:ff::9",
	} {
		if got := b.run(cmd); !strings.Contains(got, want) {
			t.Errorf("%s: %q does not contain %q", cmd, got, want)
		}
	}
	must(t, d.Teardown())
}
