package tls13sm

import (
	"crypto/subtle"
	"crypto/tls"

	"sslo/tls/sm"
)

// sendFlight sends all up to Finished, and a ticket too when no client certificate is awaited: then the
// client's Finished is known before it comes.
func (h *serverHandshake) sendFlight() error {
	c := h.c
	ee := &encryptedExtensions{alpn: c.state.NegotiatedProtocol}
	if h.hello.recordSizeLimit != 0 {
		ee.recordSizeLimit = sm.MaxPlain + 1
	}
	c.say(ee.marshal())
	if err := h.sendAuthentication(); err != nil {
		return err
	}
	c.say(marshalFinished(finishedMAC(c.out, c.transcript.Sum())))
	in, out, err := c.masterSecrets()
	if err != nil {
		return sm.Fail(sm.AlertInternalError, err)
	}
	keys, err := c.keys("SERVER_TRAFFIC_SECRET_0", out)
	if err != nil {
		return err
	}
	c.rec.SetOut(keys)
	c.in, c.out = in, out
	if !h.asks() {
		h.expectFinished()
		if err := h.sendTicket(); err != nil {
			return err
		}
	}
	if n := int(h.hello.recordSizeLimit); n != 0 {
		c.rec.SetLimit(min(n-1, sm.MaxPlain))
	}
	return c.rec.Flush()
}

// asks tells that a client certificate is asked for.
func (h *serverHandshake) asks() bool {
	return h.psk < 0 && h.c.cfg.ClientAuth != tls.NoClientCert
}

func (h *serverHandshake) sendAuthentication() error {
	if h.psk >= 0 {
		return nil
	}
	c := h.c
	if h.asks() {
		m := &certificateRequest{signatures: c.cfg.signatures()}
		if c.cfg.ClientCAs != nil {
			m.authorities = c.cfg.ClientCAs.Subjects() //nolint:staticcheck // no system roots in it
		}
		c.say(m.marshal())
	}
	return c.sendCertificate(h.cert, h.scheme, serverContext, nil)
}

// expectFinished computes the client's Finished and what depends on it.
func (h *serverHandshake) expectFinished() {
	c := h.c
	c.mac = finishedMAC(h.clientHS, c.transcript.Sum())
	c.transcript.Add(marshalFinished(c.mac))
	c.resumption = c.schedule.secret("res master", c.transcript.Sum())
}

func (h *serverHandshake) readFlight() error {
	c := h.c
	if h.asks() {
		if err := h.readCertificate(); err != nil {
			return err
		}
		h.expectFinished()
	}
	raw, err := c.hear(typeFinished)
	if err != nil {
		return err
	}
	mac, err := parseFinished(raw)
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(mac, c.mac) != 1 {
		return sm.Failf(sm.AlertDecryptError, "client's Finished does not verify")
	}
	in, err := c.keys("CLIENT_TRAFFIC_SECRET_0", c.in)
	if err != nil {
		return err
	}
	if err := c.rec.SetIn(in); err != nil || !h.asks() {
		return err
	}
	if err := h.sendTicket(); err != nil {
		return err
	}
	return c.rec.Flush()
}

func (h *serverHandshake) readCertificate() error {
	c := h.c
	raw, err := c.hear(typeCertificate)
	if err != nil {
		return err
	}
	m, err := parseCertificate(raw)
	if err != nil {
		return err
	}
	c.transcript.Add(raw)
	if len(m.context) != 0 {
		return sm.Failf(sm.AlertIllegalParameter, "client's certificate has a context")
	}
	if len(m.exts) != 0 {
		return sm.Failf(sm.AlertUnsupportedExtension, "client's certificate has extension %d", m.exts[0])
	}
	return h.acceptCertificate(m.chain)
}

func (h *serverHandshake) acceptCertificate(ders [][]byte) error {
	c := h.c
	if len(ders) == 0 {
		_, err := c.checkClient(nil)
		return err
	}
	certs, err := c.parseChain(ders)
	if err != nil {
		return err
	}
	chains, err := c.checkClient(certs)
	if err != nil {
		return err
	}
	raw, err := c.hear(typeCertificateVerify)
	if err != nil {
		return err
	}
	if err := c.checkProof(raw, certs[0], clientContext, c.transcript.Sum()); err != nil {
		return err
	}
	c.transcript.Add(raw)
	c.peer(certs, chains)
	return nil
}
