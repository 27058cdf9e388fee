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

	"github.com/emmansun/gmsm/pkcs8"
)

// minRSABits is what clients accept today; TLS 1.3 libraries at their usual level refuse less.
const minRSABits = 2048

// expiresSoon is how long before its end a certificate is warned of.
const expiresSoon = 30 * 24 * time.Hour

func (c *checker) checkCertificates() {
	for _, cert := range c.Certificates {
		path := join("certificates", cert.Name)
		files := c.readCertificate(cert, path)
		if files.cert == nil {
			continue
		}
		certPath := join(path, "cert")
		leaf, err := firstCertificate(files.cert)
		switch {
		case err != nil:
			c.errorf(certPath, "%s: %v", cert.Cert, err)
		case isSM2(leaf):
			c.checkSMPair(cert, files, path)
		default:
			c.checkStandard(cert, files, path)
		}
	}
}

// certificateFiles are the contents of a certificate's files.
type certificateFiles struct{ cert, key, encCert, encKey, password []byte }

func (c *checker) readCertificate(cert *Certificate, path string) certificateFiles {
	f := certificateFiles{cert: c.readFile(&cert.Cert, join(path, "cert")), key: c.readFile(&cert.Key, join(path, "key")),
		encCert: c.readFile(&cert.EncCert, join(path, "enc_cert")), encKey: c.readFile(&cert.EncKey, join(path, "enc_key"))}
	if at := join(path, "password_file"); cert.PasswordFile != "" {
		data := c.readFile(&cert.PasswordFile, at)
		line, _, _ := strings.Cut(string(data), "\n")
		if f.password = []byte(strings.TrimSuffix(line, "\r")); len(f.password) == 0 && c.ok(at) {
			c.errorf(at, "%s: its first line is empty", cert.PasswordFile)
		}
	}
	return f
}

// checkStandard is for RSA and ECDSA.
func (c *checker) checkStandard(cert *Certificate, f certificateFiles, path string) {
	for _, key := range []string{"enc_cert", "enc_key"} {
		if at := join(path, key); c.given(at) {
			c.errorf(at, "only SM2 certificates come in pairs, and that of %s is none", cert.Cert)
		}
	}
	certPath := join(path, "cert")
	list, err := parseCertificates(f.cert)
	if err != nil {
		c.errorf(certPath, "%s: %v", cert.Cert, err)
		return
	}
	c.checkLeaf(list[0], certPath)
	c.checkIntermediates(list, certPath)
	if f.key != nil && c.ok(path) && (cert.PasswordFile == "" || f.password != nil) {
		c.loadPair(cert, f, join(path, "key"))
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
		return nil, errNoCertificate
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

func (c *checker) loadPair(cert *Certificate, f certificateFiles, keyPath string) {
	key, err := decrypted(f.key, f.password)
	if err != nil {
		c.errorf(keyPath, "%s: %v", cert.Key, err)
		return
	}
	pair, err := tls.X509KeyPair(f.cert, key)
	switch {
	case err == nil:
		cert.TLS = pair
	case strings.Contains(err.Error(), "does not match public key"):
		c.errorf(keyPath, "%s is not the key of the certificate %s", cert.Key, cert.Cert)
	default:
		c.errorf(keyPath, "%s: %s", cert.Key, strings.TrimPrefix(err.Error(), "tls: "))
	}
}

// decrypted is a key file as crypto/tls takes it.
func decrypted(file, password []byte) ([]byte, error) {
	for rest := file; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return file, nil
		}
		if block.Type != "ENCRYPTED PRIVATE KEY" {
			continue
		}
		if len(password) == 0 {
			return nil, errEncrypted
		}
		key, err := pkcs8.ParsePKCS8PrivateKey(block.Bytes, password)
		if err != nil {
			return nil, wrongPassword(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
	}
}

var errEncrypted = errors.New("the key is encrypted, and there is no password_file")

// wrongPassword says what a garbled decryption most likely means.
func wrongPassword(err error) error {
	return fmt.Errorf("can not be decrypted with the password of password_file (%v)", err)
}

// Leaf is what names and validity are read from; nil when the files could not be used.
func (c *Certificate) Leaf() *x509.Certificate {
	if c.SM.Certificate != nil {
		return plainLeaf(c.SM.Sign)
	}
	return c.TLS.Leaf
}

// Algorithm is the kind of key by which clients choose.
func (c *Certificate) Algorithm() string {
	switch {
	case c.SM.Certificate != nil && c.SM.Dual():
		return "SM2 pair"
	case c.SM.Certificate != nil:
		return "SM2"
	case c.TLS.Leaf == nil:
		return ""
	}
	return c.TLS.Leaf.PublicKeyAlgorithm.String()
}

// checkCoverage, which takes a pair for TLCP beside a certificate for TLS 1.3, refuses that two certificates of one kind cover the same name: which one a
// client gets would depend on their order.
func (c *checker) checkCoverage(vs *VirtualServer, path string) {
	covered := map[string]string{}
	for i, name := range vs.Certificates {
		cert := c.Config.Certificate(name)
		if cert == nil || cert.Leaf() == nil {
			continue
		}
		for _, dns := range cert.Leaf().DNSNames {
			key := cert.Algorithm() + " " + strings.ToLower(dns)
			if other, twice := covered[key]; twice && other != name {
				c.errorf(index(path, i), "the name %s is covered twice, by the %s certificates %q and %q",
					dns, cert.Algorithm(), other, name)
			}
			covered[key] = name
		}
	}
}
