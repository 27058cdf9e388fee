package term

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
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
	configs map[string][]ticketUser // by scope
}

// ticketUser is one stack's configuration in a scope.
type ticketUser struct {
	stack string
	keyed interface{ SetSessionTicketKeys([][32]byte) }
}

// NewTickets makes the first key.
func NewTickets(now time.Time) *Tickets {
	t := &Tickets{configs: map[string][]ticketUser{}}
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
	for scope, users := range t.configs {
		t.set(scope, users)
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
func (t *Tickets) attach(scope string, users []ticketUser) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(scope, users)
	t.configs[scope] = users
}

func (t *Tickets) set(scope string, users []ticketUser) {
	for _, u := range users {
		u.keyed.SetSessionTicketKeys(t.derive(scope + u.stack))
	}
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
