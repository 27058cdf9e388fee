package sm

import (
	"crypto/ecdsa"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"

	"github.com/emmansun/gmsm/pkcs8"
	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"
)

// Errors of PEM input.
var (
	ErrNoCertificate = errors.New("no certificate in PEM input")
	ErrNoKey         = errors.New("no private key in PEM input")
)

// ParseChainPEM reads all certificates of a PEM file, in its order.
func ParseChainPEM(b []byte) ([]*smx509.Certificate, error) {
	var chain []*smx509.Certificate
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := smx509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(chain)+1, err)
		}
		chain = append(chain, c)
	}
	if len(chain) == 0 {
		return nil, ErrNoCertificate
	}
	return chain, nil
}

// ParseKeyPEM reads the first private key of a PEM file: PKCS#8, plain or encrypted, under the EC or the SM2
// algorithm, or SEC 1.
func ParseKeyPEM(b, password []byte) (*sm2.PrivateKey, error) {
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			return nil, ErrNoKey
		}
		switch block.Type {
		case "PRIVATE KEY":
			return sm2Key(smx509.ParsePKCS8PrivateKey(block.Bytes))
		case "ENCRYPTED PRIVATE KEY":
			if len(password) == 0 {
				return nil, errors.New("private key is encrypted and there is no password")
			}
			return sm2Key(pkcs8.ParsePKCS8PrivateKey(block.Bytes, password))
		case "EC PRIVATE KEY", "SM2 PRIVATE KEY":
			return sec1Key(block, password)
		}
	}
}

func sec1Key(block *pem.Block, password []byte) (*sm2.PrivateKey, error) {
	der := block.Bytes
	if smx509.IsEncryptedPEMBlock(block) { //nolint:staticcheck // old files have it
		var err error
		if der, err = smx509.DecryptPEMBlock(block, password); err != nil { //nolint:staticcheck // as above
			return nil, err
		}
	}
	return sm2Key(smx509.ParseTypedECPrivateKey(der))
}

func sm2Key(key any, err error) (*sm2.PrivateKey, error) {
	if err != nil {
		return nil, err
	}
	k, ok := key.(*sm2.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%w: %T", ErrNotSM2, key)
	}
	return k, nil
}

// PublicKey is the SM2 key of a certificate.
func PublicKey(c *smx509.Certificate) (*ecdsa.PublicKey, error) {
	k, ok := c.PublicKey.(*ecdsa.PublicKey)
	if !ok || !sm2.IsSM2PublicKey(k) {
		return nil, fmt.Errorf("%w: certificate of %s", ErrNotSM2, c.Subject)
	}
	return k, nil
}

// CanSign reports whether the key usage of a certificate lets it sign. One without key usage may do all.
func CanSign(c *smx509.Certificate) bool {
	return c.KeyUsage == 0 || c.KeyUsage&smx509.KeyUsageDigitalSignature != 0
}

// CanEncrypt reports whether the key usage of a certificate lets others encrypt to it or agree on keys with it.
func CanEncrypt(c *smx509.Certificate) bool {
	const encrypts = smx509.KeyUsageKeyEncipherment | smx509.KeyUsageDataEncipherment | smx509.KeyUsageKeyAgreement
	return c.KeyUsage == 0 || c.KeyUsage&encrypts != 0
}

// Parsed certificates are kept, because a server sees the same few again and again, and parsing one costs as
// much as a signature. Only small ones, so that strangers can not fill the memory.
const (
	parsedMax  = 1024
	parsedSize = 4096
)

var parsed = struct {
	sync.RWMutex
	m map[string]*smx509.Certificate
}{m: map[string]*smx509.Certificate{}}

// ParseCertificate parses a certificate, or gives the one that was parsed before. It must not be changed.
func ParseCertificate(der []byte) (*smx509.Certificate, error) {
	parsed.RLock()
	c := parsed.m[string(der)]
	parsed.RUnlock()
	if c != nil {
		return c, nil
	}
	c, err := smx509.ParseCertificate(der)
	if err != nil || len(der) > parsedSize {
		return c, err
	}
	parsed.Lock()
	defer parsed.Unlock()
	evict(parsed.m, parsedMax)
	parsed.m[string(der)] = c
	return c, nil
}

// evict makes room in a full cache: any entry goes, which no pattern of use can exploit.
func evict[K comparable, V any](m map[K]V, limit int) {
	for k := range m {
		if len(m) < limit {
			return
		}
		delete(m, k)
	}
}
