package pool

import (
	"cmp"
	"hash/fnv"
	"math"
	"net/netip"
	"slices"
	"time"

	"sslo/chain"
)

// leastShare of a member's weight is what it gets the moment it comes back: with none at all, nobody would
// find out how it does.
const leastShare = 0.05

// scale makes numbers of weights while a member's is growing.
const scale = 1000

// choice is the members that may be tried, with their weights now.
type choice struct {
	members []*member
	weights []float64
	growing bool // at least one weight is not full yet
}

func (v *view) choice(r *Request, now time.Time) choice {
	var c choice
	for _, m := range v.members {
		if !r.Healthy(m.Name) {
			continue
		}
		w := 1.0
		if v.cfg.Method != chain.RoundRobin {
			w = float64(max(m.Weight, 1))
		}
		if s := v.share(m, r, now); s < 1 {
			w, c.growing = w*s, true
		}
		c.members, c.weights = append(c.members, m), append(c.weights, w)
	}
	return c
}

// share of its weight that a member gets: less than 1 for a while after it came into service.
func (v *view) share(m *member, r *Request, now time.Time) float64 {
	if v.cfg.SlowStart <= 0 || r.Since == nil {
		return 1
	}
	since := r.Since(m.Name)
	if since.IsZero() {
		return 1
	}
	return min(1, max(leastShare, float64(now.Sub(since))/float64(v.cfg.SlowStart)))
}

// order is the members in the order in which they are tried; turn counts connections.
func (c choice) order(m chain.Method, source netip.Addr, turn uint32) []*member {
	if len(c.members) == 0 {
		return nil
	}
	switch m {
	case chain.SourceHash:
		return c.best(func(i int) float64 { return -score(source, c.members[i].Name, c.weights[i]) })
	case chain.LeastSessions:
		first := int(turn) % len(c.members) // among equals
		rotated := choice{rotate(c.members, first), rotate(c.weights, first), c.growing}
		return rotated.best(func(i int) float64 { return float64(rotated.members[i].open.Load()+1) / rotated.weights[i] })
	}
	return rotate(c.members, c.turn(m, turn))
}

// best sorts by a cost, which is asked for once a member.
func (c choice) best(cost func(i int) float64) []*member {
	type costly struct {
		*member
		cost float64
	}
	list := make([]costly, len(c.members))
	for i, m := range c.members {
		list[i] = costly{m, cost(i)}
	}
	slices.SortStableFunc(list, func(a, b costly) int { return cmp.Compare(a.cost, b.cost) })
	out := make([]*member, len(list))
	for i := range list {
		out[i] = list[i].member
	}
	return out
}

// spread is a prime that scatters the picks of the weighted method over the weights, so that a heavy member
// does not get its share in one run.
const spread = 7919

// turn is the index of the member whose turn it is: exactly by weight over as many turns as there are weights.
func (c choice) turn(m chain.Method, turn uint32) int {
	if m == chain.RoundRobin && !c.growing {
		return int(turn % uint32(len(c.members)))
	}
	weights, total := make([]uint64, len(c.weights)), uint64(0)
	for i, w := range c.weights {
		if c.growing {
			w *= scale
		}
		weights[i] = uint64(max(1, w))
		total += weights[i]
	}
	n := uint64(turn) * spread % total
	for i, w := range weights {
		if n < w {
			return i
		}
		n -= w
	}
	return 0
}

func rotate[T any](list []T, first int) []T {
	return append(slices.Clone(list[first:]), list[:first]...)
}

// score of a member for a client's address: the highest wins (weighted rendezvous hashing), so a member that
// goes, comes or changes its weight moves only the clients that it must.
func score(source netip.Addr, name string, weight float64) float64 {
	h := fnv.New64a()
	a := source.As16()
	h.Write(a[:])
	h.Write([]byte(name))
	u := (float64(mix(h.Sum64())>>11) + .5) / (1 << 53) // in (0, 1)
	return weight / -math.Log(u)
}

// mix spreads what FNV leaves in the low bits over all of them (the finaliser of MurmurHash3).
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
