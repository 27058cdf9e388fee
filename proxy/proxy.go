package proxy

import (
	"context"
	"errors"

	"sslo/session"
)

// ErrTODO marks what is not built yet.
var errTODO = errors.New("not built yet")

// Proxy is the proxy plane.
type Proxy struct{}

// New checks the configuration and makes a proxy that does not listen yet.
func New(cfg Config, deps Deps) (*Proxy, error) { return nil, errTODO }

// Start opens the listeners.
func (p *Proxy) Start() error { return errTODO }

// Reload makes the proxy match cfg; connections that are open keep what they have. On an error nothing has changed.
func (p *Proxy) Reload(cfg Config) error { return errTODO }

// Shutdown stops to accept, waits for open connections until ctx ends, and aborts the rest.
func (p *Proxy) Shutdown(ctx context.Context) error { return errTODO }

// Stats is a snapshot of the counters.
func (p *Proxy) Stats() Stats { return Stats{} }

// List describes up to limit live connections (0: all).
func (p *Proxy) List(limit int) []Conn { return nil }

// Abort ends the live connection with that inner tuple by reset; false when there is none.
func (p *Proxy) Abort(t session.Tuple) bool { return false }
