package tls13sm

import (
	"crypto/subtle"
	"crypto/tls"
	"time"

	"github.com/emmansun/gmsm/sm3"
	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
)

// maxIdentities bounds the tickets of a hello that are tried.
const maxIdentities = 5

// messageHash is what stands for the first ClientHello after a HelloRetryRequest.
func messageHash(hello []byte) []byte {
	sum := sm3.Sum(hello)
	return append([]byte{typeMessageHash, 0, 0, secretSize}, sum[:]...)
}

// partialHash is the hash that a binder is over: what was before, and a hello without its binders.
func partialHash(before, partial []byte) []byte {
	h := sm3.New()
	h.Write(before)
	h.Write(partial)
	return h.Sum(nil)
}

// binder is the MAC that proves that a client knows the PSK.
func (s *schedule) binder(hash []byte) []byte {
	key := s.binderKey()
	mac := sm.HMAC(key[:], hash)
	return mac[:]
}

// resume looks for a ticket that is good.
func (h *serverHandshake) resume() error {
	c := h.c
	c.schedule = newSchedule(nil)
	if c.cfg.SessionTicketsDisabled || !h.canResume {
		return nil
	}
	for i, id := range h.hello.psks[:min(len(h.hello.psks), maxIdentities)] {
		s, certs, chains := h.session(id.label)
		if s == nil {
			continue
		}
		sched := newSchedule(s.psk)
		want := sched.binder(partialHash(h.retried, h.hello.withoutBinders()))
		if subtle.ConstantTimeCompare(want, h.hello.binders[i]) != 1 {
			return sm.Failf(sm.AlertDecryptError, "binder of the session does not verify")
		}
		h.psk, c.schedule, c.state.DidResume = i, sched, true
		c.peer(certs, chains)
		return nil
	}
	return nil
}

// session opens a ticket; nil when it can not be resumed, by its age, its name or the rules.
func (h *serverHandshake) session(ticket []byte) (*serverSession, []*smx509.Certificate, [][]*smx509.Certificate) {
	c := h.c
	now := c.cfg.now()
	s, ok := parseServerSession(c.cfg.tickets.open(ticket, now))
	if !ok || s.tolerant && !c.cfg.Tolerant || s.serverName != h.hello.serverName {
		return nil, nil, nil
	}
	if age := now.Sub(s.created); age > ticketLifetime || age < -time.Minute {
		return nil, nil, nil
	}
	certs, chains, ok := c.resumeClient(s.chain)
	if !ok {
		return nil, nil, nil
	}
	return s, certs, chains
}

// resumeClient checks the client's chain anew; false when today's rules do not take it.
func (c *Conn) resumeClient(ders [][]byte) (certs []*smx509.Certificate, chains [][]*smx509.Certificate, ok bool) {
	if len(ders) == 0 {
		_, err := c.checkClient(nil)
		return nil, nil, err == nil
	}
	if c.cfg.ClientAuth == tls.NoClientCert {
		return nil, nil, false
	}
	certs, err := c.parseChain(ders)
	if err != nil {
		return nil, nil, false
	}
	chains, err = c.checkClient(certs)
	return certs, chains, err == nil
}

// offerSession adds the session that is kept for the server to a hello.
func (h *clientHandshake) offerSession() {
	c := h.c
	if c.cfg.ClientSessionCache == nil || c.cfg.SessionTicketsDisabled {
		return
	}
	s, ok := c.cfg.ClientSessionCache.Get(c.sessionKey())
	if !ok || s == nil || s.tolerant != c.cfg.Tolerant {
		return
	}
	now := c.cfg.now()
	if now.After(s.until) || now.After(s.certs[0].NotAfter) {
		c.cfg.ClientSessionCache.Put(c.sessionKey(), nil)
		return
	}
	chains, err := c.checkServer(s.certs)
	if err != nil {
		return
	}
	h.session, h.chains = s, chains
	h.hello.psks = []pskIdentity{{s.ticket, uint32(now.Sub(s.received)/time.Millisecond) + s.ageAdd}}
}

// bind computes the binder of the hello, whose bytes are final otherwise.
func (h *clientHandshake) bind() {
	if h.session == nil {
		return
	}
	s := newSchedule(h.session.psk)
	h.hello.setBinder(s.binder(partialHash(h.retried, h.hello.withoutBinders())))
}
