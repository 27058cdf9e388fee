package probe

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
)

// picky refuses some connections before it makes a handshake.
type picky struct{ refused, refuse atomic.Int64 }

var errAgain = errors.New("try the other one")

func (p *picky) Handshake(c net.Conn, name string) (net.Conn, error) {
	if p.refuse.Add(-1) >= 0 {
		p.refused.Add(1)
		return nil, errAgain
	}
	t := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	return t, t.Handshake()
}

func (p *picky) Again(err error) bool { return errors.Is(err, errAgain) }

// A probe by another protocol tries again, on new connections, while its handshaker says so, but not for ever.
func TestOtherTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	defer s.Close()
	p := &picky{}
	spec := func(key string) HTTPSpec {
		return HTTPSpec{Address: netip.MustParseAddrPort(s.Listener.Addr().String()),
			TLS:     &TLSSpec{Other: &OtherTLS{Key: key, Open: func() Handshaker { return p }}},
			Request: HTTPRequest{Method: "GET", Path: "/", Status: []StatusRange{{200, 299}}}}
	}
	for refuse, reason := range map[int64]string{0: "", tries - 1: "", tries: errAgain.Error()} {
		p.refuse.Store(refuse)
		p.refused.Store(0)
		want(t, spec("x"), reason)
		if n := p.refused.Load(); n != refuse {
			t.Errorf("%d of %d refusals", n, refuse)
		}
	}
	target := func(key string) Target { return Target{Name: "t", Monitors: []Monitor{{Name: "m", Probe: spec(key)}}} }
	if !target("a").same(target("a")) || target("a").same(target("b")) {
		t.Error("targets are to be told apart by the keys of their protocols")
	}
}
