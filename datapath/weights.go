package datapath

import (
	"fmt"

	"sslo/chain"
)

// SetWeights gives the devices of a pool other weights than the plan's until the next Apply, with the method
// weighted; nil gives back the plan's own and its method. Sessions that have their device keep it.
func (d *Datapath) SetWeights(pool string, weights []int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kernel == nil {
		return ErrNotSet
	}
	for _, p := range d.plan.Pools {
		if p.Name != pool {
			continue
		}
		if weights != nil {
			if len(weights) != len(p.Devices) {
				return fmt.Errorf("pool %s has %d devices, not %d", pool, len(p.Devices), len(weights))
			}
			p.Method, p.Devices = chain.Weighted, append([]chain.PoolMember{}, p.Devices...)
			for i, w := range weights {
				p.Devices[i].Weight = w
			}
		}
		return d.fillPool(&d.plan, &p)
	}
	return fmt.Errorf("pool %s: %w", pool, ErrUnknown)
}
