package app

import (
	"sslo/admin/api"
	"sslo/chain"
	"sslo/internal/explain"
)

// Explain implements admin.State.
func (s state) Explain(q api.Question) (api.Explanation, error) {
	w := explain.World{Config: s.config(), Scheduling: s.proxy.Scheduling, Hops: s.routes.hops, Healthy: s.routes.Healthy, Running: true}
	return w.Answer(q)
}

// hops are those that a new connection through a chain would meet.
func (r *routes) hops(name string) []chain.Hop {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.chains {
		if c.Name == name {
			_, hops := r.lookAt(c)
			return hops
		}
	}
	return nil
}
