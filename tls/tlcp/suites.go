package tlcp

import (
	"crypto/cipher"

	"github.com/emmansun/gmsm/sm4"

	"sslo/tls/sm"
)

// VersionTLCP11 is the version on the wire.
const VersionTLCP11 = 0x0101

// Cipher suites of GB/T 38636 that are spoken here.
const (
	ECDHE_SM4_CBC_SM3 uint16 = 0xe011
	ECC_SM4_CBC_SM3   uint16 = 0xe013
	ECDHE_SM4_GCM_SM3 uint16 = 0xe051
	ECC_SM4_GCM_SM3   uint16 = 0xe053
)

type suite struct {
	id    uint16
	name  string
	ecdhe bool
	cbc   bool
}

// suites, the preferred first: GCM before CBC, and ECC before ECDHE, which every client that has no
// certificate would fail with.
var suites = []*suite{
	{ECC_SM4_GCM_SM3, "ECC_SM4_GCM_SM3", false, false},
	{ECC_SM4_CBC_SM3, "ECC_SM4_CBC_SM3", false, true},
	{ECDHE_SM4_GCM_SM3, "ECDHE_SM4_GCM_SM3", true, false},
	{ECDHE_SM4_CBC_SM3, "ECDHE_SM4_CBC_SM3", true, true},
}

func suiteByID(id uint16) *suite {
	for _, s := range suites {
		if s.id == id {
			return s
		}
	}
	return nil
}

// CipherSuites are the suites that are spoken, the preferred first.
func CipherSuites() []uint16 {
	ids := make([]uint16, len(suites))
	for i, s := range suites {
		ids[i] = s.id
	}
	return ids
}

// CipherSuiteName is the standard's name of a suite, or "".
func CipherSuiteName(id uint16) string {
	if s := suiteByID(id); s != nil {
		return s.name
	}
	return ""
}

// Lengths in the key block.
const (
	macKeySize  = 32
	cbcIVSize   = 16 // in the key block, and never used: each record brings its own
	gcmSaltSize = 4
)

// protections cuts the key block: what the client sends with, and what the server sends with.
func (s *suite) protections(master *sm.MAC, clientRandom, serverRandom []byte) (client, server sm.Protection, err error) {
	if s.cbc {
		block := keyBlock(master, clientRandom, serverRandom, 2*(macKeySize+sm.KeySize+cbcIVSize))
		keys := block[2*macKeySize:]
		if client, err = newCBC(keys[:sm.KeySize], block[:macKeySize]); err != nil {
			return nil, nil, err
		}
		server, err = newCBC(keys[sm.KeySize:2*sm.KeySize], block[macKeySize:2*macKeySize])
		return client, server, err
	}
	block := keyBlock(master, clientRandom, serverRandom, 2*(sm.KeySize+gcmSaltSize))
	salts := block[2*sm.KeySize:]
	if client, err = newGCM(block[:sm.KeySize], salts[:gcmSaltSize]); err != nil {
		return nil, nil, err
	}
	server, err = newGCM(block[sm.KeySize:2*sm.KeySize], salts[gcmSaltSize:])
	return client, server, err
}

func newSM4(key []byte) (cipher.Block, error) { return sm4.NewCipher(key) }
