package config

import (
	"crypto/x509"
	"errors"
	"slices"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/cert"
	"sslo/tls/sm"
)

// readTrust reads a file of CA certificates and one of revocation lists; nil without either, or after an error.
func (c *checker) readTrust(ca, crl *string, caPath, crlPath string) *Trust {
	caPEM, crlPEM := c.readFile(ca, caPath), c.readFile(crl, crlPath)
	if caPEM == nil {
		if crlPEM != nil && c.ok(caPath) {
			c.errorf(crlPath, "the CA certificates that the lists are signed by must be in a file of their own; there is none")
		}
		return nil
	}
	list, err := sm.ParseChainPEM(caPEM)
	if errors.Is(err, sm.ErrNoCertificate) {
		err = errNoCertificate
	}
	if err != nil {
		c.errorf(caPath, "%s: %v", *ca, err)
		return nil
	}
	t := &Trust{TLS: x509.NewCertPool(), SM: smx509.NewCertPool(), PEM: string(caPEM), CRL: string(crlPEM), all: len(list)}
	for _, a := range list {
		t.SM.AddCert(a)
		if std, err := x509.ParseCertificate(a.Raw); err == nil && !isSM2(a) {
			t.TLS.AddCert(std)
			t.std++
		}
	}
	if crlPEM != nil {
		c.readLists(t, *crl, crlPEM, list, crlPath)
	}
	return t
}

func (c *checker) readLists(t *Trust, name string, data []byte, authorities []*smx509.Certificate, path string) {
	lists, err := cert.ParseCRLs(data, authorities)
	if err != nil {
		c.errorf(path, "%s: %v", name, err)
		return
	}
	t.CRLs = lists
	for _, l := range lists.Lists {
		if !l.NextUpdate.IsZero() && c.Now().After(l.NextUpdate) {
			c.warnf(path, "the revocation list of %s is out of date since %s; it still counts", l.Issuer, day(l.NextUpdate))
		}
	}
}

// onlySM tells that there is no CA of another kind.
func (t *Trust) onlySM() bool { return t.std == 0 }

// checkTrustFits wants CAs of the kind that is needed.
func (c *checker) checkTrustFits(t *Trust, p ServerProtocol, file, path string) {
	if Protocol(p) == ProtocolTLS && t != nil && t.onlySM() {
		c.errorf(path, "%s has no CA for RSA or ECDSA certificates, but tls is spoken: is protocol to be tlcp or tls13-sm?", file)
	}
}

// checkClientTrust reads what clients' certificates are verified by.
func (c *checker) checkClientTrust(t *ClientTLS, path string) {
	caPath := join(path, "client_ca")
	t.Trust = c.readTrust(&t.ClientCA, &t.ClientCRL, caPath, join(path, "client_crl"))
	at := join(path, "client_certificates")
	switch {
	case !c.ok(path):
	case t.ClientCertificates != ClientCertNone && t.ClientCA == "":
		c.errorf(at, "certificates of clients are verified by the CAs of client_ca, which is not given")
	case t.ClientCertificates == ClientCertNone && t.ClientCA != "":
		c.warnf(caPath, "client_certificates is none, so nobody is verified by it")
	case t.ClientCertificates == ClientCertRequired && t.Trust.onlySM() && slices.Contains(t.Protocols, ProtocolTLS):
		c.warnf(caPath, "%s has no CA for RSA or ECDSA certificates: no client that speaks tls will get in", t.ClientCA)
	}
}
