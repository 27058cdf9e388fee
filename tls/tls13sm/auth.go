package tls13sm

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha256" // of the other schemes
	_ "crypto/sha512"
	"crypto/tls"
	"errors"
	"slices"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
)

// Contexts of CertificateVerify.
const (
	serverContext = "TLS 1.3, server CertificateVerify"
	clientContext = "TLS 1.3, client CertificateVerify"
)

// otherSchemes are what tolerant mode signs and verifies with beside sm2sig_sm3; chainSchemes may only be
// in chains.
var (
	otherSchemes = []SignatureScheme{
		tls.ECDSAWithP256AndSHA256, tls.ECDSAWithP384AndSHA384,
		tls.PSSWithSHA256, tls.PSSWithSHA384, tls.PSSWithSHA512,
	}
	chainSchemes = []SignatureScheme{tls.PKCS1WithSHA256, tls.PKCS1WithSHA384, tls.PKCS1WithSHA512}
)

var errSignature = errors.New("signature does not verify")

func signedContent(context string, transcript []byte) []byte {
	b := make([]byte, 64, 64+len(context)+1+len(transcript))
	for i := range b {
		b[i] = ' '
	}
	b = append(append(b, context...), 0)
	return append(b, transcript...)
}

// fits tells whether a key can make or check signatures of a scheme.
func fits(pub crypto.PublicKey, s SignatureScheme) bool {
	switch k := pub.(type) {
	case *ecdsa.PublicKey:
		switch s {
		case SM2SigSM3:
			return sm2.IsSM2PublicKey(k)
		case tls.ECDSAWithP256AndSHA256:
			return k.Curve == elliptic.P256()
		case tls.ECDSAWithP384AndSHA384:
			return k.Curve == elliptic.P384()
		}
	case *rsa.PublicKey:
		return (s == tls.PSSWithSHA256 || s == tls.PSSWithSHA384 || s == tls.PSSWithSHA512) && k.Size() >= 2*hashOf(s).Size()+2
	}
	return false
}

func hashOf(s SignatureScheme) crypto.Hash {
	switch s {
	case tls.ECDSAWithP256AndSHA256, tls.PSSWithSHA256:
		return crypto.SHA256
	case tls.ECDSAWithP384AndSHA384, tls.PSSWithSHA384:
		return crypto.SHA384
	}
	return crypto.SHA512
}

// schemeFor is the scheme for a key that the peer takes too; 0: none.
func (c *Config) schemeFor(pub crypto.PublicKey, peer []uint16) SignatureScheme {
	ours := []SignatureScheme{SM2SigSM3}
	if c.Tolerant {
		ours = append(ours, otherSchemes...)
	}
	for _, s := range ours {
		if fits(pub, s) && slices.Contains(peer, uint16(s)) {
			return s
		}
	}
	return 0
}

func sign(key crypto.Signer, s SignatureScheme, content []byte) ([]byte, error) {
	if s == SM2SigSM3 {
		return sm.Sign(key, sm.TLS13ID, content)
	}
	h := hashOf(s)
	d := h.New()
	d.Write(content)
	var opts crypto.SignerOpts = h
	if _, ok := key.Public().(*rsa.PublicKey); ok {
		opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: h}
	}
	return key.Sign(rand.Reader, d.Sum(nil), opts)
}

func verify(pub crypto.PublicKey, s SignatureScheme, content, sig []byte) bool {
	if s == SM2SigSM3 {
		return sm.Verify(pub.(*ecdsa.PublicKey), sm.TLS13ID, sig, content)
	}
	h := hashOf(s)
	d := h.New()
	d.Write(content)
	switch k := pub.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(k, d.Sum(nil), sig)
	case *rsa.PublicKey:
		return rsa.VerifyPSS(k, h, d.Sum(nil), sig, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
	}
	return false
}

// sendCertificate sends a chain and, if there is one, the proof of its key.
func (c *Conn) sendCertificate(cert *Certificate, scheme SignatureScheme, context string, request []byte) error {
	c.say((&certificateMsg{context: request, chain: cert.Certificate}).marshal())
	if len(cert.Certificate) == 0 {
		return nil
	}
	sig, err := sign(cert.PrivateKey, scheme, signedContent(context, c.transcript.Sum()))
	if err != nil {
		return sm.Fail(sm.AlertInternalError, err)
	}
	c.say((&certificateVerify{scheme, sig}).marshal())
	return nil
}

// checkProof checks a CertificateVerify; transcript is the hash of what was before it.
func (c *Conn) checkProof(raw []byte, leaf *smx509.Certificate, context string, transcript []byte) error {
	m, err := parseCertificateVerify(raw)
	if err != nil {
		return err
	}
	if !slices.Contains(c.cfg.signatures(), uint16(m.scheme)) || !fits(leaf.PublicKey, m.scheme) {
		return sm.Failf(sm.AlertIllegalParameter, "CertificateVerify with scheme %#04x", uint16(m.scheme))
	}
	if !verify(leaf.PublicKey, m.scheme, signedContent(context, transcript), m.signature) {
		return sm.Fail(sm.AlertDecryptError, errSignature)
	}
	return nil
}

// parseChain parses what the peer sent and checks that we take such keys.
func (c *Conn) parseChain(ders [][]byte) ([]*smx509.Certificate, error) {
	chain := make([]*smx509.Certificate, len(ders))
	for i, der := range ders {
		var err error
		if chain[i], err = sm.ParseCertificate(der); err != nil {
			return nil, sm.Failf(sm.AlertBadCertificate, "peer's certificate %d: %w", i, err)
		}
	}
	leaf := chain[0]
	if c.cfg.schemeFor(leaf.PublicKey, c.cfg.signatures()) == 0 {
		return nil, sm.Failf(sm.AlertUnsupportedCertificate, "peer's certificate has a key of another kind: %T", leaf.PublicKey)
	}
	if !sm.CanSign(leaf) {
		return nil, sm.Failf(sm.AlertUnsupportedCertificate, "key usage of the certificate of %s does not let it sign", leaf.Subject)
	}
	return chain, nil
}

// chains verifies a chain up to a root that we trust.
func (c *Conn) chains(certs []*smx509.Certificate) ([][]*smx509.Certificate, error) {
	chains, err := c.cfg.verifier(c.client).Verify(certs[0], certs[1:], c.cfg.now())
	if err != nil || c.cfg.Tolerant {
		return chains, err
	}
	var strict [][]*smx509.Certificate
	for _, chain := range chains {
		if !slices.ContainsFunc(chain[:len(chain)-1], func(x *smx509.Certificate) bool { return x.SignatureAlgorithm != smx509.SM2WithSM3 }) {
			strict = append(strict, chain)
		}
	}
	if strict == nil {
		return nil, sm.Failf(sm.AlertUnsupportedCertificate, "chain is not signed with SM2 throughout")
	}
	return strict, nil
}

// checkServer verifies the server's chain and name, if that is wanted.
func (c *Conn) checkServer(certs []*smx509.Certificate) ([][]*smx509.Certificate, error) {
	if c.cfg.InsecureSkipVerify {
		return nil, nil
	}
	chains, err := c.chains(certs)
	if err != nil {
		return nil, err
	}
	if err := certs[0].VerifyHostname(c.cfg.verifyName()); err != nil {
		return nil, sm.Fail(sm.AlertBadCertificate, err)
	}
	return chains, nil
}

// checkClient verifies the client's chain, if that is wanted. No certificate is an empty chain.
func (c *Conn) checkClient(certs []*smx509.Certificate) ([][]*smx509.Certificate, error) {
	auth := c.cfg.ClientAuth
	if len(certs) == 0 {
		if auth == tls.RequireAnyClientCert || auth == tls.RequireAndVerifyClientCert {
			return nil, sm.Failf(sm.AlertCertificateRequired, "client sent no certificate")
		}
		return nil, nil
	}
	if auth < tls.VerifyClientCertIfGiven {
		return nil, nil
	}
	return c.chains(certs)
}
