package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"sslo/proxy/pool"
	"sslo/proxy/relay"
	"sslo/proxy/sock"
	"sslo/session"
	"sslo/tls/term"
)

// ErrNoPlumbing is given when there is neither a front link nor an address for inner connections.
var ErrNoPlumbing = errors.New("neither links nor an address for inner connections")

// Proxy is the proxy plane.
type Proxy struct {
	deps       Deps
	log        *slog.Logger
	bufs       *relay.Buffers
	tickets    *term.Tickets
	table      *table
	open       registry
	ledger     ledger
	budget     budget
	handshakes gate
	limiter    limiter
	spare      *sock.Spare
	watcher    atomic.Pointer[func(*Conn)]

	mu          sync.Mutex // for what follows, and for changes of state
	listeners   map[listenKey]*listener
	backs       []*net.TCPListener
	started     bool
	state       atomic.Pointer[state]
	tick        atomic.Int64
	backUnknown atomic.Uint64
	closing     chan struct{} // no new connections
	closed      chan struct{}
	untune      func()
	wg          sync.WaitGroup
}

// state is one generation of the configuration.
type state struct {
	cfg      Config
	virtuals []*virtual
	pools    map[string]*pool.Pool
}

// New checks the configuration and makes a proxy that does not listen yet.
func New(cfg Config, deps Deps) (*Proxy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.FrontLink == "" && !deps.InnerAddr.IsValid() {
		return nil, ErrNoPlumbing
	}
	log := deps.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{deps: deps, log: log, bufs: relay.NewBuffers(cfg.BufferMemory), tickets: term.NewTickets(time.Now()),
		table: newTable(), listeners: map[listenKey]*listener{}, closing: make(chan struct{}), closed: make(chan struct{})}
	if err := p.setDescriptors(cfg.Descriptors); err != nil {
		return nil, err
	}
	p.handshakes.set(cfg.Handshakes, cfg.HandshakesPerClient)
	p.state.Store(p.generation(cfg, nil))
	return p, nil
}

func (p *Proxy) setDescriptors(want int) error {
	limit, err := sock.RaiseDescriptors(want)
	if err != nil {
		return fmt.Errorf("descriptor limit: %w", err)
	}
	p.budget.limit.Store(int64(max(limit-descriptorsReserve, 0)))
	return nil
}

// generation makes the objects of a configuration, taking over from the one before what must last.
func (p *Proxy) generation(cfg Config, old *state) *state {
	st := &state{cfg: cfg, pools: map[string]*pool.Pool{}}
	for _, c := range cfg.ServerPools {
		if old != nil && old.pools[c.Name] != nil {
			st.pools[c.Name] = old.pools[c.Name]
			st.pools[c.Name].Update(c)
			continue
		}
		st.pools[c.Name] = pool.New(c)
	}
	last := map[string]*shared{}
	if old != nil {
		for _, v := range old.virtuals {
			last[v.cfg.Name] = v.shared
		}
	}
	keep := map[string]bool{}
	for _, c := range cfg.VirtualServers {
		keep[c.Name] = true
		st.virtuals = append(st.virtuals, p.newVirtual(c, st.pools, last[c.Name]))
	}
	p.tickets.Keep(keep)
	p.tick.Store(int64(tickFor(st.virtuals)))
	return st
}

// Start opens the listeners; on an error nothing stays open.
func (p *Proxy) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	want := targets(p.state.Load().virtuals)
	opened, err := p.openMissing(want)
	if err == nil {
		if err = p.openBack(); err != nil {
			for _, l := range opened {
				l.l.Close()
			}
		}
	}
	if err != nil {
		p.closeBack()
		return err
	}
	p.spare = sock.NewSpare()
	p.untune = tuneHeap()
	for _, l := range p.backs {
		p.wg.Go(func() { p.acceptLoop(l, p.acceptedBack, nil) })
	}
	p.settle(want, opened)
	p.wg.Go(p.watch)
	p.started = true
	return nil
}

// Reload makes the proxy match cfg; connections that are open keep what they have. On an error nothing has
// changed.
func (p *Proxy) Reload(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Listeners first: opening them is all that can fail. They accept only after settle.
	provisional := make([]*virtual, len(cfg.VirtualServers))
	for i, c := range cfg.VirtualServers {
		provisional[i] = &virtual{cfg: c}
	}
	opened, err := p.openMissing(targets(provisional))
	if err != nil {
		return err
	}
	if err := p.setDescriptors(cfg.Descriptors); err != nil {
		return err
	}
	p.bufs.SetLimit(cfg.BufferMemory)
	p.handshakes.set(cfg.Handshakes, cfg.HandshakesPerClient)
	st := p.generation(cfg, p.state.Load())
	p.state.Store(st)
	want := targets(st.virtuals)
	for _, l := range opened {
		l.target.Store(want[l.key])
	}
	p.settle(want, opened)
	return nil
}

// Shutdown stops to accept, waits for open connections until ctx ends, and resets the rest.
func (p *Proxy) Shutdown(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started {
		return nil
	}
	p.started = false
	close(p.closing)
	p.settle(nil, nil)
	err := p.drain(ctx)
	p.abortAll()
	p.closeBack()
	close(p.closed)
	p.wg.Wait()
	p.spare.Close()
	p.untune()
	return err
}

func (p *Proxy) drain(ctx context.Context) error {
	for p.open.len() > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d connections were still open: %w", p.open.len(), ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func (p *Proxy) abortAll() {
	for p.open.len() > 0 {
		for _, f := range p.open.all() {
			f.abort(ReasonShutdown, nil)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (p *Proxy) closeBack() {
	for _, l := range p.backs {
		l.Close()
	}
	p.backs = nil
}

func (p *Proxy) healthy(serverPool string) func(member string) bool {
	if p.deps.Health == nil {
		return func(string) bool { return true }
	}
	return func(m string) bool { return p.deps.Health.Healthy(serverPool, m) }
}

// since is when a member of a server pool came into service.
func (p *Proxy) since(serverPool string) func(member string) time.Time {
	if p.deps.Health == nil {
		return nil
	}
	return func(m string) time.Time { return p.deps.Health.Since(serverPool, m) }
}

// List describes up to limit live connections (0: all), the newest first.
func (p *Proxy) List(limit int) []Conn {
	flows := p.open.all()
	if limit > 0 && limit < len(flows) {
		flows = flows[:limit]
	}
	out := make([]Conn, len(flows))
	for i, f := range flows {
		out[i] = f.describe()
	}
	return out
}

// Watch calls fn with every connection that begins, learns something or ends, on that connection's own
// goroutine: fn must not block. nil ends it.
func (p *Proxy) Watch(fn func(*Conn)) {
	if fn == nil {
		p.watcher.Store(nil)
		return
	}
	p.watcher.Store(&fn)
}

// Abort ends the live connection with that inner tuple by reset; false when there is none.
func (p *Proxy) Abort(t session.Tuple) bool {
	f := p.table.get(t)
	if f == nil {
		return false
	}
	f.abort(ReasonAborted, nil)
	return true
}
