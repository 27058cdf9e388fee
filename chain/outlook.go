package chain

import "sslo/session"

// Outlook is what a new connection through a chain would meet.
type Outlook struct {
	// InService: at least one device would see the connection.
	InService bool
	// OnDown, when not InService: Bypass lets the connection pass uninspected. Reset or Drop when a
	// pool of the chain says so.
	OnDown Action
	Reason session.BypassReason // why it is not in service, for the ledger
}

// Hop is a pool of a chain as a new connection would meet it.
type Hop struct {
	Pool       *Pool
	Candidates []Candidate // Device is not set
	InService  bool
	Skip       session.BypassReason // when it is not in service
}

// Look follows a new connection down the pools of a chain, as the session plane does: a pool that is down
// is passed by or ends it, and what ends it counts even if other pools are in service. It does not look
// beyond a pool that ends it.
func Look(pools []*Pool, status func(device string) (DeviceStatus, bool)) (Outlook, []Hop) {
	hops := make([]Hop, 0, len(pools))
	inService, skipped := false, session.NotBypassed
	for _, p := range pools {
		h := newHop(p, status)
		hops = append(hops, h)
		switch {
		case h.InService:
			inService = true
		case p.OnDown != Bypass:
			return Outlook{OnDown: p.OnDown, Reason: h.Skip}, hops
		case skipped == session.NotBypassed:
			skipped = h.Skip
		}
	}
	if inService {
		return Outlook{InService: true}, hops
	}
	return Outlook{Reason: skipped}, hops
}

func newHop(p *Pool, status func(device string) (DeviceStatus, bool)) Hop {
	h := Hop{Pool: p, Candidates: make([]Candidate, 0, len(p.Devices))}
	for _, d := range p.Devices {
		st, ok := status(d.Device)
		if !ok {
			st = DeviceStatus{Service: Out, Reason: session.NotProbed}
		}
		h.Candidates = append(h.Candidates, Candidate{Weight: d.Weight, Status: st})
	}
	if h.InService = InService(h.Candidates, p.MinActive); !h.InService {
		h.Skip = SkipReason(h.Candidates)
	}
	return h
}
