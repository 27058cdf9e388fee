package model

import (
	"slices"

	"sslo/chain"
	"sslo/session"
)

// create makes the session of a packet that has none: the child that an expectation waits for,
// or a root session on the front link. A device link can never create a root session.
func (w *walk) create() (*session.Session, Outcome) {
	if parent := w.awaiting(); parent != nil {
		return w.child(parent)
	}
	switch role := w.role(w.packet.Link); {
	case !w.atIngress():
		return refuse(session.NoSession)
	case role == Front:
		return w.root()
	case role == Client || role == Server || w.controlled():
		return nil, Outcome{Verdict: Pass}
	case role == DeviceLink && session.Reserved(w.packet.Tuple.Src.Addr()) && session.Reserved(w.packet.Tuple.Dst.Addr()):
		return nil, Outcome{Verdict: Pass} // to the monitor that made it
	}
	return refuse(session.NoSession)
}

func refuse(r session.DropReason) (*session.Session, Outcome) {
	return nil, Outcome{Verdict: Drop, Reason: r}
}

// controlled: a rule allows a routed device to say this to the box.
func (w *walk) controlled() bool {
	return !w.packet.Error && slices.ContainsFunc(w.Links[w.packet.Link].Controls, func(c Control) bool { return c.allows(w.packet.Tuple) })
}

// awaiting is the session whose child the packet begins.
func (w *walk) awaiting() *session.Session {
	e, ok := w.Expectations[w.key]
	if !ok || !w.packet.opens() || w.now-e.Created > ExpectationLife {
		return nil
	}
	return w.Sessions[e.Session]
}

func (w *walk) root() (*session.Session, Outcome) {
	switch pools := w.Chains[w.packet.Chain]; {
	case w.packet.Error:
		return refuse(session.NoSession)
	case !w.packet.opens():
		return refuse(session.NotSyn)
	case len(pools)+len(w.Taps[w.packet.Chain]) == 0:
		return refuse(session.NoChain)
	}
	s, reason := w.leg(&session.Session{Chain: w.packet.Chain})
	if reason != session.NotDropped {
		return refuse(reason)
	}
	w.tell(Opened, s, session.NotBypassed)
	return s, Outcome{}
}

func (w *walk) child(parent *session.Session) (*session.Session, Outcome) {
	s := &session.Session{
		Parent: parent.ID, Root: parent.Root, Chain: parent.Chain,
		InDevice: parent.Device, First: parent.Position + 1,
	}
	if parent.Flags&session.BypassOut != 0 {
		s.Flags |= session.BypassIn
	}
	s, reason := w.leg(s)
	if reason != session.NotDropped {
		return refuse(reason)
	}
	delete(w.Expectations, w.key)
	parent.Child = s.ID
	if w.packet.Tuple.Proto == session.TCP && w.packet.TCP.Seq != parent.SynSeq {
		w.rewrites(parent)
	}
	return s, Outcome{}
}

// leg gives a session its next hop and its two keys, or says why it can not be.
func (w *walk) leg(s *session.Session) (*session.Session, session.DropReason) {
	if reason := w.choose(s); reason != session.NotDropped {
		return nil, reason
	}
	s.Orig, s.SynSeq = w.key, w.packet.TCP.Seq
	if w.packet.Tuple.Proto == session.TCP {
		s.State = session.SynSent
	}
	s.Reply = session.Key{Tuple: w.key.Reverse(), Link: w.Back}
	if s.Device != 0 {
		s.Reply.Link = w.Devices[s.Device].In
	}
	if _, taken := w.Flows[s.Reply]; taken || s.Reply == s.Orig {
		return nil, session.Conflict
	}
	s.Taps = w.taps(s)
	w.insert(s)
	return s, session.NotDropped
}

// taps are those between the device that a session came through and its next hop.
func (w *walk) taps(s *session.Session) (bits uint8) {
	for i, t := range w.Taps[s.Chain] {
		if s.First <= t.Before && t.Before <= s.Position {
			bits |= 1 << i
		}
	}
	return bits
}

func (w *walk) insert(s *session.Session) {
	w.last++
	s.ID, s.Created = w.last, w.now
	if s.Parent == 0 {
		s.Root = s.ID
	}
	w.Sessions[s.ID] = s
	w.Flows[s.Orig] = Flow{s.ID, session.Orig}
	w.Flows[s.Reply] = Flow{s.ID, session.Reply}
	if s.Device != 0 {
		w.Active[s.Device]++
	}
	w.skippedPools(s, LedgerEntry{Sessions: 1})
}

// choose sets the next hop: a device of the first pool from s.First that is in service, or the
// last leg when no pool is left.
func (w *walk) choose(s *session.Session) session.DropReason {
	pools := w.Chains[s.Chain]
	s.Skipped = make([]session.BypassReason, len(pools))
	for i := s.First; i < len(pools); i++ {
		pool := w.Pools[pools[i]]
		candidates := w.candidates(pool)
		if chain.InService(candidates, pool.MinActive) {
			s.Position, s.Pool = i, pools[i]
			s.Device = w.pick(pools[i], candidates)
			return session.NotDropped
		}
		if reason := w.poolDown(pool); reason != session.NotDropped {
			return reason
		}
		s.Skipped[i] = chain.SkipReason(candidates)
	}
	s.Position = len(pools)
	return session.NotDropped
}

// poolDown is what becomes of a new session at a pool that is down: NotDropped is a bypass.
func (w *walk) poolDown(pool Pool) session.DropReason {
	switch pool.OnDown {
	case chain.Reset:
		w.Events = append(w.Events, Event{Type: ResetWanted, Key: w.key, Reason: session.DeviceDown})
		return session.Reset
	case chain.Drop:
		return session.PoolDown
	}
	return session.NotDropped
}

func (w *walk) pick(id session.PoolID, candidates []chain.Candidate) session.DeviceID {
	cursor := w.cursors[id]
	d := chain.Choose(w.Pools[id].Method, candidates, w.packet.Tuple.Src.Addr(), &cursor)
	w.cursors[id] = cursor
	return d
}

func (m *Model) candidates(pool Pool) []chain.Candidate {
	all := make([]chain.Candidate, len(pool.Members))
	for i, member := range pool.Members {
		all[i] = chain.Candidate{
			Device: member.Device,
			Weight: member.Weight,
			Status: m.Devices[member.Device].DeviceStatus,
			Active: m.Active[member.Device],
		}
	}
	return all
}
