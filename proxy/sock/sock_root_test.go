package sock

import (
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sslo/internal/testutil"
)

// netns puts the test into its own network namespace with a looped link: what leaves by in0 comes in on out0.
func netns(t *testing.T) {
	t.Helper()
	testutil.RequireRoot(t)
	runtime.LockOSThread() // the thread dies with the goroutine, and the namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []string{
		"ip link set lo up",
		"ip link add in0 type veth peer name out0",
		"ip link set in0 arp off up", "ip link set out0 arp off up",
		"sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.in0.rp_filter=0 net.ipv4.conf.out0.rp_filter=0",
		"sysctl -qw net.ipv4.conf.in0.accept_local=1 net.ipv4.conf.out0.accept_local=1",
		"ip rule add iif in0 lookup 100", "ip route add local default dev lo table 100",
		"ip rule add iif out0 lookup 100", "ip rule add oif in0 lookup 101", "ip rule add oif out0 lookup 102",
		"ip route add default dev in0 table 101", "ip route add default dev out0 table 102",
		"ip -6 rule add iif in0 lookup 100", "ip -6 route add local default dev lo table 100",
		"ip -6 rule add iif out0 lookup 100", "ip -6 rule add oif in0 lookup 101", "ip -6 rule add oif out0 lookup 102",
		"ip -6 route add default dev in0 table 101", "ip -6 route add default dev out0 table 102",
	} {
		if out, err := exec.Command("sh", "-c", cmd).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", cmd, err, out)
		}
	}
	in0, err := net.InterfaceByName("in0")
	if err != nil {
		t.Fatal(err)
	}
	// without ARP both ends must accept what the other sends
	if out, err := exec.Command("ip", "link", "set", "out0", "address", in0.HardwareAddr.String()).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// A client's own address is the source of the inner connection, over IPv4 and IPv6, and the same port
// can be used again at once although our end of the first connection is in TIME_WAIT.
func TestTransparentDialAndReuse(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		netns(t)
		for _, c := range [][2]string{{"203.0.113.9:40000", "198.51.100.1:80"}, {"[2001:db8:9::9]:40000", "[2001:db8:1::1]:80"}} {
			local, remote := netip.MustParseAddrPort(c[0]), netip.MustParseAddrPort(c[1])
			l, err := Listen(remote, Options{Device: "out0", Transparent: true})
			if err != nil {
				t.Error(err)
				return
			}
			for round := range 4 {
				transparentRound(t, l, local, remote, round)
			}
			l.Close()
		}
	}()
	<-done
}

func transparentRound(t *testing.T, l *net.TCPListener, local, remote netip.AddrPort, round int) {
	out, err := Dial(local, remote, 2*time.Second, Options{Device: "in0", Transparent: true, Mark: 7 << 16})
	if err != nil {
		t.Errorf("round %d: %v", round, err)
		return
	}
	defer out.Close()
	in, err := l.AcceptTCP()
	if err != nil {
		t.Error(err)
		return
	}
	defer in.Close()
	if got := in.RemoteAddr().(*net.TCPAddr).AddrPort(); got != local {
		t.Errorf("source %s, want %s", got, local)
	}
	checkOptions(t, out, "in0", 7<<16)
	checkOptions(t, in, "out0", 0)
	out.CloseWrite() // the active closer, so TIME_WAIT is ours
	in.Read(make([]byte, 1))
	in.CloseWrite()
	out.Read(make([]byte, 1))
}

func checkOptions(t *testing.T, c *net.TCPConn, device string, mark int) {
	rc, _ := c.SyscallConn()
	rc.Control(func(fd uintptr) {
		if d, _ := unix.GetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE); d != device {
			t.Errorf("bound to %q", d)
		}
		if m, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK); m != mark {
			t.Errorf("mark %#x", m)
		}
		if cc, _ := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION); cc != Congestion {
			t.Errorf("congestion control %q", cc)
		}
	})
}

// An orphan that still waits for the answer to its FIN does not keep a client from its port.
func TestDialOverOrphan(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		netns(t)
		local, remote := netip.MustParseAddrPort("203.0.113.9:40001"), netip.MustParseAddrPort("198.51.100.1:80")
		l, err := Listen(remote, Options{Device: "out0", Transparent: true})
		if err != nil {
			t.Error(err)
			return
		}
		defer l.Close()
		out, err := Dial(local, remote, 2*time.Second, Options{Device: "in0", Transparent: true})
		if err != nil {
			t.Error(err)
			return
		}
		link := func(state string) {
			if b, err := exec.Command("ip", "link", "set", "out0", state).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, b)
			}
		}
		link("down")
		out.Close()
		link("up")
		if b, err := exec.Command("ip", "route", "add", "default", "dev", "out0", "table", "102").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, b)
		}
		again, err := Dial(local, remote, 8*time.Second, Options{Device: "in0", Transparent: true})
		if err != nil {
			t.Error(err)
			return
		}
		again.Close()
	}()
	<-done
}
