package sm

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"errors"
	"sync"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/sm3"
)

// IDs of signers.
var (
	DefaultID = []byte("1234567812345678")
	TLS13ID   = []byte("TLSv1.3+GM+Cipher+Suite") // of CertificateVerify, RFC 8998
)

// ErrNotSM2 is given for keys of another kind.
var ErrNotSM2 = errors.New("not an SM2 key")

// Digest is what SM2 signs for a message: SM3 over the signer's identity and the parts of the message.
func Digest(pub *ecdsa.PublicKey, id []byte, parts ...[]byte) ([]byte, error) {
	za, err := identity(pub, id)
	if err != nil {
		return nil, err
	}
	h := sm3.New()
	h.Write(za)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(make([]byte, 0, sm3.Size)), nil
}

// identities are the hashes of signers: a box sees the same few again and again.
var identities = struct {
	sync.RWMutex
	m map[signer][]byte
}{m: map[signer][]byte{}}

// signer holds the key, so that no other can take its place in memory.
type signer struct {
	pub *ecdsa.PublicKey
	id  string
}

const identitiesMax = 1024

// identity is Z_A, of a key that must not be changed any more.
func identity(pub *ecdsa.PublicKey, id []byte) ([]byte, error) {
	identities.RLock()
	za := identities.m[signer{pub, string(id)}]
	identities.RUnlock()
	if za != nil {
		return za, nil
	}
	za, err := sm2.CalculateZA(pub, id)
	if err != nil {
		return nil, err
	}
	identities.Lock()
	defer identities.Unlock()
	evict(identities.m, identitiesMax)
	identities.m[signer{pub, string(id)}] = za
	return za, nil
}

// Sign signs a message given in parts. Keys that are not in memory are asked with the whole message.
func Sign(key crypto.Signer, id []byte, parts ...[]byte) ([]byte, error) {
	k, ok := key.(*sm2.PrivateKey)
	if !ok {
		var msg []byte
		for _, p := range parts {
			msg = append(msg, p...)
		}
		return key.Sign(rand.Reader, msg, sm2.NewSM2SignerOption(true, id))
	}
	e, err := Digest(&k.PublicKey, id, parts...)
	if err != nil {
		return nil, err
	}
	return k.Sign(rand.Reader, e, nil)
}

// Verify checks a signature over a message given in parts.
func Verify(pub *ecdsa.PublicKey, id, sig []byte, parts ...[]byte) bool {
	e, err := Digest(pub, id, parts...)
	return err == nil && sm2.VerifyASN1(pub, e, sig)
}
