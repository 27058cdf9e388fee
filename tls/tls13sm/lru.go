package tls13sm

import (
	"container/list"
	"sync"
)

type lru struct {
	mu    sync.Mutex
	max   int
	order *list.List // of *lruEntry, the latest first
	byKey map[string]*list.Element
}

type lruEntry struct {
	key string
	s   *Session
}

// NewLRUClientSessionCache makes a cache of that many sessions.
func NewLRUClientSessionCache(capacity int) ClientSessionCache {
	return &lru{max: max(capacity, 1), order: list.New(), byKey: map[string]*list.Element{}}
}

// Get implements ClientSessionCache.
func (l *lru) Get(key string) (*Session, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.byKey[key]
	if !ok {
		return nil, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*lruEntry).s, true
}

// Put implements ClientSessionCache.
func (l *lru) Put(key string, s *Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.byKey[key]; ok {
		l.order.Remove(e)
		delete(l.byKey, key)
	}
	if s == nil {
		return
	}
	if l.order.Len() >= l.max {
		last := l.order.Back()
		l.order.Remove(last)
		delete(l.byKey, last.Value.(*lruEntry).key)
	}
	l.byKey[key] = l.order.PushFront(&lruEntry{key, s})
}
