package config

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/cert"
	"sslo/tls/sm"
	"sslo/tls/tlcp"
)

// firstCertificate is the leaf of a file, whatever kind it is.
func firstCertificate(file []byte) (*smx509.Certificate, error) {
	list, err := sm.ParseChainPEM(file)
	if errors.Is(err, sm.ErrNoCertificate) {
		return nil, errNoCertificate
	}
	if err != nil && list == nil {
		return nil, err
	}
	return list[0], nil
}

var errNoCertificate = errors.New("no certificate in PEM form in it")

func isSM2(c *smx509.Certificate) bool {
	k, ok := c.PublicKey.(*ecdsa.PublicKey)
	return ok && sm2.IsSM2PublicKey(k)
}

// plainLeaf is what the checks read of a certificate, in crypto/x509's type.
func plainLeaf(c *smx509.Certificate) *x509.Certificate {
	return &x509.Certificate{Raw: c.Raw, RawSubject: c.RawSubject, RawIssuer: c.RawIssuer, Subject: c.Subject, Issuer: c.Issuer,
		NotBefore: c.NotBefore, NotAfter: c.NotAfter, DNSNames: c.DNSNames, IPAddresses: c.IPAddresses, PublicKey: c.PublicKey,
		SerialNumber: c.SerialNumber}
}

// checkSMPair checks each file at its own place, and then that they belong together.
func (c *checker) checkSMPair(crt *Certificate, f certificateFiles, path string) {
	certPath, encPath := join(path, "cert"), join(path, "enc_cert")
	c.checkSMChain(crt.Cert, f.cert, certPath)
	c.checkSMChain(crt.EncCert, f.encCert, encPath)
	if crt.PasswordFile == "" || len(f.password) > 0 {
		c.checkSMKey(crt.Key, f.key, f.password, join(path, "key"))
		c.checkSMKey(crt.EncKey, f.encKey, f.password, join(path, "enc_key"))
	}
	c.checkUsage(crt, f, path)
	if len(f.encCert) > 0 && crt.EncKey == "" {
		c.errorf(encPath, "there is no enc_key for it")
	}
	if f.key == nil || !c.ok(path) {
		return
	}
	pair, err := cert.ParseSM(crt.Name, f.cert, f.key, f.encCert, f.encKey, f.password)
	if err != nil {
		c.explainPair(crt, f, err, path)
		return
	}
	crt.SM = pair
	if pair.Dual() {
		c.checkTogether(pair, path)
	}
}

// checkUsage looks at what each certificate of a pair may be used for.
func (c *checker) checkUsage(crt *Certificate, f certificateFiles, path string) {
	certPath, encPath := join(path, "cert"), join(path, "enc_cert")
	sign, err := firstCertificate(f.cert)
	if err != nil || !c.ok(certPath) || !c.ok(encPath) {
		return
	}
	enc, err := firstCertificate(f.encCert)
	both := err == nil
	switch {
	case both && !sm.CanSign(sign) && !sm.CanEncrypt(enc):
		c.errorf(path, "cert and enc_cert are exchanged: %s is to be encrypted to, %s is to sign", crt.Cert, crt.EncCert)
	case !sm.CanSign(sign):
		c.errorf(certPath, "%s: %v", crt.Cert, tlcp.ErrCanNotSign)
	case both && !sm.CanEncrypt(enc):
		c.errorf(encPath, "%s: %v", crt.EncCert, tlcp.ErrCanNotEnc)
	}
}

func (c *checker) checkSMChain(name string, file []byte, path string) {
	if len(file) == 0 {
		return
	}
	list, err := sm.ParseChainPEM(file)
	switch {
	case errors.Is(err, sm.ErrNoCertificate):
		c.errorf(path, "%s: %v", name, errNoCertificate)
	case err != nil:
		c.errorf(path, "%s: %v", name, err)
	case !isSM2(list[0]):
		c.errorf(path, "%s: the certificate of %s has no SM2 key", name, list[0].Subject)
	default:
		c.checkLeaf(plainLeaf(list[0]), path)
	}
}

func (c *checker) checkSMKey(name string, file, password []byte, path string) {
	if len(file) == 0 {
		return
	}
	_, err := sm.ParseKeyPEM(file, password)
	switch {
	case err == nil:
	case errors.Is(err, sm.ErrNotSM2):
		c.errorf(path, "%s: the key is not an SM2 key, as that of the certificate is", name)
	case encrypted(file) && len(password) == 0:
		c.errorf(path, "%s: %v", name, errEncrypted)
	case encrypted(file):
		c.errorf(path, "%s: %v", name, wrongPassword(err))
	default:
		c.errorf(path, "%s: %v", name, err)
	}
}

func encrypted(file []byte) bool {
	block, _ := pem.Decode(file)
	return block != nil && (strings.HasPrefix(block.Type, "ENCRYPTED") || block.Headers["DEK-Info"] != "")
}

// explainPair says at the place of the file that is wrong what a peer would refuse.
func (c *checker) explainPair(crt *Certificate, f certificateFiles, err error, path string) {
	certPath, encPath := join(path, "cert"), join(path, "enc_cert")
	if crt.EncCert == "" {
		encPath = certPath
	}
	reason := strings.TrimPrefix(err.Error(), "certificate "+crt.Name+": ")
	enc := strings.HasPrefix(reason, "encryption certificate: ")
	switch {
	case errors.Is(err, tlcp.ErrMismatch) && enc:
		c.errorf(join(path, "enc_key"), "%s is not the key of the encryption certificate%s", crt.EncKey, keysSwapped(f, crt))
	case errors.Is(err, tlcp.ErrMismatch):
		c.errorf(join(path, "key"), "%s is not the key of the certificate %s%s", crt.Key, crt.Cert, keysSwapped(f, crt))
	case errors.Is(err, tlcp.ErrNoEnc):
		c.errorf(join(path, "enc_key"), "there is no encryption certificate for it, neither in enc_cert nor in %s", crt.Cert)
	case errors.Is(err, tlcp.ErrCanNotEnc), errors.Is(err, tlcp.ErrNames), enc:
		c.errorf(encPath, "%s", reason)
	default:
		c.errorf(certPath, "%s", reason)
	}
}

// keysSwapped guesses the most common mistake.
func keysSwapped(f certificateFiles, crt *Certificate) string {
	if crt.EncCert == "" || crt.EncKey == "" {
		return ""
	}
	if _, err := tlcp.X509KeyPair(f.cert, f.encKey, f.encCert, f.key, f.password); err != nil {
		return ""
	}
	return "; key and enc_key are exchanged"
}

// checkTogether warns of what some peers refuse in a pair.
func (c *checker) checkTogether(p cert.SMPair, path string) {
	encPath := join(path, "enc_cert")
	if !c.given(encPath) {
		encPath = join(path, "cert")
	}
	sameKey := p.SignKey.Public().(*ecdsa.PublicKey).Equal(p.EncKey.Public())
	switch {
	case sameKey:
		c.warnf(encPath, "both certificates have the same key: its holder could read what was signed to be unreadable")
	case !bytes.Equal(p.Sign.RawIssuer, p.Enc.RawIssuer):
		c.warnf(encPath, "the certificates of the pair have different issuers, %s and %s: many clients refuse that", p.Sign.Issuer, p.Enc.Issuer)
	case !sameNames(p.Sign, p.Enc):
		c.warnf(encPath, "the encryption certificate has other names (%s) than the one that signs (%s)",
			strings.Join(p.Enc.DNSNames, ", "), strings.Join(p.Sign.DNSNames, ", "))
	}
}

func sameNames(a, b *smx509.Certificate) bool {
	x, y := slices.Clone(a.DNSNames), slices.Clone(b.DNSNames)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// usable tells why a certificate is of no use for a protocol; "" if it is.
func (p Protocol) usable(crt *Certificate) string {
	switch {
	case p == ProtocolTLS && crt.SM.Certificate == nil:
		return ""
	case p == ProtocolTLS:
		return "is SM2"
	case crt.SM.Certificate == nil:
		return "is " + crt.Algorithm()
	case p == ProtocolTLCP && !crt.SM.Dual():
		return "has no encryption certificate (enc_cert, enc_key)"
	}
	return ""
}

var certificateFor = map[Protocol]string{ProtocolTLS: "an RSA or ECDSA certificate", ProtocolTLCP: "a pair of SM2 certificates",
	ProtocolTLS13SM: "an SM2 certificate"}

// checkProtocols wants a certificate for each protocol that is named, and finds those to speak when none is.
func (c *checker) checkProtocols(vs *VirtualServer, path string) {
	at := join(path, "tls.protocols")
	if !c.ok(join(path, "certificates")) || !c.ok(at) {
		return
	}
	certs := c.loaded(vs.Certificates)
	if len(certs) < len(vs.Certificates) {
		return // with an error of its own
	}
	if !c.given(at) {
		for _, p := range []Protocol{ProtocolTLCP, ProtocolTLS13SM, ProtocolTLS} {
			if ok, _ := p.served(certs); ok {
				vs.TLS.Protocols = append(vs.TLS.Protocols, p)
			}
		}
	} else if len(vs.TLS.Protocols) == 0 {
		c.errorf(at, "a virtual server must speak something")
	}
	for i, p := range vs.TLS.Protocols {
		place := index(at, i)
		if ok, why := p.served(certs); !ok {
			c.errorf(place, "%s needs %s%s", Word(p), certificateFor[p], why)
		}
		if slices.Contains(vs.TLS.Protocols[:i], p) {
			c.errorf(place, "%s is in this list twice", Word(p))
		}
	}
	for i, crt := range certs {
		if !slices.ContainsFunc(vs.TLS.Protocols, func(p Protocol) bool { return p.usable(crt) == "" }) && c.ok(at) {
			c.warnf(index(join(path, "certificates"), i), "no protocol of this virtual server uses a certificate of kind %s", crt.Algorithm())
		}
	}
}

// loaded are the certificates that could be used.
func (c *checker) loaded(names []string) (list []*Certificate) {
	for _, name := range names {
		if crt := c.Config.Certificate(name); crt != nil && crt.Leaf() != nil {
			list = append(list, crt)
		}
	}
	return list
}

// served tells whether one of the certificates will do, and why none does.
func (p Protocol) served(certs []*Certificate) (ok bool, why string) {
	var reasons []string
	for _, crt := range certs {
		r := p.usable(crt)
		if r == "" {
			return true, ""
		}
		reasons = append(reasons, fmt.Sprintf("%q %s", crt.Name, r))
	}
	return false, ": " + strings.Join(reasons, ", ")
}

// checkSuites wants a suite for each SM protocol that is spoken.
func (c *checker) checkSuites(suites []SMSuite, spoken []Protocol, path string) {
	if len(suites) == 0 {
		if c.given(path) && c.ok(path) {
			c.errorf(path, "the list is empty; leave it out for all suites")
		}
		return
	}
	for i, s := range suites {
		if slices.Contains(suites[:i], s) && c.ok(index(path, i)) {
			c.errorf(index(path, i), "%s is in this list twice", Word(s))
		}
	}
	for _, p := range spoken {
		if p != ProtocolTLS && !slices.ContainsFunc(suites, func(s SMSuite) bool { return s.protocol() == p }) && c.ok(path) {
			c.errorf(path, "has no suite of %s, which is to be spoken", Word(p))
		}
	}
}

func (s SMSuite) protocol() Protocol {
	if s>>8 == 0xe0 {
		return ProtocolTLCP
	}
	return ProtocolTLS13SM
}

func (s SMSuite) ecdhe() bool {
	return s == SMSuite(tlcp.ECDHE_SM4_GCM_SM3) || s == SMSuite(tlcp.ECDHE_SM4_CBC_SM3)
}
