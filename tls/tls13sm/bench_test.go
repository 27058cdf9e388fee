package tls13sm

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"testing"

	smecdh "github.com/emmansun/gmsm/ecdh"

	"sslo/tls/sm"
)

// BenchmarkPrimitives is the least that a server must do for a full handshake: a key, an agreement and a
// signature.
func BenchmarkPrimitives(b *testing.B) {
	w := testWorld(b)
	peer, _ := smecdh.P256().GenerateKey(rand.Reader)
	content := signedContent(serverContext, make([]byte, 32))
	for b.Loop() {
		k, _ := smecdh.P256().GenerateKey(rand.Reader)
		k.PublicKey().Bytes()
		p, _ := smecdh.P256().NewPublicKey(peer.PublicKey().Bytes())
		k.ECDH(p)
		sm.Sign(w.server.PrivateKey, sm.TLS13ID, content)
	}
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

// BenchmarkServerHandshake counts the server's part alone: the client works while the timer stands still.
func BenchmarkServerHandshake(b *testing.B) {
	w := testWorld(b)
	for name, x := range map[string]struct {
		auth    tls.ClientAuthType
		resumed bool
	}{"full": {}, "mutual": {auth: tls.RequireAndVerifyClientCert}, "resumed": {resumed: true}} {
		b.Run(name, func(b *testing.B) {
			sc, cc := w.configs()
			sc.ClientAuth = x.auth
			if x.auth != tls.NoClientCert {
				cc.Certificates = []Certificate{w.client}
			}
			if x.resumed {
				cc.ClientSessionCache = NewLRUClientSessionCache(1)
				echoPairB(b, sc, cc)
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.StopTimer()
			for range b.N {
				serverAlone(b, sc, cc)
			}
		})
	}
}

// serverAlone runs one handshake step by step, with the timer on in the server's steps only.
func serverAlone(b *testing.B, sc, cc *Config) {
	x, y := pipe()
	client, server := Client(x, cc), Server(y, sc)
	ch, sh := &clientHandshake{c: client}, &serverHandshake{c: server, psk: -1}
	run := func(steps ...func() error) {
		for _, step := range steps {
			if err := step(); err != nil {
				b.Fatal(err)
			}
		}
	}
	run(ch.sendHello)
	b.StartTimer()
	run(sh.readHello, sh.negotiate, sh.retry, sh.authenticate, sh.keyExchange, sh.sendFlight)
	b.StopTimer()
	run(ch.readHello, ch.retry, ch.keyExchange, ch.readExtensions, ch.readAuthentication, ch.readFinished, ch.sendFlight, client.finish)
	b.StartTimer()
	run(sh.readFlight, server.finish)
	b.StopTimer()
}

func echoPairB(b *testing.B, sc, cc *Config) {
	server, client := connect(b, sc, cc)
	echo(b, server, client)
}

func BenchmarkRawSeal(b *testing.B) {
	for _, s := range suites {
		b.Run(s.name, func(b *testing.B) {
			a, _ := s.aead(make([]byte, 16))
			buf, nonce := make([]byte, sm.MaxPlain+sm.TagSize), make([]byte, sm.NonceSize)
			b.SetBytes(sm.MaxPlain)
			for b.Loop() {
				a.Seal(buf[:0], nonce, buf[:sm.MaxPlain], nonce)
			}
		})
	}
}

// sink is a transport that takes all.
type sink struct{ net.Conn }

func (sink) Write(b []byte) (int, error) { return len(b), nil }

func BenchmarkWrite(b *testing.B) {
	for _, s := range suites {
		b.Run(s.name, func(b *testing.B) {
			rec := sm.NewRecords(sink{}, sm.Rules{})
			p, _ := newProtection(s, secret{})
			rec.SetOut(p)
			buf := make([]byte, sm.MaxPlain)
			b.SetBytes(sm.MaxPlain)
			b.ReportAllocs()
			for b.Loop() {
				rec.WriteData(buf)
			}
		})
	}
}

func BenchmarkRawOpen(b *testing.B) {
	a, _ := sm.NewGCM(make([]byte, 16))
	nonce := make([]byte, sm.NonceSize)
	sealed := a.Seal(nil, nonce, make([]byte, sm.MaxPlain), nonce)
	out := make([]byte, 0, sm.MaxPlain)
	b.SetBytes(sm.MaxPlain)
	for b.Loop() {
		a.Open(out, nonce, sealed, nonce)
	}
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

func BenchmarkRead(b *testing.B) {
	src := &source{}
	p, _ := newProtection(suites[0], secret{})
	src.record = p.Seal(nil, sm.RecordApplicationData, make([]byte, sm.MaxPlain))
	in, _ := newProtection(suites[0], secret{})
	rec := sm.NewRecords(src, sm.Rules{TLS13: true})
	c := sm.NewConn(rec, func(context.Context) error { return rec.SetIn(same{in}) }, nil)
	buf := make([]byte, 1<<15)
	b.SetBytes(sm.MaxPlain)
	b.ReportAllocs()
	for b.Loop() {
		if n, err := c.Read(buf); n != sm.MaxPlain || err != nil {
			b.Fatal(n, err)
		}
	}
}
