package pool

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"sslo/proxy/relay"
	"sslo/tls/cert/certtest"
	"sslo/tls/term"
)

var always = func(string) bool { return true }

func request() Request {
	return Request{Connect: time.Second, Handshake: time.Second, Healthy: always, Buffers: relay.NewBuffers(0)}
}

// listen accepts and keeps; with a configuration it speaks TLS.
func listen(t *testing.T, cfg *tls.Config) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			if cfg != nil {
				go func() { s := tls.Server(c, cfg); s.Write([]byte("x")); io.Copy(io.Discard, s) }()
			}
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func closedPort(t *testing.T) netip.AddrPort {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func TestRoundRobinSkipsWhatIsDown(t *testing.T) {
	p := New(Config{Name: "web", Members: []Member{{Name: "a", Address: listen(t, nil)}, {Name: "b", Address: listen(t, nil)}, {Name: "c", Address: listen(t, nil)}}})
	got := map[string]int{}
	r := request()
	r.Healthy = func(m string) bool { return m != "b" }
	for i := range 20 {
		if i%5 == 0 {
			p.Update(p.now.Load().cfg) // a reload does not begin again with the first
		}
		s, err := p.Connect(r)
		if err != nil {
			t.Fatal(err)
		}
		got[s.Member]++
		s.Reset()
		s.Done()
	}
	if got["a"] != 10 || got["c"] != 10 {
		t.Error(got)
	}
	r.Healthy = func(string) bool { return false }
	if _, err := p.Connect(r); !errors.Is(err, ErrNoMember) || p.Available(r.Healthy) {
		t.Error(err)
	}
	for _, m := range p.Stats(always).Members {
		if m.Open != 0 || m.Total != uint64(got[m.Name]) {
			t.Errorf("%+v", m)
		}
	}
}

func TestRetryAnotherMember(t *testing.T) {
	ca, other := certtest.NewCA(t), certtest.NewCA(t)
	good := listen(t, &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, certtest.ECDSA, "o.test")}})
	bad := listen(t, &tls.Config{Certificates: []tls.Certificate{other.Issue(t, certtest.ECDSA, "o.test")}})
	p := New(Config{Name: "web", Members: []Member{{Name: "refuses", Address: closedPort(t)}, {Name: "bad", Address: bad}, {Name: "good", Address: good}},
		TLS: &TLS{ClientOptions: term.ClientOptions{CA: ca.Pool(), ServerName: "o.test"}}})
	for range 3 {
		s, err := p.Connect(request())
		if err != nil || s.Member != "good" {
			t.Fatal(s, err)
		}
		b, err := s.Read() // the server's ticket comes with it
		if err != nil || b.N != 1 {
			t.Fatal(err)
		}
		s.Reset()
		s.Done()
	}
	st := p.Stats(always).Members
	if st[0].ConnectFailed == 0 || st[1].HandshakeFailed == 0 || st[2].Total != 3 || st[2].Resumed != 2 {
		t.Errorf("%+v", st)
	}
	p.Update(Config{Name: "web", Members: []Member{{Name: "bad", Address: bad}, {Name: "refuses", Address: closedPort(t)}}, TLS: p.now.Load().cfg.TLS})
	_, err := p.Connect(request())
	if !errors.Is(err, ErrHandshake) || !errors.Is(err, ErrConnect) {
		t.Error(err)
	}
}

func TestRawAndPlain(t *testing.T) {
	ca := certtest.NewCA(t)
	addr := listen(t, &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, certtest.ECDSA, "o.test")}})
	p := New(Config{Name: "web", Members: []Member{{Address: addr}}, TLS: &TLS{ClientOptions: term.ClientOptions{CA: ca.Pool()}}})
	r := request()
	r.Raw = true
	s, err := p.Connect(r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Done()
	defer s.Reset()
	c := tls.Client(s.Stream.(*relay.Plain).TCPConn, &tls.Config{RootCAs: ca.Pool(), ServerName: "o.test"})
	if err := c.Handshake(); err != nil {
		t.Error("the client's own TLS must reach the server:", err)
	}
}
