package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sslo/admin/api"
	"sslo/test/lab"
)

// twoAndOne is a chain of a pool of two devices and a pool of one.
func twoAndOne() lab.Topology {
	return lab.Topology{
		Devices: []lab.Device{{Name: "a1"}, {Name: "a2"}, {Name: "b1"}},
		Pools:   []lab.Pool{{Name: "first", Devices: []string{"a1", "a2"}}, {Name: "second", Devices: []string{"b1"}}},
		Chain:   []string{"first", "second"},
	}
}

// A device or a whole pool that is down is stepped over by new connections, and the ledger says so.
func TestNewConnectionsStepOverDeadDevices(t *testing.T) {
	b := up(t, twoAndOne())
	b.sub("none down", func(b *bed) {
		b.expectWays(8, map[string]int{"a1 b1": 4, "a2 b1": 4})
		if l := b.ledger(); len(l) != 0 {
			b.t.Errorf("all were inspected, yet the ledger has %+v", l)
		}
	})
	b.sub("one of two", func(b *bed) {
		b.failed("a1", lab.Blackhole, func() { b.expectWays(6, map[string]int{"a2 b1": 6}) })
		if n := b.skipped(api.LedgerEntry{}); n != 0 {
			b.t.Errorf("the other device of the pool took them, yet the ledger has %+v", b.ledger())
		}
	})
	b.sub("both", func(b *bed) {
		b.failed("a1", lab.Blackhole, func() {
			b.failed("a2", lab.LinkDown, func() { b.expectWays(6, map[string]int{"b1": 6}) })
		})
		b.expectLedger(6, api.LedgerEntry{Chain: "inspect", Pool: "first", Reason: "device-down", Source: "kernel"})
	})
	b.sub("the last pool", func(b *bed) {
		b.failed("b1", lab.Hang, func() { b.expectWays(6, map[string]int{"a1": 3, "a2": 3}) })
		b.expectLedger(6, api.LedgerEntry{Chain: "inspect", Pool: "second", Reason: "device-down", Source: "kernel"})
	})
	b.sub("all", func(b *bed) {
		b.failed("a1", lab.LinkDown, func() {
			b.failed("a2", lab.Hang, func() {
				b.failed("b1", lab.Blackhole, func() { b.expectWays(6, map[string]int{"": 6}) })
			})
		})
		b.expectLedger(6, api.LedgerEntry{Chain: "inspect", Reason: "device-down", Source: "proxy"})
	})
	b.sub("all are back", func(b *bed) {
		before := b.skipped(api.LedgerEntry{})
		b.expectWays(8, map[string]int{"a1 b1": 4, "a2 b1": 4})
		if after := b.skipped(api.LedgerEntry{}); after != before {
			b.t.Errorf("the ledger grew from %d to %d", before, after)
		}
	})
}

// failed runs fn while a device is down, and checks that fn sent it nothing.
func (b *bed) failed(device string, how lab.Failure, fn func()) {
	b.t.Helper()
	b.fail(device, how)
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	seen, before := b.watch(ctx, device), b.device(device).Opened
	fn()
	for _, p := range seen.packets() {
		b.t.Errorf("%s is down and was sent %s", device, p)
	}
	if after := b.device(device).Opened; after != before {
		b.t.Errorf("%s is down and got %d sessions", device, after-before)
	}
	b.restore(device)
}

// expectWays makes n connections one after the other, and counts the devices that each went through.
func (b *bed) expectWays(n int, want map[string]int) {
	b.t.Helper()
	got := map[string]int{}
	for range n {
		c := b.dial(b.Client(), lab.ClientOptions{})
		b.mustRequest(c)
		got[b.way(c)]++
		c.Close()
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("connections went %v, want %v", got, want)
	}
}

// way is the devices that a connection goes through.
func (b *bed) way(c net.Conn) (way string) {
	b.t.Helper()
	for _, s := range b.tree(local(c)) {
		if s.Device != "" && s.Bypass == "" {
			if way != "" {
				way += " "
			}
			way += s.Device
		}
	}
	return way
}

// expectLedger compares the sessions of the one entry that fits.
func (b *bed) expectLedger(sessions uint64, want api.LedgerEntry) {
	b.t.Helper()
	b.eventually(3*time.Second, func() error {
		if n := b.skipped(want); n != sessions {
			return fmt.Errorf("%d sessions, want %d of %+v in the ledger: %+v", n, sessions, want, b.ledger())
		}
		return nil
	})
}

// What becomes of connections when a whole pool is down and may not be stepped over: a reset at once, or
// silence, but never a dead device, and never the server.
func TestWholePoolDown(t *testing.T) {
	b := up(t, twoAndOne(), set("virtual_servers.shop.timeouts.drop", "1500ms"))
	for _, pool := range []struct {
		name    string
		devices []string
	}{{"first", []string{"a1", "a2"}}, {"second", []string{"b1"}}} {
		for action, ends := range map[string]func(*bed, *tls.Conn){"reset": (*bed).expectReset, "drop": (*bed).expectSilence} {
			b.sub(pool.name+"/"+action, func(b *bed) {
				b.reload(set("device_pools."+pool.name+".on_down", action))
				b.wholePoolDown(pool.devices, action, ends)
				b.reload(set("device_pools."+pool.name+".on_down", nil))
			})
		}
	}
}

func (b *bed) wholePoolDown(devices []string, action string, ends func(*bed, *tls.Conn)) {
	b.t.Helper()
	established := b.dial(b.Client(), lab.ClientOptions{})
	b.mustRequest(established)
	for _, d := range devices {
		b.fail(d, lab.Blackhole)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	var seen []*sighting
	for _, d := range devices {
		seen = append(seen, b.watch(ctx, d))
	}
	before := b.counter("ended/chain-down")
	b.expectNoConnection(action)
	ends(b, established)
	for _, s := range seen {
		for _, p := range s.packets() {
			b.t.Errorf("a dead device was sent %s", p)
		}
	}
	cancel()
	if b.awaitCounter("ended/chain-down", before+1); len(b.ledger()) != 0 {
		b.t.Errorf("nothing passed, yet the ledger has %+v", b.ledger())
	}
	for _, d := range devices {
		b.restore(d)
	}
	c := b.dial(b.Client(), lab.ClientOptions{})
	b.mustRequest(c)
	c.Close()
}

// expectNoConnection makes a new connection and expects its end.
func (b *bed) expectNoConnection(action string) {
	b.t.Helper()
	c, err := b.DialTCP(b.context(5*time.Second), b.Client(), lab.ClientOptions{})
	b.must(err)
	defer c.Close()
	t := tls.Client(c, b.TLSConfig(lab.ClientOptions{}))
	c.SetDeadline(time.Now().Add(time.Second))
	start := time.Now()
	err = t.Handshake()
	switch {
	case action == "reset" && errors.Is(err, unix.ECONNRESET) && time.Since(start) < 500*time.Millisecond:
	case action == "drop" && errors.Is(err, os.ErrDeadlineExceeded):
	default:
		b.t.Errorf("on_down %s: a new connection ended after %s with %v", action, time.Since(start), err)
	}
}

// expectReset writes to a connection that must be reset, if it is not already: then the write says so.
func (b *bed) expectReset(c *tls.Conn) {
	b.t.Helper()
	start, n := time.Now(), 0
	c.SetReadDeadline(start.Add(2 * time.Second))
	_, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", lab.ShopName)
	if err == nil {
		n, err = c.Read(make([]byte, 100))
	}
	if !errors.Is(err, unix.ECONNRESET) || time.Since(start) > time.Second {
		b.t.Errorf("an established connection: %d bytes, %v after %s; want a reset", n, err, time.Since(start))
	}
}

// expectSilence writes to a connection that must answer no more, nor end.
func (b *bed) expectSilence(c *tls.Conn) {
	b.t.Helper()
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", lab.ShopName); err != nil {
		b.t.Error(err)
	}
	c.SetReadDeadline(time.Now().Add(time.Second))
	if n, err := c.Read(make([]byte, 100)); !errors.Is(err, os.ErrDeadlineExceeded) {
		b.t.Errorf("an established connection: %d bytes, %v; want silence", n, err)
	}
}

// With fewer devices than min_active the whole pool counts as down.
func TestMinActive(t *testing.T) {
	b := up(t, twoAndOne(), set("device_pools.first.min_active", 2))
	b.expectWays(2, map[string]int{"a1 b1": 1, "a2 b1": 1})
	b.sub("bypass", func(b *bed) {
		b.failed("a1", lab.Blackhole, func() { b.expectWays(4, map[string]int{"b1": 4}) })
		b.expectLedger(4, api.LedgerEntry{Chain: "inspect", Pool: "first", Source: "kernel"})
	})
	b.sub("reset", func(b *bed) {
		b.reload(set("device_pools.first.on_down", "reset"))
		b.failed("a2", lab.Blackhole, func() { b.expectNoConnection("reset") })
	})
	b.expectWays(2, map[string]int{"a1 b1": 1, "a2 b1": 1})
}

// A device dies when it has the SYN and nobody behind it has: the SYN that is sent again goes around it.
func TestDeviceDiesWithTheSYN(t *testing.T) {
	b := up(t, lab.Line(2, lab.Inspect))
	for _, device := range []string{"a", "b"} {
		for _, how := range []lab.Failure{lab.Blackhole, lab.LinkDown} {
			o := lab.ClientOptions{IPv6: how == lab.LinkDown}
			b.sub(device+"/"+string(how), func(b *bed) { b.dieWithTheSYN(device, how, o) })
		}
	}
}

func (b *bed) dieWithTheSYN(device string, how lab.Failure, o lab.ClientOptions) {
	b.must(b.Lab.Fail(device, lab.SwallowSYN)) // and answers probes
	swallowed := func() uint64 { s, err := b.DeviceStats(device); b.must(err); return s.Dropped }
	before := swallowed()
	c := b.dial(b.Client(), o) // the client's handshake does not wait for the chain
	answer := make(chan error, 1)
	go func() { _, err := b.request(c, "/"); answer <- err }()
	b.eventually(2*time.Second, func() error {
		if swallowed() == before {
			return errors.New("no SYN came")
		}
		return nil
	})
	legs := b.tree(local(c))
	at := slices.IndexFunc(legs, func(s api.Session) bool { return s.Device == device })
	if at < 0 || legs[at].Child != 0 {
		b.t.Fatalf("a session through %s, without a child, was expected: %+v", device, legs)
	}
	died := time.Now()
	b.must(b.Lab.Fail(device, how))
	b.must(<-answer)
	b.t.Logf("answered %s after the device died", time.Since(died))
	if took := time.Since(died); took > 4*time.Second { // detection, and the SYN that is sent again after a second
		b.t.Errorf("it took %s", took)
	}
	legs = b.tree(local(c))
	if other := map[string]string{"a": "b", "b": "a"}[device]; b.way(c) != other {
		b.t.Errorf("the connection goes through %q, want %q: %+v", b.way(c), other, legs)
	}
	if s := legs[at]; s.Bypass != "device-down" || s.Child == 0 {
		b.t.Errorf("the session to the dead device: %+v", s)
	}
	c.Close()
	b.must(b.Restore(device))
	b.awaitService(device, "full")
}
