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
	"golang.org/x/sys/unix"

	"sslo/tls/sm"
)

// primitives is the least that a server must do for a full handshake: a key, an agreement and a signature.
func primitives(w *world, peer []byte, content []byte) {
	k, _ := smecdh.P256().GenerateKey(rand.Reader)
	k.PublicKey().Bytes()
	p, _ := smecdh.P256().NewPublicKey(peer)
	k.ECDH(p)
	sm.Sign(w.server.PrivateKey, sm.TLS13ID, content)
}

// cpu is the time that the process has worked: on a busy machine the clock on the wall says nothing.
func cpu() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
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

// BenchmarkServerHandshake measures the CPU of the server's part alone, beside that of the primitives in the
// same run.
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
			peer, _ := smecdh.P256().GenerateKey(rand.Reader)
			content := signedContent(serverContext, make([]byte, 32))
			var least, server time.Duration
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				measure := func() {
					begin := cpu()
					primitives(w, peer.PublicKey().Bytes(), content)
					least += cpu() - begin
				}
				before := measure // and behind, in turn: who is second finds the caches warm
				if i%2 == 1 {
					before = nil
				}
				server += serverAlone(b, sc, cc, before)
				if before == nil {
					measure()
				}
			}
			n := time.Duration(b.N)
			b.ReportMetric(float64(least/n)/1e3, "primitives-µs")
			b.ReportMetric(float64(server/n)/1e3, "server-µs")
			b.ReportMetric(float64(server)/float64(least), "ratio")
		})
	}
}

// serverAlone runs one handshake step by step and gives the CPU of the server's steps.
func serverAlone(b *testing.B, sc, cc *Config, before func()) (spent time.Duration) {
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
	if before != nil {
		before()
	}
	begin := cpu()
	server := Server(y, sc)
	sh := &serverHandshake{c: server, psk: -1}
	run(sh.readHello, sh.negotiate, sh.retry, sh.authenticate, sh.keyExchange, sh.sendFlight)
	spent = cpu() - begin
	run(ch.readHello, ch.retry, ch.keyExchange, ch.readExtensions, ch.readAuthentication, ch.readFinished, ch.sendFlight, client.finish)
	begin = cpu()
	run(sh.readFlight, server.finish)
	return spent + cpu() - begin
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
