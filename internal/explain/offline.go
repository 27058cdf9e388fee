package explain

import (
	"slices"

	"sslo/chain"
	"sslo/config"
	"sslo/policy"
	"sslo/policy/schedule"
	"sslo/session"
)

// Offline is a configuration of which everything is up, but what down names: devices, and members of server pools by
// their address and port.
func Offline(c *config.Config, down []string) World {
	m := moment{c, down}
	return World{Config: c, Hops: func(name string) []chain.Hop { _, hops := m.look(name); return hops },
		Healthy: func(_, member string) bool { return !slices.Contains(down, member) },
		Scheduling: func(name string) (*schedule.Server, policy.World, bool) {
			for _, v := range c.VirtualServers {
				if v.Name == name {
					s := v.Scheduling()
					return &s, m, true
				}
			}
			return nil, nil, false
		}}
}

// moment is the state of what only is configured.
type moment struct {
	c    *config.Config
	down []string
}

// Outlook implements policy.World.
func (m moment) Outlook(name string) chain.Outlook { out, _ := m.look(name); return out }

// Available implements policy.World.
func (m moment) Available(name string) bool {
	p := m.c.ServerPool(name)
	return p != nil && slices.ContainsFunc(p.Members, func(x config.Member) bool { return !slices.Contains(m.down, x.Address.String()) })
}

func (m moment) look(name string) (chain.Outlook, []chain.Hop) {
	var pools []*chain.Pool
	for _, p := range m.c.Chain(name).Pools {
		pool := m.c.DevicePool(p).Domain()
		pools = append(pools, &pool)
	}
	return chain.Look(pools, func(device string) (chain.DeviceStatus, bool) {
		if slices.Contains(m.down, device) {
			return chain.DeviceStatus{Service: chain.Out, Reason: session.DeviceDown}, true
		}
		return chain.DeviceStatus{Service: chain.Full}, true
	})
}
