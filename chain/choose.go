package chain

import (
	"net/netip"

	"sslo/session"
)

// Candidate is a device of a pool as the choice sees it.
type Candidate struct {
	Device session.DeviceID
	Weight int // 1 if 0
	Status DeviceStatus
	Active uint64 // sessions that have it now
}

func (c Candidate) usable() bool { return c.Status.Service == Full }

// InService says whether a pool may get new sessions: at least minActive (and at least one)
// of its devices are in full service.
func InService(candidates []Candidate, minActive int) bool {
	n := 0
	for _, c := range candidates {
		if c.usable() {
			n++
		}
	}
	return n >= max(1, minActive)
}

// SkipReason is what the ledger says of a pool that is skipped as a whole: the reason of its
// first device, so that an operator who disabled the devices does not read "down".
func SkipReason(candidates []Candidate) session.BypassReason {
	if len(candidates) == 0 {
		return session.DeviceDown
	}
	return candidates[0].Status.Why()
}

// Why is the reason for which traffic skips a device that is not in full service.
func (s DeviceStatus) Why() session.BypassReason {
	if s.Service == Full || s.Reason == session.NotBypassed {
		return session.DeviceDown
	}
	return s.Reason
}

// Choose takes one of the devices in full service, or 0 if there is none. The cursor is the
// pool's own and moves only with the methods that rotate.
func Choose(m Method, candidates []Candidate, src netip.Addr, cursor *uint32) session.DeviceID {
	switch m {
	case RoundRobin, Weighted:
		return rotate(m, candidates, cursor)
	case SourceHash:
		return best(candidates, func(a, b Candidate) bool {
			return HashSource(src, a.Device) > HashSource(src, b.Device)
		})
	case LeastSessions:
		return best(candidates, func(a, b Candidate) bool { return a.Active < b.Active })
	}
	return best(candidates, func(_, _ Candidate) bool { return false })
}

// best is the first usable candidate that no other beats.
func best(candidates []Candidate, better func(a, b Candidate) bool) session.DeviceID {
	var found *Candidate
	for i := range candidates {
		c := &candidates[i]
		if c.usable() && (found == nil || better(*c, *found)) {
			found = c
		}
	}
	if found == nil {
		return 0
	}
	return found.Device
}

// spread is a prime that scatters the picks of the weighted method over the weights, so that a
// heavy device does not get its share in one run.
const spread = 7919

func rotate(m Method, candidates []Candidate, cursor *uint32) session.DeviceID {
	total := uint32(0)
	for _, c := range candidates {
		total += c.share(m)
	}
	if total == 0 {
		return 0
	}
	n := *cursor
	*cursor++
	if m == Weighted {
		n *= spread
	}
	return pick(m, candidates, n%total)
}

func pick(m Method, candidates []Candidate, n uint32) session.DeviceID {
	for _, c := range candidates {
		if n < c.share(m) {
			return c.Device
		}
		n -= c.share(m)
	}
	return 0
}

// share is the device's part of the rotation: its weight, or 1 for the methods without weights.
func (c Candidate) share(m Method) uint32 {
	switch {
	case !c.usable():
		return 0
	case m == Weighted:
		return uint32(max(1, c.Weight))
	}
	return 1
}

// HashSource scores a device for a client address. The highest score wins (rendezvous
// hashing), so a device that goes or comes moves only the clients that are its own.
func HashSource(src netip.Addr, device session.DeviceID) uint32 {
	h := uint32(2166136261)
	for _, b := range src.As16() {
		h = fnv(h, b)
	}
	h = fnv(h, byte(device))
	return finalise(fnv(h, byte(device>>8)))
}

func fnv(h uint32, b byte) uint32 { return (h ^ uint32(b)) * 16777619 }

// finalise is murmur3's fmix32: FNV alone leaves the high bits of near addresses alike.
func finalise(h uint32) uint32 {
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}
