package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sslo/proxy/sock"
	"sslo/session"
)

// device stands between front and back and sees the plaintext. It keeps the client's address and port, as
// a real one does.
type device struct {
	l     *net.TCPListener
	to    netip.AddrPort
	treat func(in, out *net.TCPConn)
}

func newDevice(b *bench, treat func(in, out *net.TCPConn)) {
	startDevice(b, true, treat)
}

// startDevice's device passes connections on, or answers them itself.
func startDevice(b *bench, passes bool, treat func(in, out *net.TCPConn)) {
	b.t.Helper()
	port := freePort(b.t).Port()
	b.deps.InnerAddr = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.3"), port)
	l, err := sock.Listen(netip.MustParseAddrPort("127.0.0.4:0"), sock.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { l.Close() })
	b.deps.InnerVia = l.Addr().(*net.TCPAddr).AddrPort()
	d := &device{l: l, treat: treat}
	if passes {
		d.to = b.deps.InnerAddr
	}
	go d.run()
}

func (d *device) run() {
	for {
		in, err := d.l.AcceptTCP()
		if err != nil {
			return
		}
		go func() {
			var out *net.TCPConn
			if d.to.IsValid() {
				if out, err = sock.Dial(addrOf(in.RemoteAddr()), d.to, time.Second, sock.Options{}); err != nil {
					sock.Reset(in)
					return
				}
			}
			d.treat(in, out)
		}()
	}
}

// forward is what a good device does.
func forward(in, out *net.TCPConn) {
	go func() { io.Copy(out, in); out.CloseWrite() }()
	io.Copy(in, out)
	in.CloseWrite()
}

func TestThroughDevice(t *testing.T) {
	b := newBench(t, func(b *bench) { b.origin = echo; newDevice(b, forward) })
	c := b.mustDial()
	body := pattern(1 << 20)
	go func() { c.Write(body); c.CloseWrite() }()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	b.ended(ReasonOK, 1)
}

// A device that blocks resets the client and the server.
func TestDeviceResets(t *testing.T) {
	server := make(chan error, 1)
	b := newBench(t, func(b *bench) {
		b.origin = func(c net.Conn) { _, err := io.Copy(c, c); server <- err }
		newDevice(b, func(in, out *net.TCPConn) {
			go io.Copy(in, out)
			buf := make([]byte, 4096)
			for {
				n, err := in.Read(buf)
				if err != nil || bytes.Contains(buf[:n], []byte("attack")) {
					sock.Reset(in)
					sock.Reset(out)
					return
				}
				out.Write(buf[:n])
			}
		})
	})
	c := b.mustDial()
	roundTrip(t, c)
	c.Write([]byte("an attack"))
	mustReset(t, c, 2*time.Second)
	if err := <-server; !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the server saw %v", err)
	}
	b.ended(ReasonInnerReset, 1)
}

// A device that ends the answer early with a FIN does not make the client believe that it is whole.
func TestDeviceCuts(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.origin = func(c net.Conn) { c.Write(pattern(1 << 20)); io.Copy(io.Discard, c) }
		newDevice(b, func(in, out *net.TCPConn) {
			go io.Copy(out, in)
			io.CopyN(in, out, 10000)
			in.CloseWrite()
		})
	})
	c := b.mustDial()
	if got, err := io.ReadAll(c); err == nil {
		t.Errorf("the client takes %d bytes for the whole body", len(got))
	}
	b.ended(ReasonDeviceClosed, 1)
}

// What a device says to the client before it ends the connection arrives, and then a reset.
func TestBlockPageArrives(t *testing.T) {
	page := pattern(1 << 20)
	b := newBench(t, func(b *bench) {
		b.origin = echo
		newDevice(b, func(in, out *net.TCPConn) {
			io.ReadFull(in, make([]byte, 6))
			in.Write(page)
			in.CloseWrite()
			io.Copy(io.Discard, in)
		})
	})
	c := b.mustDial()
	c.Write([]byte("attack"))
	time.Sleep(200 * time.Millisecond) // the page does not fit into what the client's kernel takes unread
	if got, err := io.ReadAll(c); err == nil || !bytes.Equal(got, page) {
		t.Errorf("%d bytes of %d, %v", len(got), len(page), err)
	}
	b.ended(ReasonDeviceClosed, 1)
}

type lastHop struct{}

func (lastHop) LastHop(session.Tuple) string { return "ips1" }

// A device that answers itself and passes nothing on is named.
func TestDeviceDoesNotReturn(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.origin = echo
		b.deps.Hops = lastHop{}
		b.cfg.VirtualServers[0].Timeouts.Connect = 200 * time.Millisecond
		startDevice(b, false, func(in, _ *net.TCPConn) { io.Copy(io.Discard, in) })
	})
	c := b.mustDial()
	mustReset(t, c, 3*time.Second)
	b.ended(ReasonNoReturn, 1)
	if log := b.logs.String(); !strings.Contains(log, "device ips1 did not return the flow") || !strings.Contains(log, "chain inspect") {
		t.Error(log)
	}
}

// A connection that reaches back and that no front made is reset and counted.
func TestBackUnknown(t *testing.T) {
	b := newBench(t, func(b *bench) { b.origin = echo })
	c, err := net.Dial("tcp", b.p.deps.InnerAddr.String())
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.Error(err)
	}
	if n := b.p.Stats().BackUnknown; n != 1 {
		t.Error(n)
	}
}

// A server that stops reading in the middle of an upload, answers and resets: the answer arrives.
func TestEarlyAnswer(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.origin = func(c net.Conn) {
			io.ReadFull(c, make([]byte, 1000))
			c.Write([]byte("413 too large"))
			time.Sleep(100 * time.Millisecond)
			sock.Reset(c.(*tls.Conn).NetConn().(*net.TCPConn))
		}
	})
	c := b.mustDial()
	go c.Write(pattern(30 << 20))
	got := make([]byte, 13)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "413 too large" {
		t.Errorf("%q, %v", got, err)
	}
	b.ended(ReasonServerReset, 1)
}
