package tlcp

import (
	"context"
	"slices"

	"github.com/emmansun/gmsm/ecdh"
	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
)

type serverHandshake struct {
	handshake
	hello     *clientHelloMsg
	reply     *serverHelloMsg
	cert      *Certificate
	auth      ClientAuthType
	ephemeral *ecdh.PrivateKey
	params    []byte
	resumed   *Session
}

func (h *serverHandshake) run(context.Context) error {
	if err := h.readClientHello(); err != nil {
		return err
	}
	if err := h.choose(); err != nil {
		return err
	}
	finish := h.full
	if h.resumed != nil {
		finish = h.resume
	}
	if err := finish(); err != nil {
		return err
	}
	h.logKeys()
	h.done()
	return nil
}

func (h *serverHandshake) readClientHello() error {
	msg, err := h.read(typeClientHello)
	if err != nil {
		return err
	}
	h.hello = &clientHelloMsg{}
	if err := h.hello.unmarshal(msg); err != nil {
		return err
	}
	if h.hello.version>>8 != VersionTLCP11>>8 || h.hello.version < VersionTLCP11 {
		return sm.Fail(sm.AlertProtocolVersion, ErrVersion)
	}
	if !slices.Contains(h.hello.compression, compressionNone) {
		return sm.Failf(sm.AlertIllegalParameter, "client offers no uncompressed records")
	}
	// Whatever the version of the first record was, the others have the one that is spoken.
	h.rec.SetRules(func(r *sm.Rules) { r.Expect = VersionTLCP11 })
	h.clientRandom, h.serverRandom = h.hello.random, newRandom()
	h.state.ServerName = h.hello.serverName
	return nil
}

func (h *serverHandshake) info() *ClientHelloInfo {
	return &ClientHelloInfo{CipherSuites: h.hello.suites, ServerName: h.hello.serverName, SupportedProtos: h.hello.alpn,
		Extensions: h.hello.extensions, Conn: h.c.NetConn()}
}

// choose settles all that ServerHello says.
func (h *serverHandshake) choose() error {
	if h.cfg.GetConfigForClient != nil {
		switch cfg, err := h.cfg.GetConfigForClient(h.info()); {
		case err != nil:
			return sm.Fail(sm.AlertInternalError, err)
		case cfg != nil:
			h.cfg = cfg
		}
	}
	h.reply = &serverHelloMsg{version: VersionTLCP11, random: h.serverRandom}
	if err := h.chooseProtocol(); err != nil {
		return err
	}
	if h.tryResume() {
		return nil
	}
	if err := h.chooseCertificate(); err != nil {
		return err
	}
	return h.chooseSuite()
}

func (h *serverHandshake) chooseProtocol() error {
	if len(h.hello.alpn) == 0 || len(h.cfg.NextProtos) == 0 {
		return nil
	}
	for _, p := range h.cfg.NextProtos {
		if slices.Contains(h.hello.alpn, p) {
			h.reply.alpn, h.state.NegotiatedProtocol = p, p
			return nil
		}
	}
	return sm.Fail(sm.AlertNoApplicationProtocol, ErrNoProtocol)
}

func (h *serverHandshake) chooseCertificate() error {
	if h.cfg.GetCertificate != nil {
		c, err := h.cfg.GetCertificate(h.info())
		if err != nil {
			return sm.Fail(sm.AlertInternalError, err)
		}
		h.cert = c
	}
	if h.cert == nil && len(h.cfg.Certificates) > 0 {
		h.cert = h.cfg.Certificates[0]
		for _, c := range h.cfg.Certificates {
			if h.hello.serverName != "" && c.supportsName(h.hello.serverName) {
				h.cert = c
				break
			}
		}
	}
	if h.cert == nil || h.cert.Enc == nil {
		return sm.Fail(sm.AlertHandshakeFailure, ErrNoCertificate)
	}
	return nil
}

func (h *serverHandshake) chooseSuite() error {
	for _, id := range h.cfg.cipherSuites() {
		if s := suiteByID(id); s != nil && slices.Contains(h.hello.suites, id) {
			h.suite, h.auth, h.reply.suite = s, h.cfg.ClientAuth.with(s), id
			return nil
		}
	}
	return sm.Fail(sm.AlertHandshakeFailure, ErrNoSuite)
}

// full is the handshake without a session.
func (h *serverHandshake) full() error {
	h.promiseSession()
	if err := h.sendFlight(); err != nil {
		return err
	}
	if err := h.readFlight(); err != nil {
		return err
	}
	h.secrets()
	in, out, err := h.protections()
	if err != nil {
		return err
	}
	if err := h.readFinished(in, clientFinished); err != nil {
		return err
	}
	if err := h.approve(); err != nil {
		return err
	}
	if err := h.keepSession(); err != nil {
		return err
	}
	return h.sendFinished(out, serverFinished)
}

func (h *serverHandshake) sendFlight() error {
	if h.auth == NoClientCert {
		h.tr.Forget()
	}
	if err := h.write(h.reply); err != nil {
		return err
	}
	if err := h.write(h.cert.message(true)); err != nil {
		return err
	}
	if err := h.sendKeyExchange(); err != nil {
		return err
	}
	if h.auth != NoClientCert {
		if err := h.write(h.request()); err != nil {
			return err
		}
	}
	h.writeRaw(emptyMessage(typeServerHelloDone))
	return h.rec.Flush()
}

// sendKeyExchange signs the ephemeral key of ECDHE, or the encryption certificate of ECC.
func (h *serverHandshake) sendKeyExchange() error {
	m := &serverKeyExchangeMsg{}
	signed := eccSigned(h.cert.Enc)
	if h.suite.ecdhe {
		if err := h.makeEphemeral(); err != nil {
			return err
		}
		m.params, signed = h.params, h.params
	}
	var err error
	if m.sig, err = sm.Sign(h.cert.SignKey, sm.DefaultID, h.clientRandom, h.serverRandom, signed); err != nil {
		return sm.Fail(sm.AlertInternalError, err)
	}
	return h.write(m)
}

func (h *serverHandshake) makeEphemeral() (err error) {
	if h.ephemeral, err = newEphemeral(); err != nil {
		return sm.Fail(sm.AlertInternalError, err)
	}
	h.params = pointParams(h.ephemeral.PublicKey().Bytes())
	return nil
}

func (h *serverHandshake) request() *certificateRequestMsg {
	m := &certificateRequestMsg{types: []byte{certTypeRSASign, certTypeECDSASign}}
	if h.cfg.ClientCAs != nil {
		m.cas = h.cfg.ClientCAs.Subjects() //nolint:staticcheck // the pool is ours, not the system's
	}
	return m
}

func (h *serverHandshake) readFlight() error {
	if h.auth != NoClientCert {
		if err := h.readCertificate(); err != nil {
			return err
		}
	}
	msg, err := h.read(typeClientKeyExchange)
	if err != nil {
		return err
	}
	if err := h.readKeyExchange(msg); err != nil {
		return err
	}
	if h.peer != nil {
		err = h.readCertificateVerify()
	}
	h.tr.Forget()
	return err
}

func (h *serverHandshake) readCertificate() error {
	msg, err := h.read(typeCertificate)
	if err != nil {
		return err
	}
	var m certificateMsg
	if err := m.unmarshal(msg); err != nil {
		return err
	}
	if len(m.certs) == 0 {
		if h.auth.required() {
			return sm.Fail(sm.AlertHandshakeFailure, ErrNoClientCert)
		}
		return nil
	}
	p, err := parsePair(m.certs)
	if err != nil {
		return err
	}
	if h.suite.ecdhe && p.enc == nil {
		return sm.Fail(sm.AlertHandshakeFailure, ErrNoEnc)
	}
	return h.setPeer(p, h.auth.verified(), smx509.ExtKeyUsageClientAuth)
}

func (h *serverHandshake) readKeyExchange(msg []byte) error {
	if !h.suite.ecdhe {
		ciphertext, err := readEncrypted(msg)
		if err != nil {
			return err
		}
		h.pms = decryptPMS(h.cert.EncKey, ciphertext)
		return nil
	}
	point, err := readPoint(msg)
	if err != nil {
		return err
	}
	peer, err := encPublicKey(h.peer.enc)
	if err != nil {
		return err
	}
	h.pms, err = agree(true, h.cert.agree, h.ephemeral, peer, point)
	return err
}

// readCertificateVerify takes a signature over the hash of the handshake, as nearly everybody sends it, or over
// the messages themselves, as GmSSL does. Either proves the same.
func (h *serverHandshake) readCertificateVerify() error {
	msg, err := h.next()
	if err != nil {
		return err
	}
	if msg[0] != typeCertificateVerify {
		return unexpected(msg, typeCertificateVerify)
	}
	var m certificateVerifyMsg
	if err := m.unmarshal(msg); err != nil {
		return err
	}
	pub, err := sm.PublicKey(h.peer.sign)
	if err != nil {
		return sm.Fail(sm.AlertUnsupportedCertificate, err)
	}
	if !sm.Verify(pub, sm.DefaultID, m.sig, h.tr.Sum()) && !sm.Verify(pub, sm.DefaultID, m.sig, h.tr.Raw()) {
		return sm.Fail(sm.AlertDecryptError, ErrSignature)
	}
	h.tr.Add(msg)
	return nil
}
