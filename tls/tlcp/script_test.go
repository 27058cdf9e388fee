package tlcp

import (
	"context"
	"net"
	"testing"

	"sslo/tls/sm"
)

// scriptedClient is a client whose handshake a test writes, of the steps of ours.
func scriptedClient(conn net.Conn, cfg *Config, script func(h *clientHandshake) error) *Conn {
	c := newConn(conn, cfg, true)
	c.Conn = sm.NewConn(c.rec, func(context.Context) error {
		h := &clientHandshake{handshake: newHandshake(c)}
		h.tr = sm.NewTranscript(true)
		return script(h)
	}, c.late)
	return c
}

func scriptedServer(conn net.Conn, cfg *Config, script func(h *serverHandshake) error) *Conn {
	c := newConn(conn, cfg, false)
	c.Conn = sm.NewConn(c.rec, func(context.Context) error {
		return script(&serverHandshake{handshake: newHandshake(c)})
	}, c.late)
	return c
}

// meet runs both handshakes.
func meet(client, server *Conn) result {
	r := result{client: client, server: server}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if r.serverErr = server.Handshake(); r.serverErr != nil {
			linger(server.NetConn())
		}
	}()
	if r.clientErr = client.Handshake(); r.clientErr != nil {
		linger(client.NetConn())
	}
	<-done
	return r
}

// start sends a ClientHello that a test may change, and reads the server's flight.
func (h *clientHandshake) start(change func(*clientHelloMsg)) error {
	h.clientRandom = newRandom()
	h.hello = &clientHelloMsg{version: VersionTLCP11, random: h.clientRandom, suites: h.cfg.cipherSuites(), compression: []byte{0}}
	if change != nil {
		change(h.hello)
	}
	if err := h.write(h.hello); err != nil {
		return err
	}
	return h.flight()
}

// startRaw sends a ClientHello as it is given, with another random.
func (h *clientHandshake) startRaw(msg []byte) error {
	h.hello = &clientHelloMsg{}
	if err := h.hello.unmarshal(msg); err != nil {
		return err
	}
	copy(h.hello.random, newRandom())
	h.clientRandom = h.hello.random
	h.writeRaw(msg)
	return h.flight()
}

func (h *clientHandshake) flight() error {
	if err := h.rec.Flush(); err != nil {
		return err
	}
	if err := h.readServerHello(); err != nil {
		return err
	}
	return h.readFlight()
}

// finish ends the handshake from ClientKeyExchange on, which is sent already.
func (h *clientHandshake) finish() error {
	in, out, err := h.protections()
	if err != nil {
		return err
	}
	if err := h.sendFinished(out, clientFinished); err != nil {
		return err
	}
	if _, err := h.readTicket(); err != nil {
		return err
	}
	if err := h.readFinished(in, serverFinished); err != nil {
		return err
	}
	h.done()
	return nil
}

func wantAlert(t *testing.T, err error, want sm.Alert) {
	t.Helper()
	if a, ok := alertIn(err); !ok || a != want {
		t.Errorf("%v, want alert %d (%s)", err, uint8(want), want)
	}
}

func fine(t *testing.T, r result) {
	t.Helper()
	if r.clientErr != nil || r.serverErr != nil {
		t.Fatalf("client: %v; server: %v", r.clientErr, r.serverErr)
	}
	echo(t, r, 1000)
}
