package tls13sm

import (
	"crypto/subtle"
	"crypto/tls"

	"sslo/tls/sm"
)

// readAuthentication reads from CertificateRequest to CertificateVerify.
func (h *clientHandshake) readAuthentication() error {
	if h.session != nil {
		return nil
	}
	c := h.c
	raw, err := c.rec.ReadHandshake()
	if err != nil {
		return err
	}
	if raw[0] == typeCertificateRequest {
		if h.request, err = parseCertificateRequest(raw); err != nil {
			return err
		}
		if len(h.request.context) != 0 {
			return sm.Failf(sm.AlertIllegalParameter, "CertificateRequest has a context")
		}
		c.transcript.Add(raw)
		if raw, err = c.rec.ReadHandshake(); err != nil {
			return err
		}
	}
	if raw[0] != typeCertificate {
		return sm.Failf(sm.AlertUnexpectedMessage, "handshake message of type %d instead of Certificate", raw[0])
	}
	return h.readCertificate(raw)
}

func (h *clientHandshake) readCertificate(raw []byte) error {
	c := h.c
	m, err := parseCertificate(raw)
	if err != nil {
		return err
	}
	switch {
	case len(m.chain) == 0:
		return sm.Failf(sm.AlertDecodeError, "server sent no certificate")
	case len(m.context) != 0:
		return sm.Failf(sm.AlertIllegalParameter, "server's certificate has a context")
	case len(m.exts) != 0:
		return sm.Failf(sm.AlertUnsupportedExtension, "server's certificate has extension %d", m.exts[0])
	}
	c.transcript.Add(raw)
	certs, err := c.parseChain(m.chain)
	if err != nil {
		return err
	}
	chains, err := c.checkServer(certs)
	if err != nil {
		return err
	}
	if raw, err = c.hear(typeCertificateVerify); err != nil {
		return err
	}
	if err := c.checkProof(raw, certs[0], serverContext, c.transcript.Sum()); err != nil {
		return err
	}
	c.transcript.Add(raw)
	c.peer(certs, chains)
	return nil
}

func (h *clientHandshake) readFinished() error {
	c := h.c
	raw, err := c.hear(typeFinished)
	if err != nil {
		return err
	}
	mac, err := parseFinished(raw)
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(mac, finishedMAC(c.in, c.transcript.Sum())) != 1 {
		return sm.Failf(sm.AlertDecryptError, "server's Finished does not verify")
	}
	c.transcript.Add(raw)
	return nil
}

// sendFlight sends our authentication and Finished and changes to the application keys.
func (h *clientHandshake) sendFlight() error {
	c := h.c
	clientHS := c.out
	outSecret, inSecret, err := c.masterSecrets()
	if err != nil {
		return sm.Fail(sm.AlertInternalError, err)
	}
	in, err := c.keys("SERVER_TRAFFIC_SECRET_0", inSecret)
	if err != nil {
		return err
	}
	if err := c.rec.SetIn(in); err != nil {
		return err
	}
	if err := h.sendAuthentication(); err != nil {
		return err
	}
	c.say(marshalFinished(finishedMAC(clientHS, c.transcript.Sum())))
	c.resumption = c.schedule.secret("res master", c.transcript.Sum())
	out, err := c.keys("CLIENT_TRAFFIC_SECRET_0", outSecret)
	if err != nil {
		return err
	}
	if err := c.rec.Flush(); err != nil {
		return err
	}
	c.rec.SetOut(out)
	c.in, c.out = inSecret, outSecret
	return nil
}

func (h *clientHandshake) sendAuthentication() error {
	if h.request == nil {
		return nil
	}
	cert, scheme, err := h.certificate()
	if err != nil {
		return sm.Fail(sm.AlertInternalError, err)
	}
	return h.c.sendCertificate(cert, scheme, clientContext, h.request.context)
}

// certificate is the client certificate that fits the request; an empty one when none does.
func (h *clientHandshake) certificate() (*Certificate, SignatureScheme, error) {
	cfg, m := h.c.cfg, h.request
	candidates := cfg.Certificates
	if cfg.GetClientCertificate != nil {
		cert, err := cfg.GetClientCertificate(&CertificateRequestInfo{m.authorities, fromU16s[tls.SignatureScheme](m.signatures), h.ctx})
		if err != nil {
			return nil, 0, err
		}
		if cert != nil {
			candidates = []Certificate{*cert}
		}
	}
	for i := range candidates {
		leaf, err := candidates[i].leaf()
		if err != nil {
			continue
		}
		if s := cfg.schemeFor(leaf.PublicKey, m.signatures); s != 0 {
			return &candidates[i], s, nil
		}
	}
	return &Certificate{}, 0, nil
}
