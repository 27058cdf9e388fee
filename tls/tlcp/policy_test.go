package tlcp

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
)

// Who is refused, and with which alert.
func TestRefusals(t *testing.T) {
	other := newAuthority(t)
	gone := errors.New("revoked")
	for name, x := range map[string]struct {
		change func(client, server *Config)
		client bool // it is the client that refuses
		alert  sm.Alert
	}{
		"server of another CA":     {func(c, _ *Config) { c.RootCAs = other.pool() }, true, sm.AlertUnknownCA},
		"server of another name":   {func(c, _ *Config) { c.ServerName = "example.com" }, true, sm.AlertBadCertificate},
		"server expired":           {func(c, _ *Config) { c.Time = in(20) }, true, sm.AlertCertificateExpired},
		"server not valid yet":     {func(c, _ *Config) { c.Time = in(-1) }, true, sm.AlertCertificateExpired},
		"server revoked":           {func(c, _ *Config) { c.Revoked = revoke("localhost", gone) }, true, sm.AlertCertificateRevoked},
		"CA revoked":               {func(c, _ *Config) { c.Revoked = revoke("SM2 Test Sub CA", gone) }, true, sm.AlertCertificateRevoked},
		"server by the client":     {func(c, _ *Config) { c.VerifyConnection = func(ConnectionState) error { return gone } }, true, sm.AlertBadCertificate},
		"client by the server":     {func(_, s *Config) { s.VerifyConnection = func(ConnectionState) error { return gone } }, false, sm.AlertBadCertificate},
		"client without":           {func(c, s *Config) { c.Certificates, s.ClientAuth = nil, RequireAnyClientCert }, false, sm.AlertHandshakeFailure},
		"client of another CA":     {func(_, s *Config) { s.ClientCAs, s.ClientAuth = other.pool(), RequireAndVerifyClientCert }, false, sm.AlertHandshakeFailure},
		"client unasked, other CA": {func(c, s *Config) { sendAny(c); s.ClientCAs, s.ClientAuth = other.pool(), VerifyClientCertIfGiven }, false, sm.AlertUnknownCA},
		"client, no CAs":           {func(c, s *Config) { sendAny(c); s.ClientCAs, s.ClientAuth = nil, RequireAndVerifyClientCert }, false, sm.AlertUnknownCA},
		"client of another use":    {func(c, s *Config) { serverAsClient(t, c); s.ClientAuth = RequireAndVerifyClientCert }, false, sm.AlertUnsupportedCertificate},
		"client without, ECDHE":    {func(c, _ *Config) { c.CipherSuites, c.Certificates = []uint16{ECDHE_SM4_GCM_SM3}, nil }, true, sm.AlertHandshakeFailure},
		"no suite": {func(c, s *Config) {
			c.CipherSuites, s.CipherSuites = []uint16{ECC_SM4_CBC_SM3}, []uint16{ECC_SM4_GCM_SM3}
		}, false, sm.AlertHandshakeFailure},
		"no certificate": {func(_, s *Config) { s.Certificates = nil }, false, sm.AlertHandshakeFailure},
		"no protocol":    {func(c, s *Config) { c.NextProtos, s.NextProtos = []string{"h2"}, []string{"http/1.1"} }, false, sm.AlertNoApplicationProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := configs(t)
			x.change(client, server)
			c, s := tcpPair(t)
			r := shake(c, s, client, server)
			mine, theirs := r.serverErr, r.clientErr
			if x.client {
				mine, theirs = theirs, mine
			}
			wantAlert(t, mine, x.alert)
			wantAlert(t, theirs, x.alert)
			var p *sm.PeerAlert
			if errors.As(mine, &p) || !errors.As(theirs, &p) {
				t.Errorf("the wrong end refused: %v and %v", mine, theirs)
			}
		})
	}
}

func in(years int) func() time.Time {
	return func() time.Time { return time.Now().AddDate(years, 0, 0) }
}

func revoke(name string, err error) func(cert, issuer *smx509.Certificate) error {
	return func(c, _ *smx509.Certificate) error {
		if c.Subject.CommonName == name {
			return err
		}
		return nil
	}
}

func sendAny(c *Config) {
	pair := c.Certificates[0]
	c.GetClientCertificate = func(*CertificateRequestInfo) (*Certificate, error) { return pair, nil }
}

func serverAsClient(t *testing.T, c *Config) { c.Certificates = []*Certificate{pairOf(t, "server")} }

func TestOptionalClientCertificate(t *testing.T) {
	for _, auth := range []ClientAuthType{RequestClientCert, VerifyClientCertIfGiven} {
		for _, with := range []bool{false, true} {
			client, server := configs(t)
			if server.ClientAuth = auth; !with {
				client.Certificates = nil
			}
			c, s := tcpPair(t)
			r := mustShake(t, c, s, client, server)
			st := r.server.ConnectionState()
			if (len(st.PeerCertificates) > 0) != with || (len(st.VerifiedChains) > 0) != (with && auth.verified()) {
				t.Errorf("%d: %d certificates, %d chains", auth, len(st.PeerCertificates), len(st.VerifiedChains))
			}
			echo(t, r, 10)
		}
	}
}

func TestChoiceOfCertificate(t *testing.T) {
	ca := newAuthority(t)
	named := func(name string) *Certificate {
		return ca.pair(t, func(sign, enc *smx509.Certificate) { sign.DNSNames = []string{name} })
	}
	server := &Config{Certificates: []*Certificate{named("a.test"), named("*.b.test")}}
	for name, want := range map[string]int{"a.test": 0, "x.b.test": 1, "A.TEST.": 0, "unknown": 0} {
		c, s := tcpPair(t)
		r := mustShake(t, c, s, &Config{RootCAs: ca.pool(), ServerName: name, InsecureSkipVerify: want == 0 && name == "unknown"}, server)
		if got := r.client.ConnectionState().PeerCertificates[0]; !got.Equal(server.Certificates[want].Sign) {
			t.Errorf("%s: got the pair of %v", name, got.DNSNames)
		}
	}
}

func TestHooks(t *testing.T) {
	client, server := configs(t)
	pair := server.Certificates[0]
	var seen *ClientHelloInfo
	var log bytes.Buffer
	inner := &Config{NextProtos: []string{"h2"}, GetCertificate: func(i *ClientHelloInfo) (*Certificate, error) { seen = i; return pair, nil }}
	outer := &Config{GetConfigForClient: func(*ClientHelloInfo) (*Config, error) { return inner, nil }}
	client.NextProtos, client.KeyLogWriter = []string{"h2"}, &log
	c, s := tcpPair(t)
	r := mustShake(t, c, s, client, outer)
	if seen == nil || seen.ServerName != "localhost" || len(seen.SupportedProtos) != 1 || seen.Conn != s {
		t.Errorf("ClientHelloInfo %+v", seen)
	}
	if got := r.client.ConnectionState().NegotiatedProtocol; got != "h2" {
		t.Errorf("protocol %q", got)
	}
	if log.Len() != len("CLIENT_RANDOM ")+64+1+96+1 {
		t.Errorf("log of keys: %s", log.String())
	}
	if err := r.client.VerifyHostname("tlcp.test"); err != nil {
		t.Error(err)
	}
	if r.client.VerifyHostname("other.test") == nil {
		t.Error("any name is good")
	}
}

// Chains that were verified are remembered, but not beyond their time, nor revocation.
func TestRememberedChains(t *testing.T) {
	client, server := configs(t)
	now := time.Now()
	client.Time = func() time.Time { return now }
	var revoked error
	client.Revoked = func(_, _ *smx509.Certificate) error { return revoked }
	ok := func() result {
		c, s := tcpPair(t)
		return shake(c, s, client, server)
	}
	for range 2 {
		if r := ok(); r.clientErr != nil {
			t.Fatal(r.clientErr)
		}
	}
	revoked = errors.New("revoked")
	wantAlert(t, ok().clientErr, sm.AlertCertificateRevoked)
	revoked, now = nil, now.AddDate(30, 0, 0)
	wantAlert(t, ok().clientErr, sm.AlertCertificateExpired)
	now = time.Now()
	if r := ok(); r.clientErr != nil {
		t.Error(r.clientErr)
	}
}

func TestPairsThatCanNotBeUsed(t *testing.T) {
	good := pairOf(t, "server")
	client := pairOf(t, "client")
	sub := good.CAs[0]
	subKey, err := sm.ParseKeyPEM(file(t, "certs/sub.key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[error]Certificate{
		ErrMismatch:   {Sign: good.Sign, Enc: good.Enc, SignKey: good.EncKey, EncKey: good.EncKey},
		ErrCanNotSign: {Sign: good.Enc, Enc: good.Enc, SignKey: good.EncKey, EncKey: good.EncKey},
		ErrCanNotEnc:  {Sign: good.Sign, Enc: good.Sign, SignKey: good.SignKey, EncKey: signKeyOf(t)},
		ErrIsCA:       {Sign: sub, Enc: good.Enc, SignKey: subKey, EncKey: good.EncKey},
		ErrNames:      {Sign: good.Sign, Enc: client.Enc, SignKey: good.SignKey, EncKey: client.EncKey},
	} {
		if _, err := NewCertificate(c.Sign, c.Enc, nil, c.SignKey, c.EncKey); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}
