package tlcp

import (
	"errors"

	"golang.org/x/crypto/cryptobyte"

	"sslo/tls/sm"
)

// Handshake messages of the standard, and the ticket of RFC 5077 that Tongsuo adds.
const (
	typeHelloRequest       = 0
	typeClientHello        = 1
	typeServerHello        = 2
	typeNewSessionTicket   = 4
	typeCertificate        = 11
	typeServerKeyExchange  = 12
	typeCertificateRequest = 13
	typeServerHelloDone    = 14
	typeCertificateVerify  = 15
	typeClientKeyExchange  = 16
	typeFinished           = 20
)

// Extensions that mean something here.
const (
	extServerName      = 0
	extALPN            = 16
	extSessionTicket   = 35
	extRenegotiation   = 0xff01
	compressionNone    = 0
	certTypeRSASign    = 1 // named by Tongsuo and gotlcp beside the one that is meant
	certTypeECDSASign  = 64
	maxSessionIDLength = 32
)

// ErrMalformed is the reason of every decode error.
var ErrMalformed = errors.New("malformed handshake message")

func malformed() error { return sm.Fail(sm.AlertDecodeError, ErrMalformed) }

// body cuts the header off a message.
func body(msg []byte) cryptobyte.String { return cryptobyte.String(msg[4:]) }

// message makes a whole message; what add does can not fail but by a length that is too large.
// commonSize is as long as most messages are at most; only those with certificates are longer.
const commonSize = 256

func message(typ uint8, add cryptobyte.BuilderContinuation) ([]byte, error) {
	b := cryptobyte.NewBuilder(make([]byte, 0, commonSize))
	b.AddUint8(typ)
	b.AddUint24LengthPrefixed(add)
	return b.Bytes()
}

func appendUint24(b []byte, n int) []byte { return append(b, byte(n>>16), byte(n>>8), byte(n)) }

func readUint16Vector(s *cryptobyte.String, out *[]byte) bool {
	return s.ReadUint16LengthPrefixed((*cryptobyte.String)(out))
}

func readUint8Vector(s *cryptobyte.String, out *[]byte) bool {
	return s.ReadUint8LengthPrefixed((*cryptobyte.String)(out))
}

type certificateMsg struct{ certs [][]byte }

func (m *certificateMsg) marshal() ([]byte, error) {
	n := 0
	for _, c := range m.certs {
		n += 3 + len(c)
	}
	b := make([]byte, 0, 7+n)
	b = appendUint24(append(b, typeCertificate), 3+n)
	b = appendUint24(b, n)
	for _, c := range m.certs {
		b = append(appendUint24(b, len(c)), c...)
	}
	if n >= 1<<24-3 {
		return nil, errors.New("too many certificates for a message")
	}
	return b, nil
}

func (m *certificateMsg) unmarshal(msg []byte) error {
	s := body(msg)
	var list cryptobyte.String
	if !s.ReadUint24LengthPrefixed(&list) || !s.Empty() {
		return malformed()
	}
	for !list.Empty() {
		var c cryptobyte.String
		if !list.ReadUint24LengthPrefixed(&c) || len(c) == 0 {
			return malformed()
		}
		m.certs = append(m.certs, c)
	}
	return nil
}

// serverKeyExchangeMsg has parameters for ECDHE only.
type serverKeyExchangeMsg struct {
	params []byte
	sig    []byte
}

func (m *serverKeyExchangeMsg) marshal() ([]byte, error) {
	return message(typeServerKeyExchange, func(b *cryptobyte.Builder) {
		b.AddBytes(m.params)
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(m.sig) })
	})
}

func (m *serverKeyExchangeMsg) unmarshal(msg []byte, ecdhe bool) error {
	s := body(msg)
	if ecdhe {
		params, err := readPointParams(&s)
		if err != nil {
			return err
		}
		m.params = params
	}
	if !readUint16Vector(&s, &m.sig) || !s.Empty() {
		return malformed()
	}
	return nil
}

type certificateRequestMsg struct {
	types []byte
	cas   [][]byte // distinguished names, DER
}

func (m *certificateRequestMsg) marshal() ([]byte, error) {
	return message(typeCertificateRequest, func(b *cryptobyte.Builder) {
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(m.types) })
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			for _, ca := range m.cas {
				b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(ca) })
			}
		})
	})
}

func (m *certificateRequestMsg) unmarshal(msg []byte) error {
	s := body(msg)
	var cas cryptobyte.String
	if !readUint8Vector(&s, &m.types) || !s.ReadUint16LengthPrefixed(&cas) || !s.Empty() {
		return malformed()
	}
	for !cas.Empty() {
		var ca []byte
		if !readUint16Vector(&cas, &ca) {
			return malformed()
		}
		m.cas = append(m.cas, ca)
	}
	return nil
}

func emptyMessage(typ uint8) []byte { return []byte{typ, 0, 0, 0} }

type certificateVerifyMsg struct{ sig []byte }

func (m *certificateVerifyMsg) marshal() ([]byte, error) {
	return message(typeCertificateVerify, func(b *cryptobyte.Builder) {
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(m.sig) })
	})
}

func (m *certificateVerifyMsg) unmarshal(msg []byte) error {
	s := body(msg)
	if !readUint16Vector(&s, &m.sig) || !s.Empty() {
		return malformed()
	}
	return nil
}

type finishedMsg struct{ verify []byte }

func (m *finishedMsg) marshal() ([]byte, error) {
	return message(typeFinished, func(b *cryptobyte.Builder) { b.AddBytes(m.verify) })
}

func (m *finishedMsg) unmarshal(msg []byte) error {
	if m.verify = body(msg); len(m.verify) != finishedSize {
		return malformed()
	}
	return nil
}

type newSessionTicketMsg struct {
	lifetime uint32 // seconds, a hint
	ticket   []byte
}

func (m *newSessionTicketMsg) marshal() ([]byte, error) {
	return message(typeNewSessionTicket, func(b *cryptobyte.Builder) {
		b.AddUint32(m.lifetime)
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(m.ticket) })
	})
}

func (m *newSessionTicketMsg) unmarshal(msg []byte) error {
	s := body(msg)
	if !s.ReadUint32(&m.lifetime) || !readUint16Vector(&s, &m.ticket) || !s.Empty() {
		return malformed()
	}
	return nil
}
