package tlcp

import (
	"net"
	"sync"
	"testing"

	"sslo/tls/sm"
)

// shape is a transport that frames what our end sends as other implementations do.
type shape struct {
	net.Conn
	record  int  // the most bytes of a handshake record in clear; 0: leave records as they are
	join    bool // all handshake messages of a flight in one record
	segment int  // the most bytes of a write and of a read; 0: any
	ccs     bool // change_cipher_spec was sent: what follows is protected
}

func (s *shape) Read(b []byte) (int, error) {
	if s.segment > 0 && len(b) > s.segment {
		b = b[:s.segment]
	}
	return s.Conn.Read(b)
}

func (s *shape) Write(b []byte) (int, error) {
	out := b
	if !s.ccs && (s.record > 0 || s.join) {
		out = s.reframe(b)
	}
	for len(out) > 0 {
		n := len(out)
		if s.segment > 0 {
			n = min(n, s.segment)
		}
		if _, err := s.Conn.Write(out[:n]); err != nil {
			return 0, err
		}
		out = out[n:]
	}
	return len(b), nil
}

func (s *shape) CloseWrite() error { return s.Conn.(*net.TCPConn).CloseWrite() }

// reframe makes other records of the handshake messages in whole records.
func (s *shape) reframe(b []byte) (out []byte) {
	var hand []byte
	flush := func() {
		for len(hand) > 0 {
			n := min(len(hand), sm.MaxPlain)
			if s.record > 0 {
				n = min(n, s.record)
			}
			out = append(sm.AppendHeader(out, sm.RecordHandshake, VersionTLCP11, n), hand[:n]...)
			hand = hand[n:]
		}
	}
	for len(b) >= sm.HeaderSize {
		n := sm.HeaderSize + int(b[3])<<8 + int(b[4])
		typ, rec := sm.RecordType(b[0]), b[:n]
		b = b[n:]
		if typ == sm.RecordHandshake && !s.ccs {
			if hand = append(hand, rec[sm.HeaderSize:]...); !s.join {
				flush()
			}
			continue
		}
		flush()
		s.ccs = s.ccs || typ == sm.RecordChangeCipherSpec
		out = append(out, rec...)
	}
	flush()
	return append(out, b...)
}

// shapes are the ways to frame that a peer must not care about.
var shapes = map[string]shape{
	"as it is":       {},
	"1-byte segment": {segment: 1},
	"1-byte records": {record: 1},
	"coalesced":      {join: true},
	"fragments of 7": {record: 7, join: true, segment: 3},
}

func shaped(t testing.TB, s shape) (client, server net.Conn) {
	c, sc := tcpPair(t)
	cs, ss := s, s
	cs.Conn, ss.Conn = c, sc
	return &cs, &ss
}

// tap records what an end writes, and can change one byte of it.
type tap struct {
	net.Conn
	mu   sync.Mutex
	sent []byte
	flip int  // place of the byte that is changed; -1: none
	xor  byte // how
}

func (p *tap) Write(b []byte) (int, error) {
	p.mu.Lock()
	at := p.flip - len(p.sent)
	p.sent = append(p.sent, b...)
	p.mu.Unlock()
	if p.flip >= 0 && at >= 0 && at < len(b) {
		b = append([]byte(nil), b...)
		b[at] ^= p.xor
	}
	return p.Conn.Write(b)
}

func (p *tap) CloseWrite() error { linger(p.Conn); return nil }

// recordsOf cuts a stream into whole records.
func recordsOf(b []byte) (recs [][]byte) {
	for len(b) >= sm.HeaderSize {
		n := min(len(b), sm.HeaderSize+int(b[3])<<8+int(b[4]))
		recs = append(recs, b[:n])
		b = b[n:]
	}
	return recs
}
