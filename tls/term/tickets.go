package term

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"sync"
	"time"
)

// Ticket keys live this long: one issues, the two before it are still accepted.
const (
	TicketPeriod = 12 * time.Hour
	ticketKeys   = 3
)

// Tickets owns the session ticket keys of all servers and rotates them. Every scope's keys are derived
// from the same secrets, so they survive a reload.
type Tickets struct {
	mu      sync.Mutex
	secrets [][32]byte // newest first
	rotated time.Time
	configs map[string]*tls.Config
}

// NewTickets makes the first key.
func NewTickets(now time.Time) *Tickets {
	t := &Tickets{configs: map[string]*tls.Config{}}
	t.Rotate(now)
	return t
}

// Rotate begins a new key.
func (t *Tickets) Rotate(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var s [32]byte
	rand.Read(s[:]) // never fails
	t.secrets = append([][32]byte{s}, t.secrets[:min(len(t.secrets), ticketKeys-1)]...)
	t.rotated = now
	for scope, cfg := range t.configs {
		cfg.SetSessionTicketKeys(t.derive(scope))
	}
}

// RotateIfDue rotates when the period is over.
func (t *Tickets) RotateIfDue(now time.Time) bool {
	t.mu.Lock()
	due := now.Sub(t.rotated) >= TicketPeriod
	t.mu.Unlock()
	if due {
		t.Rotate(now)
	}
	return due
}

// attach gives a server its keys; the scope's earlier server keeps those it has.
func (t *Tickets) attach(scope string, cfg *tls.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	cfg.SetSessionTicketKeys(t.derive(scope))
	t.configs[scope] = cfg
}

// Keep forgets the scopes that are not named.
func (t *Tickets) Keep(scopes map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.configs {
		if !scopes[s] {
			delete(t.configs, s)
		}
	}
}

func (t *Tickets) derive(scope string) [][32]byte {
	keys := make([][32]byte, len(t.secrets))
	for i := range t.secrets {
		m := hmac.New(sha256.New, t.secrets[i][:])
		m.Write([]byte("session tickets of " + scope))
		m.Sum(keys[i][:0])
	}
	return keys
}
