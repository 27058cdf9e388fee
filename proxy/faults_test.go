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
	"sslo/chain"
	"sslo/policy"
	"sslo/policy/script"
	"sslo/proxy/pool"
	"sslo/proxy/sock"
	"sslo/session"
	"sslo/tls/cert/certtest"
)

// mustReset expects the connection to end by RST within d.
func mustReset(t testing.TB, c net.Conn, d time.Duration) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(d))
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
}

// A first flight that is no ClientHello ends in a counted reason, and soon.
func TestBadHello(t *testing.T) {
	cases := map[string]struct {
		send   []byte
		leave  bool
		reason Reason
	}{
		"http":     {[]byte("GET / HTTP/1.1\r\n\r\n"), false, ReasonHelloGarbage},
		"huge":     {[]byte{22, 3, 1, 0, 4, 1, 1, 0, 1}, false, ReasonHelloTooLarge},
		"half":     {[]byte{22, 3, 1, 2, 0, 1, 0, 1}, false, ReasonHelloTimeout},
		"nothing":  {nil, false, ReasonHelloTimeout},
		"vanishes": {[]byte{22, 3, 1, 2, 0}, true, ReasonClientGone},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(b *bench) {
				b.origin = echo
				b.cfg.VirtualServers[0].Timeouts.ClientHello = 150 * time.Millisecond
			})
			nc := b.tcp()
			nc.Write(c.send)
			if c.leave {
				nc.Close()
			} else {
				mustReset(t, nc, 2*time.Second)
			}
			b.ended(c.reason, 1)
		})
	}
}

// A ClientHello in two parts is still one.
func TestSlowHello(t *testing.T) {
	b := newBench(t, func(b *bench) { b.origin = echo })
	c := tls.Client(&halves{Conn: b.tcp()}, b.clientConfig())
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, c)
}

// halves sends the first write in two parts 800 ms apart.
type halves struct {
	net.Conn
	done bool
}

func (h *halves) Write(p []byte) (int, error) {
	if h.done {
		return h.Conn.Write(p)
	}
	h.done = true
	h.Conn.Write(p[:len(p)/2])
	time.Sleep(800 * time.Millisecond)
	n, err := h.Conn.Write(p[len(p)/2:])
	return n + len(p)/2, err
}

func roundTrip(t testing.TB, c net.Conn) {
	t.Helper()
	c.Write([]byte("ping"))
	got := make([]byte, 4)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "ping" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestHandshakeFails(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.origin = echo
		b.cfg.VirtualServers[0].Timeouts.Handshake = 150 * time.Millisecond
	})
	cfg := b.clientConfig()
	cfg.NextProtos = []string{"spdy/3"}
	if _, err := b.dial(cfg); err == nil || !strings.Contains(err.Error(), "no application protocol") {
		t.Errorf("%v: ALPN is answered truthfully, or with its alert", err)
	}
	b.ended(ReasonHandshakeFailed, 1)
	old := b.clientConfig()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if _, err := b.dial(old); err == nil {
		t.Error("TLS 1.1")
	}
	b.ended(ReasonHandshakeFailed, 2)
	c := tls.Client(&mute{Conn: b.tcp()}, b.clientConfig())
	c.Handshake() // nothing after the ClientHello gets through
	b.ended(ReasonHandshakeTimeout, 1)
}

// mute sends only the first write.
type mute struct {
	net.Conn
	n int
}

func (m *mute) Write(p []byte) (int, error) {
	if m.n++; m.n > 1 {
		return len(p), nil
	}
	return m.Conn.Write(p)
}

func TestALPNReachesServer(t *testing.T) {
	got := make(chan string, 1)
	b := newBench(t, func(b *bench) {
		b.origin = func(c net.Conn) {
			s := c.(*tls.Conn)
			s.Handshake()
			got <- s.ConnectionState().ServerName
			echo(c)
		}
	})
	c := b.mustDial()
	if p := c.ConnectionState().NegotiatedProtocol; p != "http/1.1" {
		t.Errorf("ALPN %q", p)
	}
	roundTrip(t, c)
	if sni := <-got; sni != "shop.test" {
		t.Errorf("the server was sent the name %q, want the client's", sni)
	}
}

// A client without SNI: the default certificate, and the server is verified by the configured name.
func TestNoSNI(t *testing.T) {
	b := newBench(t, func(b *bench) { b.origin = echo })
	c, err := b.dial(&tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, c)
}

func TestServerCertificateIsVerified(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.origin = echo
		b.cfg.ServerPools[0].TLS.CA = certtest.NewCA(t).Pool()
	})
	c := b.mustDial()
	mustReset(t, c, 2*time.Second)
	b.ended(ReasonServerHandshake, 1)
	if log := b.logs.String(); !strings.Contains(log, "Test CA") || !strings.Contains(log, "virtual_server=shop") {
		t.Error("the log names the missing issuer:", log)
	}
}

func TestNoServer(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.origin = echo
		b.cfg.ServerPools[0].Members[0].Address = freePort(t)
	})
	mustReset(t, b.mustDial(), 2*time.Second)
	b.ended(ReasonNoServer, 1)
}

type unhealthy struct{}

func (unhealthy) Healthy(string, string) bool { return false }

func (unhealthy) Since(string, string) time.Time { return time.Time{} }

// Nothing goes to members that are down, not even a handshake with the client is wasted.
func TestAllMembersDown(t *testing.T) {
	b := newBench(t, func(b *bench) { b.origin = echo; b.deps.Health = unhealthy{} })
	if _, err := b.dial(b.clientConfig()); !errors.Is(err, unix.ECONNRESET) {
		t.Error(err)
	}
	b.ended(ReasonNoServer, 1)
}

func TestChainDown(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.origin = echo
		b.chains.out.Store(&chain.Outlook{OnDown: chain.Reset, Reason: session.DeviceDown})
		b.cfg.VirtualServers[0].Timeouts.Drop = 300 * time.Millisecond
	})
	if _, err := b.dial(b.clientConfig()); !errors.Is(err, unix.ECONNRESET) {
		t.Error(err)
	}
	b.ended(ReasonChainDown, 1)
	b.chains.out.Store(&chain.Outlook{OnDown: chain.Drop})
	silent(t, b)
	b.ended(ReasonChainDown, 2)
	b.chains.out.Store(&chain.Outlook{InService: true}) // the next connection takes the devices again
	roundTrip(t, b.mustDial())
}

// silent expects no answer for the time a dropped connection is held.
func silent(t *testing.T, b *bench) {
	t.Helper()
	nc := b.tcp()
	start := time.Now()
	tls.Client(nc, b.clientConfig()).Handshake()
	if time.Since(start) < 250*time.Millisecond {
		t.Error("a dropped connection was answered")
	}
}

func TestPolicy(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.origin = echo
		v := &b.cfg.VirtualServers[0]
		v.Timeouts.Drop = 300 * time.Millisecond
		when := func(sni string) policy.Conditions { return policy.Conditions{SNI: []string{sni}} }
		v.Rules = []policy.Rule{
			{Name: "no", When: when("no.test"), Action: policy.Reject},
			{Name: "hush", When: when("hush.test"), Action: policy.Drop},
			{Name: "bank", When: when("*.bank.test"), Action: policy.Bypass},
			{Name: "bank through", When: when("bank.test"), Action: policy.Bypass, Chain: "inspect"},
			{Name: "direct", When: when("shop.test"), Chain: policy.NoChain},
		}
	})
	as := func(sni string) *tls.Config { c := b.clientConfig(); c.ServerName = sni; return c }
	if _, err := b.dial(as("no.test")); !errors.Is(err, unix.ECONNRESET) {
		t.Error("reject:", err)
	}
	b.ended(ReasonPolicyReject, 1)
	nc := b.tcp()
	start := time.Now()
	tls.Client(nc, as("hush.test")).Handshake()
	if time.Since(start) < 250*time.Millisecond {
		t.Error("drop answers")
	}
	b.ended(ReasonPolicyDrop, 1)
	for sni, collapsed := range map[string]bool{"x.bank.test": true, "bank.test": false} {
		cfg := as(sni)
		cfg.NextProtos = nil
		cfg.InsecureSkipVerify = true
		c, err := b.dial(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.ConnectionState().PeerCertificates[0].DNSNames[0]; got != "origin.test" {
			t.Errorf("TLS bypass shows the certificate of %s", got)
		}
		roundTrip(t, c)
		l := b.p.List(1)[0]
		if !l.Bypass || l.Collapsed != collapsed || l.ServerName != sni || l.Stage != "open" || l.Member != "m" {
			t.Errorf("%+v", l)
		}
		c.CloseWrite()
		io.Copy(io.Discard, c)
		c.Close()
	}
	b.ended(ReasonOK, 2)
	roundTrip(t, b.mustDial())
	if got := b.p.Stats().Uninspected; len(got) != 1 || got[0].Reason != "policy" || got[0].Sessions != 2 {
		t.Errorf("ledger %+v", got)
	}
}

func TestScript(t *testing.T) {
	compiled, err := script.Compile(script.Config{Name: "t.lua", Chains: []string{"inspect"}, ServerPools: []string{"web"}, Source: `
function on_connect(conn)
  conn:server_pool("web")
end
function on_client_hello(conn)
  if conn.sni == "no.test" then conn:reject() end
  if conn.sni == "bad.test" then conn:chain("nowhere") end
  if conn.rule == "saved" then conn:intercept() conn:chain("none") end
  conn:log("seen " .. conn.sni)
  conn:count("seen")
end`})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(b *bench) {
		b.origin = echo
		v := &b.cfg.VirtualServers[0]
		v.Script = compiled
		v.Rules = []policy.Rule{{Name: "saved", When: policy.Conditions{SNI: []string{"shop.test"}}, Action: policy.Bypass},
			{Name: "refused", When: policy.Conditions{SNI: []string{"never.test"}}, Action: policy.Reject}}
	})
	as := func(sni string) *tls.Config {
		c := b.clientConfig()
		c.ServerName = sni
		c.InsecureSkipVerify = true
		return c
	}
	roundTrip(t, b.mustDial())
	if l := b.p.List(1)[0]; !l.Collapsed || l.Bypass || l.Rule != "saved, script" || l.ServerPool != "web" {
		t.Errorf("%+v", l)
	}
	for _, sni := range []string{"no.test", "never.test"} {
		if _, err := b.dial(as(sni)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: %v", sni, err)
		}
	}
	b.ended(ReasonPolicyReject, 2)
	c, err := b.dial(as("bad.test")) // the script fails: as if there were none
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, c)
	st := b.p.Stats().VirtualServers[0].Script
	if st.Errors["t.lua:7"] != 1 || st.Counters["seen"] != 2 {
		t.Errorf("%+v", st)
	}
	for _, want := range []string{`msg=script virtual_server=shop`, `text="seen shop.test"`, `there is no chain \"nowhere\"`} {
		if !strings.Contains(b.logs.String(), want) {
			t.Errorf("the log does not have %s", want)
		}
	}
	cfg := b.cfg
	cfg.VirtualServers[0].ScriptRejects = true
	if err := b.p.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := b.dial(as("bad.test")); !errors.Is(err, unix.ECONNRESET) {
		t.Error("on_error reject:", err)
	}
	b.ended(ReasonScriptError, 1)
	if st := b.p.Stats().VirtualServers[0].Script; st.Counters["seen"] != 2 || st.Errors["t.lua:7"] != 2 {
		t.Errorf("counts after a reload: %+v", st)
	}
}

func TestScriptOnConnect(t *testing.T) {
	compiled, err := script.Compile(script.Config{Name: "t.lua", Source: `function on_connect(conn) if conn:within("127.0.0.0/8") then conn:reject() end end`})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(b *bench) { b.cfg.VirtualServers[0].Script = compiled })
	nc, err := net.DialTimeout("tcp", b.addr, 5*time.Second)
	if err == nil { // else it was reset before connect returned
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(5 * time.Second))
		_, err = nc.Read(make([]byte, 1))
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.Error("nothing was sent, and still:", err)
	}
	b.ended(ReasonPolicyReject, 1)
}

func TestClientReset(t *testing.T) {
	ended := make(chan error, 1)
	b := newBench(t, func(b *bench) {
		b.origin = func(c net.Conn) { _, err := io.Copy(io.Discard, c); ended <- err; c.Close() }
	})
	c := b.mustDial()
	c.Write([]byte("x"))
	time.Sleep(50 * time.Millisecond)
	sock.Reset(c.NetConn().(*net.TCPConn))
	if err := <-ended; !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the server saw %v, want a reset", err)
	}
	b.ended(ReasonClientReset, 1)
}

func TestIdle(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.origin = echo
		b.cfg.VirtualServers[0].Timeouts.Idle = 200 * time.Millisecond
	})
	c := b.mustDial()
	for range 4 { // traffic keeps it
		roundTrip(t, c)
		time.Sleep(100 * time.Millisecond)
	}
	mustReset(t, c, 2*time.Second)
	b.ended(ReasonIdle, 1)
}

// refused expects one connection more to be reset, which may be so quick that connect says it.
func (b *bench) refused(d *net.Dialer) {
	b.t.Helper()
	c, err := d.Dial("tcp", b.addr)
	if err == nil {
		defer c.Close()
		mustReset(b.t, c, time.Second)
	} else if !errors.Is(err, unix.ECONNRESET) {
		b.t.Error(err)
	}
}

func TestLimits(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.origin = echo
		b.cfg.VirtualServers[0].Limits = Limits{Connections: 3, ConnectionsPerClient: 2}
	})
	one, two := b.mustDial(), b.mustDial()
	b.refused(&net.Dialer{})
	b.ended(ReasonClientLimit, 1)
	other := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	nc, err := other.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	third := tls.Client(nc, b.clientConfig())
	roundTrip(t, third)
	b.refused(other)
	b.ended(ReasonLimit, 1)
	roundTrip(t, one) // old ones are unhurt
	roundTrip(t, two)
	one.Close()
	b.ended(ReasonOK, 1)
	roundTrip(t, b.mustDial())
}

// Handshakes that nobody finishes are bounded, in all and for one address; what is established does not count.
func TestHandshakeLimits(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.origin = echo
		b.cfg.Handshakes, b.cfg.HandshakesPerClient = 3, 2
	})
	one := b.mustDial()
	roundTrip(t, one)
	silent := []net.Conn{b.tcp(), b.tcp()}
	b.refused(&net.Dialer{})
	b.ended(ReasonHandshakes, 1)
	other := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	third, err := other.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	b.refused(other)
	b.ended(ReasonHandshakes, 2)
	roundTrip(t, one)
	silent[0].Close()
	b.ended(ReasonClientGone, 1)
	roundTrip(t, b.mustDial())
	if n := b.p.handshakes.total.Load(); n != 2 {
		t.Errorf("%d handshakes in progress", n)
	}
}

// Near the descriptor limit new connections are refused at once and counted, old ones are unhurt.
func TestDescriptorBudget(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.origin = echo
		b.cfg.Descriptors = descriptorsReserve + 2*descriptorsPerFlow + 1
	})
	one, two := b.mustDial(), b.mustDial()
	roundTrip(t, one)
	roundTrip(t, two)
	b.refused(&net.Dialer{})
	b.ended(ReasonDescriptors, 1)
	roundTrip(t, one)
	one.Close()
	b.ended(ReasonOK, 1)
	roundTrip(t, b.mustDial())
}

// When the process has no descriptor at all, whoever took them, connections are refused instead of hanging.
func TestNoDescriptorsAtAll(t *testing.T) {
	b := newBench(t, func(b *bench) { b.origin = echo })
	old := b.mustDial()
	roundTrip(t, old)
	nc := b.tcpLater(t)
	var was unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &was)
	low := was
	low.Cur = 3 // below what is open: every new one fails
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &was)
	b.p.spare.Close() // its number is above the lowered limit, so a fresh one can not be had either
	nc.connect(t)
	time.Sleep(100 * time.Millisecond)
	roundTrip(t, old)
	unix.Setrlimit(unix.RLIMIT_NOFILE, &was)
	roundTrip(t, b.mustDial())
}

// later is a socket made now and connected when no descriptor is left.
type later struct {
	fd int
	to netip.AddrPort
}

func (b *bench) tcpLater(t *testing.T) *later {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return &later{fd, netip.MustParseAddrPort(b.addr)}
}

func (l *later) connect(t *testing.T) {
	if err := unix.Connect(l.fd, &unix.SockaddrInet4{Addr: l.to.Addr().As4(), Port: int(l.to.Port())}); err != nil {
		t.Error(err)
	}
}

// The same client port on another link: the older connection ends, the newer one works.
func TestSameInnerTuple(t *testing.T) {
	second := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.8"), 0)
	b := newBench(t, func(b *bench) {
		b.origin = echo
		second = netip.AddrPortFrom(second.Addr(), netip.MustParseAddrPort(b.addr).Port())
		v := &b.cfg.VirtualServers[0]
		v.Listen = append(v.Listen, second)
	})
	d := &net.Dialer{Control: reuse}
	first, err := tls.DialWithDialer(d, "tcp", b.addr, b.clientConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	roundTrip(t, first)
	d.LocalAddr = first.LocalAddr()
	again, err := tls.DialWithDialer(d, "tcp", second.String(), b.clientConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	mustReset(t, first, 2*time.Second)
	b.ended(ReasonReplaced, 1)
	roundTrip(t, again)
	if l := b.p.List(0); len(l) != 1 || !b.p.Abort(l[0].Tuple) || b.p.Abort(session.Tuple{}) {
		t.Errorf("%+v", l)
	}
	mustReset(t, again, 2*time.Second)
	b.ended(ReasonAborted, 1)
}

func TestRetryAnotherMember(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.origin = echo
		p := &b.cfg.ServerPools[0]
		p.Members = append([]pool.Member{{Name: "dead", Address: freePort(t)}}, p.Members...)
	})
	for range 4 {
		c := b.mustDial()
		roundTrip(t, c)
		c.Close()
	}
	b.ended(ReasonOK, 4)
	if m := b.p.Stats().ServerPools[0].Members; m[0].ConnectFailed != 2 || m[1].Total != 4 || m[1].Resumed == 0 {
		t.Errorf("%+v", m)
	}
}

func TestLargeBothWaysAtOnce(t *testing.T) {
	b := newBench(t, func(b *bench) { b.origin = echo })
	c := b.mustDial()
	body := pattern(20 << 20)
	go func() { c.Write(body); c.CloseWrite() }()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	c.Close()
	b.ended(ReasonOK, 1)
}
