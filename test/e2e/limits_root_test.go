package e2e

import (
	"crypto/tls"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"sslo/test/lab"
)

// Limits refuse by reset and count it; who is in stays in, and a place that is free again is given again.
func TestLimits(t *testing.T) {
	line := lab.Line(1, lab.Bridge)
	b := up(t, lab.Topology{ClientLinks: 2, Devices: line.Devices, Pools: line.Pools, Chain: line.Chain},
		set("virtual_servers.shop.limits", map[string]any{"connections": 3, "connections_per_client": 2}))
	first, second := b.Clients[0], b.Clients[1]
	a1, a2 := b.dial(first, lab.ClientOptions{}), b.dial(first, lab.ClientOptions{})
	b.tooMany(first, "client-limit")
	b.dial(second, lab.ClientOptions{})
	b.tooMany(second, "limit")
	b.asks(a1)
	b.asks(a2)

	a1.Close()
	b.eventually(5*time.Second, func() error { return b.open(2) })
	again := b.dial(first, lab.ClientOptions{})
	b.asks(again)

	b.sub("lowered by a reload", func(b *bed) {
		b.reload(set("virtual_servers.shop.limits", map[string]any{"connections": 1}))
		b.tooMany(second, "limit")
		b.asks(again)
		b.asks(a2)
		b.must(b.open(3))
	})
	b.sub("lifted by a reload", func(b *bed) {
		b.reload(set("virtual_servers.shop.limits", nil))
		b.asks(b.dial(second, lab.ClientOptions{}))
	})
}

// open says whether so many connections are.
func (b *bed) open(n uint64) error {
	if now := b.counter("open"); now != n {
		return errors.New("not yet")
	}
	return nil
}

// tooMany expects one more connection of a client to be reset, and counted.
func (b *bed) tooMany(from *lab.Host, reason string) {
	b.t.Helper()
	before := b.counter("ended/" + reason)
	c, err := b.DialTCP(b.context(10*time.Second), from, lab.ClientOptions{})
	if err == nil {
		defer c.Close()
		c.SetDeadline(time.Now().Add(5 * time.Second))
		err = tls.Client(c, b.TLSConfig(lab.ClientOptions{})).Handshake()
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, io.EOF) {
		b.t.Errorf("one too many: %v, want a reset", err)
	}
	b.awaitCounter("ended/"+reason, before+1)
	b.awaitLog("reason=" + reason)
}

// Handshakes that nobody finishes are bounded, for the box and for one address.
func TestHandshakeLimits(t *testing.T) {
	line := lab.Line(1, lab.Bridge)
	b := up(t, lab.Topology{ClientLinks: 2, Devices: line.Devices, Pools: line.Pools, Chain: line.Chain},
		set("system.limits", map[string]any{"handshakes": 5, "handshakes_per_client": 3}),
		set("virtual_servers.shop.timeouts", map[string]any{"client_hello": "30s"}))
	established := b.dial(b.Clients[0], lab.ClientOptions{})
	b.asks(established) // does not count any more
	for range 3 {
		b.silent(b.Clients[0])
	}
	b.tooMany(b.Clients[0], "handshake-limit")
	b.silent(b.Clients[1])
	stuck := b.silent(b.Clients[1])
	b.tooMany(b.Clients[1], "handshake-limit")
	b.asks(established)
	stuck.Close()
	b.eventually(5*time.Second, func() error { return b.open(5) })
	b.asks(b.dial(b.Clients[1], lab.ClientOptions{}))
}

// silent connects and says nothing.
func (b *bed) silent(from *lab.Host) io.Closer {
	b.t.Helper()
	n := b.counter("open")
	c, err := b.DialTCP(b.context(10*time.Second), from, lab.ClientOptions{})
	b.must(err)
	b.t.Cleanup(func() { c.Close() })
	b.eventually(5*time.Second, func() error { return b.open(n + 1) })
	return c
}
