package tlcp

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"testing"

	"sslo/tls/sm"
	"sslo/tls/sm/smtest"
)

// seeds are the handshake messages in clear of all captures, and what each side sent.
func seeds(f *testing.F, message func(msg []byte), stream func(s *smtest.Session)) {
	names, _ := filepath.Glob(filepath.Join(vectorDir, "tlcp_*.pcap"))
	for _, name := range names {
		sessions, err := smtest.ReadCapture(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, s := range sessions {
			if stream != nil {
				stream(s)
			}
			for _, r := range s.Records {
				if r.Type == uint8(sm.RecordChangeCipherSpec) {
					break
				}
				if message != nil && r.Type == uint8(sm.RecordHandshake) {
					message(r.Body)
				}
			}
		}
	}
}

// FuzzMessages parses any message as what its type says. What is parsed must be the same after marshaling and
// parsing again.
func FuzzMessages(f *testing.F) {
	seeds(f, func(msg []byte) { f.Add(msg) }, nil)
	f.Fuzz(func(t *testing.T, msg []byte) {
		if len(msg) < 4 {
			return
		}
		switch msg[0] {
		case typeClientHello:
			var m clientHelloMsg
			_ = m.unmarshal(msg)
		case typeServerHello:
			var m serverHelloMsg
			_ = m.unmarshal(msg)
		case typeCertificate:
			var m certificateMsg
			again(t, msg, m.unmarshal(msg), &m)
			if len(m.certs) > 0 {
				_, _ = parsePair(m.certs)
			}
		case typeServerKeyExchange:
			for _, ecdhe := range []bool{false, true} {
				var m serverKeyExchangeMsg
				again(t, msg, m.unmarshal(msg, ecdhe), &m)
			}
		case typeCertificateRequest:
			var m certificateRequestMsg
			again(t, msg, m.unmarshal(msg), &m)
		case typeClientKeyExchange:
			_, _ = readPoint(msg)
			_, _ = readEncrypted(msg)
		case typeCertificateVerify:
			var m certificateVerifyMsg
			again(t, msg, m.unmarshal(msg), &m)
		case typeNewSessionTicket:
			var m newSessionTicketMsg
			again(t, msg, m.unmarshal(msg), &m)
		case typeFinished:
			var m finishedMsg
			again(t, msg, m.unmarshal(msg), &m)
		}
	})
}

func again(t *testing.T, msg []byte, err error, m marshaler) {
	if err != nil {
		return
	}
	b, err := m.marshal()
	if err != nil || !bytes.Equal(b[4:], msg[4:]) {
		t.Errorf("%x became %x: %v", msg, b, err)
	}
}

// FuzzPreMaster decrypts anything: the result is always a secret, never a panic.
func FuzzPreMaster(f *testing.F) {
	seeds(f, func(msg []byte) {
		if msg[0] == typeClientKeyExchange && len(msg) > 6 {
			f.Add(msg[6:])
		}
	}, nil)
	pair := pairOf(f, "server")
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := len(decryptPMS(pair.EncKey, b)); n != pmsSize {
			t.Errorf("secret of %d bytes", n)
		}
	})
}

// FuzzOpen opens any record body.
func FuzzOpen(f *testing.F) {
	out, _ := cbcPair(f)
	f.Add(out.Seal(nil, 23, []byte("data"))[sm.HeaderSize:])
	seeds(f, nil, func(s *smtest.Session) {
		for _, r := range s.Records[len(s.Records)-2:] {
			f.Add(r.Body)
		}
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, c := cbcPair(t)
		g, _ := newGCM(make([]byte, 16), make([]byte, 4))
		for _, p := range []sm.Protection{c, g} {
			if _, plain, err := p.Open(nil, sm.RecordApplicationData, VersionTLCP11, bytes.Clone(b)); err == nil && len(plain) > len(b) {
				t.Error("more content than record")
			}
		}
	})
}

// FuzzTicket takes any ticket and any session.
func FuzzTicket(f *testing.F) {
	cfg := &Config{}
	s := &Session{suite: ECC_SM4_GCM_SM3, master: make([]byte, masterSize), peer: [][]byte{{1, 2}}, serverName: "a"}
	ticket, err := cfg.seal(s)
	if err != nil {
		f.Fatal(err)
	}
	plain, _ := s.marshal()
	f.Add(ticket)
	f.Add(plain)
	f.Fuzz(func(t *testing.T, b []byte) {
		cfg.unseal(b)
		if s := unmarshalSession(b); s != nil {
			if again, err := s.marshal(); err != nil || !bytes.Equal(again, b) {
				t.Errorf("%x became %x: %v", b, again, err)
			}
		}
	})
}

// script is a peer that has said all it will say.
type script struct {
	net.Conn
	in *bytes.Reader
}

func (s script) Read(b []byte) (int, error)  { return s.in.Read(b) }
func (s script) Write(b []byte) (int, error) { return len(b), nil }
func (s script) Close() error                { return nil }
func (s script) RemoteAddr() net.Addr        { return &net.TCPAddr{} }

// FuzzServer and FuzzClient take any stream: it ends with an error, for no secret is in it.
func FuzzServer(f *testing.F) {
	seeds(f, nil, func(s *smtest.Session) { f.Add(s.Client) })
	_, server := configs(f)
	server.ClientAuth, server.SessionCache = RequestClientCert, NewLRUServerSessionCache(10)
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := Server(script{in: bytes.NewReader(b)}, server).Handshake(); err == nil {
			t.Error("a handshake without its secrets")
		}
	})
}

func FuzzClient(f *testing.F) {
	seeds(f, nil, func(s *smtest.Session) { f.Add(s.Server) })
	client, _ := configs(f)
	client.InsecureSkipVerify, client.ClientSessionCache, client.OfferTickets = true, NewLRUClientSessionCache(10), true
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := Client(script{in: bytes.NewReader(b)}, client).Handshake(); err == nil {
			t.Error("a handshake without its secrets")
		}
	})
}

// FuzzRecords reads any stream behind a handshake, in pieces of any size.
func FuzzRecords(f *testing.F) {
	g, _ := newGCM(make([]byte, 16), make([]byte, 4))
	var stream []byte
	for _, typ := range []sm.RecordType{23, 21, 22, 20, 23} {
		stream = g.Seal(stream, typ, []byte{1, 0})
	}
	f.Add(stream, 7)
	f.Add([]byte{23, 1, 1, 255, 255}, 1)
	f.Add([]byte{21, 1, 1, 0, 2, 2, 0}, 100)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		in, _ := newGCM(make([]byte, 16), make([]byte, 4))
		c := scriptedClient(script{in: bytes.NewReader(b)}, &Config{}, func(h *clientHandshake) error { return h.rec.SetIn(in) })
		buf := make([]byte, max(1, min(size, 1<<15)))
		for range len(b) + 10 {
			if _, err := c.Read(buf); err != nil {
				return
			}
		}
		t.Error("more reads than bytes")
	})
}

var _ io.Reader = script{}
