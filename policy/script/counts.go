package script

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
)

// Most counters, and most places of errors, that are told apart.
const (
	maxCounters = 64
	maxPlaces   = 64
)

// Stats is what a script did since it was compiled.
type Stats struct {
	Runs     uint64
	Errors   map[string]uint64 // by file:line
	Counters map[string]uint64 // the script's own
}

type counts struct {
	runs     atomic.Uint64
	mu       sync.Mutex
	errors   map[string]uint64
	counters map[string]uint64
}

func (c *counts) ran() { c.runs.Add(1) }

// failed counts an error by its place, and returns it.
func (c *counts) failed(err error) error {
	c.runs.Add(1)
	where := "elsewhere"
	var e *Error
	if errors.As(err, &e) {
		where = e.Where()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	bump(&c.errors, where, maxPlaces)
	return err
}

// add counts for the script; false when it has too many counters.
func (c *counts) add(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bump(&c.counters, name, maxCounters)
}

func bump(m *map[string]uint64, key string, limit int) bool {
	if *m == nil {
		*m = map[string]uint64{}
	}
	if _, known := (*m)[key]; !known && len(*m) >= limit {
		return false
	}
	(*m)[key]++
	return true
}

// Stats is a snapshot.
func (s *Script) Stats() Stats {
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	return Stats{Runs: s.counts.runs.Load(), Errors: maps.Clone(s.counts.errors), Counters: maps.Clone(s.counts.counters)}
}
