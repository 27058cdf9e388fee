package tlcp

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
)

// Reasons for which handshakes fail.
var (
	ErrVersion       = errors.New("peer does not speak TLCP 1.1")
	ErrNoSuite       = errors.New("no cipher suite in common")
	ErrNoCertificate = errors.New("no certificate for this connection")
	ErrNoClientCert  = errors.New("client sent no certificate")
	ErrSignature     = errors.New("signature does not verify")
	ErrFinished      = errors.New("verify data of Finished is wrong")
	ErrNoProtocol    = errors.New("no application protocol in common")

	errNoPeer = errors.New("peer has no certificate")
)

// handshake is what both sides of one share.
type handshake struct {
	c            *Conn
	rec          *sm.Records
	cfg          *Config
	tr           *sm.Transcript
	suite        *suite
	clientRandom []byte
	serverRandom []byte
	master       []byte
	mac          *sm.MAC // of master
	pms          []byte
	peer         *peerPair
	state        ConnectionState
}

func newHandshake(c *Conn) handshake {
	return handshake{c: c, rec: c.rec, cfg: c.config, tr: sm.NewTranscript(!c.client || c.config.SignRawMessages)}
}

// read gives the next message if it is of that type, and adds it to the transcript.
func (h *handshake) read(typ byte) ([]byte, error) {
	msg, err := h.next()
	if err != nil {
		return nil, err
	}
	if msg[0] != typ {
		return nil, unexpected(msg, typ)
	}
	h.tr.Add(msg)
	return msg, nil
}

// next gives the next message and leaves the transcript alone. A HelloRequest means nothing here.
func (h *handshake) next() ([]byte, error) {
	for range 4 {
		msg, err := h.rec.ReadHandshake()
		if err != nil || !h.c.client || msg[0] != typeHelloRequest {
			return msg, err
		}
	}
	return nil, sm.Failf(sm.AlertUnexpectedMessage, "too many HelloRequests")
}

func unexpected(msg []byte, want byte) error {
	return sm.Failf(sm.AlertUnexpectedMessage, "handshake message of type %d where %d belongs", msg[0], want)
}

type marshaler interface{ marshal() ([]byte, error) }

// write adds messages to the transcript and to the flight.
func (h *handshake) write(m marshaler) error {
	msg, err := m.marshal()
	if err != nil {
		return sm.Fail(sm.AlertInternalError, err)
	}
	h.writeRaw(msg)
	return nil
}

func (h *handshake) writeRaw(msg []byte) {
	h.tr.Add(msg)
	h.rec.WriteHandshake(msg)
}

func newRandom() []byte {
	r := make([]byte, randomSize)
	rand.Read(r)
	return r
}

// secrets derives the master secret and the keys of both directions.
func (h *handshake) secrets() {
	h.master, h.mac = masterSecret(h.pms, h.clientRandom, h.serverRandom), nil
	clear(h.pms)
}

// masterMAC is of the master secret, once that is known.
func (h *handshake) masterMAC() *sm.MAC {
	if h.mac == nil {
		m := sm.NewMAC(h.master)
		h.mac = &m
	}
	return h.mac
}

func (h *handshake) protections() (in, out sm.Protection, err error) {
	client, server, err := h.suite.protections(h.masterMAC(), h.clientRandom, h.serverRandom)
	if err != nil {
		return nil, nil, sm.Fail(sm.AlertInternalError, err)
	}
	if h.c.client {
		return server, client, nil
	}
	return client, server, nil
}

// sendFinished sends change_cipher_spec and Finished.
func (h *handshake) sendFinished(out sm.Protection, label string) error {
	verify := finished(h.masterMAC(), label, h.tr.Sum())
	h.rec.WriteChangeCipherSpec(false)
	h.rec.SetOut(out)
	if err := h.write(&finishedMsg{verify}); err != nil {
		return err
	}
	return h.rec.Flush()
}

// readFinished takes change_cipher_spec and Finished.
func (h *handshake) readFinished(in sm.Protection, label string) error {
	if err := h.rec.ReadChangeCipherSpec(); err != nil {
		return err
	}
	if err := h.rec.SetIn(in); err != nil {
		return err
	}
	want := finished(h.masterMAC(), label, h.tr.Sum())
	msg, err := h.read(typeFinished)
	if err != nil {
		return err
	}
	var m finishedMsg
	if err := m.unmarshal(msg); err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(want, m.verify) != 1 {
		return sm.Fail(sm.AlertDecryptError, ErrFinished)
	}
	return nil
}

// setPeer takes the peer's certificates, checked if they must be.
func (h *handshake) setPeer(p peerPair, check bool, usage smx509.ExtKeyUsage) (err error) {
	h.peer = &p
	h.state.PeerCertificates = p.all
	if check {
		h.state.VerifiedChains, h.state.VerifiedEncChains, err = h.cfg.verify(p, usage)
	}
	return err
}

// approve fills the state in and asks the configuration's last word.
func (h *handshake) approve() error {
	h.state.Version, h.state.CipherSuite = VersionTLCP11, h.suite.id
	if h.cfg.VerifyConnection == nil {
		return nil
	}
	if err := h.cfg.VerifyConnection(h.state); err != nil {
		return sm.Fail(sm.AlertBadCertificate, err)
	}
	return nil
}

func (h *handshake) done() {
	h.state.HandshakeComplete = true
	h.c.state = h.state
}

// logKeys writes the line that Wireshark reads.
func (h *handshake) logKeys() {
	if h.cfg.KeyLogWriter == nil {
		return
	}
	h.cfg.mu.Lock()
	defer h.cfg.mu.Unlock()
	fmt.Fprintf(h.cfg.KeyLogWriter, "CLIENT_RANDOM %x %x\n", h.clientRandom, h.master)
}

// session is what this handshake leaves to resume.
func (h *handshake) session() *Session {
	s := &Session{suite: h.suite.id, master: h.master, created: h.cfg.time(), serverName: h.state.ServerName}
	for _, c := range h.state.PeerCertificates {
		s.peer = append(s.peer, c.Raw)
	}
	return s
}
