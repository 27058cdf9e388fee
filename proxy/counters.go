package proxy

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"sslo/tls/term"
)

// counters of one virtual server.
type counters struct {
	open       atomic.Int64
	total      atomic.Uint64
	ended      [reasons]atomic.Uint64
	up, down   atomic.Uint64 // of connections that ended
	handshakes term.Tally    // with clients
}

func (c *counters) finish(f *flow) {
	c.open.Add(-1)
	c.ended[f.ended()].Add(1)
	c.up.Add(f.up.Load())
	c.down.Add(f.down.Load())
}

func (c *counters) snapshot(name string) VirtualServerStats {
	s := VirtualServerStats{Name: name, Open: c.open.Load(), Total: c.total.Load(), Ended: map[string]uint64{},
		BytesUp: c.up.Load(), BytesDown: c.down.Load()}
	for r := range c.ended {
		if n := c.ended[r].Load(); n > 0 {
			s.Ended[Reason(r).String()] = n
		}
	}
	s.Handshakes, s.Failures = c.handshakes.Snapshot()
	return s
}

// ledger counts what no device saw because it never left the process.
type ledger struct {
	mu      sync.Mutex
	entries map[ledgerKey]*LedgerEntry
}

type ledgerKey struct{ chain, reason string }

func (l *ledger) entry(chain, reason string) *LedgerEntry {
	k := ledgerKey{chain, reason}
	if l.entries == nil {
		l.entries = map[ledgerKey]*LedgerEntry{}
	}
	if l.entries[k] == nil {
		l.entries[k] = &LedgerEntry{Chain: chain, Reason: reason}
	}
	return l.entries[k]
}

func (l *ledger) count(chain, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry(chain, reason).Sessions++
}

func (l *ledger) add(chain, reason string, bytes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry(chain, reason).Bytes += bytes
}

func (l *ledger) snapshot() (out []LedgerEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		out = append(out, *e)
	}
	slices.SortFunc(out, func(a, b LedgerEntry) int {
		return cmp.Or(cmp.Compare(a.Chain, b.Chain), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// Stats is a snapshot of the counters. Bytes include those of open connections.
func (p *Proxy) Stats() Stats {
	st := p.state.Load()
	s := Stats{Uninspected: p.ledger.snapshot(), BackUnknown: p.backUnknown.Load(), BufferBytes: p.bufs.InUse(),
		Descriptors: DescriptorStats{Limit: int(p.budget.limit.Load()), Reserved: int(p.budget.used.Load())}}
	at := map[*shared]int{}
	for _, v := range st.virtuals {
		at[v.shared] = len(s.VirtualServers)
		stats := v.stats.snapshot(v.cfg.Name)
		if v.cfg.Script != nil {
			stats.Script = v.cfg.Script.Stats()
		}
		s.VirtualServers = append(s.VirtualServers, stats)
	}
	for _, f := range p.open.all() {
		if i, ok := at[f.vs.shared]; ok {
			s.VirtualServers[i].BytesUp += f.up.Load()
			s.VirtualServers[i].BytesDown += f.down.Load()
		}
	}
	for _, c := range st.cfg.ServerPools {
		s.ServerPools = append(s.ServerPools, st.pools[c.Name].Stats(p.healthy(c.Name)))
	}
	return s
}
