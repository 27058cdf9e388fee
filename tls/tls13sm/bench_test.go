package tls13sm

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	smecdh "github.com/emmansun/gmsm/ecdh"
	"sslo/tls/sm"
	"sslo/tls/sm/smtest"
)

// primitives is the least that a server must do for a full handshake: a key, an agreement and a signature.
func primitives(w *world, peer []byte, content []byte) {
	k, _ := smecdh.P256().GenerateKey(rand.Reader)
	k.PublicKey().Bytes()
	p, _ := smecdh.P256().NewPublicKey(peer)
	k.ECDH(p)
	sm.Sign(w.server.PrivateKey, sm.TLS13ID, content)
}

// script is a transport that plays a recorded client and counts nothing.
type script struct {
	net.Conn
	reads  chan []byte
	left   []byte
	writes chan []byte
}

func (s *script) Read(b []byte) (int, error) {
	if len(s.left) == 0 {
		var ok bool
		if s.left, ok = <-s.reads; !ok {
			return 0, io.EOF
		}
	}
	n := copy(b, s.left)
	s.left = s.left[n:]
	return n, nil
}

func (s *script) Write(b []byte) (int, error) {
	s.writes <- append([]byte(nil), b...)
	return len(b), nil
}

// pipe makes two ends in memory whose writes do not wait.
func pipe() (a, b *script) {
	x, y := make(chan []byte, 16), make(chan []byte, 16)
	return &script{reads: x, writes: y}, &script{reads: y, writes: x}
}

func (s *script) RemoteAddr() net.Addr { return nil }
func (s *script) Close() error         { return nil }

// BenchmarkServer measures the CPU of the server's part alone, beside that of the primitives in the same run.
func BenchmarkServer(b *testing.B) {
	w := testWorld(b)
	for _, how := range []string{"full", "mutual", "resumed"} {
		b.Run("TLS_SM4_GCM_SM3/"+how, func(b *testing.B) {
			sc, cc := w.configs()
			switch how {
			case "mutual":
				sc.ClientAuth, cc.Certificates = tls.RequireAndVerifyClientCert, []Certificate{w.client}
			case "resumed":
				cc.ClientSessionCache = NewLRUClientSessionCache(1)
				echoPairB(b, sc, cc)
			}
			peer, _ := smecdh.P256().GenerateKey(rand.Reader)
			content := signedContent(serverContext, make([]byte, 32))
			smtest.Compare(b, "handshake", "primitives", func() time.Duration { return serverAlone(b, sc, cc) },
				smtest.Timed(b, func() { primitives(w, peer.PublicKey().Bytes(), content) }))
		})
	}
}

// serverAlone runs one handshake step by step and gives the CPU of the server's steps.
func serverAlone(b *testing.B, sc, cc *Config) (spent time.Duration) {
	x, y := pipe()
	client := Client(x, cc)
	ch := &clientHandshake{c: client}
	run := func(steps ...func() error) {
		for _, step := range steps {
			if err := step(); err != nil {
				b.Fatal(err)
			}
		}
	}
	run(ch.sendHello)
	begin := smtest.CPU(b)
	server := Server(y, sc)
	sh := &serverHandshake{c: server, psk: -1}
	run(sh.readHello, sh.negotiate, sh.retry, sh.authenticate, sh.keyExchange, sh.sendFlight)
	spent = smtest.CPU(b) - begin
	run(ch.readHello, ch.retry, ch.keyExchange, ch.readExtensions, ch.readAuthentication, ch.readFinished, ch.sendFlight, client.finish)
	begin = smtest.CPU(b)
	run(sh.readFlight, server.finish)
	return spent + smtest.CPU(b) - begin
}

func echoPairB(b *testing.B, sc, cc *Config) {
	server, client := connect(b, sc, cc)
	echo(b, server, client)
}

// sink is a transport that takes all.
type sink struct{ net.Conn }

func (sink) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkBulk is the CPU time a record of 16 kB beside that of the cipher alone, in both directions.
func BenchmarkBulk(b *testing.B) {
	for _, s := range suites {
		b.Run(s.name+"/write", func(b *testing.B) { benchWrite(b, s) })
		b.Run(s.name+"/read", func(b *testing.B) { benchRead(b, s) })
	}
}

func benchWrite(b *testing.B, s *suite) {
	rec := sm.NewRecords(sink{}, sm.Rules{})
	p, _ := newProtection(s, secret{})
	rec.SetOut(p)
	a, _ := s.aead(make([]byte, 16))
	data, buf, nonce := make([]byte, sm.MaxPlain), make([]byte, 0, sm.MaxRecord), make([]byte, sm.NonceSize)
	smtest.Compare(b, "record", "cipher", smtest.Timed(b, func() { rec.WriteData(data) }),
		smtest.Timed(b, func() { a.Seal(buf[:0], nonce, data, nonce) }))
}

// source gives the same record for ever; its protection is made anew for each.
type source struct {
	net.Conn
	record []byte
	at     int
}

func (s *source) Read(b []byte) (int, error) {
	n := copy(b, s.record[s.at:])
	if s.at += n; s.at == len(s.record) {
		s.at = 0
	}
	return n, nil
}

// same opens every record as the first.
type same struct{ *protection }

func (s same) Open(dst []byte, typ sm.RecordType, version uint16, body []byte) (sm.RecordType, []byte, error) {
	s.seq = 0
	return s.protection.Open(dst, typ, version, body)
}

func benchRead(b *testing.B, s *suite) {
	src := &source{}
	p, _ := newProtection(s, secret{})
	src.record = p.Seal(nil, sm.RecordApplicationData, make([]byte, sm.MaxPlain))
	in, _ := newProtection(s, secret{})
	rec := sm.NewRecords(src, sm.Rules{TLS13: true})
	c := sm.NewConn(rec, func(context.Context) error { return rec.SetIn(same{in}) }, nil)
	a, _ := s.aead(make([]byte, 16))
	buf, nonce := make([]byte, 1<<15), make([]byte, sm.NonceSize)
	sealed, out := a.Seal(nil, nonce, make([]byte, sm.MaxPlain), nonce), make([]byte, 0, sm.MaxRecord)
	smtest.Compare(b, "record", "cipher", smtest.Timed(b, func() {
		if n, err := c.Read(buf); n != sm.MaxPlain || err != nil {
			b.Fatal(n, err)
		}
	}), smtest.Timed(b, func() { a.Open(out, nonce, sealed, nonce) }))
}
