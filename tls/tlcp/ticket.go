package tlcp

import (
	"bytes"
	"crypto/cipher"
	"crypto/rand"
	"time"

	"github.com/emmansun/gmsm/sm3"

	"sslo/tls/sm"
)

// Tickets are sessions sealed with SM4-GCM: the key's name, a nonce, and the sealed session.
const (
	ticketNameSize = 16
	ticketRotation = 24 * time.Hour // of keys that are made here
	ticketKeep     = 2
)

type ticketKey struct {
	name [ticketNameSize]byte
	aead cipher.AEAD
	made time.Time
}

func newTicketKey(secret [32]byte, now time.Time) ticketKey {
	sum := sm3.Sum(append([]byte("tlcp session ticket"), secret[:]...))
	k := ticketKey{made: now}
	copy(k.name[:], sum[:])
	var err error
	if k.aead, err = sm.NewGCM(sum[ticketNameSize:]); err != nil {
		panic("tlcp: ticket key: " + err.Error())
	}
	return k
}

// SetSessionTicketKeys sets the keys of a server's tickets: the first seals, all open. May be called at any
// time. Without it the server makes its own and changes them daily.
func (c *Config) SetSessionTicketKeys(keys [][32]byte) {
	now := c.time()
	made := make([]ticketKey, len(keys))
	for i, k := range keys {
		made[i] = newTicketKey(k, now)
	}
	c.mu.Lock()
	c.keys, c.auto = made, false
	c.mu.Unlock()
}

func (c *Config) ticketKeys() []ticketKey {
	now := c.time()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.keys) > 0 && (!c.auto || now.Sub(c.keys[0].made) < ticketRotation) {
		return c.keys
	}
	var secret [32]byte
	rand.Read(secret[:])
	keys := append([]ticketKey{newTicketKey(secret, now)}, c.keys...)
	c.keys, c.auto = keys[:min(len(keys), ticketKeep)], true
	return c.keys
}

// seal makes a ticket of a session.
func (c *Config) seal(s *Session) ([]byte, error) {
	plain, err := s.marshal()
	if err != nil {
		return nil, err
	}
	k := c.ticketKeys()[0]
	b := make([]byte, ticketNameSize+sm.NonceSize, ticketNameSize+sm.NonceSize+len(plain)+sm.TagSize)
	copy(b, k.name[:])
	rand.Read(b[ticketNameSize:])
	return k.aead.Seal(b, b[ticketNameSize:], plain, b[:ticketNameSize]), nil
}

// unseal gives the session of a ticket, and whether it is time for a new ticket; nil when it is not ours.
func (c *Config) unseal(ticket []byte) (s *Session, renew bool) {
	if len(ticket) < ticketNameSize+sm.NonceSize+sm.TagSize {
		return nil, false
	}
	name, nonce, sealed := ticket[:ticketNameSize], ticket[ticketNameSize:ticketNameSize+sm.NonceSize], ticket[ticketNameSize+sm.NonceSize:]
	for i, k := range c.ticketKeys() {
		if !bytes.Equal(name, k.name[:]) {
			continue
		}
		plain, err := k.aead.Open(nil, nonce, sealed, name)
		if err != nil {
			return nil, false
		}
		return unmarshalSession(plain), i > 0
	}
	return nil, false
}
