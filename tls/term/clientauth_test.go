package term

import (
	"crypto/tls"
	"math/big"
	"testing"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/cert"
)

// Clients' certificates are asked for, verified and looked up in the revocation lists, in every family; so are
// those of servers.
func TestCertificatesOfBothSides(t *testing.T) {
	b, stranger := newBed(t), newBed(t)
	std, revoked := b.ca.Issue(t, 0, "c.test"), b.ca.Issue(t, 0, "gone.test")
	dual, revokedDual := b.smCA.Issue(t, "c.test"), b.smCA.Issue(t, "gone.test")
	lists := append(b.ca.Revoke(t, revoked.Leaf.SerialNumber), b.smCA.Revoke(t, revokedDual.Sign.SerialNumber)...)
	root, err := smx509.ParseCertificate(b.ca.Cert.Raw)
	if err != nil {
		t.Fatal(err)
	}
	crls, err := cert.ParseCRLs(lists, []*smx509.Certificate{b.smCA.Cert, root})
	if err != nil || len(crls.Lists) != 2 {
		t.Fatal(crls, err)
	}
	if _, err := cert.ParseCRLs(lists, []*smx509.Certificate{stranger.smCA.Cert, root}); err == nil {
		t.Error("a list that nobody known has signed was taken")
	}
	for _, auth := range []tls.ClientAuthType{tls.NoClientCert, tls.VerifyClientCertIfGiven, tls.RequireAndVerifyClientCert} {
		o := ServerOptions{ClientAuth: auth, ClientCAs: b.ca.Pool(), CRLs: crls, Trust: "x",
			SM: &SMServer{ClientCAs: b.smCA.Pool(), Certificates: []cert.SMPair{{Certificate: b.smCA.Issue(t, "a.test")}}}}
		srv := newServer(b.ca, t, b.tk, "a", o, "a.test")
		for name, c := range map[string]struct {
			std  []tls.Certificate
			dual *cert.SMPair
			good bool
		}{
			"none":     {nil, nil, auth != tls.RequireAndVerifyClientCert},
			"good":     {[]tls.Certificate{std}, &cert.SMPair{Certificate: dual}, true},
			"revoked":  {[]tls.Certificate{revoked}, &cert.SMPair{Certificate: revokedDual}, auth == tls.NoClientCert},
			"stranger": {[]tls.Certificate{stranger.ca.Issue(t, 0, "c.test")}, &cert.SMPair{Certificate: stranger.smCA.Issue(t, "c.test")}, auth == tls.NoClientCert},
		} {
			for _, f := range []Family{TLS, TLCP, TLS13SM} {
				if f == TLS && name == "stranger" && auth == tls.VerifyClientCertIfGiven {
					continue // crypto/tls sends none when the server's list of CAs does not have its issuer
				}
				cl := NewClient(ClientOptions{CA: b.ca.Pool(), Certificates: c.std, Families: []Family{f},
					SM: &SMClient{CA: b.smCA.Pool(), Certificate: c.dual}})
				for range 2 { // the second resumes, where the first was good
					if s, _ := meet(t, srv.sniffed, dial(cl, "a.test", "")); (s.err == nil) != c.good {
						t.Errorf("%v, %v, certificate: %s: %v", f, auth, name, s.err)
					}
				}
			}
		}
	}
}

func TestRevokedServers(t *testing.T) {
	b := newBed(t)
	std, dual := b.ca.Issue(t, 0, "a.test"), b.smCA.Issue(t, "a.test")
	root, _ := smx509.ParseCertificate(b.ca.Cert.Raw)
	lists := append(b.ca.Revoke(t, std.Leaf.SerialNumber), b.smCA.Revoke(t, dual.Sign.SerialNumber, big.NewInt(7))...)
	crls, err := cert.ParseCRLs(lists, []*smx509.Certificate{b.smCA.Cert, root})
	if err != nil {
		t.Fatal(err)
	}
	srv := NewServer(ServerOptions{SM: &SMServer{Certificates: []cert.SMPair{{Certificate: dual}}}},
		cert.NewStore([]cert.Pair{{Certificate: std}}), b.tk, "a")
	for _, f := range []Family{TLS, TLCP, TLS13SM} {
		for _, sent := range []string{"a.test", "other.test"} {
			for lists, good := range map[*cert.CRLs]bool{nil: true, crls: false} {
				cl := NewClient(ClientOptions{CA: b.ca.Pool(), CRLs: lists, ServerName: "a.test", Families: []Family{f}, SM: &SMClient{CA: b.smCA.Pool()}})
				if _, c := meet(t, srv.sniffed, dial(cl, sent, "")); (c.err == nil) != good {
					t.Errorf("%v, %s: %v", f, sent, c.err)
				}
			}
		}
	}
}
