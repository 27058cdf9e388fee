// Package cert owns certificates and their keys: reading pairs, checking them, and choosing one for a
// ClientHello by server name and by what the client can verify. It knows no virtual server and no listener.
package cert

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Errors of a pair.
var (
	ErrMismatch = errors.New("certificate and key do not match")
	ErrWeakKey  = errors.New("key is too short")
)

// MinRSABits is the least RSA modulus that today's clients accept.
const MinRSABits = 2048

// Pair is a certificate chain with its key.
type Pair struct {
	Name string
	tls.Certificate
}

// Load reads a pair from PEM files.
func Load(name, certFile, keyFile string) (Pair, error) {
	c, err := os.ReadFile(certFile)
	if err != nil {
		return Pair{}, err
	}
	k, err := os.ReadFile(keyFile)
	if err != nil {
		return Pair{}, err
	}
	return Parse(name, c, k)
}

// Parse reads a pair from PEM blocks and checks that clients can use it.
func Parse(name string, certPEM, keyPEM []byte) (Pair, error) {
	c, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate %s: %w", name, explain(err))
	}
	if c.Leaf == nil {
		if c.Leaf, err = x509.ParseCertificate(c.Certificate[0]); err != nil {
			return Pair{}, fmt.Errorf("certificate %s: %w", name, err)
		}
	}
	if err := checkKey(c.Leaf); err != nil {
		return Pair{}, fmt.Errorf("certificate %s: %w", name, err)
	}
	return Pair{name, c}, nil
}

// explain gives crypto/tls's two texts for a mismatch one sentinel.
func explain(err error) error {
	switch err.Error() {
	case "tls: private key does not match public key", "tls: private key type does not match public key type":
		return fmt.Errorf("%w (%v)", ErrMismatch, err)
	}
	return err
}

func checkKey(leaf *x509.Certificate) error {
	switch k := leaf.PublicKey.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < MinRSABits {
			return fmt.Errorf("%w: RSA with %d bits, clients want %d", ErrWeakKey, k.N.BitLen(), MinRSABits)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return fmt.Errorf("unsupported key type %T", k)
	}
	return nil
}
