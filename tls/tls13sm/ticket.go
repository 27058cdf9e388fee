package tls13sm

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/emmansun/gmsm/sm3"
	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
)

const (
	ticketLifetime = 24 * time.Hour
	ticketVersion  = 1
	keyNameSize    = 16
	maxTicket      = 16 << 10 // a larger client chain is not resumed
	keyPeriod      = 12 * time.Hour
	keysKept       = 3
)

// ticketKeys are the keys that tickets are sealed with: the first seals, all open. Those that nobody set
// are made here and change by themselves.
type ticketKeys struct {
	mu   sync.Mutex
	list []ticketKey
	set  bool
	made time.Time
}

type ticketKey struct {
	name [keyNameSize]byte
	aead cipher.AEAD
}

func newTicketKey(k [32]byte) ticketKey {
	sum := sm3.Sum(append([]byte("TLS 1.3 SM ticket"), k[:]...))
	t := ticketKey{}
	copy(t.name[:], sum[:keyNameSize])
	t.aead, _ = sm.NewGCM(sum[keyNameSize:]) // the size is right
	return t
}

// SetSessionTicketKeys sets the keys of tickets: the first one issues, all are accepted. It may be called
// while the Config is in use.
func (c *Config) SetSessionTicketKeys(keys [][32]byte) {
	list := make([]ticketKey, len(keys))
	for i, k := range keys {
		list[i] = newTicketKey(k)
	}
	c.tickets.mu.Lock()
	defer c.tickets.mu.Unlock()
	c.tickets.list, c.tickets.set = list, true
}

func (t *ticketKeys) current(now time.Time) []ticketKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.set && (t.list == nil || now.Sub(t.made) >= keyPeriod) {
		var k [32]byte
		rand.Read(k[:]) // never fails
		t.list = append([]ticketKey{newTicketKey(k)}, t.list[:min(len(t.list), keysKept-1)]...)
		t.made = now
	}
	return t.list
}

func (t *ticketKeys) seal(plain []byte, now time.Time) ([]byte, error) {
	keys := t.current(now)
	if len(keys) == 0 {
		return nil, errors.New("no ticket keys")
	}
	k := keys[0]
	out := make([]byte, keyNameSize+sm.NonceSize, keyNameSize+sm.NonceSize+len(plain)+sm.TagSize)
	copy(out, k.name[:])
	nonce := out[keyNameSize:]
	rand.Read(nonce)
	return k.aead.Seal(out, nonce, plain, k.name[:]), nil
}

func (t *ticketKeys) open(ticket []byte, now time.Time) []byte {
	if len(ticket) < keyNameSize+sm.NonceSize+sm.TagSize {
		return nil
	}
	name, nonce, body := ticket[:keyNameSize], ticket[keyNameSize:keyNameSize+sm.NonceSize], ticket[keyNameSize+sm.NonceSize:]
	for _, k := range t.current(now) {
		if string(k.name[:]) != string(name) {
			continue
		}
		plain, err := k.aead.Open(nil, nonce, body, name)
		if err != nil {
			return nil
		}
		return plain
	}
	return nil
}

// serverSession is what a ticket holds.
type serverSession struct {
	tolerant   bool // the rules that it was made under
	created    time.Time
	psk        []byte
	serverName string
	chain      [][]byte // of the client
}

func (s *serverSession) marshal() []byte {
	w := &builder{}
	w.u8(ticketVersion)
	w.u8(map[bool]uint8{true: 1}[s.tolerant])
	w.raw(binary.BigEndian.AppendUint64(nil, uint64(s.created.Unix())))
	w.bytes8(s.psk)
	w.bytes16([]byte(s.serverName))
	w.vec24(func() {
		for _, der := range s.chain {
			w.bytes24(der)
		}
	})
	return w.b
}

func parseServerSession(b []byte) (*serverSession, bool) {
	r := reader{b: b}
	version, flags := r.u8(), r.u8()
	hi, lo := r.u32(), r.u32()
	s := &serverSession{tolerant: flags&1 != 0, created: time.Unix(int64(hi)<<32|int64(lo), 0)}
	s.psk = r.vec8()
	s.serverName = string(r.vec16())
	chain := r.sub24()
	for chain.more() {
		s.chain = append(s.chain, chain.vec24())
	}
	return s, r.done() && chain.done() && version == ticketVersion && len(s.psk) == secretSize
}

// sendTicket adds a ticket to the flight, if the client can use one.
func (h *serverHandshake) sendTicket() error {
	c := h.c
	if c.cfg.SessionTicketsDisabled || !h.canResume {
		return nil
	}
	nonce := []byte{0}
	now := c.cfg.now()
	s := serverSession{tolerant: c.cfg.Tolerant, created: now, psk: ticketPSK(c.resumption, nonce), serverName: h.hello.serverName}
	for _, x := range c.state.PeerCertificates {
		s.chain = append(s.chain, x.Raw)
	}
	ticket, err := c.cfg.tickets.seal(s.marshal(), now)
	if err != nil || len(ticket) > maxTicket {
		return nil // the client makes full handshakes
	}
	var add [4]byte
	rand.Read(add[:])
	m := &newSessionTicket{lifetime: uint32(ticketLifetime / time.Second), ageAdd: binary.BigEndian.Uint32(add[:]), nonce: nonce, ticket: ticket}
	c.rec.WriteHandshake(m.marshal())
	return nil
}

// Session is what a client resumes with.
type Session struct {
	tolerant bool
	suite    uint16
	psk      []byte
	ticket   []byte
	ageAdd   uint32
	received time.Time
	until    time.Time
	certs    []*smx509.Certificate
}

// ClientSessionCache keeps sessions by the name of the server. It is used by many goroutines.
type ClientSessionCache interface {
	Get(key string) (*Session, bool)
	Put(key string, s *Session) // nil removes
}

// maxLifetime is RFC 8446's bound of a ticket's life.
const maxLifetime = 7 * 24 * time.Hour

// newSession keeps the session of a ticket.
func (c *Conn) newSession(raw []byte) error {
	m, err := parseNewSessionTicket(raw)
	if err != nil {
		return err
	}
	lifetime := time.Duration(m.lifetime) * time.Second
	if c.cfg.ClientSessionCache == nil || lifetime == 0 {
		return nil
	}
	if lifetime > maxLifetime {
		return sm.Failf(sm.AlertIllegalParameter, "ticket lives for %v", lifetime)
	}
	now := c.cfg.now()
	c.cfg.ClientSessionCache.Put(c.sessionKey(), &Session{
		tolerant: c.cfg.Tolerant, suite: c.suite.id, psk: ticketPSK(c.resumption, m.nonce), ticket: m.ticket,
		ageAdd: m.ageAdd, received: now, until: now.Add(lifetime), certs: c.state.PeerCertificates,
	})
	return nil
}

func (c *Conn) sessionKey() string {
	if c.cfg.ServerName != "" {
		return c.cfg.ServerName
	}
	if a := c.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}
