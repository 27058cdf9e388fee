package tinytcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/gopacket/layers"
)

// cable joins two hosts; drop decides what is lost on it.
func cable(t *testing.T, a, b string, drop func() bool) (*Stack, *Stack) {
	t.Helper()
	var x, y *Stack
	var mu sync.Mutex // one packet at a time, but never in the sender's call
	queue := make(chan func(), 1024)
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		for {
			select {
			case f := <-queue:
				f()
			case <-done:
				return
			}
		}
	}()
	send := func(to **Stack) func([]byte) error {
		return func(p []byte) error {
			mu.Lock()
			lost := drop()
			mu.Unlock()
			if p = bytes.Clone(p); !lost {
				select {
				case queue <- func() { (*to).Deliver(p) }:
				default:
				}
			}
			return nil
		}
	}
	x = New(netip.MustParseAddr(a), send(&y))
	y = New(netip.MustParseAddr(b), send(&x))
	return x, y
}

func never() bool { return false }

var families = map[string][2]string{"IPv4": {"198.18.0.1", "198.18.0.2"}, "IPv6": {"2001:2::1", "2001:2::2"}}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestExchange(t *testing.T) {
	losses := map[string]func() bool{"no loss": never, "a fifth is lost": func() bool { return rand.IntN(5) == 0 }}
	for family, addrs := range families {
		for name, drop := range losses {
			t.Run(family+", "+name, func(t *testing.T) {
				client, server := cable(t, addrs[0], addrs[1], drop)
				echo := make(chan error, 1)
				server.Listen(80, func(c *Conn) {
					defer c.Close()
					_, err := io.Copy(c, io.LimitReader(c, 8000))
					echo <- err
				})
				c, err := client.Dial(within(t, 5*time.Second), netip.AddrPortFrom(server.addr, 80))
				if err != nil {
					t.Fatal(err)
				}
				text := bytes.Repeat([]byte("0123456789"), 800)
				if _, err := c.Write(text); err != nil {
					t.Fatal(err)
				}
				stop := context.AfterFunc(within(t, 20*time.Second), c.Abort)
				got, err := io.ReadAll(c)
				stop()
				if err != nil || sha256.Sum256(got) != sha256.Sum256(text) {
					t.Fatalf("%d of %d bytes: %v", len(got), len(text), err)
				}
				if err := <-echo; err != nil {
					t.Error(err)
				}
				c.Close()
				empty(t, client, server)
			})
		}
	}
}

// empty: no connection stays behind.
func empty(t *testing.T, stacks ...*Stack) {
	t.Helper()
	for end := time.Now().Add(3 * linger); ; time.Sleep(5 * time.Millisecond) {
		left := 0
		for _, s := range stacks {
			s.mu.Lock()
			left += len(s.conns)
			s.mu.Unlock()
		}
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections left", left)
		}
	}
}

func TestRefusedAndSilent(t *testing.T) {
	client, server := cable(t, "198.18.0.1", "198.18.0.2", never)
	if _, err := client.Dial(within(t, time.Second), netip.AddrPortFrom(server.addr, 81)); !errors.Is(err, ErrRefused) {
		t.Errorf("closed port: %v", err)
	}
	client, server = cable(t, "198.18.0.1", "198.18.0.2", func() bool { return true })
	if _, err := client.Dial(within(t, 150*time.Millisecond), netip.AddrPortFrom(server.addr, 80)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silence: %v", err)
	}
	empty(t, client, server)
}

func TestReset(t *testing.T) {
	client, server := cable(t, "198.18.0.1", "198.18.0.2", never)
	server.Listen(80, func(c *Conn) {
		c.Read(make([]byte, 1))
		c.Abort()
	})
	c, err := client.Dial(within(t, time.Second), netip.AddrPortFrom(server.addr, 80))
	if err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("x"))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, ErrReset) {
		t.Errorf("read: %v", err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, ErrReset) {
		t.Errorf("write: %v", err)
	}
	empty(t, client, server)
}

func TestUDP(t *testing.T) {
	client, server := cable(t, "2001:2::1", "2001:2::2", never)
	server.ListenUDP(53, func(from netip.AddrPort, data []byte) { server.SendUDP(53, from, append(data, '!')) })
	got := make(chan string, 1)
	port := client.FreeUDP()
	client.ListenUDP(port, func(_ netip.AddrPort, data []byte) { got <- string(data) })
	if err := client.SendUDP(port, netip.AddrPortFrom(server.addr, 53), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	select {
	case s := <-got:
		if s != "hello!" {
			t.Errorf("%q", s)
		}
	case <-time.After(time.Second):
		t.Error("no answer")
	}
}

// Whatever comes in, nothing breaks, and what is not a segment of the connection does not end it.
func FuzzDeliver(f *testing.F) {
	record := func(p []byte) error { f.Add(bytes.Clone(p)); return nil }
	s := New(netip.MustParseAddr("198.18.0.1"), record)
	s.sendTCP(key{80, netip.MustParseAddrPort("198.18.0.2:1000")}, &layers.TCP{SYN: true, Seq: 7}, []byte("x"))
	s.SendUDP(1, netip.MustParseAddrPort("198.18.0.2:2"), []byte("x"))
	f.Fuzz(func(t *testing.T, packet []byte) {
		s := New(netip.MustParseAddr("198.18.0.2"), func([]byte) error { return nil })
		defer s.Close()
		s.Listen(1000, func(*Conn) {})
		s.Deliver(packet)
		s.Deliver(packet)
	})
}
