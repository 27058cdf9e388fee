package proxy

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sslo/proxy/pool"
	"sslo/session"
)

// flow is one client connection through front, chain and back. Both halves work on the same value, so back
// learns from memory what front decided, and each learns how the other one ended.
type flow struct {
	p       *Proxy
	vs      *virtual
	client  netip.AddrPort
	listen  netip.AddrPort
	link    string
	started time.Time
	counted bool // by the limit per client address
	shaking bool // counted by the limit of handshakes

	descriptors int64 // taken of the budget
	next, prev  *flow // registry

	// Set by front before the flow is entered in the table, fixed from then on.
	tuple  session.Tuple
	route  route
	server string // SNI
	alpn   string

	up, down      atomic.Uint64 // at front
	upEnd, dnEnd  atomic.Uint32 // how each direction ended, before the FIN goes over the inner connection
	innerSince    atomic.Int64  // when the inner connection was made, unix ns
	reason        atomic.Uint32
	watchedSum    uint64 // sweeper only
	watchedChange time.Time

	mu       sync.Mutex
	cause    error
	legs     []resetter
	aborted  bool
	attached bool // back has it
	halves   int
	finished bool
	seen     Conn // what List says, apart from the counters
}

type resetter interface{ Reset() }

// How a direction ended.
const (
	endOpen uint32 = iota
	endInOrder
	endCut
)

// end records the first cause; later ones are its consequences.
func (f *flow) end(r Reason, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endLocked(r, err)
}

func (f *flow) endLocked(r Reason, err error) {
	if f.reason.CompareAndSwap(uint32(ReasonNone), uint32(r)) {
		f.cause = err
	}
}

func (f *flow) ended() Reason { return Reason(f.reason.Load()) }

// abort resets every leg at once.
func (f *flow) abort(r Reason, err error) {
	f.mu.Lock()
	f.endLocked(r, err)
	f.aborted = true
	legs := f.legs
	f.legs = nil
	f.mu.Unlock()
	for _, l := range legs {
		l.Reset()
	}
}

func (f *flow) isAborted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.aborted
}

// add makes abort reset this leg too; false when it was too late and the leg is reset already.
func (f *flow) add(l resetter) bool {
	f.mu.Lock()
	if !f.aborted {
		f.legs = append(f.legs, l)
		f.mu.Unlock()
		return true
	}
	f.mu.Unlock()
	l.Reset()
	return false
}

// attach makes back a part of the flow; false when the flow is over or has a back already.
func (f *flow) attach() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.finished || f.attached {
		return false
	}
	f.attached = true
	f.halves++
	return true
}

func (f *flow) isAttached() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.attached
}

// leave ends one half; the last one ends the flow.
func (f *flow) leave() {
	f.mu.Lock()
	f.halves--
	last := f.halves == 0
	f.finished = last
	f.mu.Unlock()
	if last {
		f.p.finish(f)
	}
}

// note changes what List says, and tells who watches.
func (f *flow) note(change func(c *Conn)) {
	f.mu.Lock()
	change(&f.seen)
	f.mu.Unlock()
	f.show()
}

// show tells of the flow to who watches.
func (f *flow) show() {
	if watch := f.p.watcher.Load(); watch != nil {
		c := f.describe()
		(*watch)(&c)
	}
}

// showEnd is the last that a watcher hears of the flow. What List says of one that was refused before it
// was routed is completed by what is known.
func (f *flow) showEnd() {
	watch := f.p.watcher.Load()
	if watch == nil {
		return
	}
	c := f.describe()
	c.Stage, c.Ended, c.ServerName, c.Rule, c.Chain = "ended", f.ended(), f.server, f.route.rule, f.route.chain
	f.mu.Lock()
	c.Cause = f.cause
	f.mu.Unlock()
	(*watch)(&c)
}

func (f *flow) stage(s string) { f.note(func(c *Conn) { c.Stage = s }) }

func (f *flow) describe() Conn {
	f.mu.Lock()
	c := f.seen
	f.mu.Unlock()
	c.BytesUp, c.BytesDown = f.up.Load(), f.down.Load()
	return c
}

// decided makes what front decided visible.
func (f *flow) decided() {
	f.note(func(c *Conn) {
		c.Tuple, c.Chain, c.Collapsed, c.Rule = f.tuple, f.route.chain, f.route.collapsed, f.route.rule
		c.Bypass, c.ServerName, c.ALPN, c.Uninspected = f.route.raw, f.server, f.alpn, f.route.why
		if f.route.pool != nil {
			c.ServerPool = f.route.pool.Name()
		}
	})
}

// request is what back asks of the server pool.
func (f *flow) request() pool.Request {
	t := &f.vs.timeouts
	return pool.Request{ServerName: f.server, ALPN: f.alpn, Raw: f.route.raw, Connect: t.Connect, Handshake: t.Handshake,
		Source: f.client.Addr(), Since: f.p.since(f.route.pool.Name()),
		Healthy: f.p.healthy(f.route.pool.Name()), Buffers: f.p.bufs, Stop: f.isAborted}
}
