package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sslo/proxy/pool"
	"sslo/tls/cert"
	"sslo/tls/cert/certtest"
)

func TestReload(t *testing.T) {
	b := newBench(t, func(b *bench) { b.origin = echo })
	old := b.mustDial()
	roundTrip(t, old)
	first, second := b.cfg.VirtualServers[0].Listen[0], freePort(t)

	cfg := b.cfg
	cfg.VirtualServers = []VirtualServer{b.cfg.VirtualServers[0]}
	v := &cfg.VirtualServers[0]
	v.Listen = []netip.AddrPort{first, second}
	v.Certificates = []cert.Pair{{Name: "new", Certificate: b.ca.Issue(t, certtest.ECDSA, "shop.test", "new.test")}}
	if err := b.p.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, old)
	for _, a := range v.Listen {
		b.addr = a.String()
		c := b.mustDial()
		if names := c.ConnectionState().PeerCertificates[0].DNSNames; len(names) != 2 {
			t.Errorf("%s still shows the certificate of before", a)
		}
		roundTrip(t, c)
		c.CloseWrite()
		io.Copy(io.Discard, c)
	}
	b.ended(ReasonOK, 2) // counters go on

	bad := cfg
	bad.VirtualServers = []VirtualServer{cfg.VirtualServers[0]}
	bad.VirtualServers[0].ServerPool = "nowhere"
	if err := b.p.Reload(bad); !errors.Is(err, ErrNoServerPool) {
		t.Error(err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	bad.VirtualServers[0].ServerPool = "web"
	bad.VirtualServers[0].Listen = []netip.AddrPort{freePort(t), busy.Addr().(*net.TCPAddr).AddrPort()}
	if err := b.p.Reload(bad); err == nil {
		t.Error("an address in use was not noticed")
	}
	b.addr = first.String()
	roundTrip(t, b.mustDial()) // nothing has changed

	v.Listen = []netip.AddrPort{second}
	if err := b.p.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", first.String()); err == nil {
		c.Close()
		t.Error("the removed listener still accepts")
	}
	roundTrip(t, old)
}

// Frequent reloads do not send all new clients to the first server.
func TestReloadKeepsTurn(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.origin = echo
		p := &b.cfg.ServerPools[0]
		p.Members = append(p.Members, pool.Member{Name: "same again", Address: p.Members[0].Address})
	})
	for range 20 {
		b.mustDial().Close()
		if err := b.p.Reload(b.cfg); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(50 * time.Millisecond)
	m := b.p.Stats().ServerPools[0].Members
	if m[0].Total != 10 || m[1].Total != 10 {
		t.Errorf("%d and %d", m[0].Total, m[1].Total)
	}
}

func TestSessionsResumeAcrossReload(t *testing.T) {
	b := newBench(t, func(b *bench) { b.origin = echo })
	cfg := b.clientConfig()
	cfg.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for i := range 3 {
		c, err := b.dial(cfg)
		if err != nil {
			t.Fatal(err)
		}
		roundTrip(t, c)
		if c.ConnectionState().DidResume != (i > 0) {
			t.Errorf("connection %d: resumed %v", i, i == 0)
		}
		c.Close()
		b.p.Reload(b.cfg)
	}
}

// Shutdown waits for open connections, and resets those that do not end.
func TestShutdown(t *testing.T) {
	b := newBench(t, func(b *bench) { b.origin = echo })
	c := b.mustDial()
	roundTrip(t, c)
	half := b.tcp()
	half.Write([]byte{22, 3, 1})
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	done := make(chan error)
	go func() { done <- b.p.Shutdown(ctx) }()
	time.Sleep(100 * time.Millisecond)
	roundTrip(t, c)
	if _, err := net.Dial("tcp", b.addr); !errors.Is(err, unix.ECONNREFUSED) {
		t.Error("still accepting:", err)
	}
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	mustReset(t, c, time.Second)
	mustReset(t, half, time.Second)
}

// However connections end, no goroutine and no descriptor stays.
func TestNothingStays(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.origin = echo
		b.cfg.VirtualServers[0].Timeouts.ClientHello = 200 * time.Millisecond
		b.cfg.VirtualServers[0].Timeouts.Idle = 400 * time.Millisecond
	})
	settled := func() (int, int) { runtime.GC(); return runtime.NumGoroutine(), descriptors(t) }
	b.mustDial().Close()
	b.ended(ReasonOK, 1)
	time.Sleep(100 * time.Millisecond)
	goroutines, files := settled()
	for i := range 60 {
		nc := b.tcp()
		switch i % 5 {
		case 0:
			nc.Write([]byte("garbage"))
		case 1:
			nc.Close()
		case 2: // never finishes its ClientHello
		default:
			c := tls.Client(nc, b.clientConfig())
			c.Write(pattern(100 << 10))
			if i%5 == 3 {
				nc.SetLinger(0)
				nc.Close()
			}
		}
	}
	for range 100 {
		if b.p.Stats().VirtualServers[0].Open == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	g, f := settled()
	if g > goroutines || f > files+60 { // our own ends of the sockets are closed by the cleanup
		buf := make([]byte, 1<<20)
		t.Errorf("goroutines %d, before %d; descriptors %d, before %d\n%s", g, goroutines, f, files, buf[:runtime.Stack(buf, true)])
	}
}

func descriptors(t *testing.T) int {
	l, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(l)
}
