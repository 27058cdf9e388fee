package probe

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sslo/internal/testutil"
)

// newServer is a host behind the box's NIC a1 with an IPv4 and an IPv6 address.
func newServer(t *testing.T) *bridgeDevice {
	d := newBridgeDevice(t)
	run(t, "ip addr add 10.9.0.1/24 dev a1")
	run(t, "ip -6 addr add fd09::1/64 dev a1 nodad")
	d.inside("ip link set d2 nomaster") // nothing is reached by a2
	d.inside("ip addr add 10.9.0.2/24 dev br0")
	d.inside("ip -6 addr add fd09::2/64 dev br0 nodad")
	return d
}

// listen opens a listener inside the server.
func (d *bridgeDevice) listen(addr string) netip.AddrPort {
	d.t.Helper()
	var l net.Listener
	if err := d.enter(func() (err error) { l, err = net.Listen("tcp", addr); return err }); err != nil {
		d.t.Fatalf("listen on %s in the server: %v", addr, err)
	}
	d.t.Cleanup(func() { l.Close() })
	return netip.MustParseAddrPort(l.Addr().String())
}

// enter runs f in the server: a socket belongs to the namespace of the thread that made it. The
// thread goes home afterwards: were it to end, so would the children that it started (Pdeathsig).
func (d *bridgeDevice) enter(f func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	there, err := os.Open("/proc/" + d.pid + "/ns/net")
	if err != nil {
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	err = f()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return back // still locked: never used for anything else
	}
	runtime.UnlockOSThread()
	return err
}

func TestICMP(t *testing.T) {
	newServer(t)
	for _, addr := range []string{"10.9.0.2", "fd09::2", "::ffff:10.9.0.2", "127.0.0.1", "::1"} {
		wantReachable(t, ICMPSpec{Address: netip.MustParseAddr(addr)})
	}
	wantReachable(t, ICMPSpec{netip.MustParseAddr("10.9.0.2"), "a1"})
	wantReachable(t, ICMPSpec{netip.MustParseAddr("fd09::2"), "a1"})
	wantFail(t, mustOpen(t, ICMPSpec{netip.MustParseAddr("10.9.0.2"), "a2"}), "")
	wantFail(t, mustOpen(t, ICMPSpec{netip.MustParseAddr("10.9.0.2"), "gone"}), "link NIC gone: no such device")
	wantFail(t, mustOpen(t, ICMPSpec{Address: netip.MustParseAddr("10.9.0.3")}), "no answer in time")
	wantFail(t, mustOpen(t, ICMPSpec{Address: netip.MustParseAddr("fd09::3")}), "no answer in time")
	wantFail(t, mustOpen(t, ICMPSpec{Address: netip.MustParseAddr("192.0.2.1")}), "network is unreachable")
}

// wantReachable allows for a neighbour that is still being resolved.
func wantReachable(t *testing.T, s Spec) {
	t.Helper()
	p := mustOpen(t, s)
	eventually(t, "answer to "+s.String(), func() bool {
		r := probeFor(p, time.Second)
		return r.OK && r.Latency > 0
	})
}

// Datagram ICMP, for a daemon without CAP_NET_RAW, is another packet format: no IP header.
func TestICMPDatagram(t *testing.T) {
	newServer(t)
	if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 0"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"10.9.0.2", "fd09::2"} {
		wantReachable(t, ICMPSpec{Address: netip.MustParseAddr(addr)})
		s, err := openEcho(netip.MustParseAddr(addr), false)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.connect("", netip.MustParseAddr(addr)); err != nil {
			t.Fatal(err)
		}
		if err := s.exchange(42); err != nil {
			t.Error(addr, err)
		}
	}
}

func TestTCP(t *testing.T) {
	d := newServer(t)
	for _, addr := range []string{"10.9.0.2:80", "[fd09::2]:80"} {
		at := d.listen(addr)
		wantReachable(t, TCPSpec{at, ""})
		wantReachable(t, TCPSpec{at, "a1"})
		wantFail(t, mustOpen(t, TCPSpec{at, "a2"}), "")
		wantFail(t, mustOpen(t, TCPSpec{netip.AddrPortFrom(at.Addr(), 81), ""}), "connection refused")
	}
	wantFail(t, mustOpen(t, TCPSpec{netip.MustParseAddrPort("10.9.0.3:80"), ""}), "no answer in time")
	wantFail(t, mustOpen(t, TCPSpec{netip.MustParseAddrPort("10.9.0.2:80"), "gone"}), "link NIC gone: no such device")
}

func mustOpen(t *testing.T, s Spec) Prober {
	t.Helper()
	testutil.RequireRoot(t)
	p, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}
