package app

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"sslo/chain"
	"sslo/datapath"
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
	servers  atomic.Pointer[serverView]
}

// serverView is by memberName.
type serverView struct {
	sick  map[string]bool      // out of service
	since map[string]time.Time // when it came back
}

type chainView struct {
	chain.Outlook
	mark  uint32
	known bool // the session plane has it
}

func newRoutes(mark func(string) (uint32, bool)) *routes {
	r := &routes{mark: mark, devices: map[string]chain.DeviceStatus{}}
	r.outlooks.Store(&map[string]chainView{})
	r.servers.Store(&serverView{})
	return r
}

// Mark implements proxy.Chains.
func (r *routes) Mark(name string) (uint32, bool) {
	v := (*r.outlooks.Load())[name]
	return v.mark, v.known
}

// Outlook implements proxy.Chains.
func (r *routes) Outlook(name string) chain.Outlook { return (*r.outlooks.Load())[name].Outlook }

// Healthy implements proxy.Health.
func (r *routes) Healthy(pool, member string) bool {
	return !r.servers.Load().sick[memberName(pool, member)]
}

// Since implements proxy.Health.
func (r *routes) Since(pool, member string) time.Time {
	return r.servers.Load().since[memberName(pool, member)]
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
func (r *routes) setServers(sick map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.servers.Load()
	v := &serverView{sick, maps.Clone(old.since)}
	if v.since == nil {
		v.since = map[string]time.Time{}
	}
	for name := range old.sick {
		if !sick[name] {
			v.since[name] = time.Now()
		}
	}
	for name := range sick {
		delete(v.since, name)
	}
	r.servers.Store(v)
}

func (r *routes) look() {
	views := make(map[string]chainView, len(r.chains))
	for _, c := range r.chains {
		out, _ := r.lookAt(c)
		v := chainView{Outlook: out}
		v.mark, v.known = r.mark(c.Name)
		views[c.Name] = v
	}
	r.outlooks.Store(&views)
}

// lookAt follows a chain as a new connection would; the caller holds the lock.
func (r *routes) lookAt(c chain.Chain) (chain.Outlook, []chain.Hop) {
	pools := make([]*chain.Pool, 0, len(c.Pools))
	for _, name := range c.Pools {
		pool := r.pools[name]
		pools = append(pools, &pool)
	}
	return chain.Look(pools, func(device string) (chain.DeviceStatus, bool) {
		st, ok := r.devices[device]
		return st, ok
	})
}

// poolInService is for those who look at a chain.
func (r *routes) poolInService(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	out, _ := r.lookAt(chain.Chain{Pools: []string{name}})
	return out.InService
}
