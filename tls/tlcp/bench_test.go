package tlcp

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"testing"
	"time"

	"github.com/emmansun/gmsm/ecdh"
	"github.com/emmansun/gmsm/sm2"

	"sslo/tls/sm"
	"sslo/tls/sm/smtest"
)

// BenchmarkServer is the CPU time of the server alone in a handshake, beside that of the primitives that it can
// not do without, on one thread and in turns, so that what else the machine does weighs on both alike.
func BenchmarkServer(b *testing.B) {
	for _, id := range CipherSuites() {
		for _, how := range []string{"full", "id", "ticket"} {
			b.Run(CipherSuiteName(id)+"/"+how, func(b *testing.B) { benchServer(b, id, how) })
		}
	}
}

func benchServer(b *testing.B, id uint16, how string) {
	client, server := configs(b)
	client.CipherSuites = []uint16{id}
	resumeBy(client, server, how)
	prims := primitives(b, server.Certificates[0], suiteByID(id).ecdhe)
	turns := &turns{b: b, client: client}
	smtest.Compare(b, "handshake", "primitives", func() time.Duration { return turns.handshake(server) }, smtest.Timed(b, prims))
}

// turns is a server's transport whose client takes its turn, with the clock stopped, when the server waits.
type turns struct {
	net.Conn
	b       *testing.B
	client  *Config
	h       *clientHandshake
	in, out bytes.Buffer  // to the server, to the client
	later   sm.Protection // of what the server sends last
	paused  time.Duration
}

func (t *turns) handshake(server *Config) time.Duration {
	c := newConn(&other{turns: t}, t.client, true)
	t.h = &clientHandshake{handshake: newHandshake(c)}
	t.later = nil
	t.in.Reset()
	t.out.Reset()
	start := smtest.CPU(t.b)
	t.paused = 0
	if err := Server(t, server).Handshake(); err != nil {
		t.b.Fatal(err)
	}
	took := smtest.CPU(t.b) - start - t.paused
	t.turn()
	return took
}

// turn runs the client until it would wait.
func (t *turns) turn() {
	err := t.step()
	if err != nil {
		t.b.Fatal(err)
	}
}

func (t *turns) step() error {
	h := t.h
	switch {
	case h.hello == nil:
		return h.sendClientHello()
	case h.reply == nil:
		if err := h.readServerHello(); err != nil {
			return err
		}
		if h.resumes() {
			return h.resume()
		}
		if err := h.readFlight(); err != nil {
			return err
		}
		if err := h.sendFlight(); err != nil {
			return err
		}
		in, out, err := h.protections()
		if err != nil {
			return err
		}
		t.later = in
		return h.sendFinished(out, clientFinished)
	case t.later != nil:
		ticket, err := h.readTicket()
		if err != nil {
			return err
		}
		if err := h.readFinished(t.later, serverFinished); err != nil {
			return err
		}
		h.keepSession(h.handshake.session(), ticket)
	}
	return nil
}

func (t *turns) Read(p []byte) (int, error) {
	if t.in.Len() == 0 {
		start := smtest.CPU(t.b)
		t.turn()
		t.paused += smtest.CPU(t.b) - start
	}
	return t.in.Read(p)
}

func (t *turns) Write(p []byte) (int, error) { return t.out.Write(p) }
func (t *turns) RemoteAddr() net.Addr        { return &net.TCPAddr{} }

// other is the client's end.
type other struct{ *turns }

func (o *other) Read(p []byte) (int, error)  { return o.out.Read(p) }
func (o *other) Write(p []byte) (int, error) { return o.in.Write(p) }

// primitives are the operations on the curve of a server's full handshake.
func primitives(b *testing.B, pair *Certificate, ecdhe bool) func() {
	key := pair.SignKey.(*sm2.PrivateKey)
	digest := make([]byte, 32)
	if !ecdhe {
		c, err := sm2.EncryptASN1(rand.Reader, &pair.EncKey.PublicKey, make([]byte, pmsSize))
		if err != nil {
			b.Fatal(err)
		}
		return func() {
			key.Sign(rand.Reader, digest, nil)
			sm2.Decrypt(pair.EncKey, c)
		}
	}
	peer, _ := ecdh.P256().GenerateKey(rand.Reader)
	sig, _ := key.Sign(rand.Reader, digest, nil)
	return func() {
		e, _ := ecdh.P256().GenerateKey(rand.Reader)
		key.Sign(rand.Reader, digest, nil)
		sm2.VerifyASN1(&key.PublicKey, digest, sig)
		v, _ := pair.agree.SM2MQV(e, peer.PublicKey(), peer.PublicKey())
		v.SM2SharedKey(false, pmsSize, pair.agree.PublicKey(), peer.PublicKey(), nil, nil)
	}
}

// BenchmarkBulk is the CPU time a record of 16 kB beside that of the cipher alone, in both directions.
func BenchmarkBulk(b *testing.B) {
	b.Run("ECC_SM4_GCM_SM3", benchBulk)
}

func benchBulk(b *testing.B) {
	out, _, raw := bulkGCM(b)
	data := make([]byte, sm.MaxPlain)
	nonce, extra := make([]byte, 12), make([]byte, 13)
	sealed := raw.aead.Seal(nil, nonce, data, extra)
	buf := make([]byte, 0, sm.MaxRecord)
	b.Run("write", func(b *testing.B) {
		w := sm.NewRecords(discard{}, sm.Rules{})
		w.SetOut(out)
		smtest.Compare(b, "record", "cipher", smtest.Timed(b, func() { w.WriteData(data) }),
			smtest.Timed(b, func() { raw.aead.Seal(buf[:0], nonce, data, extra) }))
	})
	b.Run("read", func(b *testing.B) {
		out, in, _ := bulkGCM(b)
		src := &source{out: out}
		c := scriptedClient(src, &Config{}, func(h *clientHandshake) error { return h.rec.SetIn(in) })
		to := make([]byte, sm.MaxPlain)
		ours := func() {
			src.fill(data)
			start := smtest.CPU(b)
			if _, err := io.ReadFull(c, to); err != nil {
				b.Fatal(err)
			}
			src.took += smtest.CPU(b) - start
		}
		smtest.Compare(b, "record", "cipher", func() time.Duration { src.took = 0; ours(); return src.took },
			smtest.Timed(b, func() { raw.aead.Open(buf[:0], nonce, sealed, extra) }))
	})
}

func bulkGCM(b *testing.B) (out, in, raw *gcm) {
	make3 := func() *gcm {
		g, err := newGCM(make([]byte, 16), make([]byte, 4))
		if err != nil {
			b.Fatal(err)
		}
		return g
	}
	return make3(), make3(), make3()
}

type discard struct{ net.Conn }

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// source gives records that it makes when asked, so that making them is not counted.
type source struct {
	net.Conn
	out  *gcm
	buf  []byte
	b    []byte
	took time.Duration
}

func (s *source) fill(data []byte) {
	s.buf = s.out.Seal(s.buf[:0], sm.RecordApplicationData, data)
	s.b = s.buf
}

func (s *source) Read(p []byte) (int, error) {
	n := copy(p, s.b)
	s.b = s.b[n:]
	return n, nil
}

func (s *source) RemoteAddr() net.Addr { return &net.TCPAddr{} }
