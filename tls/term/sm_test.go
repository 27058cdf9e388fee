package term

import (
	"errors"
	"net"
	"testing"
	"time"

	"sslo/tls/cert"
	"sslo/tls/cert/certtest"
	"sslo/tls/hello"
	"sslo/tls/tls13sm"
)

// bed has authorities of both kinds and a server that has certificates of both.
type bed struct {
	ca   *certtest.CA
	smCA *certtest.SMCA
	tk   *Tickets
}

func newBed(t *testing.T) *bed {
	return &bed{certtest.NewCA(t), certtest.NewSMCA(t), NewTickets(time.Now())}
}

func (b *bed) server(t *testing.T, families ...Family) *Server {
	o := ServerOptions{ALPN: []string{"http/1.1"}, Families: families,
		SM: &SMServer{Certificates: []cert.SMPair{{Name: "sm", Certificate: b.smCA.Issue(t, "a.test")}}}}
	return newServer(b.ca, t, b.tk, "a", o, "a.test")
}

func (b *bed) client(families ...Family) *Client {
	return NewClient(ClientOptions{CA: b.ca.Pool(), Families: families, SM: &SMClient{CA: b.smCA.Pool()}})
}

// sniffed reads the ClientHello first, as the front does, and hands the connection on with it.
func (s *Server) sniffed(nc net.Conn) (Conn, error) {
	w := &replayed{Conn: nc}
	for {
		buf := make([]byte, 4096)
		n, err := nc.Read(buf)
		w.first = append(w.first, buf[:n]...)
		if err != nil {
			return nil, err
		}
		h, err := hello.Parse(w.first)
		if errors.Is(err, hello.ErrIncomplete) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return s.Handshake(w, h)
	}
}

type replayed struct {
	net.Conn
	first []byte
}

func (r *replayed) Read(b []byte) (int, error) {
	if len(r.first) == 0 {
		return r.Conn.Read(b)
	}
	n := copy(b, r.first)
	r.first = r.first[n:]
	return n, nil
}

// One port serves all families; each client gets its own.
func TestFamilies(t *testing.T) {
	b := newBed(t)
	srv := b.server(t)
	for f, version := range map[Family]string{TLS: "TLS 1.3", TLCP: "TLCP 1.1", TLS13SM: "TLS 1.3"} {
		cl := b.client(f)
		for i, resumed := range []bool{false, true, true} {
			s, c := meet(t, srv.sniffed, dial(cl, "a.test", "http/1.1"))
			if s.err != nil || c.err != nil {
				t.Fatalf("%v: server %v, client %v", f, s.err, c.err)
			}
			x, y := s.State(), c.State()
			if x.Family != f || y.Family != f || x.Version != version || x.Suite != y.Suite || x.Suite == "" || x.ServerName != "a.test" {
				t.Errorf("%v: %+v, %+v", f, x, y)
			}
			if x.Resumed != resumed || x.Resumed != y.Resumed {
				t.Errorf("%v: connection %d: resumed %v, %v", f, i, x.Resumed, y.Resumed)
			}
		}
	}
}

// both is the hello of a client that could speak either family of TLS 1.3.
var both = &hello.Hello{Version: 0x0303, Versions: []uint16{0x0304}, Suites: []uint16{0x1301, tls13sm.TLS_SM4_GCM_SM3},
	Groups: []uint16{29, 41}, Signatures: []uint16{0x0804, 0x0708}}

func TestChoice(t *testing.T) {
	b := newBed(t)
	change := func(f func(*hello.Hello)) *hello.Hello { h := *both; f(&h); return &h }
	onlySM := change(func(h *hello.Hello) { h.Suites = []uint16{0x0a0a, tls13sm.TLS_SM4_CCM_SM3} })
	dual := &hello.Hello{Version: hello.TLCP11, Versions: []uint16{hello.TLCP11}, Suites: []uint16{0xe013}}
	for name, x := range map[string]struct {
		families []Family
		hello    *hello.Hello
		want     Family
	}{
		"by default SM first":       {nil, both, TLS13SM},
		"TLS preferred":             {[]Family{TLS, TLS13SM}, both, TLS},
		"TLS preferred, SM offered": {[]Family{TLS, TLS13SM}, onlySM, TLS13SM},
		"SM off":                    {[]Family{TLS}, both, TLS},
		"SM off, SM alone offered":  {[]Family{TLS}, onlySM, TLS},
		"no curveSM2":               {nil, change(func(h *hello.Hello) { h.Groups = []uint16{29} }), TLS},
		"no sm2sig_sm3":             {nil, change(func(h *hello.Hello) { h.Signatures = []uint16{0x0804} }), TLS},
		"TLS 1.2 with an SM suite":  {nil, change(func(h *hello.Hello) { h.Versions = []uint16{0x0303} }), TLS},
		"TLCP":                      {nil, dual, TLCP},
		"TLCP off":                  {[]Family{TLS, TLS13SM}, dual, 0},
		"TLS off":                   {[]Family{TLCP}, both, 0},
	} {
		if got := b.server(t, x.families...).choose(x.hello); got != x.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := newServer(b.ca, t, b.tk, "x", ServerOptions{}, "a.test").choose(both); got != TLS {
		t.Errorf("without SM certificates: %v", got)
	}
}

// The client finds out what a server speaks, one connection each, and remembers it.
func TestClientTriesFamilies(t *testing.T) {
	b := newBed(t)
	for _, f := range []Family{TLS, TLCP, TLS13SM} {
		srv := b.server(t, f)
		cl := b.client(TLS, TLS13SM, TLCP)
		tries := 0
		for ; tries < 3; tries++ {
			s, c := meet(t, srv.sniffed, dial(cl, "a.test", ""))
			if c.err == nil && s.err == nil {
				break
			}
			if !errors.Is(c.err, ErrOtherFamily) {
				t.Fatalf("%v: %v", f, c.err)
			}
		}
		if want := map[Family]int{TLS: 0, TLS13SM: 1, TLCP: 2}[f]; tries != want {
			t.Errorf("%v after %d tries", f, tries)
		}
		if _, c := meet(t, srv.sniffed, dial(cl, "a.test", "")); c.err != nil || c.State().Family != f {
			t.Errorf("%v was forgotten: %v", f, c.err)
		}
	}
}

// A certificate that does not verify is no reason to try something else.
func TestNoOtherFamilyForBadCertificates(t *testing.T) {
	b, other := newBed(t), newBed(t)
	for _, f := range []Family{TLS, TLCP, TLS13SM} {
		cl := other.client(f, TLS)
		if _, c := meet(t, b.server(t).sniffed, dial(cl, "a.test", "")); c.err == nil || errors.Is(c.err, ErrOtherFamily) {
			t.Errorf("%v: %v", f, c.err)
		}
	}
}

// The name that is verified may be another than the one that is sent.
func TestVerifiedNameOfSM(t *testing.T) {
	b := newBed(t)
	for _, f := range []Family{TLCP, TLS13SM} {
		for name, good := range map[string]bool{"a.test": true, "b.test": false} {
			cl := NewClient(ClientOptions{Families: []Family{f}, SM: &SMClient{CA: b.smCA.Pool()}, ServerName: name})
			s, c := meet(t, b.server(t).sniffed, dial(cl, "sent.test", ""))
			if (c.err == nil) != good {
				t.Errorf("%v, %s: %v", f, name, c.err)
			}
			if good && s.State().ServerName != "sent.test" {
				t.Errorf("%v: %+v", f, s.State())
			}
		}
	}
}

func TestParseFamily(t *testing.T) {
	for _, f := range allFamilies {
		if got, err := ParseFamily(f.String()); got != f || err != nil {
			t.Errorf("%v: %v, %v", f, got, err)
		}
	}
	if _, err := ParseFamily("ssl"); err == nil {
		t.Error("ssl is known")
	}
}
