package tls13sm

import (
	"crypto/cipher"
	"crypto/tls"
	"fmt"

	"sslo/tls/sm"
)

// Cipher suites.
const (
	TLS_SM4_GCM_SM3 uint16 = 0x00c6
	TLS_SM4_CCM_SM3 uint16 = 0x00c7
)

// CurveID is a group, under crypto/tls's type.
type CurveID = tls.CurveID

// CurveSM2 is the group of RFC 8998.
const CurveSM2 CurveID = 41

// SignatureScheme is crypto/tls's.
type SignatureScheme = tls.SignatureScheme

// SM2SigSM3 is the signature scheme of RFC 8998.
const SM2SigSM3 SignatureScheme = 0x0708

type suite struct {
	id   uint16
	name string
	aead func(key []byte) (cipher.AEAD, error)
}

var suites = []*suite{
	{TLS_SM4_GCM_SM3, "TLS_SM4_GCM_SM3", sm.NewGCM},
	{TLS_SM4_CCM_SM3, "TLS_SM4_CCM_SM3", sm.NewCCM},
}

func suiteByID(id uint16) *suite {
	for _, s := range suites {
		if s.id == id {
			return s
		}
	}
	return nil
}

// CipherSuiteName is a suite's name.
func CipherSuiteName(id uint16) string {
	if s := suiteByID(id); s != nil {
		return s.name
	}
	return fmt.Sprintf("0x%04X", id)
}
