package tls13sm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
)

// Conn is a connection of TLS 1.3 with an SM suite. Read, Write, CloseWrite, Close, NetConn and the
// deadlines are as crypto/tls's: EOF between records without close_notify is io.EOF too.
type Conn struct {
	*sm.Conn
	rec    *sm.Records
	cfg    *Config
	client bool
	state  ConnectionState

	suite      *suite
	transcript *sm.Transcript
	schedule   schedule
	random     [32]byte // of the client
	in, out    secret   // traffic secrets
	resumption secret
	mac        []byte // the client's Finished, as the server awaits it

	outMu  sync.Mutex   // of changes of our key
	answer atomic.Bool  // a KeyUpdate is owed before more data
	sent   atomic.Int64 // records under this key
}

// Server makes the server's end over a transport.
func Server(conn net.Conn, cfg *Config) *Conn {
	return newConn(conn, cfg, false)
}

// Client makes the client's end over a transport.
func Client(conn net.Conn, cfg *Config) *Conn {
	return newConn(conn, cfg, true)
}

func newConn(conn net.Conn, cfg *Config, client bool) *Conn {
	c := &Conn{cfg: cfg, client: client, transcript: sm.NewTranscript(false)}
	c.rec = sm.NewRecords(conn, sm.Rules{Version: 0x0301, TLS13: true})
	handshake := c.serverHandshake
	if client {
		handshake = c.clientHandshake
	}
	c.Conn = sm.NewConn(c.rec, func(ctx context.Context) error {
		return inside(handshake(ctx))
	}, c.late)
	return c
}

// inside makes the end of the stream within a handshake an unexpected one.
func inside(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ConnectionState is what was negotiated; empty before the handshake is done.
func (c *Conn) ConnectionState() ConnectionState {
	if !c.Done() {
		return ConnectionState{}
	}
	return c.state
}

// VerifyHostname checks the server's certificate for a name.
func (c *Conn) VerifyHostname(host string) error {
	if !c.client || !c.Done() || len(c.state.VerifiedChains) == 0 {
		return errors.New("no verified certificate")
	}
	return c.state.PeerCertificates[0].VerifyHostname(host)
}

// say adds a message to the flight and to the transcript.
func (c *Conn) say(msg []byte) {
	c.transcript.Add(msg)
	c.rec.WriteHandshake(msg)
}

// hear reads the next message, which must be of that type. It is not in the transcript yet.
func (c *Conn) hear(typ uint8) ([]byte, error) {
	raw, err := c.rec.ReadHandshake()
	if err != nil {
		return nil, err
	}
	if raw[0] != typ {
		return nil, sm.Failf(sm.AlertUnexpectedMessage, "handshake message of type %d instead of %d", raw[0], typ)
	}
	return raw, nil
}

// keys makes the protection for a traffic secret and logs it.
func (c *Conn) keys(label string, s secret) (*protection, error) {
	if err := c.cfg.log(label, c.random[:], s[:]); err != nil {
		return nil, sm.Fail(sm.AlertInternalError, err)
	}
	p, err := newProtection(c.suite, s)
	if err != nil {
		return nil, sm.Fail(sm.AlertInternalError, err)
	}
	return p, nil
}

// handshakeSecrets mixes the shared secret in and gives the handshake traffic secrets.
func (c *Conn) handshakeSecrets(shared []byte) (client, server secret) {
	c.schedule.mix(shared)
	sum := c.transcript.Sum()
	return c.schedule.secret("c hs traffic", sum), c.schedule.secret("s hs traffic", sum)
}

// masterSecrets gives the application traffic secrets; the transcript ends with the server's Finished.
func (c *Conn) masterSecrets() (client, server secret, err error) {
	c.schedule.finish()
	sum := c.transcript.Sum()
	client, server = c.schedule.secret("c ap traffic", sum), c.schedule.secret("s ap traffic", sum)
	c.state.exporter = c.schedule.secret("exp master", sum)
	return client, server, c.cfg.log("EXPORTER_SECRET", c.random[:], c.state.exporter[:])
}

// finish ends the handshake: from here on every record is protected.
func (c *Conn) finish() error {
	c.rec.SetRules(func(r *sm.Rules) { r.DropCCS = false })
	c.schedule = schedule{}
	c.transcript = nil
	c.state.Version = version13
	c.state.HandshakeComplete = true
	c.state.CipherSuite = c.suite.id
	if c.cfg.VerifyConnection == nil {
		return nil
	}
	if err := c.cfg.VerifyConnection(c.state); err != nil {
		return sm.Fail(sm.AlertBadCertificate, err)
	}
	return nil
}

func (c *Conn) peer(certs []*smx509.Certificate, chains [][]*smx509.Certificate) {
	c.state.PeerCertificates, c.state.VerifiedChains = certs, chains
}

// Write implements net.Conn. A KeyUpdate goes before the data when one is owed or the key is worn.
func (c *Conn) Write(b []byte) (int, error) {
	if err := c.Handshake(); err != nil {
		return 0, err
	}
	limit := c.cfg.recordsPerKey
	if limit == 0 {
		limit = maxRecordsPerKey
	}
	worn := c.sent.Add(int64(1+len(b)/sm.MaxPlain)) > limit
	if c.answer.Swap(false) || worn {
		if err := c.updateKey(false); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

// equalExtensions compares what two hellos say, in order, apart from some types.
func equalExtensions(a, b extensions, except func(uint16) bool) bool {
	keep := func(e extensions) (out extensions) {
		for _, x := range e {
			if !except(x.typ) {
				out = append(out, x)
			}
		}
		return out
	}
	x, y := keep(a), keep(b)
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if x[i].typ != y[i].typ || !bytes.Equal(x[i].body, y[i].body) {
			return false
		}
	}
	return true
}
