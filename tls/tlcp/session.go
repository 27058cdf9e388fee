package tlcp

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/crypto/cryptobyte"
)

// Session is what both ends need to resume. It is a secret.
type Session struct {
	suite      uint16
	master     []byte
	created    time.Time
	serverName string
	peer       [][]byte // certificates of the peer
	// Of a client:
	id     []byte
	ticket []byte
}

func (s *Session) fresh(now time.Time, lifetime time.Duration) bool {
	age := now.Sub(s.created)
	return age < lifetime && age > -time.Minute // clocks of one cluster may differ
}

const sessionFormat = 1

func (s *Session) marshal() ([]byte, error) {
	var b cryptobyte.Builder
	b.AddUint8(sessionFormat)
	b.AddUint16(s.suite)
	b.AddBytes(s.master)
	b.AddUint64(uint64(s.created.Unix()))
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(s.serverName)) })
	for _, c := range s.peer {
		b.AddUint24LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(c) })
	}
	return b.Bytes()
}

func unmarshalSession(b []byte) *Session {
	s, in := &Session{}, cryptobyte.String(b)
	var format uint8
	var created uint64
	var name []byte
	if !in.ReadUint8(&format) || format != sessionFormat || !in.ReadUint16(&s.suite) || !in.ReadBytes(&s.master, masterSize) ||
		!in.ReadUint64(&created) || !readUint16Vector(&in, &name) {
		return nil
	}
	s.created, s.serverName = time.Unix(int64(created), 0), string(name)
	for !in.Empty() {
		var c cryptobyte.String
		if !in.ReadUint24LengthPrefixed(&c) {
			return nil
		}
		s.peer = append(s.peer, c)
	}
	return s
}

// ServerSessionCache keeps a server's sessions by id.
type ServerSessionCache interface {
	Get(id []byte) (*Session, bool)
	Put(id []byte, s *Session)
}

// ClientSessionCache keeps a client's sessions by server. Put with nil forgets one.
type ClientSessionCache interface {
	Get(key string) (*Session, bool)
	Put(key string, s *Session)
}

// DefaultSessions is the bound of a cache when none is given.
const DefaultSessions = 10_000

// NewLRUServerSessionCache makes a cache of at most that many sessions; the one least used goes first.
func NewLRUServerSessionCache(capacity int) ServerSessionCache { return serverCache{newLRU(capacity)} }

// NewLRUClientSessionCache is the same for clients.
func NewLRUClientSessionCache(capacity int) ClientSessionCache { return newLRU(capacity) }

type serverCache struct{ *lru }

func (c serverCache) Get(id []byte) (*Session, bool) { return c.lru.Get(string(id)) }
func (c serverCache) Put(id []byte, s *Session)      { c.lru.Put(string(id), s) }

type lru struct {
	mu       sync.Mutex
	capacity int
	order    *list.List // of *entry, the last used first
	m        map[string]*list.Element
}

type entry struct {
	key string
	s   *Session
}

func newLRU(capacity int) *lru {
	if capacity <= 0 {
		capacity = DefaultSessions
	}
	return &lru{capacity: capacity, order: list.New(), m: map[string]*list.Element{}}
}

// Get implements ClientSessionCache.
func (c *lru) Get(key string) (*Session, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.m[key]
	if !ok {
		return nil, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*entry).s, true
}

// Put implements ClientSessionCache.
func (c *lru) Put(key string, s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.m[key]
	switch {
	case s == nil && ok:
		c.drop(e)
	case s == nil:
	case ok:
		e.Value.(*entry).s = s
		c.order.MoveToFront(e)
	default:
		c.m[key] = c.order.PushFront(&entry{key, s})
		if c.order.Len() > c.capacity {
			c.drop(c.order.Back())
		}
	}
}

func (c *lru) drop(e *list.Element) {
	c.order.Remove(e)
	delete(c.m, e.Value.(*entry).key)
}
