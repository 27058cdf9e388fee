package config

import (
	"crypto/dsa"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// minRSABits is what clients accept today; TLS 1.3 libraries at their usual level refuse less.
const minRSABits = 2048

// expiresSoon is how long before its end a certificate is warned of.
const expiresSoon = 30 * 24 * time.Hour

func (c *checker) checkCertificates() {
	for _, cert := range c.Certificates {
		path := join("certificates", cert.Name)
		certPath, keyPath := join(path, "cert"), join(path, "key")
		certPEM := c.readFile(&cert.Cert, certPath)
		keyPEM := c.readFile(&cert.Key, keyPath)
		if certPEM == nil {
			continue
		}
		list, err := parseCertificates(certPEM)
		if err != nil {
			c.errorf(certPath, "%s: %v", cert.Cert, err)
			continue
		}
		c.checkLeaf(list[0], certPath)
		c.checkIntermediates(list, certPath)
		if keyPEM != nil {
			c.loadPair(cert, certPEM, keyPEM, keyPath)
		}
	}
}

// readFile makes the name in the file absolute and returns the content, nil after an error.
func (c *checker) readFile(name *string, path string) []byte {
	if *name == "" || !c.ok(path) {
		return nil
	}
	if !filepath.IsAbs(*name) {
		*name = filepath.Join(c.dir, *name)
	}
	data, err := c.ReadFile(*name)
	if err != nil {
		c.errorf(path, "%s: %s", *name, reason(err))
		return nil
	}
	return append([]byte{}, data...)
}

func parseCertificates(data []byte) ([]*x509.Certificate, error) {
	var list []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d of the file: %w", len(list)+1, err)
		}
		list = append(list, cert)
	}
	if len(list) == 0 {
		return nil, errors.New("no certificate in PEM form in it")
	}
	return list, nil
}

func (c *checker) checkLeaf(leaf *x509.Certificate, path string) {
	now, subject := c.Now(), leaf.Subject.String()
	switch {
	case now.After(leaf.NotAfter): // no error: a box must start again on the day after
		c.warnf(path, "the certificate of %s expired on %s: clients will not accept it", subject, day(leaf.NotAfter))
	case now.Before(leaf.NotBefore): // nor here: its clock may be wrong
		c.warnf(path, "the certificate of %s is not valid before %s", subject, day(leaf.NotBefore))
	case now.Add(expiresSoon).After(leaf.NotAfter):
		c.warnf(path, "the certificate of %s expires on %s", subject, day(leaf.NotAfter))
	}
	if msg := weakness(leaf); msg != "" {
		c.errorf(path, "the certificate of %s %s", subject, msg)
	}
	if len(leaf.DNSNames)+len(leaf.IPAddresses) == 0 {
		c.warnf(path, "the certificate of %s has no subject alternative names: clients will not accept it", subject)
	}
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// weakness says why today's clients refuse a certificate; "" if they do not.
func weakness(cert *x509.Certificate) string {
	switch k := cert.PublicKey.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < minRSABits {
			return fmt.Sprintf("has an RSA key of %d bits; clients refuse less than %d", bits, minRSABits)
		}
	case *ecdsa.PublicKey:
		if bits := k.Curve.Params().BitSize; bits < 256 {
			return fmt.Sprintf("has an ECDSA key of %d bits; clients refuse less than 256", bits)
		}
	case *dsa.PublicKey:
		return "has a DSA key, which TLS does not use any more"
	}
	selfSigned := string(cert.RawIssuer) == string(cert.RawSubject)
	switch cert.SignatureAlgorithm {
	case x509.MD5WithRSA, x509.SHA1WithRSA, x509.ECDSAWithSHA1:
		if !selfSigned {
			return fmt.Sprintf("is signed with %s, which clients refuse", cert.SignatureAlgorithm)
		}
	}
	return ""
}

// checkIntermediates wants the file in the order that TLS sends it.
func (c *checker) checkIntermediates(list []*x509.Certificate, path string) {
	for i, issuer := range list[1:] {
		if string(list[i].RawIssuer) != string(issuer.RawSubject) {
			c.warnf(path, "certificate %d of the file is of %s, but the one before it is issued by %s",
				i+2, issuer.Subject, list[i].Issuer)
		}
		if msg := weakness(issuer); msg != "" {
			c.errorf(path, "the intermediate certificate of %s %s", issuer.Subject, msg)
		}
		if c.Now().After(issuer.NotAfter) {
			c.warnf(path, "the intermediate certificate of %s expired on %s", issuer.Subject, day(issuer.NotAfter))
		}
	}
}

func (c *checker) loadPair(cert *Certificate, certPEM, keyPEM []byte, keyPath string) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	switch {
	case err == nil:
		cert.TLS = pair
	case strings.Contains(err.Error(), "does not match public key"):
		c.errorf(keyPath, "%s is not the key of the certificate %s", cert.Key, cert.Cert)
	default:
		c.errorf(keyPath, "%s: %s", cert.Key, strings.TrimPrefix(err.Error(), "tls: "))
	}
}

// algorithm is the kind of key by which clients choose.
func algorithm(cert *Certificate) string {
	if cert.TLS.Leaf == nil {
		return ""
	}
	return cert.TLS.Leaf.PublicKeyAlgorithm.String()
}

// checkCoverage refuses that two certificates of one kind cover the same name: which one a
// client gets would depend on their order.
func (c *checker) checkCoverage(vs *VirtualServer, path string) {
	covered := map[string]string{}
	for i, name := range vs.Certificates {
		cert := c.Config.Certificate(name)
		if cert == nil || cert.TLS.Leaf == nil {
			continue
		}
		for _, dns := range cert.TLS.Leaf.DNSNames {
			key := algorithm(cert) + " " + strings.ToLower(dns)
			if other, twice := covered[key]; twice && other != name {
				c.errorf(index(path, i), "the name %s is covered twice, by the %s certificates %q and %q",
					dns, algorithm(cert), other, name)
			}
			covered[key] = name
		}
	}
}
