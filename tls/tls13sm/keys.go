package tls13sm

import (
	"crypto/subtle"

	"github.com/emmansun/gmsm/sm3"
)

const secretSize = sm3.Size

type secret = [secretSize]byte

// hmacSM3 does all on the stack, because a handshake needs some twenty of them. The key is at most one
// block long, as all keys of the schedule are.
func hmacSM3(key, msg []byte) (out secret) {
	var pad [sm3.BlockSize + 128]byte
	for i := range sm3.BlockSize {
		pad[i] = 0x36
	}
	subtle.XORBytes(pad[:], pad[:], key)
	inner := sm3.Sum(append(pad[:sm3.BlockSize], msg...))
	for i := range sm3.BlockSize {
		pad[i] ^= 0x36 ^ 0x5c
	}
	n := copy(pad[sm3.BlockSize:], inner[:])
	out = sm3.Sum(pad[:sm3.BlockSize+n])
	clear(pad[:])
	return out
}

// extract is HKDF-Extract.
func extract(salt, ikm []byte) secret {
	if ikm == nil {
		ikm = make([]byte, secretSize)
	}
	return hmacSM3(salt, ikm)
}

// expandLabel is HKDF-Expand-Label for at most one block of output, which is all that TLS 1.3 needs here.
func expandLabel(s secret, label string, context []byte, n int) secret {
	var buf [96]byte
	w := builder{buf[:0]}
	w.u16(uint16(n))
	w.u8(uint8(len("tls13 ") + len(label)))
	w.b = append(append(w.b, "tls13 "...), label...)
	w.u8(uint8(len(context)))
	w.raw(context)
	w.u8(1)
	return hmacSM3(s[:], w.b)
}

// derive is Derive-Secret with the hash of the messages.
func derive(s secret, label string, transcript []byte) secret {
	return expandLabel(s, label, transcript, secretSize)
}

var emptyHash = sm3.Sum(nil)

// derivedNoPSK is what a handshake without PSK begins with.
var derivedNoPSK = derive(extract(nil, nil), "derived", emptyHash[:])

// schedule walks through RFC 8446 7.1: early, handshake and master secret.
type schedule struct {
	derived secret
	current secret
}

func newSchedule(psk []byte) (s schedule) {
	if psk == nil {
		s.derived = derivedNoPSK
		return s
	}
	s.current = extract(nil, psk)
	s.derived = derive(s.current, "derived", emptyHash[:])
	return s
}

// mix goes to the handshake secret, finish to the master secret.
func (s *schedule) mix(shared []byte) {
	s.current = extract(s.derived[:], shared)
	s.derived = derive(s.current, "derived", emptyHash[:])
}

func (s *schedule) finish() { s.current = extract(s.derived[:], nil) }

func (s *schedule) secret(label string, transcript []byte) secret {
	return derive(s.current, label, transcript)
}

// binderKey is the key of the MAC over a ClientHello that proves a resumption PSK.
func (s *schedule) binderKey() secret {
	return finishedKey(derive(s.current, "res binder", emptyHash[:]))
}

func finishedKey(s secret) secret { return expandLabel(s, "finished", nil, secretSize) }

// finishedMAC is the verify_data of who sends under s.
func finishedMAC(s secret, transcript []byte) []byte {
	key := finishedKey(s)
	mac := hmacSM3(key[:], transcript)
	return mac[:]
}

func nextTraffic(s secret) secret { return expandLabel(s, "traffic upd", nil, secretSize) }

// ticketPSK is the PSK of a ticket with that nonce.
func ticketPSK(resumption secret, nonce []byte) []byte {
	psk := expandLabel(resumption, "resumption", nonce, secretSize)
	return psk[:]
}

// exporter is the exporter of RFC 8446 7.5.
func exporter(master secret, label string, context []byte, n int) []byte {
	s := derive(master, label, emptyHash[:])
	hashed := sm3.Sum(context)
	return expandLong(s, "exporter", hashed[:], n)
}

// expandLong is HKDF-Expand-Label for any length.
func expandLong(s secret, label string, context []byte, n int) []byte {
	w := builder{}
	w.u16(uint16(n))
	w.vec8(func() { w.raw([]byte("tls13 " + label)) })
	w.bytes8(context)
	var out, last []byte
	for i := byte(1); len(out) < n; i++ {
		block := hmacSM3(s[:], append(append(last[:len(last):len(last)], w.b...), i))
		last = block[:]
		out = append(out, last...)
	}
	return out[:n]
}
