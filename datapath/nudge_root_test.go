package datapath

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sslo/chain"
	"sslo/session"
)

// The bytes that a dead device has swallowed are sent again when it goes out of service, and not when the
// timer, doubled again and again by then, would do it. An idle connection and a SYN are left alone.
func TestSendersRetransmitAtOnce(t *testing.T) {
	bothFamilies(t, func(t *testing.T, from, to netip.AddrPort) {
		b, d, e := ready(t, "a")
		runDatapath(t, d)
		front, back := e.connect(from, to)
		exchange(t, front, back, 1000)
		idle, _ := e.connect(netip.AddrPortFrom(from.Addr(), from.Port()+1), to)
		b.run("ip link set abr down")
		for _, c := range []net.Conn{front, back} {
			_, err := c.Write([]byte("swallowed"))
			must(t, err)
		}
		dialled := make(chan error, 1)
		go func() {
			dialled <- d.host.ns.do(func() error {
				c, err := e.dial(netip.AddrPortFrom(from.Addr(), from.Port()+2), to)
				if err == nil {
					c.Close()
				}
				return err
			})
		}()
		for _, c := range []net.Conn{front, back} {
			awaitBackoff(t, c, 5)
		}
		began := time.Now()
		must(t, d.SetDevice("a", chain.DeviceStatus{Service: chain.Out, Reason: session.DeviceDown}))
		for _, c := range []net.Conn{back, front} {
			_ = c.SetReadDeadline(began.Add(5 * time.Second))
			if _, err := io.ReadFull(c, make([]byte, len("swallowed"))); err != nil {
				t.Fatal(err)
			}
		}
		// 20 ms doubled five times are 640, and both timers had just been set.
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("retransmitted %v after the device went out of service", took)
		}
		if err := <-dialled; err != nil {
			t.Errorf("a connection that was being made: %v", err)
		}
		if i := tcpInfo(t, idle); i.Retransmits != 0 || i.Unacked != 0 {
			t.Errorf("an idle connection: %+v", i)
		}
	})
}

// awaitBackoff returns as soon as the retransmission timer was doubled n times.
func awaitBackoff(t *testing.T, c net.Conn, n uint8) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); tcpInfo(t, c).Backoff < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %d retransmissions: %+v", n, tcpInfo(t, c))
		}
	}
}

func tcpInfo(t *testing.T, c net.Conn) *unix.TCPInfo {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	must(t, err)
	var info *unix.TCPInfo
	cerr := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	must(t, cerr)
	must(t, err)
	return info
}

// TCP heeds the lower limit of the retransmission timer of our routes on both ends.
func TestRetransmissionTimersAreShort(t *testing.T) {
	bothFamilies(t, func(t *testing.T, from, to netip.AddrPort) {
		_, _, e := ready(t, "a")
		front, back := e.connect(from, to)
		exchange(t, front, back, 100_000)
		exchange(t, back, front, 100_000)
		for name, c := range map[string]net.Conn{"front": front, "back": back} {
			info := tcpInfo(t, c)
			rto, rtt := time.Duration(info.Rto)*time.Microsecond, time.Duration(info.Rtt+4*info.Rttvar)*time.Microsecond
			if rto < rtoMin*time.Millisecond || rto > 100*time.Millisecond+rtt {
				t.Errorf("%s: the timer is %v, the round trip up to %v", name, rto, rtt)
			}
		}
	})
}
