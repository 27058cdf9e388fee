package tlcp

import (
	"context"
	"net"

	"sslo/tls/sm"
)

// Conn is a connection that speaks TLCP. Read and Write run the handshake if it has not run. An error of the
// transport that is Temporary leaves the connection as it was, so that Read can be called again.
type Conn struct {
	*sm.Conn
	rec    *sm.Records
	config *Config
	client bool
	state  ConnectionState // once the handshake is done
}

// Server speaks TLCP as a server over a transport.
func Server(conn net.Conn, config *Config) *Conn { return newConn(conn, config, false) }

// Client speaks TLCP as a client. config needs a ServerName or InsecureSkipVerify.
func Client(conn net.Conn, config *Config) *Conn { return newConn(conn, config, true) }

func newConn(conn net.Conn, config *Config, client bool) *Conn {
	c := &Conn{rec: sm.NewRecords(conn, sm.Rules{Version: VersionTLCP11}), config: config, client: client}
	c.Conn = sm.NewConn(c.rec, c.handshake, c.late)
	return c
}

func (c *Conn) handshake(ctx context.Context) error {
	if c.client {
		return (&clientHandshake{handshake: newHandshake(c)}).run(ctx)
	}
	return (&serverHandshake{handshake: newHandshake(c)}).run(ctx)
}

// late refuses to negotiate again, which the standard does not have.
func (c *Conn) late(msg []byte) error {
	if c.client && msg[0] == typeHelloRequest || !c.client && msg[0] == typeClientHello {
		return c.rec.SendAlert(sm.AlertNoRenegotiation)
	}
	return sm.Failf(sm.AlertUnexpectedMessage, "handshake message of type %d after the handshake", msg[0])
}

// ConnectionState is the outcome of the handshake; before it is done it says so and no more.
func (c *Conn) ConnectionState() ConnectionState {
	if !c.Done() {
		return ConnectionState{}
	}
	return c.state
}

// VerifyHostname checks the server's certificate for a name.
func (c *Conn) VerifyHostname(host string) error {
	if !c.Done() || len(c.state.PeerCertificates) == 0 {
		return errNoPeer
	}
	return c.state.PeerCertificates[0].VerifyHostname(host)
}
