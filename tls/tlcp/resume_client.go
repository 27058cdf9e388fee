package tlcp

import (
	"bytes"

	"sslo/tls/sm"
)

// sessionKey is what sessions are kept under.
func (h *clientHandshake) sessionKey() string {
	if h.cfg.ServerName != "" {
		return h.cfg.ServerName
	}
	return h.c.RemoteAddr().String()
}

// offerSession offers the last session with this server, if it is one that would be made today.
func (h *clientHandshake) offerSession() {
	if h.cfg.ClientSessionCache == nil {
		return
	}
	s, ok := h.cfg.ClientSessionCache.Get(h.sessionKey())
	if !ok || !h.usable(s) {
		return
	}
	h.offered, h.hello.sessionID = s, s.id
	if len(s.ticket) > 0 {
		// The server says by the echo of an id that it took the ticket.
		h.hello.sessionID, h.hello.ticket = newRandom(), s.ticket
	}
}

func (h *clientHandshake) usable(s *Session) bool {
	if !s.fresh(h.cfg.time(), h.cfg.lifetime()) || s.serverName != h.hello.serverName || len(s.ticket) > 0 && !h.hello.tickets {
		return false
	}
	for _, id := range h.hello.suites {
		if id == s.suite {
			return true
		}
	}
	return false
}

func (h *clientHandshake) resumes() bool {
	return h.offered != nil && len(h.hello.sessionID) > 0 && bytes.Equal(h.hello.sessionID, h.reply.sessionID)
}

// resume is the short handshake. The server's certificates are those of the session, checked anew.
func (h *clientHandshake) resume() error {
	if h.suite.id != h.offered.suite {
		return sm.Failf(sm.AlertIllegalParameter, "server resumes with another suite")
	}
	p, err := parsePair(h.offered.peer)
	if err != nil {
		return err
	}
	if err := h.setServer(p); err != nil {
		return err
	}
	h.master, h.state.DidResume = h.offered.master, true
	if err := h.approve(); err != nil {
		return err
	}
	in, out, err := h.protections()
	if err != nil {
		return err
	}
	ticket, err := h.readTicket()
	if err != nil {
		return err
	}
	if err := h.readFinished(in, serverFinished); err != nil {
		return err
	}
	if err := h.sendFinished(out, clientFinished); err != nil {
		return err
	}
	if len(ticket) > 0 {
		s := *h.offered
		h.keepSession(&s, ticket)
	}
	return nil
}

// keepSession keeps what the server gave to resume by, if anything.
func (h *clientHandshake) keepSession(s *Session, ticket []byte) {
	if h.cfg.ClientSessionCache == nil {
		return
	}
	s.id, s.ticket = h.reply.sessionID, ticket
	if len(s.id) == 0 && len(s.ticket) == 0 {
		s = nil
	}
	h.cfg.ClientSessionCache.Put(h.sessionKey(), s)
}

// forget drops a session with which a handshake failed.
func (h *clientHandshake) forget() {
	if h.offered != nil {
		h.cfg.ClientSessionCache.Put(h.sessionKey(), nil)
	}
}
