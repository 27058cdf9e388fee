package proxy

import (
	"errors"
	"net"
	"time"

	"sslo/proxy/sock"
)

var errLimit = errors.New("limit reached")

// accepted begins a flow for a client's connection, or refuses it with a reset.
func (p *Proxy) accepted(l *listener, c *net.TCPConn) {
	t := l.target.Load()
	f := &flow{p: p, vs: t.vs, link: t.link, listen: l.key.addr, client: addrOf(c.RemoteAddr()), started: time.Now(), halves: 1}
	f.seen = Conn{VirtualServer: f.vs.cfg.Name, Link: f.link, Listen: f.listen, Client: f.client, Started: f.started, Stage: "hello"}
	f.vs.stats.total.Add(1)
	if r := p.admit(f, f.vs.stats.open.Add(1)); r != ReasonNone {
		sock.Reset(c)
		f.vs.stats.open.Add(-1)
		f.end(r, errLimit)
		f.vs.stats.ended[r].Add(1)
		p.report(f)
		f.showEnd()
		return
	}
	p.open.add(f)
	f.show()
	p.wg.Go(func() { grown(func() { f.front(c) }) })
}

// admit takes what the flow, one of so many open, needs of every limit, or nothing.
func (p *Proxy) admit(f *flow, open int64) (r Reason) {
	defer func() {
		if r != ReasonNone {
			p.release(f)
		}
	}()
	lim := f.vs.cfg.Limits
	if lim.Connections > 0 && open > int64(lim.Connections) {
		return ReasonLimit
	}
	if !p.budget.take(descriptorsPerFlow) {
		return ReasonDescriptors
	}
	f.descriptors = descriptorsPerFlow
	if lim.ConnectionsPerClient > 0 {
		if f.counted = f.vs.clients.enter(f.client.Addr(), lim.ConnectionsPerClient); !f.counted {
			return ReasonClientLimit
		}
	}
	if f.shaking = p.handshakes.enter(f.client.Addr()); !f.shaking {
		return ReasonHandshakes
	}
	return ReasonNone
}

// release gives back what the flow has taken of the limits.
func (p *Proxy) release(f *flow) {
	p.shaken(f)
	if f.counted {
		f.vs.clients.leave(f.client.Addr())
	}
	p.budget.release(f.descriptors)
}

// shaken ends the time of the handshake, if it is not over.
func (p *Proxy) shaken(f *flow) {
	if f.shaking {
		f.shaking = false
		p.handshakes.leave(f.client.Addr())
	}
}

// enter puts the flow into the table. Whoever had its inner tuple is the same client's past (it moved to
// another link, or came back before we saw its end).
func (p *Proxy) enter(f *flow) {
	p.shaken(f)
	f.decided()
	if old := p.table.put(f.tuple, f); old != nil && old != f {
		old.abort(ReasonReplaced, nil)
	}
}

// finish is the end of a flow, when both halves have left it.
func (p *Proxy) finish(f *flow) {
	if f.tuple.Src.IsValid() {
		p.table.remove(f.tuple, f)
	}
	r := ReasonOK
	if f.dnEnd.Load() == endCut {
		r = ReasonServerTruncated
	}
	f.end(r, nil)
	p.release(f)
	if f.route.collapsed && f.route.err == nil {
		p.ledger.add(f.route.chain, f.route.why, f.up.Load()+f.down.Load())
	}
	p.report(f)
	f.showEnd()
	f.vs.stats.finish(f)
	p.open.remove(f)
}
