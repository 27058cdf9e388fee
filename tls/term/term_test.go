package term

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"sslo/tls/cert"
	"sslo/tls/cert/certtest"
	"sslo/tls/hello"
)

type end struct {
	Conn
	err error
}

// meet runs both ends of a handshake and one byte each way, so that tickets arrive.
func meet(t *testing.T, server func(net.Conn) (Conn, error), client func(net.Conn) (Conn, error)) (s, c end) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan end, 1)
	go func() {
		nc, _ := l.Accept()
		nc.SetDeadline(time.Now().Add(5 * time.Second))
		t.Cleanup(func() { nc.Close() })
		e := end{}
		if e.Conn, e.err = server(nc); e.err == nil {
			e.Write([]byte("x"))
		} else {
			nc.Close()
		}
		done <- e
	}()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(5 * time.Second))
	if c.Conn, c.err = client(nc); c.err == nil {
		io.ReadFull(c, make([]byte, 1))
	} else {
		nc.Close()
	}
	return <-done, c
}

func (s *Server) accept(nc net.Conn) (Conn, error) { return s.Handshake(nc, &hello.Hello{}) }

func dial(c *Client, sni, alpn string) func(net.Conn) (Conn, error) {
	return func(nc net.Conn) (Conn, error) { return c.Handshake(nc, sni, alpn) }
}

func newServer(ca *certtest.CA, t *testing.T, tk *Tickets, scope string, o ServerOptions, names ...string) *Server {
	return NewServer(o, cert.NewStore([]cert.Pair{{Name: "x", Certificate: ca.Issue(t, certtest.ECDSA, names...)}}), tk, scope)
}

func TestVersionsAndALPN(t *testing.T) {
	ca := certtest.NewCA(t)
	tk := NewTickets(time.Now())
	for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		srv := newServer(ca, t, tk, "a", ServerOptions{ALPN: []string{"http/1.1"}, MaxVersion: v}, "a.test")
		cl := NewClient(ClientOptions{CA: ca.Pool()})
		s, c := meet(t, srv.accept, dial(cl, "a.test", "http/1.1"))
		if s.err != nil || c.err != nil {
			t.Fatal(s.err, c.err)
		}
		st := s.State()
		if st.Version != tls.VersionName(v) || st.ALPN != "http/1.1" || st.ServerName != "a.test" || c.State().Suite != st.Suite {
			t.Errorf("%+v", st)
		}
	}
	srv := newServer(ca, t, tk, "a", ServerOptions{ALPN: []string{"http/1.1"}}, "a.test")
	if s, c := meet(t, srv.accept, dial(NewClient(ClientOptions{CA: ca.Pool()}), "a.test", "spdy/9")); s.err == nil || c.err == nil {
		t.Error("a protocol that nobody speaks was agreed on")
	}
	none := newServer(ca, t, tk, "a", ServerOptions{}, "a.test")
	if _, c := meet(t, none.accept, dial(NewClient(ClientOptions{CA: ca.Pool()}), "a.test", "h2")); c.err == nil {
		t.Error("h2 was promised to the client and the server did not agree")
	}
}

func TestVerification(t *testing.T) {
	ca, other := certtest.NewCA(t), certtest.NewCA(t)
	srv := newServer(ca, t, NewTickets(time.Now()), "a", ServerOptions{}, "origin.test")
	cases := []struct {
		name, sni string
		o         ClientOptions
		wantErr   string
	}{
		{"original name", "origin.test", ClientOptions{CA: ca.Pool()}, ""},
		{"wrong name", "else.test", ClientOptions{CA: ca.Pool()}, "valid for origin.test"},
		{"client sent none", "", ClientOptions{CA: ca.Pool(), ServerName: "origin.test"}, ""},
		{"verified by another name than sent", "front.test", ClientOptions{CA: ca.Pool(), ServerName: "origin.test"}, ""},
		{"that other name is wrong", "origin.test", ClientOptions{CA: ca.Pool(), ServerName: "else.test"}, "valid for origin.test"},
		{"no name at all", "", ClientOptions{CA: ca.Pool()}, "no server name to verify"},
		{"unknown authority", "origin.test", ClientOptions{CA: other.Pool()}, `issuer "CN=Test CA"`},
		{"unknown authority, other name", "front.test", ClientOptions{CA: other.Pool(), ServerName: "origin.test"}, `issuer "CN=Test CA"`},
		{"not verified", "", ClientOptions{SkipVerify: true}, ""},
	}
	for _, c := range cases {
		cl := NewClient(c.o)
		for round := range 2 { // the second resumes
			_, got := meet(t, srv.accept, dial(cl, c.sni, ""))
			switch {
			case c.wantErr == "" && got.err != nil, c.wantErr != "" && (got.err == nil || !strings.Contains(got.err.Error(), c.wantErr)):
				t.Errorf("%s, round %d: %v, want %q", c.name, round, got.err, c.wantErr)
			case got.err == nil && !c.o.SkipVerify && got.State().Resumed != (round == 1):
				t.Errorf("%s, round %d: resumed %v", c.name, round, got.State().Resumed)
			}
		}
	}
}

func TestTickets(t *testing.T) {
	ca := certtest.NewCA(t)
	now := time.Now()
	tk := NewTickets(now)
	names := []string{"a.test"}
	a, b := newServer(ca, t, tk, "a", ServerOptions{}, names...), newServer(ca, t, tk, "b", ServerOptions{}, names...)
	cl := NewClient(ClientOptions{CA: ca.Pool()})
	resumed := func(s *Server) bool {
		_, c := meet(t, s.accept, dial(cl, "a.test", ""))
		if c.err != nil {
			t.Fatal(c.err)
		}
		return c.State().Resumed
	}
	if resumed(a) || !resumed(a) {
		t.Error("the second handshake resumes, the first can not")
	}
	if resumed(b) {
		t.Error("a session of one virtual server was resumed at another")
	}
	resumed(a)
	tk.Rotate(now)
	if !resumed(a) {
		t.Error("the key before is accepted")
	}
	reloaded := newServer(ca, t, tk, "a", ServerOptions{}, names...)
	if !resumed(reloaded) {
		t.Error("keys survive a reload")
	}
	for range ticketKeys {
		tk.Rotate(now)
	}
	if resumed(reloaded) {
		t.Error("an old key is forgotten")
	}
	if tk.RotateIfDue(now.Add(time.Minute)) || !tk.RotateIfDue(now.Add(TicketPeriod)) {
		t.Error("period")
	}
}

func TestTLCPRefused(t *testing.T) {
	srv := newServer(certtest.NewCA(t), t, NewTickets(time.Now()), "a", ServerOptions{}, "a.test")
	a, b := net.Pipe()
	told := make(chan []byte, 1)
	go func() {
		buf := make([]byte, 99)
		n, _ := b.Read(buf)
		told <- buf[:n]
	}()
	if _, err := srv.Handshake(a, &hello.Hello{Version: hello.TLCP11}); err != ErrTLCP {
		t.Error(err)
	}
	if got := <-told; string(got) != "\x15\x01\x01\x00\x02\x02\x46" { // fatal, protocol_version
		t.Errorf("client was told %x", got)
	}
}

// A server that has X25519 only is offered it after it refused, once for all connections.
func TestServerWithX25519Only(t *testing.T) {
	ca := certtest.NewCA(t)
	srv := newServer(ca, t, NewTickets(time.Now()), "x", ServerOptions{}, "a.test")
	only := func(nc net.Conn) (Conn, error) {
		cfg := srv.std.Clone()
		cfg.CurvePreferences = []tls.CurveID{tls.X25519}
		c := tls.Server(nc, cfg)
		return stdConn{c}, c.Handshake()
	}
	cl := NewClient(ClientOptions{CA: ca.Pool()})
	if _, c := meet(t, only, dial(cl, "a.test", "")); !errors.Is(c.err, ErrOtherFamily) {
		t.Fatalf("first: %v", c.err)
	}
	for range 2 {
		if s, c := meet(t, only, dial(cl, "a.test", "")); c.err != nil || s.err != nil {
			t.Fatalf("server %v, client %v", s.err, c.err)
		}
	}
}
