package tlcp

import (
	"slices"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
)

// tryResume looks for a session of the client's, by ticket and then by id. A session that does not fit what
// is wanted now is passed over.
func (h *serverHandshake) tryResume() bool {
	if len(h.hello.sessionID) == 0 {
		return false
	}
	s, renew := h.offered()
	if s == nil || !h.fits(s) {
		h.peer, h.state.PeerCertificates, h.state.VerifiedChains, h.state.VerifiedEncChains = nil, nil, nil, nil
		return false
	}
	h.resumed, h.suite, h.master = s, suiteByID(s.suite), s.master
	h.reply.sessionID, h.reply.suite, h.reply.tickets = h.hello.sessionID, s.suite, renew && h.hello.tickets
	h.state.DidResume = true
	return true
}

func (h *serverHandshake) offered() (s *Session, renew bool) {
	if len(h.hello.ticket) > 0 && !h.cfg.SessionTicketsDisabled {
		if s, renew := h.cfg.unseal(h.hello.ticket); s != nil {
			return s, renew
		}
	}
	if h.cfg.SessionCache == nil {
		return nil, false
	}
	s, _ = h.cfg.SessionCache.Get(h.hello.sessionID)
	return s, false
}

func (h *serverHandshake) fits(s *Session) bool {
	suite := suiteByID(s.suite)
	if suite == nil || !slices.Contains(h.cfg.cipherSuites(), s.suite) || !slices.Contains(h.hello.suites, s.suite) ||
		s.serverName != h.hello.serverName || !s.fresh(h.cfg.time(), h.cfg.lifetime()) {
		return false
	}
	auth := h.cfg.ClientAuth.with(suite)
	if len(s.peer) == 0 {
		return !auth.required()
	}
	if auth == NoClientCert {
		return false // a certificate that nobody asked for must not decide anything
	}
	p, err := parsePair(s.peer)
	return err == nil && h.setPeer(p, auth.verified(), smx509.ExtKeyUsageClientAuth) == nil
}

// resume is the short handshake: the server's Finished comes first.
func (h *serverHandshake) resume() error {
	if err := h.approve(); err != nil {
		return err
	}
	if err := h.write(h.reply); err != nil {
		return err
	}
	in, out, err := h.protections()
	if err != nil {
		return err
	}
	if h.reply.tickets {
		if err := h.sendTicket(h.resumed); err != nil {
			return err
		}
	}
	if err := h.sendFinished(out, serverFinished); err != nil {
		return err
	}
	return h.readFinished(in, clientFinished)
}

// promiseSession makes ServerHello say how the session can be resumed: by a ticket, for clients that take
// them, or by an id.
func (h *serverHandshake) promiseSession() {
	switch {
	case h.hello.tickets && !h.cfg.SessionTicketsDisabled:
		h.reply.tickets = true
	case h.cfg.SessionCache != nil:
		h.reply.sessionID = newRandom()
	}
}

func (h *serverHandshake) keepSession() error {
	if h.reply.tickets {
		return h.sendTicket(h.session())
	}
	if len(h.reply.sessionID) > 0 {
		h.cfg.SessionCache.Put(h.reply.sessionID, h.session())
	}
	return nil
}

// sendTicket seals a session. One that was resumed keeps its birthday, so that it can not live for ever.
func (h *serverHandshake) sendTicket(s *Session) error {
	ticket, err := h.cfg.seal(s)
	if err != nil {
		return sm.Fail(sm.AlertInternalError, err)
	}
	return h.write(&newSessionTicketMsg{lifetime: uint32(h.cfg.lifetime().Seconds()), ticket: ticket})
}
