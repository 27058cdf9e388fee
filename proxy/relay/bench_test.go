package relay

import (
	"crypto/tls"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sslo/tls/hello"
	"sslo/tls/term"
)

func cpu() time.Duration {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// perGB reports CPU, which is what this code is for; the ends' share is in it, the same for all.
func perGB(b *testing.B, start time.Duration, bytes int64) {
	b.ReportMetric((cpu()-start).Seconds()/(float64(bytes)/1e9), "cpu-s/GB")
}

const chunk = 1 << 20

// BenchmarkDecrypt carries TLS to clear text, BenchmarkEncrypt the reverse; Copy is what io.Copy does.
func BenchmarkDecrypt(b *testing.B) {
	k := newKit(b, term.ServerOptions{})
	b.Run("Pump", func(b *testing.B) {
		ts, client, _ := k.tlsStream(b)
		ps, peer := k.plainStream(b)
		var n atomic.Uint64
		go func() { Pump(ps, ts, k.bufs, &n); ps.CloseWrite(true) }()
		carry(b, client, client.CloseWrite, peer)
	})
	b.Run("Copy", func(b *testing.B) {
		ours, theirs := tcpPair(b)
		client := tls.Client(theirs, k.client)
		w, _ := NewWire(ours, k.bufs)
		go client.Handshake()
		h, _ := hello.Read(w)
		conn, err := k.server.Handshake(w, h)
		if err != nil {
			b.Fatal(err)
		}
		ps, peer := k.plainStream(b)
		go func() { io.Copy(ps.TCPConn, conn); ps.CloseWrite(true) }()
		carry(b, client, client.CloseWrite, peer)
	})
}

func BenchmarkEncrypt(b *testing.B) {
	k := newKit(b, term.ServerOptions{})
	b.Run("Pump", func(b *testing.B) {
		ts, client, _ := k.tlsStream(b)
		ps, peer := k.plainStream(b)
		var n atomic.Uint64
		go func() { Pump(ts, ps, k.bufs, &n); ts.CloseWrite(true) }()
		carry(b, peer, peer.CloseWrite, client)
	})
	b.Run("Copy", func(b *testing.B) {
		ts, client, _ := k.tlsStream(b)
		ps, peer := k.plainStream(b)
		go func() { io.Copy(ts.conn, ps.TCPConn); ts.CloseWrite(true) }()
		carry(b, peer, peer.CloseWrite, client)
	})
}

func carry(b *testing.B, w io.Writer, closeWrite func() error, r io.Reader) {
	b.SetBytes(chunk)
	data := make([]byte, chunk)
	start := cpu()
	b.ResetTimer()
	go func() {
		for range b.N {
			w.Write(data)
		}
		closeWrite()
	}()
	buf := make([]byte, 256<<10)
	var got int64
	for {
		n, err := r.Read(buf)
		got += int64(n)
		if err != nil {
			break
		}
	}
	if got != int64(b.N)*chunk {
		b.Fatalf("%d bytes of %d", got, int64(b.N)*chunk)
	}
	perGB(b, start, got)
}

// BenchmarkPing is one small record forth and back through the relay.
func BenchmarkPing(b *testing.B) {
	k := newKit(b, term.ServerOptions{})
	ts, client, _ := k.tlsStream(b)
	ps, peer := k.plainStream(b)
	var n atomic.Uint64
	go Pump(ps, ts, k.bufs, &n)
	go Pump(ts, ps, k.bufs, &n)
	go io.Copy(peer, peer)
	msg := make([]byte, 200)
	b.ReportAllocs()
	for b.Loop() {
		client.Write(msg)
		io.ReadFull(client, msg)
	}
}

// BenchmarkHandshake is a full handshake with a client, ECDSA P-256; both ends are in it.
func BenchmarkHandshake(b *testing.B) {
	k := newKit(b, term.ServerOptions{})
	b.ReportAllocs()
	for b.Loop() {
		ts, _, raw := k.tlsStream(b)
		ts.StopReading()
		ts.Reset()
		raw.Close()
	}
}
