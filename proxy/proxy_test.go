package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sslo/chain"
	"sslo/proxy/pool"
	"sslo/proxy/sock"
	"sslo/session"
	"sslo/tls/cert"
	"sslo/tls/cert/certtest"
	"sslo/tls/term"
)

// bench is a proxy with an origin behind it, all on loopback; the inner connection is a real one.
type bench struct {
	t      testing.TB
	ca     *certtest.CA
	origin func(net.Conn) // what the origin does with a connection
	accept net.Listener
	cfg    Config
	deps   Deps
	chains fakeChains
	p      *Proxy
	addr   string
	logs   lockedBuffer
}

type fakeChains struct{ out atomic.Pointer[chain.Outlook] }

func (c *fakeChains) Mark(string) (uint32, bool)   { return 0, true }
func (c *fakeChains) Outlook(string) chain.Outlook { return *c.out.Load() }

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func freePort(t testing.TB) netip.AddrPort {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// newBench starts everything; setup may change the configuration before.
func newBench(t testing.TB, setup func(*bench)) *bench {
	t.Helper()
	b := &bench{t: t, ca: certtest.NewCA(t)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.accept = l
	b.chains.out.Store(&chain.Outlook{InService: true})
	b.deps = Deps{Chains: &b.chains, InnerAddr: netip.MustParseAddrPort("127.0.0.3:0"),
		Logger: slog.New(slog.NewTextHandler(&b.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	listen := freePort(t)
	b.addr = listen.String()
	b.cfg = Config{
		ServerPools: []pool.Config{{Name: "web", Members: []pool.Member{{Name: "m", Address: l.Addr().(*net.TCPAddr).AddrPort()}},
			TLS: &pool.TLS{ClientOptions: term.ClientOptions{CA: b.ca.Pool(), ServerName: "origin.test"}}}},
		VirtualServers: []VirtualServer{{Name: "shop", Links: []Link{{Name: "ext"}}, Listen: []netip.AddrPort{listen},
			Certificates: []cert.Pair{{Name: "www", Certificate: b.ca.Issue(t, certtest.ECDSA, "shop.test")}},
			TLS:          term.ServerOptions{ALPN: []string{"http/1.1"}}, Chain: "inspect", ServerPool: "web"}},
	}
	if setup != nil {
		setup(b)
	}
	if b.p, err = New(b.cfg, b.deps); err != nil {
		t.Fatal(err)
	}
	if err := b.p.Start(); err != nil {
		t.Fatal(err)
	}
	go b.serve(tls.Certificate(b.ca.Issue(t, certtest.ECDSA, "origin.test")))
	t.Cleanup(b.stop)
	return b
}

func (b *bench) stop() {
	b.accept.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	b.p.Shutdown(ctx)
	if n := b.p.budget.used.Load(); n != 0 {
		b.t.Errorf("%d descriptors still reserved", n)
	}
	if n := b.p.bufs.InUse(); n != 0 {
		b.t.Errorf("%d bytes of buffers kept", n)
	}
	if b.t.Failed() {
		b.t.Log(b.logs.String())
	}
}

// serve speaks TLS unless the pool is in clear text.
func (b *bench) serve(c tls.Certificate) {
	cfg := &tls.Config{Certificates: []tls.Certificate{c}}
	for {
		nc, err := b.accept.Accept()
		if err != nil {
			return
		}
		go func() {
			if b.cfg.ServerPools[0].TLS != nil {
				nc = tls.Server(nc, cfg)
			}
			b.origin(nc)
		}()
	}
}

func (b *bench) clientConfig() *tls.Config {
	return &tls.Config{RootCAs: b.ca.Pool(), ServerName: "shop.test", NextProtos: []string{"http/1.1"}}
}

// dial connects with TLS.
func (b *bench) dial(cfg *tls.Config) (*tls.Conn, error) {
	nc := b.tcp()
	c := tls.Client(nc, cfg)
	return c, c.Handshake()
}

func (b *bench) mustDial() *tls.Conn {
	b.t.Helper()
	c, err := b.dial(b.clientConfig())
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func (b *bench) tcp() *net.TCPConn {
	b.t.Helper()
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.TCPConn)
}

// ended waits until that many connections ended with that reason.
func (b *bench) ended(r Reason, n uint64) {
	b.t.Helper()
	var st Stats
	for range 500 {
		if st = b.p.Stats(); st.VirtualServers[0].Ended[r.String()] == n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.t.Errorf("ended %v, want %d times %s", st.VirtualServers[0].Ended, n, r)
}

func echo(c net.Conn) {
	defer c.Close()
	io.Copy(c, c)
	if t, ok := c.(*tls.Conn); ok {
		t.CloseWrite()
	}
}

// pattern is a body that no piece of can be taken for another.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + i>>16)
	}
	return b
}

// Half-close in both ways of joining, both versions: the client sends and ends, the whole answer comes back.
func TestHalfClose(t *testing.T) {
	for _, inService := range []bool{true, false} {
		for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			for _, plain := range []bool{false, true} {
				t.Run(fmt.Sprint(inService, tls.VersionName(v), plain), func(t *testing.T) {
					b := newBench(t, func(b *bench) {
						b.chains.out.Store(&chain.Outlook{InService: inService, Reason: session.DeviceDown})
						b.cfg.VirtualServers[0].TLS.MaxVersion = v
						if plain {
							b.cfg.ServerPools[0].TLS = nil
						}
						b.origin = func(c net.Conn) { // answers only after the client's end
							body, err := io.ReadAll(c)
							if err != nil {
								t.Error(err)
							}
							c.Write(body)
							c.Close()
						}
					})
					c := b.mustDial()
					body := pattern(3 << 20)
					go func() { c.Write(body); c.CloseWrite() }()
					got, err := io.ReadAll(c)
					if err != nil || !bytes.Equal(got, body) {
						t.Errorf("%d bytes, %v", len(got), err)
					}
					c.Close()
					b.ended(ReasonOK, 1)
					st := b.p.Stats()
					vs := st.VirtualServers[0]
					if vs.BytesUp != 3<<20 || vs.BytesDown != 3<<20 || vs.Open != 0 || vs.Handshakes[0].Version != tls.VersionName(v) {
						t.Errorf("%+v", vs)
					}
					if inService != (len(st.Uninspected) == 0) {
						t.Errorf("ledger %+v", st.Uninspected)
					}
					if !inService && st.Uninspected[0] != (LedgerEntry{"inspect", "device-down", 1, 6 << 20}) {
						t.Errorf("ledger %+v", st.Uninspected)
					}
				})
			}
		}
	}
}

// How the origin ends is what the client sees: never a cut body as a whole one.
func TestTruncationIsPassedOn(t *testing.T) {
	body := pattern(300 << 10)
	raw := func(c net.Conn) *net.TCPConn {
		if s, ok := c.(*tls.Conn); ok {
			return s.NetConn().(*net.TCPConn)
		}
		return c.(*net.TCPConn)
	}
	type seen struct{ reset, notify bool }
	cases := map[string]struct {
		plain  bool
		end    func(c net.Conn)
		want   seen
		reason Reason
	}{
		"close_notify and FIN": {false, func(c net.Conn) { c.Close() }, seen{false, true}, ReasonOK},
		"FIN alone":            {false, func(c net.Conn) { raw(c).CloseWrite() }, seen{false, false}, ReasonServerTruncated},
		"FIN in a record":      {false, func(c net.Conn) { raw(c).Write([]byte{23, 3, 3, 9, 9, 1}); raw(c).CloseWrite() }, seen{true, false}, ReasonServerReset},
		"RST":                  {false, func(c net.Conn) { sock.Reset(raw(c)) }, seen{true, false}, ReasonServerReset},
		"clear text, FIN":      {true, func(c net.Conn) { c.Close() }, seen{false, true}, ReasonOK},
		"clear text, RST":      {true, func(c net.Conn) { sock.Reset(raw(c)) }, seen{true, false}, ReasonServerReset},
	}
	for name, c := range cases {
		for _, inService := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " ", inService), func(t *testing.T) {
				b := newBench(t, func(b *bench) {
					b.chains.out.Store(&chain.Outlook{InService: inService})
					if c.plain {
						b.cfg.ServerPools[0].TLS = nil
					}
					b.origin = func(nc net.Conn) {
						io.ReadFull(nc, make([]byte, 3))
						nc.Write(body)
						time.Sleep(50 * time.Millisecond) // what was sent is received before the end comes
						c.end(nc)
						time.Sleep(200 * time.Millisecond)
						nc.Close()
					}
				})
				wire := &eofConn{Conn: b.tcp()}
				client := tls.Client(wire, b.clientConfig())
				client.Write([]byte("get"))
				got, err := io.ReadAll(client)
				if !bytes.Equal(got, body) {
					t.Errorf("%d bytes of %d: what was received must be delivered first", len(got), len(body))
				}
				if now := (seen{err != nil, err == nil && !wire.eof}); now != c.want {
					t.Errorf("client saw %+v (%v), want %+v", now, err, c.want)
				}
				client.Close()
				b.ended(c.reason, 1)
			})
		}
	}
}

// eofConn knows whether the socket's end was reached, which crypto/tls does not tell from close_notify.
type eofConn struct {
	net.Conn
	eof bool
}

func (c *eofConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.eof = c.eof || err == io.EOF
	return n, err
}

// reuse lets a client use one port for several destinations.
func reuse(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
}
