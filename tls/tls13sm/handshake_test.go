package tls13sm

import (
	"crypto/tls"
	"fmt"
	"net"
	"testing"
)

// segmented are the ways that the bytes may arrive.
var segmented = map[string]func(net.Conn) net.Conn{
	"whole":     func(c net.Conn) net.Conn { return c },
	"one byte":  func(c net.Conn) net.Conn { return trickle{c} },
	"coalesced": nil, // by the man in the middle
	"fragments": nil,
}

func TestHandshakes(t *testing.T) {
	for _, suite := range []uint16{TLS_SM4_GCM_SM3, TLS_SM4_CCM_SM3} {
		for _, auth := range []tls.ClientAuthType{tls.NoClientCert, tls.RequestClientCert, tls.RequireAndVerifyClientCert} {
			for _, kind := range []string{"full", "resumed", "retried", "resumed retried"} {
				for way := range segmented {
					t.Run(fmt.Sprintf("%s/%v/%s/%s", CipherSuiteName(suite), auth, kind, way), func(t *testing.T) {
						t.Parallel()
						testHandshake(t, suite, auth, kind, way)
					})
				}
			}
		}
	}
}

func testHandshake(t *testing.T, suite uint16, auth tls.ClientAuthType, kind, way string) {
	w := testWorld(t)
	sc, cc := w.configs()
	sc.ClientAuth = auth
	sc.NextProtos, cc.NextProtos = []string{"h2", "http/1.1"}, []string{"http/1.1", "x"}
	cc.CipherSuites = []uint16{suite}
	if auth != tls.NoClientCert {
		cc.Certificates = []Certificate{w.client}
	}
	cc.ClientSessionCache = NewLRUClientSessionCache(4)
	resumed := kind == "resumed" || kind == "resumed retried"
	if resumed {
		server, client := connect(t, sc, cc)
		echo(t, server, client) // the ticket is read before the data
	}
	retried := kind == "retried" || kind == "resumed retried"
	if retried {
		cc.KeyShares = []CurveID{}
	}
	server, client := segmentedPair(t, sc, cc, suite, way)
	if se, ce := both(server, client); se != nil || ce != nil {
		t.Fatalf("server: %v, client: %v", se, ce)
	}
	echo(t, server, client)
	checkStates(t, server.ConnectionState(), client.ConnectionState(), suite, resumed, retried)
	if auth != tls.NoClientCert && len(server.ConnectionState().PeerCertificates) == 0 {
		t.Error("server has no client certificate")
	}
}

func segmentedPair(t *testing.T, sc, cc *Config, suite uint16, way string) (server, client *Conn) {
	if wrap := segmented[way]; wrap != nil {
		a, b := tcp(t)
		return Server(wrap(b), sc), Client(wrap(a), cc)
	}
	m := &middle{suite: suite, coalesce: way == "coalesced", fragment: way == "fragments"}
	return m.pair(t, sc, cc)
}

func checkStates(t *testing.T, s, c ConnectionState, suite uint16, resumed, retried bool) {
	t.Helper()
	for who, x := range map[string]ConnectionState{"server": s, "client": c} {
		if x.CipherSuite != suite || x.DidResume != resumed || x.HelloRetryRequest != retried || x.CurveID != CurveSM2 ||
			x.NegotiatedProtocol != "http/1.1" || x.ServerName != "server.test" || x.Version != tls.VersionTLS13 || !x.HandshakeComplete {
			t.Errorf("%s: %+v", who, x)
		}
	}
	a, _ := s.ExportKeyingMaterial("test", []byte("x"), 100)
	b, _ := c.ExportKeyingMaterial("test", []byte("x"), 100)
	if string(a) != string(b) || len(a) != 100 {
		t.Error("exporters differ")
	}
	if len(c.PeerCertificates) == 0 || len(c.VerifiedChains) == 0 {
		t.Error("client has no verified chain")
	}
}

func TestTolerantMode(t *testing.T) {
	rsa := newAuthority(t, newRSA(t))
	w := testWorld(t)
	certs := map[string]struct {
		ca   *authority
		cert Certificate
	}{
		"RSA":   {rsa, rsa.issue(t, newRSA(t), "server.test")},
		"ECDSA": {rsa, rsa.issue(t, newECDSA(t), "server.test")},
		"SM2":   {w.ca, w.server},
		"mixed": {rsa, rsa.issue(t, newSM2(t), "server.test")}, // an SM2 leaf under an RSA root
	}
	for name, x := range certs {
		for _, g := range []CurveID{CurveSM2, tls.X25519, tls.CurveP256, tls.CurveP384} {
			t.Run(fmt.Sprintf("%s/%v", name, g), func(t *testing.T) {
				sc := &Config{Certificates: []Certificate{x.cert}, Tolerant: true}
				cc := &Config{RootCAs: x.ca.pool(), ServerName: "server.test", Tolerant: true, CurvePreferences: []CurveID{g}}
				server, client := connect(t, sc, cc)
				echo(t, server, client)
				if got := server.ConnectionState().CurveID; got != g {
					t.Errorf("group %v", got)
				}
			})
		}
	}
}

// Both sides of strict mode refuse what tolerant mode takes.
func TestStrictMode(t *testing.T) {
	rsa := newAuthority(t, newRSA(t))
	w := testWorld(t)
	cases := map[string]struct {
		server, client *Config
		own, peer      int // alert of the server, alert that the client is told or gives
	}{
		"RSA certificate": {
			&Config{Certificates: []Certificate{rsa.issue(t, newRSA(t), "server.test")}, Tolerant: true},
			&Config{RootCAs: rsa.pool(), ServerName: "server.test"}, 40, -1},
		"strict server, client without curveSM2": {
			&Config{Certificates: []Certificate{w.server}},
			&Config{RootCAs: w.ca.pool(), ServerName: "server.test", Tolerant: true, CurvePreferences: []CurveID{tls.X25519}}, 40, -1},
		"strict server, RSA certificate alone": {
			&Config{Certificates: []Certificate{rsa.issue(t, newRSA(t), "server.test")}},
			&Config{RootCAs: rsa.pool(), ServerName: "server.test", Tolerant: true}, 40, -1},
		"RSA root over an SM2 leaf": {
			&Config{Certificates: []Certificate{rsa.issue(t, newSM2(t), "server.test")}},
			&Config{RootCAs: rsa.pool(), ServerName: "server.test"}, -1, 43},
	}
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			a, b := tcp(t)
			se, ce := both(Server(b, x.server), Client(a, x.client))
			if ownAlert(se) != x.own || x.own >= 0 && peerAlert(ce) != x.own {
				t.Errorf("server's alert: %v, %v", se, ce)
			}
			if ownAlert(ce) != x.peer || x.peer >= 0 && peerAlert(se) != x.peer {
				t.Errorf("client's alert: %v, %v", ce, se)
			}
		})
	}
}

// P-256 first and curveSM2 second makes a strict server ask again, as Tongsuo does.
func TestRetryForCurveSM2(t *testing.T) {
	sc, cc := testWorld(t).configs()
	cc.Tolerant, cc.CurvePreferences = true, []CurveID{tls.CurveP256, CurveSM2}
	server, client := connect(t, sc, cc)
	echo(t, server, client)
	if s := server.ConnectionState(); !s.HelloRetryRequest || s.CurveID != CurveSM2 {
		t.Errorf("%+v", s)
	}
}
