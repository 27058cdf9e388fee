package tls13sm

import (
	"sslo/tls/sm"
)

// maxRecordsPerKey is well below the limit of RFC 8446 5.5 for a cipher with blocks of 128 bits.
const maxRecordsPerKey = 1 << 24

// late handles what comes after the handshake.
func (c *Conn) late(raw []byte) error {
	switch {
	case raw[0] == typeKeyUpdate:
		return c.keyUpdate(raw)
	case raw[0] == typeNewSessionTicket && c.client:
		return c.newSession(raw)
	}
	return sm.Failf(sm.AlertUnexpectedMessage, "handshake message of type %d after the handshake", raw[0])
}

// keyUpdate changes the peer's key. An answer waits for the next write, so that reading never waits for
// a peer that does not read, and a peer that asks often gets one answer.
func (c *Conn) keyUpdate(raw []byte) error {
	answer, err := parseKeyUpdate(raw)
	if err != nil {
		return err
	}
	next := nextTraffic(c.in)
	p, err := newProtection(c.suite, next)
	if err != nil {
		return sm.Fail(sm.AlertInternalError, err)
	}
	if err := c.rec.SetIn(p); err != nil {
		return err
	}
	c.in = next
	if answer {
		c.answer.Store(true)
	}
	return nil
}

// KeyUpdate changes our key, and asks the peer to change its own.
func (c *Conn) KeyUpdate(ask bool) error {
	if err := c.Handshake(); err != nil {
		return err
	}
	return c.updateKey(ask)
}

func (c *Conn) updateKey(ask bool) error {
	c.outMu.Lock()
	defer c.outMu.Unlock()
	next := nextTraffic(c.out)
	p, err := newProtection(c.suite, next)
	if err != nil {
		return err
	}
	if err := c.rec.Rekey(marshalKeyUpdate(ask), p); err != nil {
		return err
	}
	c.out = next
	c.sent.Store(0)
	return nil
}
