package tlcp

import (
	"crypto"
	"crypto/ecdsa"
	"errors"
	"fmt"

	"github.com/emmansun/gmsm/ecdh"
	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
)

// Why a pair of certificates can not be used.
var (
	ErrMismatch   = errors.New("certificate and key do not match")
	ErrCanNotSign = errors.New("key usage of the signing certificate lacks digitalSignature")
	ErrCanNotEnc  = errors.New("key usage of the encryption certificate lacks keyEncipherment, dataEncipherment and keyAgreement")
	ErrIsCA       = errors.New("certificate is a CA's")
	ErrNames      = errors.New("signing and encryption certificate have different subjects")
	ErrNoEnc      = errors.New("there is no encryption certificate")
)

// Certificate is the pair of the standard: one certificate to sign, one to be encrypted to, and the CAs'
// certificates of both. Enc may be missing in a client's that speaks ECC only. It must not be changed once in
// use.
type Certificate struct {
	Sign, Enc *smx509.Certificate
	CAs       []*smx509.Certificate
	SignKey   crypto.Signer
	EncKey    *sm2.PrivateKey

	agree   *ecdh.PrivateKey // EncKey, for ECDHE
	encLast bool             // the order of TASSL, which tests send
}

// NewCertificate makes a pair and checks all that a peer would refuse. enc and encKey may be nil together.
func NewCertificate(sign, enc *smx509.Certificate, cas []*smx509.Certificate, signKey crypto.Signer, encKey *sm2.PrivateKey) (*Certificate, error) {
	c := &Certificate{Sign: sign, Enc: enc, CAs: cas, SignKey: signKey, EncKey: encKey}
	if err := c.check(); err != nil {
		return nil, err
	}
	if encKey == nil {
		return c, nil
	}
	var err error
	if c.agree, err = encKey.ECDH(); err != nil {
		return nil, fmt.Errorf("encryption key: %w", err)
	}
	c.agree.PublicKey() // is computed once
	return c, nil
}

func (c *Certificate) check() error {
	if err := matches(c.Sign, c.SignKey.Public()); err != nil {
		return fmt.Errorf("signing certificate: %w", err)
	}
	switch {
	case c.Sign.IsCA:
		return fmt.Errorf("signing certificate: %w", ErrIsCA)
	case !sm.CanSign(c.Sign):
		return ErrCanNotSign
	case (c.Enc == nil) != (c.EncKey == nil):
		return fmt.Errorf("encryption certificate: %w", ErrMismatch)
	case c.Enc == nil:
		return nil
	}
	if err := matches(c.Enc, c.EncKey.Public()); err != nil {
		return fmt.Errorf("encryption certificate: %w", err)
	}
	switch {
	case c.Enc.IsCA:
		return fmt.Errorf("encryption certificate: %w", ErrIsCA)
	case !sm.CanEncrypt(c.Enc):
		return ErrCanNotEnc
	case string(c.Enc.RawSubject) != string(c.Sign.RawSubject):
		return fmt.Errorf("%w: %s and %s", ErrNames, c.Sign.Subject, c.Enc.Subject)
	}
	return nil
}

func matches(cert *smx509.Certificate, pub crypto.PublicKey) error {
	k, err := sm.PublicKey(cert)
	if err != nil {
		return err
	}
	if p, ok := pub.(*ecdsa.PublicKey); !ok || !k.Equal(p) {
		return ErrMismatch
	}
	return nil
}

// X509KeyPair reads a pair from PEM. The signing file holds its certificate and, behind it, those of CAs; the
// encryption certificate may come in a file of its own or behind the signing certificate. password is for
// keys that are encrypted.
func X509KeyPair(signPEM, signKeyPEM, encPEM, encKeyPEM, password []byte) (*Certificate, error) {
	certs, err := sm.ParseChainPEM(signPEM)
	if err != nil {
		return nil, fmt.Errorf("signing certificate: %w", err)
	}
	signKey, err := sm.ParseKeyPEM(signKeyPEM, password)
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	if len(encPEM) > 0 {
		more, err := sm.ParseChainPEM(encPEM)
		if err != nil {
			return nil, fmt.Errorf("encryption certificate: %w", err)
		}
		certs = append(certs, more...)
	}
	if len(encKeyPEM) == 0 {
		return NewCertificate(certs[0], nil, dropEnc(certs), signKey, nil)
	}
	encKey, err := sm.ParseKeyPEM(encKeyPEM, password)
	if err != nil {
		return nil, fmt.Errorf("encryption key: %w", err)
	}
	p := sortPair(certs)
	if p.enc == nil {
		return nil, ErrNoEnc
	}
	return NewCertificate(p.sign, p.enc, distinct(p.cas), signKey, encKey)
}

func dropEnc(certs []*smx509.Certificate) []*smx509.Certificate { return distinct(sortPair(certs).cas) }

// distinct drops what is there twice, as when both files bring the same CAs.
func distinct(certs []*smx509.Certificate) []*smx509.Certificate {
	seen := map[string]bool{}
	var out []*smx509.Certificate
	for _, c := range certs {
		if !seen[string(c.Raw)] {
			seen[string(c.Raw)] = true
			out = append(out, c)
		}
	}
	return out
}

// message lists the certificates in the order of the standard: sign, enc, CAs.
func (c *Certificate) message(withEnc bool) *certificateMsg {
	m := &certificateMsg{certs: [][]byte{c.Sign.Raw}}
	withEnc = withEnc && c.Enc != nil
	if withEnc && !c.encLast {
		m.certs = append(m.certs, c.Enc.Raw)
	}
	for _, ca := range c.CAs {
		m.certs = append(m.certs, ca.Raw)
	}
	if withEnc && c.encLast {
		m.certs = append(m.certs, c.Enc.Raw)
	}
	return m
}

// supportsName reports whether the pair is for that server name.
func (c *Certificate) supportsName(name string) bool { return c.Sign.VerifyHostname(name) == nil }

// issuedBy reports whether a distinguished name is in the pair's chain.
func (c *Certificate) issuedBy(names [][]byte) bool {
	for _, n := range names {
		if string(n) == string(c.Sign.RawIssuer) {
			return true
		}
		for _, ca := range c.CAs {
			if string(n) == string(ca.RawIssuer) {
				return true
			}
		}
	}
	return len(names) == 0
}

// peerPair is what a peer sent: enc is nil when it sent none.
type peerPair struct {
	sign, enc *smx509.Certificate
	cas       []*smx509.Certificate
	all       []*smx509.Certificate // as sent
}

// sortPair finds the encryption certificate wherever it is: behind the signing one, or behind the CAs.
func sortPair(certs []*smx509.Certificate) peerPair {
	p := peerPair{sign: certs[0], all: certs}
	at := encAt(certs)
	for i, c := range certs[1:] {
		if i+1 == at {
			p.enc = c
		} else {
			p.cas = append(p.cas, c)
		}
	}
	return p
}

// SplitChain finds the pair in the certificates that a peer sent, in whatever order; enc may be nil.
func SplitChain(certs []*smx509.Certificate) (sign, enc *smx509.Certificate, cas []*smx509.Certificate) {
	p := sortPair(certs)
	return p.sign, p.enc, p.cas
}

// encAt prefers the leaf that says that it encrypts to one that says nothing.
func encAt(certs []*smx509.Certificate) int {
	silent := 0
	for i := 1; i < len(certs); i++ {
		switch {
		case certs[i].IsCA || !sm.CanEncrypt(certs[i]):
		case certs[i].KeyUsage != 0:
			return i
		case silent == 0 && !selfIssued(certs[i]):
			silent = i
		}
	}
	return silent
}

// selfIssued tells old roots, which have no extensions.
func selfIssued(c *smx509.Certificate) bool { return string(c.RawSubject) == string(c.RawIssuer) }

// parsePair parses the certificates of a message.
func parsePair(ders [][]byte) (peerPair, error) {
	certs := make([]*smx509.Certificate, len(ders))
	for i, der := range ders {
		c, err := sm.ParseCertificate(der)
		if err != nil {
			return peerPair{}, sm.Failf(sm.AlertBadCertificate, "peer's certificate %d: %w", i+1, err)
		}
		certs[i] = c
	}
	p := sortPair(certs)
	if _, err := sm.PublicKey(p.sign); err != nil {
		return p, sm.Fail(sm.AlertUnsupportedCertificate, err)
	}
	if !sm.CanSign(p.sign) {
		return p, sm.Fail(sm.AlertUnsupportedCertificate, ErrCanNotSign)
	}
	return p, nil
}
