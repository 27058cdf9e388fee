package cert

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/emmansun/gmsm/smx509"
)

// ErrRevoked is given for certificates that their issuer has revoked.
var ErrRevoked = errors.New("certificate is revoked")

// CRLs are certificate revocation lists, of all kinds of issuers. A certificate whose issuer has none is not
// revoked. They are values without functions in them, so that two can be compared deeply.
type CRLs struct {
	revoked map[string]bool // by issuer and serial number
	Lists   []CRL
}

// CRL tells about one list.
type CRL struct {
	Issuer     string
	NextUpdate time.Time // zero: it does not say
	Revoked    int
}

// ParseCRLs reads lists in PEM or one in DER. Each must be signed by one of the authorities, because nobody
// asks later.
func ParseCRLs(data []byte, authorities []*smx509.Certificate) (*CRLs, error) {
	c := &CRLs{revoked: map[string]bool{}}
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "X509 CRL" {
			continue
		}
		if err := c.add(block.Bytes, authorities); err != nil {
			return nil, fmt.Errorf("list %d: %w", len(c.Lists)+1, err)
		}
	}
	if len(c.Lists) > 0 {
		return c, nil
	}
	if len(data) == 0 || data[0] != 0x30 { // a SEQUENCE
		return nil, errors.New("no revocation list in it")
	}
	if err := c.add(data, authorities); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *CRLs) add(der []byte, authorities []*smx509.Certificate) error {
	l, err := smx509.ParseRevocationList(der)
	if err != nil {
		return err
	}
	if err := signed(l, authorities); err != nil {
		return err
	}
	for _, e := range l.RevokedCertificateEntries {
		c.revoked[crlKey(l.RawIssuer, e.SerialNumber)] = true
	}
	c.Lists = append(c.Lists, CRL{l.Issuer.String(), l.NextUpdate, len(l.RevokedCertificateEntries)})
	return nil
}

func signed(l *smx509.RevocationList, authorities []*smx509.Certificate) error {
	err := fmt.Errorf("it is of %s, which is not among the CA certificates", l.Issuer)
	for _, a := range authorities {
		if string(a.RawSubject) != string(l.RawIssuer) {
			continue
		}
		if err = l.CheckSignatureFrom(a); err == nil {
			return nil
		}
		err = fmt.Errorf("%s has not signed it: %w", l.Issuer, err)
	}
	return err
}

func crlKey(issuer []byte, serial *big.Int) string { return string(issuer) + "\x00" + serial.String() }

// Check refuses a revoked certificate. nil revokes nothing.
func (c *CRLs) Check(cert, _ *smx509.Certificate) error {
	return c.check(cert.RawIssuer, cert.SerialNumber, cert.Subject.String())
}

// CheckStd is Check for crypto/x509's certificates.
func (c *CRLs) CheckStd(cert *x509.Certificate) error {
	return c.check(cert.RawIssuer, cert.SerialNumber, cert.Subject.String())
}

func (c *CRLs) check(issuer []byte, serial *big.Int, subject string) error {
	if c != nil && c.revoked[crlKey(issuer, serial)] {
		return fmt.Errorf("%w: %s, serial number %s", ErrRevoked, subject, serial)
	}
	return nil
}
