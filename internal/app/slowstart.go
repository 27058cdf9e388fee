package app

import (
	"context"
	"time"

	"sslo/chain"
	"sslo/config"
	"sslo/monitor"
)

const (
	slowEvery  = 250 * time.Millisecond
	leastShare = 0.05  // of its weight, for a device that just came back
	maxWeight  = 65535 // in the session plane
)

// watchSlowStarts lets the weights of devices grow that came into service.
func (a *App) watchSlowStarts(ctx context.Context) {
	growing := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(slowEvery):
		}
		for _, p := range a.current.Load().config.DevicePools {
			weights := growingWeights(p, a.inServiceFor)
			if weights == nil && !growing[p.Name] {
				continue
			}
			growing[p.Name] = weights != nil
			if err := a.dp.SetWeights(p.Name, weights); err != nil { // of a pool that a reload just made or removed
				a.log.Debug("slow start", "pool", p.Name, "err", err)
			}
		}
	}
}

// inServiceFor is how long a device is up; 0 while it is not.
func (a *App) inServiceFor(device string) time.Duration {
	st, ok := a.devices.Get(device)
	if !ok || st.State != monitor.Up && st.State != monitor.Suspect {
		return 0
	}
	return time.Since(st.Since)
}

// growingWeights are the weights of a pool's devices now; nil when all have their own.
func growingWeights(p *config.DevicePool, age func(device string) time.Duration) []int {
	if p.SlowStart <= 0 || p.Method != chain.RoundRobin && p.Method != chain.Weighted {
		return nil
	}
	heaviest, growing := 1, false
	for _, d := range p.Devices {
		if p.Method == chain.Weighted {
			heaviest = max(heaviest, d.Weight)
		}
	}
	scale := min(1000, maxWeight/float64(heaviest))
	weights := make([]int, len(p.Devices))
	for i, d := range p.Devices {
		share := min(1, max(leastShare, float64(age(d.Device))/float64(p.SlowStart)))
		growing = growing || share < 1 && age(d.Device) > 0
		own := 1
		if p.Method == chain.Weighted {
			own = d.Weight
		}
		weights[i] = max(1, int(float64(own)*share*scale))
	}
	if !growing {
		return nil
	}
	return weights
}
