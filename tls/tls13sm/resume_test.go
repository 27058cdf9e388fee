package tls13sm

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
)

// again connects twice, with what changes in between, and tells whether the second time resumed.
func again(t *testing.T, sc, cc *Config, change func(sc, cc *Config)) bool {
	t.Helper()
	cc.ClientSessionCache = NewLRUClientSessionCache(4)
	server, client := connect(t, sc, cc)
	echo(t, server, client)
	// A second pair of configurations: the verifiers of the first have their own memory.
	sc2 := &Config{Certificates: sc.Certificates, ClientCAs: sc.ClientCAs, ClientAuth: sc.ClientAuth, Tolerant: sc.Tolerant}
	sc2.tickets.list, sc2.tickets.set, sc2.tickets.made = sc.tickets.list, sc.tickets.set, sc.tickets.made
	cc2 := &Config{RootCAs: cc.RootCAs, ServerName: cc.ServerName, Certificates: cc.Certificates, ClientSessionCache: cc.ClientSessionCache, Tolerant: cc.Tolerant}
	if change != nil {
		change(sc2, cc2)
	}
	server, client = connect(t, sc2, cc2)
	echo(t, server, client)
	s, c := server.ConnectionState(), client.ConnectionState()
	if s.DidResume != c.DidResume {
		t.Error("the ends differ")
	}
	if sc2.ClientAuth != tls.NoClientCert && len(s.PeerCertificates) == 0 && len(cc.Certificates) > 0 {
		t.Error("no client certificate")
	}
	return s.DidResume
}

func TestResumption(t *testing.T) {
	w := testWorld(t)
	later := func(d time.Duration) func() time.Time { return func() time.Time { return time.Now().Add(d) } }
	cases := map[string]struct {
		mutual  bool
		change  func(sc, cc *Config)
		resumes bool
	}{
		"plain":                    {false, nil, true},
		"mutual":                   {true, nil, true},
		"other ticket keys":        {false, func(sc, _ *Config) { sc.SetSessionTicketKeys([][32]byte{{1}}) }, false},
		"no tickets any more":      {false, func(sc, _ *Config) { sc.SessionTicketsDisabled = true }, false},
		"ticket too old":           {false, func(sc, _ *Config) { sc.Time = later(ticketLifetime + time.Minute) }, false},
		"client's session too old": {false, func(_, cc *Config) { cc.Time = later(23*time.Hour + 59*time.Minute) }, true},
		"other suite, same hash":   {false, func(_, cc *Config) { cc.CipherSuites = []uint16{TLS_SM4_CCM_SM3} }, true},
		"retry":                    {false, func(_, cc *Config) { cc.KeyShares = []CurveID{} }, true},
		"tolerant session, strict": {false, func(sc, cc *Config) { sc.Tolerant, cc.Tolerant = true, true }, false},
		"certificate now wanted": {false, func(sc, cc *Config) {
			sc.ClientAuth = tls.RequireAnyClientCert
			cc.Certificates = []Certificate{w.client}
		}, false},
		"certificate no more wanted":  {true, func(sc, _ *Config) { sc.ClientAuth = tls.NoClientCert }, false},
		"client revoked, if verified": {true, func(sc, _ *Config) { sc.Revoked = revokesOnce() }, false},
	}
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			sc, cc := w.configs()
			if x.mutual {
				sc.ClientAuth = tls.RequireAndVerifyClientCert
				cc.Certificates = []Certificate{w.client}
			}
			if got := again(t, sc, cc, x.change); got != x.resumes {
				t.Errorf("resumed: %v", got)
			}
		})
	}
}

// revokesOnce refuses the first chain it is asked about, and takes the same one in the full handshake.
func revokesOnce() func(cert, issuer *smx509.Certificate) error {
	asked := false
	return func(cert, issuer *smx509.Certificate) error {
		if asked {
			return nil
		}
		asked = true
		return errors.New("revoked")
	}
}

func TestTicketKeysRotate(t *testing.T) {
	var k ticketKeys
	now := time.Now()
	ticket, err := k.seal([]byte("x"), now)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		now = now.Add(keyPeriod)
		if opens := k.open(ticket, now) != nil; opens != (i < keysKept-1) {
			t.Errorf("after %d periods: %v", i+1, opens)
		}
	}
	ticket, _ = k.seal([]byte("x"), now)
	for i := range ticket {
		bad := append([]byte(nil), ticket...)
		bad[i] ^= 1
		if k.open(bad, now) != nil {
			t.Errorf("byte %d does not count", i)
		}
	}
}

// A session is good for the name that it was made for only.
func TestTicketOfAnotherName(t *testing.T) {
	w := testWorld(t)
	sc, cc := w.configs()
	two := w.ca.issue(t, newSM2(t), "server.test", func(c *smx509.Certificate) { c.DNSNames = []string{"server.test", "other.test"} })
	sc.Certificates = []Certificate{two}
	cache := NewLRUClientSessionCache(4)
	cc.ClientSessionCache = cache
	echoPair(t, sc, cc)
	s, _ := cache.Get("server.test")
	cache.Put("other.test", s)
	cc.ServerName = "other.test"
	if server := echoPair(t, sc, cc); server.ConnectionState().DidResume {
		t.Error("resumed under another name")
	}
}

func echoPair(t *testing.T, sc, cc *Config) *Conn {
	server, client := connect(t, sc, cc)
	echo(t, server, client)
	return server
}

// early is a client that sends early data although nobody told it to.
func early(t *testing.T, conn net.Conn, cfg *Config, records int) *Conn {
	c := Client(conn, cfg)
	h := &clientHandshake{c: c, ctx: context.Background()}
	steps := []func() error{h.readHello, h.retry, h.keyExchange, h.readExtensions, h.readAuthentication, h.readFinished, h.sendFlight, c.finish}
	c.Conn = sm.NewConn(c.rec, func(context.Context) error {
		if err := h.sendEarly(records); err != nil {
			return err
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}, c.late)
	return c
}

func (h *clientHandshake) sendEarly(records int) error {
	c := h.c
	c.cfg.SessionTicketsDisabled = true
	m := &clientHello{sessionID: make([]byte, 32), suites: c.cfg.suites(), groups: toU16s(c.cfg.groups()), signatures: c.cfg.signatures(), pskModes: []byte{pskDHE}, serverName: c.cfg.ServerName}
	rand.Read(m.random[:])
	for _, g := range c.cfg.keyShares() {
		if err := h.addShare(m, g); err != nil {
			return err
		}
	}
	h.hello, c.random = m, m.random
	m.raw = with(extEarlyData)(m.marshal())
	c.say(m.raw)
	c.rec.WriteChangeCipherSpec(true)
	if err := c.rec.Flush(); err != nil {
		return err
	}
	for range records {
		c.NetConn().Write(append(sm.AppendHeader(nil, sm.RecordApplicationData, version12, 1000), make([]byte, 1000)...))
	}
	c.rec.SetRules(func(r *sm.Rules) { r.Version, r.DropCCS = version12, true })
	return nil
}

// Early data is passed over, up to a bound, and the handshake goes on as if it had not come.
func TestEarlyDataIsRefused(t *testing.T) {
	for name, shares := range map[string][]CurveID{"": nil, "retried": {}} {
		for _, n := range []int{0, 1, 10, 40} {
			t.Run(name, func(t *testing.T) {
				sc, cc := testWorld(t).configs()
				cc.KeyShares = shares
				a, b := tcp(t)
				server, client := Server(b, sc), early(t, a, cc, n)
				se, ce := both(server, client)
				if n == 40 {
					if se == nil {
						t.Error("40 kB were passed over")
					}
					return
				}
				if se != nil || ce != nil {
					t.Fatalf("%d records: server %v, client %v", n, se, ce)
				}
				echo(t, server, client)
			})
		}
	}
}

// A binder that does not verify ends the handshake.
func TestForgedBinder(t *testing.T) {
	sc, cc := testConfigs(t)
	cc.ClientSessionCache, cc.CipherSuites = NewLRUClientSessionCache(1), []uint16{TLS_SM4_GCM_SM3}
	echoPair(t, sc, cc)
	expectAlert(t, &middle{suite: TLS_SM4_GCM_SM3, edit: edit{false, 0, flip(-1)}.apply}, sc, cc, false, 51)
}

// A client may send change_cipher_spec between its hello and its Finished, but nothing else and not before.
func TestChangeCipherSpecs(t *testing.T) {
	ccs := append(sm.AppendHeader(nil, sm.RecordChangeCipherSpec, version12, 1), 1)
	for name, x := range map[string]struct {
		bytes []byte
		alert int
	}{
		"before the hello": {ccs, 10},
		"alert":            {append(sm.AppendHeader(nil, sm.RecordAlert, version12, 2), 2, 40), -1},
		"garbage":          {[]byte("GET / HTTP/1.1\r\n\r\n"), 10},
		"data":             {append(sm.AppendHeader(nil, sm.RecordApplicationData, version12, 1), 1), 10},
	} {
		a, b := tcp(t)
		a.Write(x.bytes)
		a.CloseWrite()
		sc, _ := testConfigs(t)
		if err := Server(b, sc).Handshake(); err == nil || ownAlert(err) != x.alert {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestContextEndsTheHandshake(t *testing.T) {
	_, b := tcp(t)
	sc, _ := testConfigs(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if err := Server(b, sc).HandshakeContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// A hello and then the end: an error at once.
func TestHelloThenEnd(t *testing.T) {
	sc, cc := testConfigs(t)
	a, b := tcp(t)
	go func() {
		h := &clientHandshake{c: Client(a, cc)}
		h.sendHello()
		a.CloseWrite()
		io.Copy(io.Discard, a)
	}()
	begin := time.Now()
	if err := Server(b, sc).Handshake(); err != io.ErrUnexpectedEOF || time.Since(begin) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
}

// Certificates are chosen by the name, or by the callback.
func TestCertificateByName(t *testing.T) {
	w := testWorld(t)
	sc, cc := w.configs()
	sc.Certificates = append(sc.Certificates, w.ca.issue(t, newSM2(t), "second.test"))
	cc.ServerName = "second.test"
	echoPair(t, sc, cc)
	third := w.ca.issue(t, newSM2(t), "third.test")
	sc.GetCertificate = func(h *ClientHelloInfo) (*Certificate, error) {
		if h.ServerName != "third.test" {
			return nil, errors.New("unknown")
		}
		return &third, nil
	}
	cc.ServerName = "third.test"
	echoPair(t, sc, cc)
}

// Smaller records are sent to a client that wants them.
func TestRecordSizeLimit(t *testing.T) {
	server, client := withoutTickets(t)
	server.rec.SetLimit(99)
	go server.Write(make([]byte, 250))
	b := make([]byte, 1<<15)
	for _, want := range []int{99, 99, 52} {
		if n, err := client.Read(b); n != want || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
}
