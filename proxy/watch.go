package proxy

import "time"

// watch runs until the proxy closes: idle connections, flows that a device kept, ticket keys. One pass over
// all connections costs less than a timer for each.
func (p *Proxy) watch() {
	for {
		select {
		case <-p.closed:
			return
		case <-time.After(time.Duration(p.tick.Load())):
		}
		now := time.Now()
		for _, f := range p.open.all() {
			f.inspect(now)
		}
		if p.tickets.RotateIfDue(now) {
			p.log.Debug("session ticket keys rotated")
		}
	}
}

// inspect ends a flow that nothing moves in, or that a device answered itself instead of passing it on.
func (f *flow) inspect(now time.Time) {
	if f.ended() != ReasonNone {
		return
	}
	t := &f.vs.timeouts
	if at := f.innerSince.Load(); at != 0 && now.UnixNano()-at > int64(t.Connect) && !f.isAttached() {
		f.abort(ReasonNoReturn, f.noReturn())
		return
	}
	if sum := f.up.Load() + f.down.Load(); sum != f.watchedSum || f.watchedChange.IsZero() {
		f.watchedSum, f.watchedChange = sum, now
		return
	}
	if now.Sub(f.watchedChange) >= t.Idle {
		f.abort(ReasonIdle, nil)
	}
}

// tickFor looks often enough for the shortest timeout.
func tickFor(vss []*virtual) time.Duration {
	tick := time.Second
	for _, v := range vss {
		tick = min(tick, v.timeouts.Idle/4, v.timeouts.Connect/4)
	}
	return max(tick, 10*time.Millisecond)
}
