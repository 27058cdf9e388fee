package tls13sm

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"sslo/tls/sm"
)

// forger writes records with the client's application keys.
type forger struct {
	*protection
	net.Conn
	traffic secret
}

func newForger(t *testing.T, c *Conn) *forger {
	t.Helper()
	p, err := newProtection(c.suite, c.out)
	if err != nil {
		t.Fatal(err)
	}
	return &forger{p, c.NetConn(), c.out}
}

// inner protects any inner plaintext.
func (f *forger) inner(b []byte) {
	head := sm.AppendHeader(nil, sm.RecordApplicationData, version12, len(b)+sm.TagSize)
	f.Conn.Write(f.aead.Seal(head, f.next(), b, head))
	f.seq++
}

func (f *forger) send(typ sm.RecordType, b ...byte) { f.inner(append(b[:len(b):len(b)], byte(typ))) }

func (f *forger) clear(typ sm.RecordType, b ...byte) {
	f.Conn.Write(append(sm.AppendHeader(nil, typ, version12, len(b)), b...))
}

// withoutTickets makes a connection on which nothing was sent yet under the application keys.
func withoutTickets(t *testing.T) (server, client *Conn) {
	sc, cc := testWorld(t).configs()
	sc.SessionTicketsDisabled = true
	return connect(t, sc, cc)
}

func TestForgedRecords(t *testing.T) {
	const data, hand = sm.RecordApplicationData, sm.RecordHandshake
	cases := map[string]struct {
		send  func(f *forger)
		alert int // of the server; -1: "x" is read
	}{
		"padding":                  {func(f *forger) { f.inner(append([]byte{'x', byte(data)}, make([]byte, 300)...)) }, -1},
		"most padding":             {func(f *forger) { f.inner(append([]byte{'x', byte(data)}, make([]byte, sm.MaxPlain-1)...)) }, -1},
		"too much padding":         {func(f *forger) { f.inner(append([]byte{'x', byte(data)}, make([]byte, sm.MaxPlain)...)) }, 22},
		"nothing but padding":      {func(f *forger) { f.inner(make([]byte, 30)) }, 10},
		"too long":                 {func(f *forger) { f.inner(make([]byte, maxCiphertext)) }, 22},
		"no room for a tag":        {func(f *forger) { f.clear(data, make([]byte, 15)...) }, 20},
		"not authentic":            {func(f *forger) { f.clear(data, make([]byte, 50)...) }, 20},
		"empty and clear":          {func(f *forger) { f.clear(data) }, 20},
		"CCS after the handshake":  {func(f *forger) { f.clear(sm.RecordChangeCipherSpec, 1) }, 10},
		"CCS under protection":     {func(f *forger) { f.send(sm.RecordChangeCipherSpec, 1) }, 10},
		"handshake in clear":       {func(f *forger) { f.clear(hand, 24, 0, 0, 1, 0) }, 10},
		"unknown type":             {func(f *forger) { f.clear(99, 1) }, 10},
		"unknown type inside":      {func(f *forger) { f.send(99, 1) }, 10},
		"empty data, then data":    {func(f *forger) { f.send(data); f.send(data, 'x') }, -1},
		"empty data for ever":      {func(f *forger) { repeat(100, func() { f.send(data) }) }, 10},
		"empty handshake":          {func(f *forger) { f.send(hand) }, 10},
		"ticket to a server":       {func(f *forger) { f.send(hand, body(typeNewSessionTicket, make([]byte, 20))...) }, 10},
		"Finished again":           {func(f *forger) { f.send(hand, body(typeFinished, make([]byte, 32))...) }, 10},
		"ClientHello":              {func(f *forger) { f.send(hand, body(typeClientHello, make([]byte, 99))...) }, 10},
		"KeyUpdate of 2":           {func(f *forger) { f.send(hand, 24, 0, 0, 1, 2) }, 47},
		"KeyUpdate of two bytes":   {func(f *forger) { f.send(hand, 24, 0, 0, 2, 0, 0) }, 50},
		"KeyUpdate and more":       {func(f *forger) { f.send(hand, 24, 0, 0, 1, 0, 24) }, 10},
		"data inside a message":    {func(f *forger) { f.send(hand, 24, 0); f.send(data, 'x') }, 10},
		"huge message":             {func(f *forger) { f.send(hand, 4, 0xff, 0, 0) }, 50},
		"alert of one byte":        {func(f *forger) { f.send(sm.RecordAlert, 1) }, 50},
		"user_canceled, then data": {func(f *forger) { f.send(sm.RecordAlert, 1, 90); f.send(data, 'x') }, -1},
		"message in two records":   {func(f *forger) { f.send(hand, 24, 0, 0); f.send(hand, 1, 0); f.rekey(); f.send(data, 'x') }, -1},
	}
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			server, client := withoutTickets(t)
			go x.send(newForger(t, client))
			b := make([]byte, 1<<15)
			n, err := server.Read(b)
			if x.alert < 0 {
				if err != nil || string(b[:n]) != "x" {
					t.Errorf("%q, %v", b[:n], err)
				}
				return
			}
			if ownAlert(err) != x.alert {
				t.Errorf("alert %d: %v", ownAlert(err), err)
			}
			if _, err := client.Read(b); peerAlert(err) != x.alert {
				t.Errorf("client was told %v", err)
			}
			if _, again := server.Read(b); again == nil {
				t.Error("read goes on")
			}
		})
	}
}

func (f *forger) rekey() {
	p, _ := newProtection(suites[0], nextTraffic(f.traffic))
	f.protection = p
}

func repeat(n int, f func()) {
	for range n {
		f()
	}
}

// An alert that anybody can have sent is no alert of the peer's, and a fatal one is told.
func TestPeersAlerts(t *testing.T) {
	server, client := withoutTickets(t)
	newForger(t, client).clear(sm.RecordAlert, 2, 40)
	if _, err := server.Read(make([]byte, 1)); err != io.ErrUnexpectedEOF {
		t.Errorf("in clear: %v", err)
	}
	server, client = withoutTickets(t)
	newForger(t, client).send(sm.RecordAlert, 1, 80) // the level does not count
	if _, err := server.Read(make([]byte, 1)); peerAlert(err) != 80 {
		t.Errorf("protected: %v", err)
	}
}

func TestHalfClose(t *testing.T) {
	sc, cc := testConfigs(t)
	server, client := connect(t, sc, cc)
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write([]byte("x")); err == nil {
		t.Error("written after CloseWrite")
	}
	if n, err := server.Read(make([]byte, 9)); n != 0 || err != io.EOF {
		t.Errorf("%d, %v", n, err)
	}
	big := bytes.Repeat([]byte("answer"), 20000)
	go func() { server.Write(big); server.CloseWrite() }()
	if got, err := io.ReadAll(client); err != nil || !bytes.Equal(got, big) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	server.Close()
	if _, err := server.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
}

func testConfigs(t testing.TB) (sc, cc *Config) { return testWorld(t).configs() }

// The end of the transport is EOF between records, as with crypto/tls, and unexpected inside one.
func TestTruncation(t *testing.T) {
	server, client := withoutTickets(t)
	client.NetConn().(*net.TCPConn).CloseWrite()
	if _, err := server.Read(make([]byte, 9)); err != io.EOF {
		t.Errorf("between records: %v", err)
	}
	server, client = withoutTickets(t)
	client.NetConn().Write([]byte{23, 3, 3, 0})
	client.NetConn().(*net.TCPConn).CloseWrite()
	if _, err := server.Read(make([]byte, 9)); err != io.ErrUnexpectedEOF {
		t.Errorf("inside a record: %v", err)
	}
}

// gate is a transport that, once it is on, gives what is put there and then an error that passes, as the
// relay's does.
type gate struct {
	*net.TCPConn
	on   bool
	left []byte
}

type temporary struct{}

func (temporary) Error() string   { return "not yet" }
func (temporary) Timeout() bool   { return true }
func (temporary) Temporary() bool { return true }

func (g *gate) Read(b []byte) (int, error) {
	if !g.on {
		return g.TCPConn.Read(b)
	}
	if len(g.left) == 0 {
		return 0, temporary{}
	}
	n := copy(b, g.left[:min(3, len(g.left))])
	g.left = g.left[n:]
	return n, nil
}

func TestReadGoesOnAfterNotYet(t *testing.T) {
	sc, cc := testConfigs(t)
	a, b := tcp(t)
	g := &gate{TCPConn: b}
	server, client := Server(g, sc), Client(a, cc)
	if se, ce := both(server, client); se != nil || ce != nil {
		t.Fatal(se, ce)
	}
	f := newForger(t, client)
	g.on = true
	var got []byte
	for range 3 {
		for _, x := range f.Seal(nil, sm.RecordApplicationData, []byte("hello")) {
			g.left = append(g.left, x)
			b := make([]byte, 9)
			n, err := server.Read(b)
			got = append(got, b[:n]...)
			if err != nil && !errors.Is(err, temporary{}) {
				t.Fatal(err)
			}
		}
	}
	if string(got) != "hellohellohello" {
		t.Errorf("%q", got)
	}
}

func TestKeyUpdates(t *testing.T) {
	sc, cc := testConfigs(t)
	server, client := connect(t, sc, cc)
	for i := range 3 {
		for _, ask := range []bool{false, true} {
			for _, c := range []*Conn{client, server} {
				if err := c.KeyUpdate(ask); err != nil {
					t.Fatal(err)
				}
			}
			in, out := server.in, client.in
			echo(t, server, client)
			echo(t, server, client) // answers go before data
			if ask && (server.in == in || client.in == out) {
				t.Errorf("round %d: keys did not change", i)
			}
		}
	}
}

// A worn key is changed by itself.
func TestWornKeyIsChanged(t *testing.T) {
	sc, cc := testConfigs(t)
	sc.recordsPerKey, cc.recordsPerKey = 5, 5
	server, client := connect(t, sc, cc)
	first := client.out
	for range 10 {
		echo(t, server, client)
	}
	if client.out == first {
		t.Error("same key")
	}
}

// A peer that asks for new keys over and over gets one answer, and is not waited for.
func TestManyKeyUpdatesGetOneAnswer(t *testing.T) {
	server, client := withoutTickets(t)
	for range 20 {
		if err := client.KeyUpdate(true); err != nil {
			t.Fatal(err)
		}
	}
	go client.Write([]byte("x"))
	if _, err := server.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	out := server.out
	echo(t, server, client)
	if want := nextTraffic(out); server.out != want {
		t.Error("not exactly one answer")
	}
	for range 40 {
		client.KeyUpdate(false)
	}
	if _, err := server.Read(make([]byte, 1)); ownAlert(err) != 10 {
		t.Errorf("flood: %v", err)
	}
}

func TestDeadlines(t *testing.T) {
	for name, first := range map[string][]byte{
		"silence": nil, "header": {22, 3, 1, 0, 200}, "half a header": {22, 3}, "part": append([]byte{22, 3, 1, 0, 200}, make([]byte, 50)...),
	} {
		t.Run(name, func(t *testing.T) {
			a, b := tcp(t)
			a.Write(first)
			b.SetDeadline(time.Now().Add(50 * time.Millisecond))
			begin := time.Now()
			err := Server(b, &Config{Certificates: []Certificate{testWorld(t).server}}).Handshake()
			var ne net.Error
			if !errors.As(err, &ne) || !ne.Timeout() && name != "part" || time.Since(begin) > 5*time.Second {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
		})
	}
}
