package tls13sm

import (
	"github.com/emmansun/gmsm/sm3"

	"sslo/tls/sm"
)

const secretSize = sm3.Size

type secret = [secretSize]byte

// extract is HKDF-Extract.
func extract(salt, ikm []byte) secret {
	if ikm == nil {
		ikm = make([]byte, secretSize)
	}
	return sm.HMAC(salt, ikm)
}

// expandLabel is HKDF-Expand-Label for at most one block of output, which is all that TLS 1.3 needs here.
func expandLabel(s secret, label string, context []byte, n int) secret {
	m := sm.NewMAC(s[:])
	return expandLabelBy(&m, label, context, n)
}

// expandLabelBy is for secrets that are used more than once.
func expandLabelBy(m *sm.MAC, label string, context []byte, n int) secret {
	var buf [96]byte
	w := builder{buf[:0]}
	w.u16(uint16(n))
	w.u8(uint8(len("tls13 ") + len(label)))
	w.b = append(append(w.b, "tls13 "...), label...)
	w.u8(uint8(len(context)))
	w.raw(context)
	w.u8(1)
	return m.Sum(w.b)
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
	mac     sm.MAC // of current
}

func newSchedule(psk []byte) (s schedule) {
	if psk == nil {
		s.derived = derivedNoPSK
		return s
	}
	s.use(extract(nil, psk))
	s.derived = s.secret("derived", emptyHash[:])
	return s
}

// mix goes to the handshake secret, finish to the master secret.
func (s *schedule) mix(shared []byte) {
	s.use(extract(s.derived[:], shared))
	s.derived = s.secret("derived", emptyHash[:])
}

func (s *schedule) finish() { s.use(extract(s.derived[:], nil)) }

func (s *schedule) use(current secret) { s.current, s.mac = current, sm.NewMAC(current[:]) }

func (s *schedule) secret(label string, transcript []byte) secret {
	return expandLabelBy(&s.mac, label, transcript, secretSize)
}

// binderKey is the key of the MAC over a ClientHello that proves a resumption PSK.
func (s *schedule) binderKey() secret {
	return finishedKey(s.secret("res binder", emptyHash[:]))
}

func finishedKey(s secret) secret { return expandLabel(s, "finished", nil, secretSize) }

// finishedMAC is the verify_data of who sends under s.
func finishedMAC(s secret, transcript []byte) []byte {
	key := finishedKey(s)
	mac := sm.HMAC(key[:], transcript)
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
		block := sm.HMAC(s[:], append(append(last[:len(last):len(last)], w.b...), i))
		last = block[:]
		out = append(out, last...)
	}
	return out[:n]
}
