package proxy

import (
	"cmp"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"

	"sslo/policy"
	"sslo/policy/schedule"
	"sslo/policy/script"
	"sslo/proxy/pool"
	"sslo/tls/cert"
	"sslo/tls/term"
)

// virtual is a virtual server in service, fixed; a reload makes a new one that shares count and stats.
type virtual struct {
	cfg      VirtualServer
	timeouts Timeouts
	tls      *term.Server
	pools    map[string]*pool.Pool
	order    schedule.Server
	*shared
}

// shared is what outlives a reload.
type shared struct {
	stats   *counters
	clients clients
	script  *script.Script // the newest; for Reload alone
}

func (p *Proxy) newVirtual(cfg VirtualServer, pools map[string]*pool.Pool, old *shared) *virtual {
	if old == nil {
		old = &shared{stats: &counters{}}
	}
	if old.script.Same(cfg.Script) {
		cfg.Script = old.script // with what it has counted
	}
	old.script = cfg.Script
	return &virtual{cfg: cfg, order: cfg.scheduling(), timeouts: cfg.Timeouts.orDefaults(), pools: pools, shared: old,
		tls: term.NewServer(cfg.TLS, cert.NewStore(cfg.Certificates), p.tickets, cfg.Name)}
}

func (v *VirtualServer) scheduling() schedule.Server {
	return schedule.Server{Name: v.Name, Rules: v.Rules, Script: v.Script, ScriptRejects: v.ScriptRejects,
		Own: policy.Defaults{Chain: v.Chain, ServerPool: v.ServerPool}}
}

// clients counts connections by client address, only where a limit asks for it.
type clients struct {
	mu sync.Mutex
	n  map[netip.Addr]int
}

func (c *clients) enter(a netip.Addr, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[a] >= limit {
		return false
	}
	if c.n == nil {
		c.n = map[netip.Addr]int{}
	}
	c.n[a]++
	return true
}

func (c *clients) leave(a netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[a]--; c.n[a] <= 0 {
		delete(c.n, a)
	}
}

// gate bounds handshakes in progress, in all and of one client address: they are what nobody has to pay for.
type gate struct {
	total, limit, each atomic.Int64
	clients
}

func (g *gate) set(limit, each int) {
	g.limit.Store(int64(limit))
	g.each.Store(int64(each))
}

func (g *gate) enter(a netip.Addr) bool {
	limit, each := g.limit.Load(), g.each.Load()
	if n := g.total.Add(1); limit > 0 && n > limit || !g.clients.enter(a, cmp.Or(int(each), math.MaxInt)) {
		g.total.Add(-1)
		return false
	}
	return true
}

func (g *gate) leave(a netip.Addr) {
	g.total.Add(-1)
	g.clients.leave(a)
}

// Descriptors of a flow: client, both ends of the inner connection, server.
const (
	descriptorsPerFlow   = 4
	descriptorsCollapsed = 2
	descriptorsReserve   = 64 // for everything that is no flow
)

// budget keeps the process off its descriptor limit, where accept itself fails and waiting clients hang.
type budget struct{ limit, used atomic.Int64 }

func (b *budget) take(n int64) bool {
	if b.used.Add(n) <= b.limit.Load() {
		return true
	}
	b.used.Add(-n)
	return false
}

func (b *budget) release(n int64) { b.used.Add(-n) }
