package term

import (
	"crypto/tls"
	"net"
	"testing"

	"sslo/tls/cert"
	"sslo/tls/hello"
)

// What was agreed on is counted by family and suite, what failed by family and reason.
func TestTally(t *testing.T) {
	b, stranger := newBed(t), newBed(t)
	srv := b.server(t)
	var clients, servers Tally
	count := func(f Family, cl *Client, srv *Server) {
		s, c := meet(t, srv.sniffed, dial(cl, "a.test", ""))
		for _, one := range []struct {
			t *Tally
			e end
		}{{&servers, s}, {&clients, c}} {
			if one.e.err != nil {
				one.t.Fail(f, one.e.err)
			} else {
				one.t.Add(one.e.State())
			}
		}
	}
	for _, f := range []Family{TLS, TLCP, TLS13SM} {
		good, bad := b.client(f), stranger.client(f)
		for range 2 {
			count(f, good, srv)
			count(f, bad, srv)
		}
	}
	made, failed := clients.Snapshot()
	if len(made) != 6 || len(failed) != 3 {
		t.Fatalf("%+v %+v", made, failed)
	}
	for _, m := range made {
		if m.Count != 1 || m.Suite == "" || m.Version == "" {
			t.Errorf("%+v", m)
		}
	}
	if _, failed = servers.Snapshot(); len(failed) != 3 {
		t.Fatalf("%+v", failed)
	}
	for _, f := range failed {
		if want := map[Family]string{TLS: "peer: bad certificate", TLCP: "peer: unknown certificate authority",
			TLS13SM: "peer: unknown certificate authority"}[f.Family]; f.Reason != want || f.Count != 2 {
			t.Errorf("%+v, want %s", f, want)
		}
	}
}

// Every reason is one of a few words, whatever the peer sent.
func TestReasons(t *testing.T) {
	b := newBed(t)
	std := newServer(b.ca, t, b.tk, "a", ServerOptions{MinVersion: tls.VersionTLS13}, "a.test")
	none := NewServer(ServerOptions{Families: []Family{TLCP}, SM: &SMServer{Certificates: []cert.SMPair{{Certificate: b.smCA.Issue(t, "a.test")}}}},
		cert.NewStore(nil), b.tk, "b")
	client := func(cfg *tls.Config) func(net.Conn) (Conn, error) {
		return func(nc net.Conn) (Conn, error) {
			cfg.InsecureSkipVerify = true
			c := tls.Client(nc, cfg)
			return done(stdConn{c}, c.Handshake())
		}
	}
	for name, x := range map[string]struct {
		srv    *Server
		client func(net.Conn) (Conn, error)
		want   string
	}{
		"version":    {std, client(&tls.Config{MaxVersion: tls.VersionTLS12}), "protocol version not supported"},
		"not spoken": {none, client(&tls.Config{}), "protocol not spoken"},
		"closed": {std, func(nc net.Conn) (Conn, error) {
			nc.Write([]byte("\x16\x03\x01\x00\x05\x01\x00"))
			nc.Close()
			return nil, net.ErrClosed
		}, "closed"},
		"not TLS": {std, func(nc net.Conn) (Conn, error) { nc.Write([]byte("GET / HTTP/1.1\r\n\r\n")); return nil, net.ErrClosed }, "not TLS"},
	} {
		s, _ := meet(t, func(nc net.Conn) (Conn, error) {
			if name == "not spoken" {
				return x.srv.sniffed(nc)
			}
			return x.srv.Handshake(nc, &hello.Hello{})
		}, x.client)
		if s.err == nil || ReasonOf(s.err) != x.want {
			t.Errorf("%s: %v: %s", name, s.err, ReasonOf(s.err))
		}
	}
}
