package config

import (
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sslo/internal/testutil"
)

// The MTUs are those of the interfaces that are really there.
func TestUnequalMTUOfRealInterfaces(t *testing.T) {
	testutil.RequireRoot(t)
	// The thread is not unlocked: it ends with the test, and its namespace with it.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "cfg-in", MTU: 1500}, PeerName: "cfg-out"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	out, err := netlink.LinkByName("cfg-out")
	if err != nil {
		t.Fatal(err)
	}
	const text = "links: {a: {nic: cfg-in}, b: {nic: cfg-out}}\ndevices: {d: {in: a, out: b}}\n"
	for mtu, wrong := range map[int]bool{1500: false, 1400: true} {
		if err := netlink.LinkSetMTU(out, mtu); err != nil {
			t.Fatal(err)
		}
		c, err := Parse("mtu.yml", []byte(text))
		if wrong != (err != nil) {
			t.Fatalf("MTU %d: %v", mtu, err)
		}
		if wrong && !strings.Contains(err.Error(), "mtu.yml:2:11: devices.d: its links have different MTUs: a (cfg-in) 1500, b (cfg-out) 1400") {
			t.Error(err)
		}
		if !wrong && !strings.Contains(c.Warnings.Error(), "offload") {
			t.Errorf("a veth device with offload on: %v", c.Warnings)
		}
	}
}
