package tlcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/emmansun/gmsm/sm2"
	"golang.org/x/sys/unix"

	"sslo/tls/sm"
)

func signKeyOf(t *testing.T) *sm2.PrivateKey {
	k, err := sm.ParseKeyPEM(file(t, "certs/server_sign.key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// threadTime is what this thread has used of a CPU.
func threadTime(t *testing.T) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// A client that says little, or nothing, is given up at the deadline, and costs nothing until then.
func TestSlowClients(t *testing.T) {
	base := hello(t, "e053", "none")
	record := append(sm.AppendHeader(nil, sm.RecordHandshake, VersionTLCP11, len(base)), base...)
	for name, send := range map[string]func(c net.Conn, stop <-chan struct{}){
		"silence":            func(net.Conn, <-chan struct{}) {},
		"header, silence":    func(c net.Conn, _ <-chan struct{}) { c.Write(record[:5]) },
		"hello, silence":     func(c net.Conn, _ <-chan struct{}) { c.Write(record) },
		"one byte at a time": trickle(record),
		"empty records":      trickle(bytes.Repeat([]byte{22, 1, 1, 0, 0}, 1000)),
	} {
		t.Run(name, func(t *testing.T) {
			_, server := configs(t)
			c, s := tcpPair(t)
			s.SetDeadline(time.Now().Add(300 * time.Millisecond))
			stop := make(chan struct{})
			defer close(stop)
			go send(c, stop)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			start, cpu := time.Now(), threadTime(t)
			err := Server(s, server).Handshake()
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%v, want the deadline", err)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			if used := threadTime(t) - cpu; used > 100*time.Millisecond {
				t.Errorf("used %v of a CPU while waiting", used)
			}
		})
	}
}

func trickle(b []byte) func(net.Conn, <-chan struct{}) {
	return func(c net.Conn, stop <-chan struct{}) {
		for i := range b {
			select {
			case <-stop:
				return
			case <-time.After(25 * time.Millisecond):
			}
			if _, err := c.Write(b[i : i+1]); err != nil {
				return
			}
		}
	}
}

// A client that goes in the middle ends the handshake at once.
func TestClientsThatGo(t *testing.T) {
	base := hello(t, "e053", "none")
	record := append(sm.AppendHeader(nil, sm.RecordHandshake, VersionTLCP11, len(base)), base...)
	for n, want := range map[int]error{0: io.EOF, 3: io.ErrUnexpectedEOF, 5: io.ErrUnexpectedEOF, 30: io.ErrUnexpectedEOF, len(record): io.EOF} {
		_, server := configs(t)
		c, s := tcpPair(t)
		c.Write(record[:n])
		linger(c)
		if err := Server(s, server).Handshake(); !errors.Is(err, want) {
			t.Errorf("after %d bytes: %v, want %v", n, err, want)
		}
	}
}

func TestContextEndsTheHandshake(t *testing.T) {
	_, server := configs(t)
	_, s := tcpPair(t)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := Server(s, server).HandshakeContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestFloods(t *testing.T) {
	for name, flood := range map[string]func(r *sm.Records){
		"empty data":        func(r *sm.Records) { r.WriteData(nil) },
		"warning alerts":    func(r *sm.Records) { r.SendAlert(sm.AlertUserCanceled) },
		"HelloRequests":     func(r *sm.Records) { r.WriteHandshake(emptyMessage(typeHelloRequest)); r.Flush() },
		"change_cipherspec": func(r *sm.Records) { r.WriteChangeCipherSpec(false); r.Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			client, server := configs(t)
			c, s := tcpPair(t)
			r := mustShake(t, c, s, client, server)
			go func() {
				for range 100 {
					flood(r.server.rec)
				}
			}()
			go io.Copy(io.Discard, r.server)
			_, err := r.client.Read(make([]byte, 100))
			wantAlert(t, err, sm.AlertUnexpectedMessage)
		})
	}
}

// An empty record before each write, as Tongsuo sends it, is neither an end nor too much.
func TestEmptyRecordBeforeEachWrite(t *testing.T) {
	for _, s := range suites[:2] {
		client, server := configs(t)
		client.CipherSuites = []uint16{s.id}
		c, sc := tcpPair(t)
		r := mustShake(t, c, sc, client, server)
		go func() {
			for range 500 {
				r.server.rec.WriteData(nil)
				r.server.Write([]byte("data"))
			}
			r.server.CloseWrite()
		}()
		b, err := io.ReadAll(r.client)
		if err != nil || len(b) != 2000 {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	}
}

// A client may ask to begin anew; it is told no, and the connection goes on.
func TestNoRenegotiation(t *testing.T) {
	client, server := configs(t)
	c, s := tcpPair(t)
	r := mustShake(t, c, s, client, server)
	r.client.rec.WriteHandshake(hello(t, "e053", "none"))
	r.server.rec.WriteHandshake(emptyMessage(typeHelloRequest))
	if r.client.rec.Flush() != nil || r.server.rec.Flush() != nil {
		t.Fatal("can not send")
	}
	echo(t, r, 1000)
}

// Many records, the explicit nonces of which begin anywhere.
func TestLongSession(t *testing.T) {
	for _, s := range suites[:2] {
		client, server := configs(t)
		client.CipherSuites = []uint16{s.id}
		c, sc := tcpPair(t)
		r := mustShake(t, c, sc, client, server)
		go func() {
			for i := range 20_000 {
				if _, err := r.server.Write(make([]byte, i%100+1)); err != nil {
					return
				}
			}
			r.server.CloseWrite()
		}()
		n, err := io.Copy(io.Discard, r.client)
		if err != nil || n != 20_000*101/2 {
			t.Errorf("%s: %d bytes, %v", s.name, n, err)
		}
	}
}

func TestExplicitNonceIsTheSenders(t *testing.T) {
	out, _ := newGCM(make([]byte, 16), make([]byte, 4))
	in, _ := newGCM(make([]byte, 16), make([]byte, 4))
	rec := out.Seal(nil, sm.RecordApplicationData, []byte("first"))
	copy(out.nonce[4:], "anywhere")
	rec = append(rec[:sm.HeaderSize], "anywhere"...)
	rec = out.aead.Seal(rec, out.nonce[:], []byte("first"), out.extra[:])
	if _, plain, err := in.Open(nil, sm.RecordApplicationData, VersionTLCP11, rec[sm.HeaderSize:]); err != nil || string(plain) != "first" {
		t.Errorf("%q, %v", plain, err)
	}
}

func TestAlertInClear(t *testing.T) {
	client, server := configs(t)
	c, s := tcpPair(t)
	r := mustShake(t, c, s, client, server)
	r.client.Write([]byte("last"))
	c.Write([]byte{21, 1, 1, 0, 2, 2, 0})
	b, err := io.ReadAll(r.server)
	if string(b) != "last" || err != io.ErrUnexpectedEOF {
		t.Errorf("%q, %v", b, err)
	}
}

func TestEnds(t *testing.T) {
	client, server := configs(t)
	c, s := tcpPair(t)
	if err := Client(c, client).CloseWrite(); err != sm.ErrEarlyCloseWrite {
		t.Error(err)
	}
	r := mustShake(t, c, s, client, server)
	if err := r.client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Write([]byte("x")); err != sm.ErrClosed {
		t.Errorf("write after CloseWrite: %v", err)
	}
	if _, err := r.server.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read after close_notify: %v", err)
	}
	if _, err := r.server.Write([]byte("still")); err != nil {
		t.Errorf("the other direction: %v", err)
	}
	linger(s)
	if b, err := io.ReadAll(r.client); string(b) != "still" || err != nil {
		t.Errorf("%q, %v", b, err) // an end between records is EOF, as in crypto/tls
	}
	if r.client.Close() != nil || !errors.Is(r.client.Close(), net.ErrClosed) {
		t.Error("closed twice")
	}
	if _, err := r.client.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after Close: %v", err)
	}
}

// notYet is a transport that says "not yet" where others wait, as the relay's does.
type notYet struct {
	net.Conn
	b []byte
}

type later struct{ error }

func (later) Timeout() bool   { return true }
func (later) Temporary() bool { return true }

func (n *notYet) Read(p []byte) (int, error) {
	if len(n.b) == 0 {
		return 0, later{errors.New("not yet")}
	}
	m := copy(p, n.b)
	n.b = n.b[m:]
	return m, nil
}

// A transport may say "not yet" anywhere in a record: nothing is lost, and no buffer is held between records.
func TestNotYet(t *testing.T) {
	out, _ := newGCM(make([]byte, 16), make([]byte, 4))
	in, _ := newGCM(make([]byte, 16), make([]byte, 4))
	wire := &notYet{}
	c := scriptedClient(wire, &Config{}, func(h *clientHandshake) error { return h.rec.SetIn(in) })
	var stream, got []byte
	for i := range 20 {
		stream = out.Seal(stream, sm.RecordApplicationData, bytes.Repeat([]byte{byte(i)}, i*100))
	}
	want := len(stream) - 20*out.Overhead()
	buf := make([]byte, 600)
	for at := 0; at < len(stream); at += 7 {
		wire.b = stream[at:min(at+7, len(stream))]
		for {
			n, err := c.Read(buf)
			got = append(got, buf[:n]...)
			if err == nil {
				continue
			}
			if _, ok := err.(later); !ok {
				t.Fatal(err)
			}
			break
		}
	}
	if len(got) != want {
		t.Errorf("%d of %d bytes", len(got), want)
	}
}
