package app

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sslo/admin"
	"sslo/admin/api"
	"sslo/datapath"
	"sslo/proxy"
	"sslo/session"
)

// Bounds of a trace. Beyond them news is lost, and counted.
const (
	traceNews = 4096
	traceLive = 4096 // connections followed at once
	traceLook = 20 * time.Millisecond
)

// traces hands news to all traces that run; without one, news costs next to nothing.
type traces struct {
	mu   sync.Mutex // for changes
	list atomic.Pointer[[]*trace]
}

// news is from the proxies (conn) or from the session plane (event).
type news struct {
	conn  *proxy.Conn
	event *datapath.Event
	at    time.Time
}

func (t *traces) all() []*trace {
	if list := t.list.Load(); list != nil {
		return *list
	}
	return nil
}

// change puts the traces that run in force, and has the proxies watched while there are any.
func (t *traces) change(p *proxy.Proxy, f func([]*trace) []*trace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := f(slices.Clone(t.all()))
	t.list.Store(&list)
	if len(list) == 0 {
		p.Watch(nil)
		return
	}
	p.Watch(t.conn)
}

func (t *traces) conn(c *proxy.Conn) {
	for _, one := range t.all() {
		if c.Started.After(one.began) {
			one.put(news{conn: c, at: time.Now()})
		}
	}
}

func (t *traces) event(e *datapath.Event) {
	if e.Type == datapath.EventOpen || e.Type == datapath.EventClosed {
		return // the proxies tell of these
	}
	for _, one := range t.all() {
		one.put(news{event: e, at: time.Now()})
	}
}

// trace is one that runs. All but news and lost belongs to its own goroutine.
type trace struct {
	began  time.Time
	filter admin.TraceFilter
	news   chan news
	lost   atomic.Uint64

	dp     *datapath.Datapath
	pools  func(chain string) []string
	emit   func(api.TraceEvent) error
	err    error // of emit
	number uint64
	live   map[traceKey]*traced
}

// traceKey is a connection, also of a client that comes back with the same address and port.
type traceKey struct {
	client, listen string
	started        time.Time
}

// Trace implements admin.State.
func (s state) Trace(ctx context.Context, f admin.TraceFilter, emit func(api.TraceEvent) error) error {
	t := &trace{began: time.Now(), filter: f, news: make(chan news, traceNews), dp: s.dp, pools: s.poolsOf, emit: emit, live: map[traceKey]*traced{}}
	s.traces.change(s.proxy, func(list []*trace) []*trace { return append(list, t) })
	defer s.traces.change(s.proxy, func(list []*trace) []*trace {
		return slices.DeleteFunc(list, func(one *trace) bool { return one == t })
	})
	t.tell(api.TraceEvent{Kind: api.TraceBegin, Time: t.began})
	t.run(ctx)
	return t.err
}

func (s state) poolsOf(name string) []string {
	for _, c := range s.current.Load().plan.Chains {
		if c.Name == name {
			return c.Pools
		}
	}
	return nil
}

// put never blocks: whom the news is about must not wait for a reader.
func (t *trace) put(n news) {
	select {
	case t.news <- n:
	default:
		t.lost.Add(1)
	}
}

func (t *trace) tell(e api.TraceEvent) {
	if t.err == nil {
		t.err = t.emit(e)
	}
}

func (t *trace) run(ctx context.Context) {
	look := time.NewTicker(traceLook)
	defer look.Stop()
	for t.err == nil {
		select {
		case <-ctx.Done():
			return
		case n := <-t.news:
			t.hear(n)
		case <-look.C:
			t.lookAround()
		}
		if lost := t.lost.Swap(0); lost > 0 {
			t.tell(api.TraceEvent{Kind: api.TraceLost, Time: time.Now(), Lost: lost})
		}
	}
}

func (t *trace) hear(n news) {
	if n.event != nil {
		t.hearEvent(n)
		return
	}
	key := traceKey{n.conn.Client.String(), n.conn.Listen.String(), n.conn.Started}
	c := t.live[key]
	if c == nil {
		if c = t.begin(n.conn); c == nil {
			return
		}
		t.live[key] = c
	}
	c.learn(n)
	if n.conn.Stage == "ended" {
		delete(t.live, key)
	}
}

// begin follows a connection that matches, from its first news on that says so.
func (t *trace) begin(c *proxy.Conn) *traced {
	if !t.filter.Match(c.Client, c.Listen, c.Link, c.ServerName) {
		return nil
	}
	if len(t.live) >= traceLive {
		t.lost.Add(1)
		return nil
	}
	t.number++
	return &traced{t: t, number: t.number, legs: map[session.ID]bool{}}
}

func (t *trace) hearEvent(n news) {
	for _, c := range t.live {
		if c.concerns(n.event) {
			c.happened(n.event)
		}
	}
}

// lookAround finds hops of connections that are on their way through the chain: one that a device keeps
// has no other news.
func (t *trace) lookAround() {
	for _, c := range t.live {
		if c.seen.Stage == "connecting" {
			c.look()
		}
	}
}
