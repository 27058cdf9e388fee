package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sslo/test/lab"
	"sslo/test/lab/pki"
)

// splitHello is a connection that sends its ClientHello in a way of its own, once it has all records of it.
type splitHello struct {
	net.Conn
	send  func(c net.Conn, hello []byte) error
	hello []byte
	done  bool
}

func (s *splitHello) Write(p []byte) (int, error) {
	if s.done {
		return s.Conn.Write(p)
	}
	s.hello = append(s.hello, p...)
	message, err := handshakeMessage(s.hello)
	if err != nil {
		return 0, err
	}
	if s.done = len(message) >= 4+int(binary.BigEndian.Uint32(message)&0xffffff); s.done {
		err = s.send(s.Conn, s.hello)
	}
	return len(p), err
}

func whole(c net.Conn, hello []byte) error {
	_, err := c.Write(hello)
	return err
}

func inTwoParts(pause time.Duration) func(net.Conn, []byte) error {
	return func(c net.Conn, hello []byte) error {
		if err := whole(c, hello[:len(hello)/2]); err != nil {
			return err
		}
		time.Sleep(pause)
		return whole(c, hello[len(hello)/2:])
	}
}

// byteByByte makes a segment of every byte: Go's sockets have TCP_NODELAY, and while nothing is on its way
// the kernel has nothing to merge a byte with.
func byteByByte(c net.Conn, hello []byte) error {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	for i := range hello {
		if err := whole(c, hello[i:i+1]); err != nil {
			return err
		}
		awaitAcknowledged(raw)
	}
	return nil
}

// awaitAcknowledged gives the other side a moment, no longer than it delays an acknowledgement.
func awaitAcknowledged(raw syscall.RawConn) {
	for range 20 {
		waiting := 0
		raw.Control(func(fd uintptr) { waiting, _ = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) })
		if waiting < 8 { // segments, of the ten that may be on their way
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// inRecords cuts the handshake message into records of at most n bytes.
func inRecords(n int) func(net.Conn, []byte) error {
	return func(c net.Conn, hello []byte) error {
		message, err := handshakeMessage(hello)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		for len(message) > 0 {
			piece := message[:min(n, len(message))]
			message = message[len(piece):]
			out.Write([]byte{22, 3, 1})
			binary.Write(&out, binary.BigEndian, uint16(len(piece)))
			out.Write(piece)
		}
		return whole(c, out.Bytes())
	}
}

// handshakeMessage takes the records off.
func handshakeMessage(records []byte) ([]byte, error) {
	var message []byte
	for len(records) > 0 {
		if len(records) < 5 || records[0] != 22 {
			return nil, fmt.Errorf("not a handshake record: % x", records[:min(len(records), 5)])
		}
		n := int(binary.BigEndian.Uint16(records[3:]))
		message = append(message, records[5:5+n]...)
		records = records[5+n:]
	}
	return message, nil
}

// manyProtocols are so many to offer that the ClientHello has at least n bytes.
func manyProtocols(n int) []string {
	list := []string{"http/1.1"}
	for size := 200; size < n; size += 101 {
		list = append(list, fmt.Sprintf("%0100d", len(list)))
	}
	return list
}

// However the ClientHello comes, its name is found: the rule for it decides, and the server is asked for it.
func TestClientHelloHoweverItComes(t *testing.T) {
	b := lengths(t)
	b.sub("a byte a segment", (*bed).byteByByteIsWhatItSays)
	for _, tt := range []struct {
		name string
		size int // at least
		send func(net.Conn, []byte) error
	}{
		{"whole", 0, whole},
		{"two parts, 800 ms apart", 0, inTwoParts(800 * time.Millisecond)},
		{"1-byte segments", 0, byteByByte},
		{"two records", 0, inRecords(700)},
		{"records of 16 bytes", 0, inRecords(16)},
		{"1.8 kB", 1800, whole},
		{"1.8 kB in 1-byte segments", 1800, byteByByte},
		{"1.8 kB in two records", 1800, inRecords(1024)},
		{"16 kB", 16000, whole},
		{"16 kB in two parts", 16000, inTwoParts(100 * time.Millisecond)},
		{"more than a record", 20000, inTwoParts(100 * time.Millisecond)},
		{"60 kB", 60000, whole},
	} {
		for _, ipv6 := range []bool{false, true} {
			o := lab.ClientOptions{SNI: chainName(2), IPv6: ipv6, TLS: &tls.Config{}}
			if tt.size > 0 {
				o.TLS.NextProtos = manyProtocols(tt.size)
			}
			b.sub(fmt.Sprintf("%s/%s", tt.name, familyName(o.Target().Addr())), func(b *bed) { b.hello(o, tt.size, tt.send) })
		}
	}
}

func (b *bed) hello(o lab.ClientOptions, size int, send func(net.Conn, []byte) error) {
	tcp, err := b.DialTCP(b.context(10*time.Second), b.Client(), o)
	b.must(err)
	defer tcp.Close()
	split := &splitHello{Conn: tcp, send: send}
	c := tls.Client(split, b.TLSConfig(o))
	b.must(c.HandshakeContext(b.context(10 * time.Second)))
	if n := len(split.hello); n < size || size == 0 && n < 1000 {
		b.t.Fatalf("the ClientHello has %d bytes: this tests something else", n)
	}
	body, err := b.request(c, "/")
	b.must(err)
	if want := fmt.Sprintf("sni=%q", o.SNI); !strings.Contains(body, want) {
		b.t.Errorf("answer %q, want %s", body, want)
	}
	if way := b.way(tcp); way != "a b" {
		b.t.Errorf("way %q: the rule for %s did not decide", way, o.SNI)
	}
}

// byteByByteIsWhatItSays: the box gets a byte a segment, or the test would be one of the client's kernel.
func (b *bed) byteByByteIsWhatItSays() {
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	seen := b.watchNIC(ctx, b.Box, lab.ClientNIC)
	o := lab.ClientOptions{SNI: chainName(2)}
	tcp, err := b.DialTCP(b.context(10*time.Second), b.Client(), o)
	b.must(err)
	defer tcp.Close()
	split := &splitHello{Conn: tcp, send: byteByByte}
	b.must(tls.Client(split, b.TLSConfig(o)).HandshakeContext(b.context(10 * time.Second)))
	b.eventually(3*time.Second, func() error {
		single := 0
		for _, p := range seen.from(local(tcp)) {
			if len(p.payload) == 1 {
				single++
			}
		}
		if single < len(split.hello)/2 {
			return fmt.Errorf("%d segments of one byte of a ClientHello of %d", single, len(split.hello))
		}
		return nil
	})
}

// Without a name the first certificate is shown, and the server is verified by the configured name.
func TestClientWithoutSNI(t *testing.T) {
	b := build(t, lab.Line(1, lab.Bridge))
	other, err := b.CA.Issue(pki.ECDSA, "other.test")
	b.must(err)
	b.must(other.Write(b.Dir, "other"))
	b.config.Set("certificates.other", map[string]any{"cert": b.Path("other.pem"), "key": b.Path("other.key")})
	b.config.Set("virtual_servers.shop.certificates", []string{"www", "other"})
	b.config.Set("virtual_servers.shop.rules", []any{rule("nameless", "sni", "", "chain", "none")})
	b.start()
	b.awaitReady()
	for _, ipv6 := range []bool{false, true} {
		o := lab.ClientOptions{IPv6: ipv6, SNI: "-"}
		b.sub(familyName(o.Target().Addr()), func(b *bed) {
			c := b.dial(b.Client(), o) // verifies the address
			if name := c.ConnectionState().PeerCertificates[0].Subject.CommonName; name != lab.ShopName {
				b.t.Errorf("certificate of %q", name)
			}
			if body, err := b.request(c, "/"); err != nil || !strings.Contains(body, fmt.Sprintf("sni=%q", lab.OriginName)) {
				b.t.Errorf("answer %q %v", body, err)
			}
			if legs := b.tree(local(c)); len(legs) != 0 {
				b.t.Errorf("the rule for clients without a name did not decide: %+v", legs)
			}
		})
	}
	c := b.dial(b.Client(), lab.ClientOptions{SNI: "other.test"})
	if name := c.ConnectionState().PeerCertificates[0].Subject.CommonName; name != "other.test" {
		t.Errorf("certificate of %q for other.test", name)
	}
	b.reload(set("server_pools.web.tls.server_name", "wrong.test")) // verification is by name, not by luck
	if body, err := b.Get(b.context(5*time.Second), b.Client(), "/", lab.ClientOptions{SNI: "-"}); err == nil {
		t.Errorf("a server with another name than configured answered %q", body)
	}
	b.awaitLog("server-handshake-failed", "wrong.test")
}
