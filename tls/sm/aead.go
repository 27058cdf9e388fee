package sm

import (
	"crypto/cipher"

	smcipher "github.com/emmansun/gmsm/cipher"
	"github.com/emmansun/gmsm/sm4"
)

// Sizes of the SM4 AEADs.
const (
	KeySize   = 16
	NonceSize = 12
	TagSize   = 16
)

// NewGCM is SM4-GCM with a 12-byte nonce and a 16-byte tag.
func NewGCM(key []byte) (cipher.AEAD, error) {
	b, err := sm4.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(b)
}

// NewCCM is SM4-CCM with a 12-byte nonce and a 16-byte tag.
func NewCCM(key []byte) (cipher.AEAD, error) {
	b, err := sm4.NewCipher(key)
	if err != nil {
		return nil, err
	}
	a, err := smcipher.NewCCMWithNonceAndTagSize(b, NonceSize, TagSize)
	if err != nil {
		return nil, err
	}
	return ccm{a}, nil
}

// ccm seals in place too: gmsm's computes the tag after it has encrypted, over what the plaintext became.
type ccm struct{ cipher.AEAD }

// Seal implements cipher.AEAD.
func (c ccm) Seal(dst, nonce, plain, ad []byte) []byte {
	p := single.Get().(*[]byte)
	defer single.Put(p)
	if len(plain) > len(*p) {
		return c.AEAD.Seal(dst, nonce, append([]byte(nil), plain...), ad)
	}
	return c.AEAD.Seal(dst, nonce, (*p)[:copy(*p, plain)], ad)
}
