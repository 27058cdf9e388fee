package e2e

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sslo/admin/client"
	"sslo/test/lab"
)

// resources of the daemon that a connection takes.
type resources struct{ goroutines, sockets, sessions int }

func (b *bed) resources() (r resources) {
	b.t.Helper()
	_, err := fmt.Sscanf(b.profile("goroutine"), "goroutine profile: total %d", &r.goroutines)
	b.must(err)
	r.sockets = b.sockets()
	r.sessions = len(b.sessions(client.SessionQuery{}))
	return r
}

func (b *bed) profile(name string) string {
	b.t.Helper()
	body, err := b.admin.Raw(b.context(10*time.Second), "/v1/debug/"+name)
	b.must(err)
	defer body.Close()
	text, err := io.ReadAll(body)
	b.must(err)
	return string(text)
}

// sockets that the daemon has open.
func (b *bed) sockets() (n int) {
	b.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", b.daemon.PID())
	entries, err := os.ReadDir(dir)
	b.must(err)
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// awaitRest waits until the daemon holds no more than it did.
func (b *bed) awaitRest(before resources) {
	b.t.Helper()
	var now resources
	b.eventually(20*time.Second, func() error {
		if now = b.resources(); now.goroutines > before.goroutines || now.sockets > before.sockets || now.sessions > before.sessions {
			return fmt.Errorf("left %+v, was %+v; %s", now, before, b.profile("goroutine"))
		}
		return nil
	})
}

// impatient makes every timeout short.
func impatient(c lab.Config) {
	c.Set("virtual_servers.shop.timeouts", map[string]any{"client_hello": "1s", "handshake": "1s", "idle": "2s", "connect": "1s"})
	c.Set("system.timeouts", map[string]any{"syn": "2s", "established": "10s", "half_closed": "2s", "closing": "1s", "closed": "1s"})
	c.Set("log.level", "debug")
}

// hello is a ClientHello, as crypto/tls sends it, padded to size when that is more.
func hello(t *testing.T, size int) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	go tls.Client(near, &tls.Config{ServerName: lab.ShopName}).Handshake() // ends with the pipe
	head := make([]byte, 5)
	if _, err := io.ReadFull(far, head); err != nil {
		t.Fatal(err)
	}
	msg := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(far, msg); err != nil {
		t.Fatal(err)
	}
	return records(padded(msg, size), 16<<10)
}

// padded adds a padding extension (RFC 7685) at the end of a ClientHello.
func padded(msg []byte, size int) []byte {
	more := size - len(msg)
	if more < 4 {
		return msg
	}
	at := 4 + 2 + 32
	at += 1 + int(msg[at])                                  // session id
	at += 2 + int(binary.BigEndian.Uint16(msg[at:]))        // suites
	at += 1 + int(msg[at])                                  // compression
	length := int(binary.BigEndian.Uint16(msg[at:])) + more // of the extensions
	binary.BigEndian.PutUint16(msg[at:], uint16(length))
	for pad := more; pad > 0; {
		n := min(pad, 60_000)
		if pad-n > 0 && pad-n < 4 {
			n -= 4
		}
		msg = append(msg, 0, 21, byte((n-4)>>8), byte(n-4))
		msg = append(msg, make([]byte, n-4)...)
		pad -= n
	}
	msg[1], msg[2], msg[3] = byte((len(msg)-4)>>16), byte((len(msg)-4)>>8), byte(len(msg)-4)
	return msg
}

// records splits a handshake message into records of n bytes.
func records(msg []byte, n int) (out []byte) {
	for len(msg) > 0 {
		k := min(n, len(msg))
		out = append(out, 22, 3, 1, byte(k>>8), byte(k))
		out = append(out, msg[:k]...)
		msg = msg[k:]
	}
	return out
}

// half is a splitter's piece: two of them.
const half = -1

// splitter writes what a TLS client says first in pieces.
type splitter struct {
	*net.TCPConn
	piece  int
	pause  time.Duration
	record int // if not 0, the first record is split into records of so many bytes
	done   bool
}

func (s *splitter) Write(p []byte) (int, error) {
	if s.done {
		return s.TCPConn.Write(p)
	}
	s.done = true
	out := p
	if s.piece == half {
		s.piece = len(p)/2 + 1
	}
	if s.record > 0 {
		out = records(append([]byte(nil), p[5:]...), s.record)
	}
	for len(out) > 0 {
		n := min(s.piece, len(out))
		if _, err := s.TCPConn.Write(out[:n]); err != nil {
			return 0, err
		}
		out = out[n:]
		time.Sleep(s.pause)
	}
	return len(p), nil
}

// A ClientHello may come in any pieces, be large, or never be whole.
func TestClientHellos(t *testing.T) {
	b := up(t, lab.Line(2, lab.Bridge), impatient)
	b.fetch("/", lab.ClientOptions{}) // whatever is made once is made now
	before := b.resources()
	for name, s := range map[string]splitter{
		"byte by byte":               {piece: 1},
		"two parts, 800 ms apart":    {piece: half, pause: 800 * time.Millisecond},
		"two records":                {piece: 1 << 20, record: 200},
		"many records, byte by byte": {piece: 1, record: 7},
	} {
		b.sub("split: "+name, func(b *bed) { b.splitHello(s) })
	}
	many := make([]string, 1500)
	for i := range many {
		many[i] = fmt.Sprintf("protocol-%d", i)
	}
	b.sub("16 kB", func(b *bed) {
		c := b.dial(b.Client(), lab.ClientOptions{TLS: &tls.Config{NextProtos: append(many, "http/1.1")}})
		if got := c.ConnectionState(); got.NegotiatedProtocol != "http/1.1" {
			b.t.Errorf("%+v", got)
		}
	})
	for name, bad := range map[string]struct {
		send   []byte
		reason string
	}{
		"huge":            {hello(t, 70_000), "hello-too-large"},
		"says it is huge": {[]byte{22, 3, 1, 64, 0, 1, 255, 255, 255}, "hello-too-large"},
		"HTTP":            {[]byte("GET / HTTP/1.1\r\n\r\n"), "hello-garbage"},
		"zeros":           {make([]byte, 4096), "hello-garbage"},
		"not finished":    {hello(t, 0)[:100], "hello-timeout"},
		"nothing":         {nil, "hello-timeout"},
		"only a hello":    {hello(t, 0), "handshake-timeout"},
	} {
		b.sub(name, func(b *bed) { b.refusesHello(bad.send, bad.reason) })
	}
	b.sub("half of it, then gone", func(b *bed) {
		b.endsBy("client-gone", func() {
			c := b.tcp()
			c.Write(hello(t, 0)[:100])
			c.Close()
		})
	})
	b.awaitRest(before)
}

// splitHello does a handshake and asks for something.
func (b *bed) splitHello(s splitter) {
	s.TCPConn = b.tcp()
	c := tls.Client(&s, b.TLSConfig(lab.ClientOptions{}))
	b.must(c.SetDeadline(time.Now().Add(10 * time.Second)))
	io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	if got, err := io.ReadAll(c); err != nil || !strings.Contains(string(got), "hello from server1") {
		b.t.Errorf("%q %v", got, err)
	}
}

// tcp connects to the virtual server and speaks no TLS yet; it ends with the test.
func (b *bed) tcp() *net.TCPConn {
	b.t.Helper()
	c, err := b.DialTCP(b.context(10*time.Second), b.Client(), lab.ClientOptions{})
	b.must(err)
	b.t.Cleanup(func() { c.Close() })
	return c
}

// endsBy expects one more connection to end for a reason that is counted and logged.
func (b *bed) endsBy(reason string, fn func()) {
	b.t.Helper()
	before := b.counter("ended/" + reason)
	fn()
	b.awaitCounter("ended/"+reason, before+1)
	b.awaitLog("connection ended", "reason="+reason, "client=10.1.0.10:")
	if now := b.counter("ended/" + reason); now != before+1 {
		b.t.Errorf("ended/%s went from %d to %d", reason, before, now)
	}
}

// refusesHello sends something and waits for the other side to end.
func (b *bed) refusesHello(send []byte, reason string) {
	b.endsBy(reason, func() {
		c := b.tcp()
		b.must(c.SetDeadline(time.Now().Add(5 * time.Second)))
		c.Write(send)
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			b.t.Errorf("still open")
		}
	})
}

// Clients that vanish without a word and servers that reset leave nothing behind.
func TestVanishing(t *testing.T) {
	b := up(t, lab.Topology{ClientLinks: 2, Devices: lab.Line(2, lab.Bridge).Devices, Pools: lab.Line(2, lab.Bridge).Pools,
		Chain: lab.Line(2, lab.Bridge).Chain}, impatient)
	b.fetch("/", lab.ClientOptions{})
	before := b.resources()
	b.sub("idle clients", func(b *bed) { b.vanish("idle", nil) })
	b.sub("clients in a download", func(b *bed) { b.vanish("idle", []byte("GET /bytes/1000000000 HTTP/1.1\r\nHost: shop.test\r\n\r\n")) })
	b.sub("clients in a handshake", func(b *bed) {
		b.whileGone(func() { b.tcp().Write(hello(b.t, 0)[:50]) }, "hello-timeout", 1)
	})
	b.sub("server resets", func(b *bed) {
		b.endsBy("server-reset", func() {
			_, err := b.Get(b.context(10*time.Second), b.Client(), "/truncated/100000", lab.ClientOptions{})
			if !errors.Is(err, syscall.ECONNRESET) {
				b.t.Errorf("the client sees %v", err)
			}
		})
	})
	b.sub("client resets", func(b *bed) {
		b.endsBy("client-reset", func() {
			c := b.dial(b.Client(), lab.ClientOptions{})
			io.WriteString(c, "GET /slow?d=20s HTTP/1.1\r\nHost: shop.test\r\n\r\n")
			c.NetConn().(*net.TCPConn).SetLinger(0)
			c.NetConn().Close()
		})
	})
	b.awaitRest(before)
}

// vanish opens connections, each of which may say something, and takes the client from the net.
func (b *bed) vanish(reason string, say []byte) {
	const clients = 10
	b.whileGone(func() {
		for range clients {
			_, err := b.dial(b.Client(), lab.ClientOptions{}).Write(say)
			b.must(err)
		}
	}, reason, clients)
}

// whileGone unplugs the client after fn until so many connections have ended for a reason.
func (b *bed) whileGone(fn func(), reason string, n uint64) {
	b.t.Helper()
	before := b.counter("ended/" + reason)
	fn()
	b.plug(false)
	defer b.plug(true)
	b.eventually(15*time.Second, func() error {
		if now := b.counter("ended/" + reason); now < before+n {
			return fmt.Errorf("ended/%s is %d, was %d", reason, now, before)
		}
		return nil
	})
	b.awaitLog("connection ended", "reason="+reason)
}

// plug the client's cable in or out; its routes go with it.
func (b *bed) plug(in bool) {
	b.t.Helper()
	ctx := context.WithoutCancel(b.t.Context())
	if !in {
		_, err := b.Client().Exec(ctx, "ip", "link", "set", b.Client().NIC, "down")
		b.must(err)
		return
	}
	for _, args := range []string{"link set eth0 up", "route replace default via 10.1.0.1"} {
		_, err := b.Client().Exec(ctx, "ip", strings.Fields(args)...)
		b.must(err)
	}
}
