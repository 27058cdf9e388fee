package tlcp

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
)

type clientHandshake struct {
	handshake
	hello   *clientHelloMsg
	reply   *serverHelloMsg
	offered *Session
	cert    *Certificate // that is sent
	skx     serverKeyExchangeMsg
	request *certificateRequestMsg
}

func (h *clientHandshake) run(context.Context) error {
	if err := h.sendClientHello(); err != nil {
		return err
	}
	if err := h.readServerHello(); err != nil {
		return err
	}
	finish := h.full
	if h.resumes() {
		finish = h.resume
	}
	if err := finish(); err != nil {
		h.forget()
		return err
	}
	h.logKeys()
	h.done()
	return nil
}

func (h *clientHandshake) sendClientHello() error {
	if h.cfg.verifyName() == "" && !h.cfg.InsecureSkipVerify {
		return errors.New("tlcp: a client needs a ServerName or InsecureSkipVerify")
	}
	for _, p := range h.cfg.NextProtos {
		if p == "" || len(p) > 255 {
			return errors.New("tlcp: invalid name of an application protocol")
		}
	}
	h.clientRandom = newRandom()
	h.hello = &clientHelloMsg{version: VersionTLCP11, random: h.clientRandom, suites: h.offer(), compression: []byte{compressionNone},
		serverName: hostName(h.cfg.ServerName), alpn: h.cfg.NextProtos, tickets: h.cfg.OfferTickets && h.cfg.ClientSessionCache != nil}
	h.state.ServerName = h.hello.serverName
	h.offerSession()
	if err := h.write(h.hello); err != nil {
		return err
	}
	return h.rec.Flush()
}

// offer leaves ECDHE out for a client that has no pair to agree with.
func (h *clientHandshake) offer() []uint16 {
	if h.cfg.CipherSuites != nil || len(h.cfg.Certificates) > 0 || h.cfg.GetClientCertificate != nil {
		return h.cfg.cipherSuites()
	}
	return slices.DeleteFunc(CipherSuites(), func(id uint16) bool { return suiteByID(id).ecdhe })
}

// hostName is what server_name can carry: no address.
func hostName(name string) string {
	name = strings.TrimSuffix(name, ".")
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return ""
	}
	return name
}

func (h *clientHandshake) readServerHello() error {
	msg, err := h.read(typeServerHello)
	if err != nil {
		return err
	}
	h.reply = &serverHelloMsg{}
	if err := h.reply.unmarshal(msg); err != nil {
		return err
	}
	if h.reply.version != VersionTLCP11 {
		return sm.Fail(sm.AlertProtocolVersion, ErrVersion)
	}
	h.rec.SetRules(func(r *sm.Rules) { r.Expect = VersionTLCP11 })
	h.suite = suiteByID(h.reply.suite)
	if h.suite == nil || !slices.Contains(h.hello.suites, h.reply.suite) || h.reply.compression != compressionNone {
		return sm.Failf(sm.AlertIllegalParameter, "server chose suite %#04x or a compression that was not offered", h.reply.suite)
	}
	h.serverRandom, h.state.NegotiatedProtocol = h.reply.random, h.reply.alpn
	if err := h.reply.unlisted(h.hello); err != nil {
		return err
	}
	if h.reply.alpn != "" && !slices.Contains(h.hello.alpn, h.reply.alpn) {
		return sm.Failf(sm.AlertIllegalParameter, "server chose protocol %q, which was not offered", h.reply.alpn)
	}
	return nil
}

func (h *clientHandshake) full() error {
	if err := h.readFlight(); err != nil {
		return err
	}
	if err := h.approve(); err != nil {
		return err
	}
	if err := h.sendFlight(); err != nil {
		return err
	}
	in, out, err := h.protections()
	if err != nil {
		return err
	}
	if err := h.sendFinished(out, clientFinished); err != nil {
		return err
	}
	ticket, err := h.readTicket()
	if err != nil {
		return err
	}
	if err := h.readFinished(in, serverFinished); err != nil {
		return err
	}
	h.keepSession(h.handshake.session(), ticket)
	return nil
}

// readFlight reads Certificate, ServerKeyExchange, perhaps CertificateRequest, and ServerHelloDone.
func (h *clientHandshake) readFlight() error {
	if err := h.readCertificate(); err != nil {
		return err
	}
	if err := h.readKeyExchange(); err != nil {
		return err
	}
	msg, err := h.next()
	if err == nil && msg[0] == typeCertificateRequest {
		h.tr.Add(msg)
		h.request = &certificateRequestMsg{}
		if err := h.request.unmarshal(msg); err != nil {
			return err
		}
		msg, err = h.next()
	}
	switch {
	case err != nil:
		return err
	case msg[0] != typeServerHelloDone:
		return unexpected(msg, typeServerHelloDone)
	case len(msg) != 4:
		return malformed()
	}
	h.tr.Add(msg)
	return nil
}

func (h *clientHandshake) readCertificate() error {
	msg, err := h.read(typeCertificate)
	if err != nil {
		return err
	}
	var m certificateMsg
	if err := m.unmarshal(msg); err != nil {
		return err
	}
	if len(m.certs) == 0 {
		return sm.Fail(sm.AlertDecodeError, errNoPeer)
	}
	p, err := parsePair(m.certs)
	if err != nil {
		return err
	}
	if p.enc == nil {
		return sm.Fail(sm.AlertBadCertificate, ErrNoEnc)
	}
	return h.setServer(p)
}

// setServer takes the server's certificates; the signing one must be for the name.
func (h *clientHandshake) setServer(p peerPair) error {
	if err := h.setPeer(p, !h.cfg.InsecureSkipVerify, smx509.ExtKeyUsageServerAuth); err != nil || h.cfg.InsecureSkipVerify {
		return err
	}
	if err := p.sign.VerifyHostname(h.cfg.verifyName()); err != nil {
		return sm.Fail(sm.AlertBadCertificate, err)
	}
	return nil
}

func (h *clientHandshake) readKeyExchange() error {
	msg, err := h.read(typeServerKeyExchange)
	if err != nil {
		return err
	}
	if err := h.skx.unmarshal(msg, h.suite.ecdhe); err != nil {
		return err
	}
	signed := h.skx.params
	if !h.suite.ecdhe {
		signed = eccSigned(h.peer.enc)
	}
	pub, err := sm.PublicKey(h.peer.sign)
	if err != nil {
		return sm.Fail(sm.AlertUnsupportedCertificate, err)
	}
	if !sm.Verify(pub, sm.DefaultID, h.skx.sig, h.clientRandom, h.serverRandom, signed) {
		return sm.Fail(sm.AlertDecryptError, ErrSignature)
	}
	return nil
}

// sendFlight sends Certificate and CertificateVerify, if asked, and ClientKeyExchange.
func (h *clientHandshake) sendFlight() error {
	if err := h.chooseCertificate(); err != nil {
		return err
	}
	if h.request != nil {
		m := &certificateMsg{}
		if h.cert != nil {
			m = h.cert.message(h.suite.ecdhe || !h.cfg.OmitEncCertificate)
		}
		if err := h.write(m); err != nil {
			return err
		}
	}
	if err := h.sendKeyExchange(); err != nil {
		return err
	}
	h.secrets()
	if h.cert == nil {
		return nil
	}
	return h.sendCertificateVerify()
}

func (h *clientHandshake) chooseCertificate() error {
	if h.request != nil {
		var err error
		if h.cert, err = h.ownCertificate(); err != nil {
			return sm.Fail(sm.AlertInternalError, err)
		}
	}
	if h.suite.ecdhe && (h.cert == nil || h.cert.Enc == nil) {
		return sm.Fail(sm.AlertHandshakeFailure, ErrNoCertificate)
	}
	return nil
}

// ownCertificate sends the first pair when ECDHE needs one, whether the server names its CA or not.
func (h *clientHandshake) ownCertificate() (*Certificate, error) {
	if h.cfg.GetClientCertificate != nil {
		return h.cfg.GetClientCertificate(&CertificateRequestInfo{h.request.cas, h.suite.id, h.suite.ecdhe})
	}
	for _, c := range h.cfg.Certificates {
		if c.issuedBy(h.request.cas) {
			return c, nil
		}
	}
	if h.suite.ecdhe && len(h.cfg.Certificates) > 0 {
		return h.cfg.Certificates[0], nil
	}
	return nil, nil
}

func (h *clientHandshake) sendKeyExchange() error {
	var msg []byte
	var err error
	if h.suite.ecdhe {
		msg, err = h.pointMessage()
	} else {
		var ciphertext []byte
		if h.pms, ciphertext, err = newPMS(h.peer.enc); err == nil {
			msg, err = encryptedMessage(ciphertext)
		}
	}
	if err != nil {
		return err
	}
	h.writeRaw(msg)
	return nil
}

func (h *clientHandshake) pointMessage() ([]byte, error) {
	ephemeral, err := newEphemeral()
	if err != nil {
		return nil, err
	}
	theirs, err := paramsKey(h.skx.params)
	if err != nil {
		return nil, err
	}
	peer, err := encPublicKey(h.peer.enc)
	if err != nil {
		return nil, err
	}
	if h.pms, err = agree(false, h.cert.agree, ephemeral, peer, theirs); err != nil {
		return nil, err
	}
	return pointMessage(ephemeral.PublicKey().Bytes(), h.cfg.LongKeyExchange)
}

func (h *clientHandshake) sendCertificateVerify() error {
	signed := h.tr.Sum()
	if h.cfg.SignRawMessages {
		signed = h.tr.Raw()
	}
	sig, err := sm.Sign(h.cert.SignKey, sm.DefaultID, signed)
	if err != nil {
		return sm.Fail(sm.AlertInternalError, err)
	}
	return h.write(&certificateVerifyMsg{sig})
}

// readTicket reads the ticket that ServerHello promised.
func (h *clientHandshake) readTicket() ([]byte, error) {
	if !h.reply.tickets {
		return nil, nil
	}
	msg, err := h.read(typeNewSessionTicket)
	if err != nil {
		return nil, err
	}
	var m newSessionTicketMsg
	err = m.unmarshal(msg)
	return m.ticket, err
}
