package tlcp

import (
	"crypto/cipher"
	"encoding/binary"

	"sslo/tls/sm"
)

const explicitSize = 8 // of the nonce, in each record

// gcm protects one direction. The nonce that is sent is the record's number; what is received may be any.
type gcm struct {
	aead  cipher.AEAD
	seq   uint64
	nonce [sm.NonceSize]byte
	extra [13]byte
}

func newGCM(key, salt []byte) (*gcm, error) {
	a, err := sm.NewGCM(key)
	if err != nil {
		return nil, err
	}
	g := &gcm{aead: a}
	copy(g.nonce[:], salt)
	return g, nil
}

// Overhead implements sm.Protection.
func (g *gcm) Overhead() int { return sm.HeaderSize + explicitSize + sm.TagSize }

// additional is the additional data of the next record, which it counts.
func (g *gcm) additional(typ sm.RecordType, version uint16, n int) []byte {
	putMACHeader(g.extra[:], g.seq, typ, version, n)
	g.seq++
	return g.extra[:]
}

// putMACHeader is what both the MAC and the AEAD cover beside the content.
func putMACHeader(b []byte, seq uint64, typ sm.RecordType, version uint16, n int) {
	binary.BigEndian.PutUint64(b, seq)
	b[8] = byte(typ)
	binary.BigEndian.PutUint16(b[9:], version)
	binary.BigEndian.PutUint16(b[11:], uint16(n))
}

// Seal implements sm.Protection.
func (g *gcm) Seal(dst []byte, typ sm.RecordType, plain []byte) []byte {
	dst = sm.AppendHeader(dst, typ, VersionTLCP11, explicitSize+len(plain)+sm.TagSize)
	binary.BigEndian.PutUint64(g.nonce[4:], g.seq)
	dst = append(dst, g.nonce[4:]...)
	return g.aead.Seal(dst, g.nonce[:], plain, g.additional(typ, VersionTLCP11, len(plain)))
}

// Open implements sm.Protection.
func (g *gcm) Open(dst []byte, typ sm.RecordType, version uint16, body []byte) (sm.RecordType, []byte, error) {
	n := len(body) - explicitSize - sm.TagSize
	if n < 0 {
		return 0, nil, sm.Fail(sm.AlertBadRecordMAC, sm.ErrMAC)
	}
	copy(g.nonce[4:], body)
	body = body[explicitSize:]
	if cap(dst) < n {
		dst = body
	}
	plain, err := g.aead.Open(dst[:0], g.nonce[:], body, g.additional(typ, version, n))
	if err != nil {
		return 0, nil, sm.Fail(sm.AlertBadRecordMAC, sm.ErrMAC)
	}
	return typ, plain, nil
}
