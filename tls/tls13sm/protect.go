package tls13sm

import (
	"crypto/cipher"
	"slices"

	"sslo/tls/sm"
)

// maxCiphertext is the most that a protected record may hold, RFC 8446 5.2.
const maxCiphertext = sm.MaxPlain + 256

// protection protects records with the keys of one traffic secret.
type protection struct {
	aead  cipher.AEAD
	iv    [sm.NonceSize]byte
	nonce [sm.NonceSize]byte
	ad    [sm.HeaderSize]byte
	seq   uint64
	skip  int // bytes of early data that may still be passed over
}

func newProtection(s *suite, traffic secret) (*protection, error) {
	mac := sm.NewMAC(traffic[:])
	key := expandLabelBy(&mac, "key", nil, sm.KeySize)
	aead, err := s.aead(key[:sm.KeySize])
	if err != nil {
		return nil, err
	}
	p := &protection{aead: aead}
	iv := expandLabelBy(&mac, "iv", nil, sm.NonceSize)
	copy(p.iv[:], iv[:])
	return p, nil
}

func (p *protection) next() []byte {
	p.nonce = p.iv
	for i := range 8 {
		p.nonce[sm.NonceSize-1-i] ^= byte(p.seq >> (8 * i))
	}
	return p.nonce[:]
}

// Overhead implements sm.Protection.
func (p *protection) Overhead() int { return sm.HeaderSize + 1 + sm.TagSize }

// Seal implements sm.Protection.
func (p *protection) Seal(dst []byte, typ sm.RecordType, plain []byte) []byte {
	dst = slices.Grow(dst, len(plain)+p.Overhead())
	dst = sm.AppendHeader(dst, sm.RecordApplicationData, version12, len(plain)+1+sm.TagSize)
	at := len(dst)
	dst = append(append(dst, plain...), byte(typ))
	sealed := p.aead.Seal(dst[at:at], p.next(), dst[at:], dst[at-sm.HeaderSize:at])
	p.seq++
	return dst[:at+len(sealed)]
}

// Open implements sm.Protection.
func (p *protection) Open(dst []byte, typ sm.RecordType, version uint16, body []byte) (sm.RecordType, []byte, error) {
	switch {
	case typ != sm.RecordApplicationData:
		return 0, nil, sm.Failf(sm.AlertUnexpectedMessage, "record of type %d in clear", typ)
	case len(body) > maxCiphertext:
		return 0, nil, sm.Fail(sm.AlertRecordOverflow, sm.ErrOversized)
	case len(body) < sm.TagSize:
		return 0, nil, sm.Fail(sm.AlertBadRecordMAC, sm.ErrMAC)
	}
	if dst = dst[:0]; cap(dst) < len(body)-sm.TagSize {
		dst = body[:0]
	}
	ad := sm.AppendHeader(p.ad[:0], typ, version, len(body))
	inner, err := p.aead.Open(dst, p.next(), body, ad)
	if err != nil {
		if p.skip < len(body) {
			return 0, nil, sm.Fail(sm.AlertBadRecordMAC, sm.ErrMAC)
		}
		p.skip -= len(body)
		return nothing, nil, nil
	}
	p.skip = 0
	p.seq++
	return unpad(inner)
}

// nothing is the type of a record that means nothing while the rules drop change_cipher_spec.
const nothing = sm.RecordChangeCipherSpec

// unpad finds the true type behind the content.
func unpad(inner []byte) (sm.RecordType, []byte, error) {
	if len(inner) > sm.MaxPlain+1 {
		return 0, nil, sm.Fail(sm.AlertRecordOverflow, sm.ErrOversized)
	}
	for n := len(inner) - 1; n >= 0; n-- {
		switch typ := sm.RecordType(inner[n]); typ {
		case 0:
		case sm.RecordAlert, sm.RecordHandshake, sm.RecordApplicationData:
			return typ, inner[:n], nil
		default:
			return 0, nil, sm.Failf(sm.AlertUnexpectedMessage, "record of type %d under protection", typ)
		}
	}
	return 0, nil, sm.Failf(sm.AlertUnexpectedMessage, "record of nothing but padding")
}

// maxEarly bounds the early data that a client may have sent before it knows that we take none.
const maxEarly = 32 << 10

// passOver is what a server has between its HelloRetryRequest and the second ClientHello of a client that
// sent early data: that is dropped unread.
type passOver struct {
	sm.Protection // no record is sealed with it
	skip          int
}

// Open implements sm.Protection.
func (p *passOver) Open(_ []byte, typ sm.RecordType, _ uint16, body []byte) (sm.RecordType, []byte, error) {
	switch {
	case typ == sm.RecordHandshake && len(body) <= sm.MaxPlain:
		return typ, body, nil
	case typ == sm.RecordHandshake:
		return 0, nil, sm.Fail(sm.AlertRecordOverflow, sm.ErrOversized)
	case typ != sm.RecordApplicationData || p.skip < len(body):
		return 0, nil, sm.Failf(sm.AlertUnexpectedMessage, "record of type %d instead of a ClientHello", typ)
	}
	p.skip -= len(body)
	return nothing, nil, nil
}
