package tls13sm

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"sslo/tls/sm"
	"sslo/tls/sm/smtest"
)

// seeds gives the recorded messages of one type, as they are in clear or protected.
func seeds(f *testing.F, typ uint8) {
	f.Helper()
	for _, m := range recordedMessages(f) {
		if m[0] == typ {
			f.Add(m[4:])
		}
	}
}

func recordedMessages(t testing.TB) (list [][]byte) {
	files, _ := filepath.Glob("../testdata/vectors/tls13_*.pcap")
	for _, file := range files {
		sessions, err := smtest.ReadCapture(file)
		if err != nil {
			t.Fatal(err)
		}
		keys, _ := smtest.ReadKeyLog(file[:len(file)-len("pcap")] + "keylog")
		for _, s := range sessions {
			r := &recorded{t: &testing.T{}, session: s, keys: keys, seen: map[uint8]int{}, psk: -1}
			r.keep = &list
			r.run()
		}
	}
	return list
}

func fuzz(f *testing.F, typ uint8, parse func(raw []byte) error) {
	seeds(f, typ)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > sm.MaxHandshake {
			return
		}
		if err := parse(body(typ, b)); err != nil && ownAlert(err) < 0 {
			t.Errorf("no alert: %v", err)
		}
	})
}

func FuzzClientHello(f *testing.F) {
	fuzz(f, typeClientHello, func(raw []byte) error {
		m, err := parseClientHello(raw)
		if err == nil {
			m.withoutBinders()
			h := &serverHandshake{c: Server(nil, &Config{Tolerant: true}), hello: m, psk: -1}
			if err = h.check(); err == nil {
				err = h.negotiate()
			}
		}
		return err
	})
}

func FuzzServerHello(f *testing.F) {
	fuzz(f, typeServerHello, func(raw []byte) error {
		m, err := parseServerHello(raw)
		if err != nil {
			return err
		}
		h := &clientHandshake{c: Client(nil, &Config{}), answer: m, hello: &clientHello{suites: []uint16{0xc6, 0xc7}}}
		return h.checkHello()
	})
}

func FuzzEncryptedExtensions(f *testing.F) {
	fuzz(f, typeEncryptedExtensions, func(raw []byte) error { _, err := parseEncryptedExtensions(raw); return err })
}

func FuzzCertificateRequest(f *testing.F) {
	fuzz(f, typeCertificateRequest, func(raw []byte) error { _, err := parseCertificateRequest(raw); return err })
}

func FuzzCertificate(f *testing.F) {
	fuzz(f, typeCertificate, func(raw []byte) error {
		m, err := parseCertificate(raw)
		if err != nil || len(m.chain) == 0 {
			return err
		}
		_, err = (&Conn{cfg: &Config{}}).parseChain(m.chain)
		return err
	})
}

func FuzzCertificateVerify(f *testing.F) {
	w := testWorld(f)
	fuzz(f, typeCertificateVerify, func(raw []byte) error {
		return (&Conn{cfg: &Config{}}).checkProof(raw, w.server.Leaf, serverContext, make([]byte, 32))
	})
}

func FuzzNewSessionTicket(f *testing.F) {
	fuzz(f, typeNewSessionTicket, func(raw []byte) error { _, err := parseNewSessionTicket(raw); return err })
}

func FuzzKeyUpdate(f *testing.F) {
	f.Add([]byte{1})
	fuzz(f, typeKeyUpdate, func(raw []byte) error { _, err := parseKeyUpdate(raw); return err })
}

func FuzzTicketContent(f *testing.F) {
	f.Add((&serverSession{psk: make([]byte, 32), serverName: "x", chain: [][]byte{{1}, {2, 3}}, created: time.Now()}).marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := parseServerSession(b); ok {
			if again, ok := parseServerSession(s.marshal()); !ok || again.serverName != s.serverName || len(again.chain) != len(s.chain) {
				t.Errorf("%+v became %+v", s, again)
			}
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte{1, 23}, uint8(23))
	f.Fuzz(func(t *testing.T, inner []byte, typ uint8) {
		if len(inner) > maxCiphertext {
			return
		}
		p, _ := newProtection(suites[0], secret{})
		head := sm.AppendHeader(nil, sm.RecordType(typ), version12, len(inner)+sm.TagSize)
		sealed := p.aead.Seal(nil, p.next(), inner, head)
		if _, _, err := p.Open(nil, sm.RecordType(typ), version12, sealed); err != nil && ownAlert(err) < 0 {
			t.Errorf("no alert: %v", err)
		}
	})
}

// stream is a peer that sends some bytes and then the end, and takes all that it is sent.
type stream struct {
	net.Conn // nil
	left     []byte
}

func (s *stream) Read(b []byte) (int, error) {
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b, s.left)
	s.left = s.left[n:]
	return n, nil
}

func (s *stream) Write(b []byte) (int, error)      { return len(b), nil }
func (s *stream) Close() error                     { return nil }
func (s *stream) RemoteAddr() net.Addr             { return nil }
func (s *stream) SetWriteDeadline(time.Time) error { return nil }

func fuzzEnd(f *testing.F, client bool, end func(net.Conn) *Conn) {
	files, _ := filepath.Glob("../testdata/vectors/tls13_*.pcap")
	for _, file := range files {
		sessions, err := smtest.ReadCapture(file)
		if err != nil {
			f.Fatal(err)
		}
		if client {
			f.Add(sessions[0].Client)
		} else {
			f.Add(sessions[0].Server)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if end(&stream{left: b}).Handshake() == nil {
			t.Error("handshake without a peer")
		}
	})
}

func FuzzServer(f *testing.F) {
	sc, _ := testWorld(f).configs()
	fuzzEnd(f, true, func(c net.Conn) *Conn { return Server(c, sc) })
}

func FuzzClient(f *testing.F) {
	_, cc := testWorld(f).configs()
	fuzzEnd(f, false, func(c net.Conn) *Conn { return Client(c, cc) })
}
