package app

import (
	"sync"
	"sync/atomic"

	"sslo/chain"
	"sslo/datapath"
	"sslo/proxy"
	"sslo/session"
)

// routes answers the proxy's questions, once a connection and without a lock: what a chain would do
// with it, and which servers are healthy. It is made anew when something changes.
type routes struct {
	mark func(chain string) (uint32, bool)

	mu      sync.Mutex // one writer
	devices map[string]chain.DeviceStatus
	chains  []chain.Chain
	pools   map[string]chain.Pool

	outlooks atomic.Pointer[map[string]chainView]
	sick     atomic.Pointer[map[string]bool] // servers out of service, by memberName
}

type chainView struct {
	proxy.Outlook
	mark  uint32
	known bool // the session plane has it
}

func newRoutes(mark func(string) (uint32, bool)) *routes {
	r := &routes{mark: mark, devices: map[string]chain.DeviceStatus{}}
	r.outlooks.Store(&map[string]chainView{})
	r.sick.Store(&map[string]bool{})
	return r
}

// Mark implements proxy.Chains.
func (r *routes) Mark(name string) (uint32, bool) {
	v := (*r.outlooks.Load())[name]
	return v.mark, v.known
}

// Outlook implements proxy.Chains.
func (r *routes) Outlook(name string) proxy.Outlook { return (*r.outlooks.Load())[name].Outlook }

// Healthy implements proxy.Health.
func (r *routes) Healthy(pool, member string) bool {
	return !(*r.sick.Load())[memberName(pool, member)]
}

// setPlan takes the chains of a plan that was applied.
func (r *routes) setPlan(p datapath.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chains, r.pools = p.Chains, map[string]chain.Pool{}
	for _, pool := range p.Pools {
		r.pools[pool.Name] = pool
	}
	r.look()
}

// setDevice takes a device's status after the session plane has it.
func (r *routes) setDevice(name string, st chain.DeviceStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.devices[name] = st
	r.look()
}

// setServers takes all servers that are out of service.
func (r *routes) setServers(sick map[string]bool) { r.sick.Store(&sick) }

func (r *routes) look() {
	views := make(map[string]chainView, len(r.chains))
	for _, c := range r.chains {
		v := chainView{Outlook: r.outlook(c)}
		v.mark, v.known = r.mark(c.Name)
		views[c.Name] = v
	}
	r.outlooks.Store(&views)
}

// outlook follows a new connection down the whole chain, as the session plane does: a pool that is down is
// passed by or ends it, and what ends it counts even if other pools are in service.
func (r *routes) outlook(c chain.Chain) proxy.Outlook {
	inService, skipped := false, session.NotBypassed
	for _, name := range c.Pools {
		pool := r.pools[name]
		candidates := r.candidates(pool)
		if chain.InService(candidates, pool.MinActive) {
			inService = true
			continue
		}
		why := chain.SkipReason(candidates)
		if pool.OnDown != chain.Bypass {
			return proxy.Outlook{OnDown: pool.OnDown, Reason: why}
		}
		if skipped == session.NotBypassed {
			skipped = why
		}
	}
	if inService {
		return proxy.Outlook{InService: true}
	}
	return proxy.Outlook{Reason: skipped}
}

func (r *routes) candidates(p chain.Pool) []chain.Candidate {
	list := make([]chain.Candidate, 0, len(p.Devices))
	for _, d := range p.Devices {
		st, ok := r.devices[d.Device]
		if !ok {
			st = chain.DeviceStatus{Service: chain.Out, Reason: session.NotProbed}
		}
		list = append(list, chain.Candidate{Weight: d.Weight, Status: st})
	}
	return list
}

// poolInService is for those who look at a chain.
func (r *routes) poolInService(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	pool := r.pools[name]
	return chain.InService(r.candidates(pool), pool.MinActive)
}
