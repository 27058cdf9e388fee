package app

import (
	"time"

	"sslo/admin/api"
	"sslo/datapath"
	"sslo/proxy"
	"sslo/session"
)

// traced is a connection that a trace follows: what was told of it already.
type traced struct {
	t      *trace
	number uint64
	seen   proxy.Conn
	root   session.ID
	legs   map[session.ID]bool
	tree   []session.Session // as of the last look
	told   time.Time         // of the last event
}

// coarse is how far behind the session plane's clock may be: it counts in ticks of the kernel.
const coarse = 20 * time.Millisecond

func (c *traced) tell(at time.Time, e api.TraceEvent) {
	if at.Before(c.told) {
		at = c.told // the session plane's clock is behind: what is told later did not happen earlier
	}
	c.told = at
	e.Connection, e.Time, e.Offset = c.number, at, at.Sub(c.seen.Started).Seconds()
	c.t.tell(e)
}

// learn tells what is new in the proxies' news, in the order in which it happened.
func (c *traced) learn(n news) {
	old, now := c.seen, *n.conn
	c.seen = now
	shown := connection(&now)
	if old.Stage == "" {
		c.tell(now.Started, api.TraceEvent{Kind: api.TraceOpen, VirtualServer: now.VirtualServer, Client: now.Client, Server: now.Listen, Link: now.Link})
	}
	if shown.TLS != nil && old.ToClient.Suite == "" {
		c.tell(n.at, api.TraceEvent{Kind: api.TraceTLS, TLS: shown.TLS, ServerName: now.ServerName, ALPN: now.ALPN})
	}
	if now.Tuple.Dst.IsValid() && !old.Tuple.Dst.IsValid() {
		c.tell(n.at, api.TraceEvent{Kind: api.TraceRoute, Rule: now.Rule, Chain: now.Chain, Mode: shown.Mode, ServerPool: now.ServerPool,
			ServerName: now.ServerName, ALPN: now.ALPN, Reason: now.Uninspected, Server: now.Tuple.Dst})
	}
	if now.Tuple.Dst.IsValid() && old.Stage != now.Stage {
		c.look()
	}
	if now.Member != "" && old.Member == "" {
		c.tell(n.at, api.TraceEvent{Kind: api.TraceServer, ServerPool: now.ServerPool, Member: now.Member, TLS: shown.ServerTLS})
	}
	if now.Stage == "ended" {
		c.end(n.at, &now)
	}
}

func (c *traced) end(at time.Time, now *proxy.Conn) {
	e := api.TraceEvent{Kind: api.TraceClose, Reason: now.Ended.String(), ServerName: now.ServerName, Rule: now.Rule, Chain: now.Chain,
		Bytes: &[2]uint64{now.BytesUp, now.BytesDown}}
	if now.Cause != nil {
		e.Error = now.Cause.Error()
	}
	for _, leg := range c.tree {
		e.SkippedBytes += leg.SkippedBytes
	}
	c.tell(at, e)
}

// look tells of the sessions that were made since the last look.
func (c *traced) look() {
	if c.seen.Collapsed {
		return
	}
	tree, err := c.find()
	if err != nil || tree[0].Created < c.boot(c.seen.Started)-coarse {
		return // none yet, or that of an earlier connection
	}
	c.root, c.tree = tree[0].ID, tree
	for i := range tree {
		if !c.legs[tree[i].ID] {
			c.legs[tree[i].ID] = true
			c.hop(&tree[i])
		}
	}
}

func (c *traced) find() ([]session.Session, error) {
	if c.root != 0 {
		return c.t.dp.Tree(c.root)
	}
	return c.t.dp.Find(c.seen.Tuple)
}

func (c *traced) hop(s *session.Session) {
	names, at := c.t.dp.Names(), c.wall(s.Created)
	chain := names.Chain(s.Chain)
	for i, reason := range s.Skipped {
		if pools := c.t.pools(chain); reason != session.NotBypassed && i < len(pools) {
			c.tell(at, api.TraceEvent{Kind: api.TraceSkip, Chain: chain, Pool: pools[i], Reason: reason.String(), Session: api.ID(s.ID)})
		}
	}
	e := api.TraceEvent{Kind: api.TraceHop, Session: api.ID(s.ID), Chain: chain, Link: names.Link(s.Orig.Link), NextLink: names.Link(s.Reply.Link),
		Client: s.Orig.Src, Server: s.Orig.Dst}
	if s.Device != 0 {
		e.Pool, e.Device = names.Pool(s.Pool), names.Device(s.Device)
	}
	c.tell(at, e)
}

// concerns says whether a report of the session plane is about this connection. One about a session that was
// refused has no root, one that comes before the first look has a root that is not known.
func (c *traced) concerns(e *datapath.Event) bool {
	if c.root != 0 && e.Root != 0 {
		return e.Root == c.root
	}
	t := c.seen.Tuple
	return t.Dst.IsValid() && !c.seen.Collapsed && (e.Key.Tuple == t || e.Key.Tuple == t.Reverse())
}

var traceKinds = map[datapath.EventType]string{datapath.EventBypass: api.TraceBypass, datapath.EventReturned: api.TraceReturned,
	datapath.EventReset: api.TraceReset, datapath.EventReplaced: api.TraceReplaced, datapath.EventSeqRewritten: api.TraceRewrites}

func (c *traced) happened(e *datapath.Event) {
	kind := traceKinds[e.Type]
	if kind == "" {
		return
	}
	c.look() // hops come before what happens on them
	out := api.TraceEvent{Kind: kind, Chain: e.Chain, Pool: e.Pool, Device: e.Device, Link: e.Link, Session: api.ID(e.Session)}
	if e.Reason != session.NotBypassed {
		out.Reason = e.Reason.String()
	}
	c.tell(c.wall(e.Time), out)
}

// wall is the time of day of a time of the session plane, boot the other way round.
func (c *traced) wall(at time.Duration) time.Time { return time.Now().Add(at - datapath.Now()) }

func (c *traced) boot(at time.Time) time.Duration { return datapath.Now() - time.Since(at) }
