package e2e

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"sslo/test/lab"
	"sslo/test/lab/origin"
)

// serve runs a TLS server on the lab's server that handles each connection by fn and then closes it in order,
// in a topology with NoOrigin.
func (b *bed) serve(fn func(*tls.Conn)) {
	b.t.Helper()
	cert, err := tls.LoadX509KeyPair(b.Path("origin.pem"), b.Path("origin.key"))
	b.must(err)
	l, err := b.Server().Listen("tcp", fmt.Sprintf(":%d", lab.TLSPort))
	b.must(err)
	b.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				t := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
				defer t.Close()
				if t.Handshake() == nil { // a monitor only connects
					fn(t)
				}
			}()
		}
	}()
}

func readLine(c net.Conn) string {
	line, _ := bufio.NewReader(c).ReadString('\n') // what is not there is not a command
	return strings.TrimSpace(line)
}

const bodySize = 3 << 20

// What a client half-closes, or a shell pipeline ends, is still answered in full.
func TestHalfCloseThroughDevices(t *testing.T) {
	b := up(t, lab.Line(2, lab.Bridge))
	request := fmt.Sprintf("GET /bytes/%d?rate=%d HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\n\r\n", bodySize, 6*bodySize)
	for name, end := range map[string]func(*tls.Conn) error{
		"close_notify":         (*tls.Conn).CloseWrite,
		"close_notify and FIN": func(c *tls.Conn) error { return errors.Join(c.CloseWrite(), c.NetConn().(*net.TCPConn).CloseWrite()) },
		"FIN alone":            func(c *tls.Conn) error { return c.NetConn().(*net.TCPConn).CloseWrite() },
	} {
		for _, v6 := range []bool{false, true} {
			b.sub(fmt.Sprintf("%s v6=%t", name, v6), func(b *bed) {
				c := b.dial(b.Client(), lab.ClientOptions{IPv6: v6})
				_, err := io.WriteString(c, request)
				b.must(err)
				b.must(end(c))
				b.rightBody(c)
			})
		}
	}
	b.sub("openssl s_client at the end of a pipe", func(b *bed) {
		cmd := b.Client().Command(b.context(20*time.Second), "openssl", "s_client", "-quiet", "-verify_return_error",
			"-connect", fmt.Sprintf("%s:%d", lab.VIP4, lab.TLSPort), "-servername", lab.ShopName, "-CAfile", b.Path("ca.pem"))
		cmd.Stdin = strings.NewReader(request)
		out, err := cmd.Output()
		b.must(err)
		b.rightBody(strings.NewReader(string(out)))
	})
	b.sub("nothing stays", func(b *bed) { b.awaitCounter("ended/ok", 7) })
}

func (b *bed) rightBody(r io.Reader) {
	b.t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(r), nil)
	b.must(err)
	h := sha256.New()
	n, err := io.Copy(h, resp.Body)
	if err != nil || n != bodySize || hex.EncodeToString(h.Sum(nil)) != origin.Sum(bodySize) {
		b.t.Errorf("%d of %d bytes, %v, or a wrong hash", n, bodySize, err)
	}
}

// A server that answers only after the client has ended its direction is waited for.
func TestServerSpeaksAfterTheClientEnded(t *testing.T) {
	b := up(t, lab.Topology{NoOrigin: true, Devices: lab.Line(2, lab.Bridge).Devices, Pools: lab.Line(2, lab.Bridge).Pools,
		Chain: lab.Line(2, lab.Bridge).Chain}, set("server_pools.web.monitor", []string{}))
	b.serve(func(c *tls.Conn) {
		n, err := io.Copy(io.Discard, c)
		time.Sleep(300 * time.Millisecond)
		fmt.Fprintf(c, "%d %v", n, err)
	})
	c := b.dial(b.Client(), lab.ClientOptions{})
	_, err := io.WriteString(c, "hello")
	b.must(err)
	b.must(c.CloseWrite())
	if got, err := io.ReadAll(c); string(got) != "5 <nil>" || err != nil {
		t.Errorf("%q %v", got, err)
	}
}

// cuts are ways of a server to end in the middle of what it has to say, and what the client must see.
var cuts = map[string]struct {
	cut    func(*tls.Conn)
	want   error
	reason string
}{
	"reset": {func(c *tls.Conn) {
		time.Sleep(200 * time.Millisecond) // what is not sent yet would be lost on the server itself
		c.NetConn().(*net.TCPConn).SetLinger(0)
		c.NetConn().Close()
	}, syscall.ECONNRESET, "server-reset"},
	// crypto/tls as a client does not tell it from an end in order; curl below does
	"FIN without close_notify": {func(c *tls.Conn) { c.NetConn().Close() }, nil, "server-truncated"},
	"FIN inside a record": {func(c *tls.Conn) {
		c.NetConn().Write([]byte{23, 3, 3, 64, 0, 1, 2, 3})
		c.NetConn().Close()
	}, syscall.ECONNRESET, "server-reset"},
	"in order": {func(*tls.Conn) {}, nil, "ok"},
}

// A body that was cut is never shown as whole, whoever cut it, and what was sent before arrives. The body's end
// is the connection's end, so TLS alone can tell.
func TestTruncatedBodies(t *testing.T) {
	line := lab.Line(2, lab.Inspect)
	b := up(t, lab.Topology{NoOrigin: true, Devices: line.Devices, Pools: line.Pools, Chain: line.Chain},
		set("server_pools.web.monitor", []string{}))
	const part = 200_000
	b.serve(func(c *tls.Conn) {
		how := readLine(c)
		fmt.Fprintf(c, "HTTP/1.0 200 OK\r\n\r\n")
		io.Copy(c, origin.Stream(part))
		if cut, ok := cuts[how]; ok {
			cut.cut(c)
			return
		}
		io.Copy(io.Discard, c) // hold it
	})
	for how, cut := range cuts {
		b.sub(how, func(b *bed) {
			before := b.counter("ended/" + cut.reason)
			got, err := b.ask(how)
			if !errors.Is(err, cut.want) {
				b.t.Errorf("the client sees %v, want %v", err, cut.want)
			}
			if got < part {
				b.t.Errorf("%d bytes of %d arrived before the end", got, part)
			}
			b.awaitCounter("ended/"+cut.reason, before+1)
		})
	}
	b.sub("what others say", func(b *bed) { b.judged() })
	b.sub("device resets", func(b *bed) { b.deviceResets() })
}

// ask sends one line and reads to the end.
func (b *bed) ask(line string) (int64, error) {
	b.t.Helper()
	c := b.dial(b.Client(), lab.ClientOptions{})
	defer c.Close()
	b.must(c.SetDeadline(time.Now().Add(10 * time.Second)))
	_, err := fmt.Fprintf(c, "%s\n", line)
	b.must(err)
	return io.Copy(io.Discard, c)
}

// judged: what openssl and curl make of each end. Only openssl minds a FIN without close_notify.
func (b *bed) judged() {
	for how, says := range map[string]string{"reset": "errno=104", "FIN without close_notify": "unexpected eof", "in order": ""} {
		cmd := b.Client().Command(b.context(10*time.Second), "openssl", "s_client", "-quiet", "-no_ign_eof", "-connect",
			fmt.Sprintf("%s:%d", lab.VIP4, lab.TLSPort), "-servername", lab.ShopName, "-CAfile", b.Path("ca.pem"))
		in, err := cmd.StdinPipe()
		b.must(err)
		fmt.Fprintf(in, "%s\n", how) // and it stays open: at its end s_client would leave
		var said strings.Builder
		cmd.Stderr = &said
		cmd.Run()
		in.Close()
		if got := said.String(); !strings.Contains(got, says) || says == "" && (strings.Contains(got, "rror") || strings.Contains(got, "errno")) {
			b.t.Errorf("%s: openssl says %s", how, said.String())
		}
	}
	cmd := b.Client().Command(b.context(10*time.Second), "curl", "-sS", "--cacert", b.Path("ca.pem"), "--no-alpn", "--connect-to",
		fmt.Sprintf("::%s:%d", lab.VIP4, lab.TLSPort), "-o", "/dev/null", "-X", "reset\n", lab.URL("/"))
	if out, err := cmd.CombinedOutput(); err == nil {
		b.t.Errorf("curl takes a body that was reset for whole: %s", out)
	}
}

// deviceResets: a device that resets in the middle of the body resets the client too, at once.
func (b *bed) deviceResets() {
	c := b.dial(b.Client(), lab.ClientOptions{})
	b.must(c.SetDeadline(time.Now().Add(10 * time.Second)))
	_, err := io.WriteString(c, "hold\n")
	b.must(err)
	_, err = io.CopyN(io.Discard, c, 100_000)
	b.must(err)
	before := b.counter("ended/inner-reset")
	b.must(b.SetDeviceMode("a", "reset"))
	io.WriteString(c, "anything\n") // the device resets what passes
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		b.t.Errorf("the client sees %v, want a reset", err)
	}
	b.awaitCounter("ended/inner-reset", before+1)
	b.must(b.Restore("a"))
}
