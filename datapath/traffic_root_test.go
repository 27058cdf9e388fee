package datapath

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sslo/chain"
	"sslo/session"
)

var (
	client4 = netip.MustParseAddrPort("203.0.113.5:40000")
	server4 = netip.MustParseAddrPort("198.51.100.7:80")
	client6 = netip.MustParseAddrPort("[2001:db8:5::5]:40000")
	server6 = netip.MustParseAddrPort("[2001:db8:2::7]:80")
)

// ends are a stand-in for front and back: real sockets, made as the proxies make them.
type ends struct {
	b        *box
	d        *Datapath
	accepted chan net.Conn
}

func control(nic string, mark uint32) func(string, string, syscall.RawConn) error {
	return func(network, _ string, c syscall.RawConn) error {
		var err error
		_ = c.Control(func(fd uintptr) {
			set := func(level, opt, v int) { err = errors.Join(err, unix.SetsockoptInt(int(fd), level, opt, v)) }
			err = unix.BindToDevice(int(fd), nic)
			set(unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			set(unix.SOL_SOCKET, unix.SO_MARK, int(mark))
			if network == "tcp4" {
				set(unix.SOL_IP, unix.IP_TRANSPARENT, 1)
			} else {
				set(unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1)
			}
		})
		return err
	}
}

// newEnds listens on back; close and reopen by calling it again.
func newEnds(b *box, d *Datapath) *ends {
	b.t.Helper()
	e := &ends{b: b, d: d, accepted: make(chan net.Conn, 64)}
	for network, addr := range map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"} {
		lc := net.ListenConfig{Control: control(backLink, 0)}
		lc.SetMultipathTCP(false)
		l, err := lc.Listen(context.Background(), network, addr)
		must(b.t, err)
		b.t.Cleanup(func() { _ = l.Close() })
		must(b.t, d.RegisterBackListener(l.(*net.TCPListener)))
		go e.accept(l)
	}
	return e
}

func (e *ends) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		e.accepted <- c
	}
}

func (e *ends) dial(from, to netip.AddrPort) (net.Conn, error) {
	mark, ok := e.d.ChainMark("all")
	if !ok {
		e.b.t.Fatal("no mark for the chain")
	}
	network := "tcp4"
	if from.Addr().Is6() {
		network = "tcp6"
	}
	dl := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from), Timeout: 3 * time.Second, Control: control(frontLink, mark)}
	dl.SetMultipathTCP(false)
	return dl.Dial(network, to.String())
}

// connect gives both ends of a connection through the chain.
func (e *ends) connect(from, to netip.AddrPort) (front, back net.Conn) {
	e.b.t.Helper()
	front, err := e.dial(from, to)
	must(e.b.t, err)
	select {
	case back = <-e.accepted:
	case <-time.After(3 * time.Second):
		e.b.t.Fatal("back accepted nothing")
	}
	e.b.t.Cleanup(func() { _ = front.Close(); _ = back.Close() })
	if got := back.RemoteAddr().(*net.TCPAddr).AddrPort(); got != from {
		e.b.t.Errorf("back sees the client as %v, want %v", got, from)
	}
	if got := back.LocalAddr().(*net.TCPAddr).AddrPort(); got != to {
		e.b.t.Errorf("back sees the server as %v, want %v", got, to)
	}
	return front, back
}

func exchange(t *testing.T, from, to net.Conn, n int) {
	t.Helper()
	sent := bytes.Repeat([]byte("plaintext"), n/9+1)
	got := make([]byte, len(sent))
	_ = from.SetDeadline(time.Now().Add(5 * time.Second))
	_ = to.SetDeadline(time.Now().Add(5 * time.Second))
	failed := make(chan error, 1)
	go func() { _, err := from.Write(sent); failed <- err }()
	if _, err := io.ReadFull(to, got); err != nil {
		t.Fatalf("read: %v", err)
	}
	if err := <-failed; err != nil {
		t.Fatalf("write: %v", err)
	}
	if !bytes.Equal(got, sent) {
		t.Fatal("what arrived is not what was sent")
	}
}

func bothFamilies(t *testing.T, f func(t *testing.T, from, to netip.AddrPort)) {
	t.Run("IPv4", func(t *testing.T) { f(t, client4, server4) })
	t.Run("IPv6", func(t *testing.T) { f(t, client6, server6) })
}

func ready(t *testing.T, devices ...string) (*box, *Datapath, *ends) {
	t.Helper()
	b := newBox(t, devices...)
	d := b.open()
	b.apply(d, plan(devices...))
	up(t, d, devices...)
	return b, d, newEnds(b, d)
}

func runDatapath(t *testing.T, d *Datapath) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestTrafficTakesTheChain(t *testing.T) {
	bothFamilies(t, func(t *testing.T, from, to netip.AddrPort) {
		_, d, e := ready(t, "a", "b")
		front, back := e.connect(from, to)
		exchange(t, front, back, 3<<20)
		exchange(t, back, front, 3<<20)
		list, err := d.Sessions(Filter{Client: netip.PrefixFrom(from.Addr(), from.Addr().BitLen())}, 0)
		must(t, err)
		if list.Matched != 3 || list.Total != 3 {
			t.Fatalf("%d of %d sessions match, want 3 of 3", list.Matched, list.Total)
		}
		tree, err := d.Tree(list.Sessions[2].ID)
		must(t, err)
		n := d.Names()
		var got []string
		for _, s := range tree {
			got = append(got, n.Link(s.Orig.Link)+">"+n.Device(s.Device)+"<"+n.Link(s.Reply.Link))
		}
		want := []string{"front0>a<a1", "a2>b<b1", "b2><back0"}
		if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
			t.Errorf("tree %v, want %v", got, want)
		}
		if s := tree[0]; s.Orig.Src != from || s.Orig.Dst != to || s.State != session.Established {
			t.Errorf("root %+v", s)
		}
		checkCounters(t, d)
	})
}

func checkCounters(t *testing.T, d *Datapath) {
	t.Helper()
	devices, err := d.DeviceStats()
	must(t, err)
	for _, s := range devices {
		if s.Active != 1 || s.Sent[0].Bytes < 3<<20 || s.Received[1].Bytes < 3<<20 {
			t.Errorf("device %+v", s)
		}
	}
	links, err := d.Links()
	must(t, err)
	for _, l := range links {
		if l.Name != "ext" && l.Name != "int" && (l.Rx.Packets == 0 || l.Tx.Packets == 0 || !l.Carrier || l.Index == 0) {
			t.Errorf("link %+v", l)
		}
	}
}

func TestDeviceDownBypassesAndIsReported(t *testing.T) {
	b, d, e := ready(t, "a", "b")
	runDatapath(t, d)
	front, back := e.connect(client4, server4)
	exchange(t, front, back, 1<<16)
	b.run("ip link set abr down")
	must(t, d.SetDevice("a", chain.DeviceStatus{Service: chain.Out, Reason: session.DeviceDown}))
	exchange(t, front, back, 1<<20)
	exchange(t, back, front, 1<<20)
	ledger, err := d.Ledger()
	must(t, err)
	if len(ledger) != 1 || ledger[0].Device != "a" || ledger[0].Chain != "all" || ledger[0].Pool != "pool-a" ||
		ledger[0].Reason != session.DeviceDown || ledger[0].Bytes < 2<<20 || ledger[0].Sessions != 1 {
		t.Errorf("ledger %+v", ledger)
	}
	if list, _ := d.Sessions(Filter{Bypassed: true, Device: "a"}, 1); list.Matched != 2 || len(list.Sessions) != 1 {
		t.Errorf("bypassed sessions: %+v", list)
	}
	want := []EventType{EventOpen, EventBypass}
	for _, w := range want {
		select {
		case ev := <-d.Events():
			if ev.Type != w || ev.Key.Src != client4 && ev.Key.Dst != client4 {
				t.Errorf("event %+v, want %v", ev, w)
			}
		case <-time.After(2 * time.Second):
			t.Fatalf("no event %v", w)
		}
	}
}

func TestSuspicionOfASilentDevice(t *testing.T) {
	b, d, e := ready(t, "a")
	front, back := e.connect(client4, server4)
	exchange(t, front, back, 100)
	if s, err := d.Suspicions(0); err != nil || len(s) != 0 {
		t.Fatalf("suspicions %v, %v", s, err)
	}
	b.run("ip link set abr down")
	_, _ = front.Write([]byte("lost"))
	time.Sleep(60 * time.Millisecond)
	s, err := d.Suspicions(50 * time.Millisecond)
	must(t, err)
	if len(s) != 1 || s[0].Device != "a" || s[0].Direction != session.Orig || s[0].Waiting < 50*time.Millisecond {
		t.Errorf("suspicions %+v", s)
	}
}

func expectReset(t *testing.T, what string, c net.Conn) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s: %v, want a reset", what, err)
	}
}

func TestResetReachesBothEnds(t *testing.T) {
	bothFamilies(t, func(t *testing.T, from, to netip.AddrPort) {
		_, d, e := ready(t, "a")
		front, back := e.connect(from, to)
		exchange(t, front, back, 1<<20)
		exchange(t, back, front, 1<<20)
		list, err := d.Sessions(Filter{Roots: true}, 0)
		must(t, err)
		must(t, d.Reset(list.Sessions[0].ID))
		expectReset(t, "front", front)
		expectReset(t, "back", back)
		if err := d.Reset(1 << 40); !errors.Is(err, ErrNoSession) {
			t.Errorf("reset of nothing: %v", err)
		}
	})
}

// established: reset — the device dies in mid-stream, with data lost in it.
func TestEstablishedResetByThePrograms(t *testing.T) {
	bothFamilies(t, func(t *testing.T, from, to netip.AddrPort) {
		b := newBox(t, "a")
		d := b.open()
		p := plan("a")
		p.Pools[0].Established = chain.Reset
		b.apply(d, p)
		up(t, d, "a")
		e := newEnds(b, d)
		runDatapath(t, d)
		front, back := e.connect(from, to)
		exchange(t, front, back, 1<<16)
		exchange(t, back, front, 1<<16)
		b.run("ip link set abr down")
		_, _ = front.Write(bytes.Repeat([]byte("x"), 1<<16))
		time.Sleep(100 * time.Millisecond)
		must(t, d.SetDevice("a", chain.DeviceStatus{Service: chain.Out, Reason: session.DeviceDown}))
		_, _ = back.Write([]byte("x"))
		expectReset(t, "front", front)
		expectReset(t, "back", back)
	})
}

// on_down: reset — a SYN is answered, front does not wait for its timeout.
func TestPoolDownResetAnswersTheSYN(t *testing.T) {
	bothFamilies(t, func(t *testing.T, from, to netip.AddrPort) {
		b := newBox(t, "a", "b")
		d := b.open()
		p := plan("a", "b")
		p.Pools[1].OnDown = chain.Reset
		b.apply(d, p)
		up(t, d, "a")
		runDatapath(t, d)
		began := time.Now()
		_, err := newEnds(b, d).dial(from, to)
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(began) > time.Second {
			t.Errorf("dial: %v after %v", err, time.Since(began))
		}
	})
}

func TestGarbageIsCollected(t *testing.T) {
	_, d, e := ready(t, "a", "b")
	for i := range 10 {
		from := netip.AddrPortFrom(client4.Addr(), uint16(41000+i))
		front, back := e.connect(from, server4)
		exchange(t, front, back, 10)
		if i < 8 {
			_ = front.Close()
			_ = back.Close()
		}
	}
	time.Sleep(100 * time.Millisecond)
	st, err := d.CollectGarbage(Now() + time.Minute)
	must(t, err)
	if st.Sessions != 30 || st.Removed != 24 {
		t.Errorf("%+v, want 24 of 30 removed", st)
	}
	devices, _ := d.DeviceStats()
	for _, s := range devices {
		if s.Opened != 10 || s.Active != 2 {
			t.Errorf("device %+v", s)
		}
	}
	st, err = d.CollectGarbage(Now() + 24*time.Hour)
	must(t, err)
	if st.Removed != 6 {
		t.Errorf("%+v, want the rest removed", st)
	}
	if n := count(t, d); n != 0 {
		t.Errorf("%d flows left", n)
	}
}

func count(t *testing.T, d *Datapath) (n int) {
	t.Helper()
	var k [40]byte
	var v [16]byte
	for it := d.kernel.Flows.Iterate(); it.Next(&k, &v); {
		n++
	}
	return n
}

// A newer binary takes over in the middle of a connection.
func TestReplaceInPlaceKeepsSessions(t *testing.T) {
	b, d, e := ready(t, "a")
	front, back := e.connect(client4, server4)
	exchange(t, front, back, 1000)
	old, err := d.kernel.SteerFrame.Info()
	must(t, err)
	must(t, d.Close())
	exchange(t, front, back, 1000) // nobody runs
	d = b.open()
	b.apply(d, plan("a"))
	now, err := d.kernel.SteerFrame.Info()
	must(t, err)
	idOld, _ := old.ID()
	if idNow, _ := now.ID(); idNow == idOld {
		t.Error("the program was not replaced")
	}
	exchange(t, back, front, 1000)
	list, err := d.Sessions(Filter{Chain: "all"}, 0)
	must(t, err)
	if list.Matched != 2 {
		t.Errorf("%d sessions, want 2", list.Matched)
	}
	e = newEnds(b, d)
	e.connect(client6, server6)
}

// A device that leaves the plan is bypassed; its id is free once no session refers to it.
func TestRemovedDevice(t *testing.T) {
	b, d, e := ready(t, "a", "b")
	front, back := e.connect(client4, server4)
	exchange(t, front, back, 1000)
	b.apply(d, plan("b"))
	exchange(t, front, back, 1000)
	exchange(t, back, front, 1000)
	list, err := d.Sessions(Filter{Device: "a"}, 0)
	must(t, err)
	if list.Matched != 2 {
		t.Errorf("%d sessions of the removed device, want 2", list.Matched)
	}
	st, err := d.CollectGarbage(Now())
	must(t, err)
	if _, ok := d.st.IDs.Devices.table().id("a"); !ok || st.Removed != 0 {
		t.Error("id given up while sessions refer to it")
	}
	for range 2 { // the second finds nothing that refers to it
		_, err = d.CollectGarbage(Now() + 24*time.Hour)
		must(t, err)
	}
	if d.st.IDs.anyRetired() {
		t.Errorf("ids still retired: %+v", d.st.IDs)
	}
}

func TestCarrierChangesAreReported(t *testing.T) {
	b, d, _ := ready(t, "a")
	runDatapath(t, d)
	for range plan("a").Links {
		if c := nextChange(t, d); !c.Up {
			t.Errorf("first report %+v", c)
		}
	}
	began := time.Now()
	b.run("ip link set a1p down")
	if c := nextChange(t, d); c.Link != "a1" || c.Up || c.Carrier {
		t.Errorf("after link down: %+v", c)
	}
	t.Logf("reported after %v, the command included", time.Since(began))
	b.run("ip link set a1p up")
	if c := nextChange(t, d); c.Link != "a1" || !c.Up {
		t.Errorf("after link up: %+v", c)
	}
}

func nextChange(t *testing.T, d *Datapath) LinkChange {
	t.Helper()
	select {
	case c := <-d.LinkChanges():
		return c
	case <-time.After(2 * time.Second):
		t.Fatal("no link change")
		return LinkChange{}
	}
}

// An interface that goes and comes back, with another index, is put to work again.
func TestInterfaceComesBack(t *testing.T) {
	b, d, e := ready(t, "a")
	runDatapath(t, d)
	b.run("ip link del a1")
	b.veth("a1")
	b.run("ip link set a1p master abr")
	deadline := time.Now().Add(3 * time.Second)
	for {
		front, err := e.dial(client4, server4)
		if err == nil {
			_ = front.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// A NIC that is not there keeps nobody from starting: its device is left out until it comes.
func TestInterfaceComesLate(t *testing.T) {
	b := newBox(t, "a", "b")
	b.run("ip link del b1")
	d := b.open()
	b.apply(d, plan("a", "b"))
	up(t, d, "a")
	e := newEnds(b, d)
	runDatapath(t, d)
	front, err := e.dial(client4, server4)
	must(t, err)
	must(t, front.Close())
	b.veth("b1")
	b.run("ip link set b1p master bbr")
	up(t, d, "b")
	port := client4.Port()
	for deadline := time.Now().Add(20 * time.Second); ; {
		port++ // a port is not free at once after a failure
		if front, err := e.dial(netip.AddrPortFrom(client4.Addr(), port), server4); err == nil {
			must(t, front.Close())
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
