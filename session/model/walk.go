package model

import (
	"time"

	"sslo/chain"
	"sslo/session"
)

// walk is the way of one packet: a lookup, and another one for every device it skips.
type walk struct {
	*Model
	now    time.Duration
	packet Packet
	key    session.Key
	looked int
	copies uint32
}

func (w *walk) run() Outcome {
	for w.looked < MaxLookups {
		w.looked++
		if out, done := w.step(); done {
			out.Lookups = w.looked
			return out
		}
	}
	return Outcome{Verdict: Drop, Reason: session.Loop, Lookups: w.looked}
}

// step looks the key up and follows the session to its next hop. It is not done when the
// next hop is skipped: the key is then that of the link where the hop would have returned it.
func (w *walk) step() (Outcome, bool) {
	s, dir, out := w.find()
	if s == nil {
		return out, true
	}
	if s.Flags&session.WasReset != 0 {
		return drop(session.Reset)
	}
	w.touch(s, dir)
	w.copy(s)
	if dir == session.Reply {
		return w.backward(s)
	}
	return w.forward(s)
}

func drop(r session.DropReason) (Outcome, bool) {
	return Outcome{Verdict: Drop, Reason: r}, true
}

// copy gives the taps of a leg what goes on from it.
func (w *walk) copy(s *session.Session) {
	for i, t := range w.Taps[s.Chain] {
		if d := w.Devices[t.Device]; s.Taps&(1<<i) != 0 && d.Service != chain.Out && w.Links[d.In].Ifindex != 0 {
			w.copies |= 1 << d.In
		}
	}
}

// send is the end of a walk: the frame leaves by a link.
func (w *walk) send(link session.LinkID) (Outcome, bool) {
	out := w.Links[link].Ifindex
	switch {
	case out == 0:
		return drop(session.NoLink)
	case out == w.Links[w.packet.Link].Ifindex && w.Links[link].VLAN == w.Links[w.packet.Link].VLAN:
		return drop(session.Hairpin)
	}
	return Outcome{Verdict: Forward, Out: link, Copies: w.copies}, true
}

// again goes on at another link, as if the packet had just come in there.
func (w *walk) again(link session.LinkID) (Outcome, bool) {
	w.key.Link = link
	return Outcome{}, false
}

// atIngress says that no device was skipped yet: the packet did come in on the key's link.
func (w *walk) atIngress() bool { return w.key.Link == w.packet.Link }

// find is the session of the key, made if the rules allow it.
func (w *walk) find() (*session.Session, session.Direction, Outcome) {
	f, ok := w.Flows[w.key]
	if ok && w.replaces(w.Sessions[f.Session]) {
		w.replace(w.Sessions[f.Session])
		ok = false
	}
	if ok {
		return w.Sessions[f.Session], f.Dir, Outcome{}
	}
	s, out := w.create()
	return s, session.Orig, out
}

// replaces says whether the packet begins a new connection with the tuple of an old one.
// Only our own kernel is believed: it reuses a port only when it is free. On any other link a
// forged SYN would kill what it names.
func (w *walk) replaces(old *session.Session) bool {
	return w.atIngress() && w.role(w.key.Link) == Front && !w.packet.Error &&
		w.packet.Tuple.Proto == session.TCP && w.packet.TCP.Flags.Opens() && !old.Retransmits(w.packet.TCP)
}

func (w *walk) replace(old *session.Session) {
	w.tell(Replaced, old, session.NotBypassed)
	w.RemoveTree(old.Root)
}

// forward follows the original direction to the session's own device.
func (w *walk) forward(s *session.Session) (Outcome, bool) {
	if s.Device == 0 {
		return w.send(s.Reply.Link)
	}
	d := w.Devices[s.Device]
	skip, reason := w.skips(s)
	if reason != session.NotDropped {
		return drop(reason)
	}
	if s.Child == 0 && !w.packet.Error {
		w.arm(s, w.now)
	}
	if skip {
		w.skipped(s)
		return w.again(d.Out)
	}
	return w.send(d.In)
}

// backward follows the reply direction to the device the session came through, which is its
// parent's, or to where the root session came from.
func (w *walk) backward(s *session.Session) (Outcome, bool) {
	if s.InDevice == 0 {
		return w.send(s.Orig.Link)
	}
	parent := w.Sessions[s.Parent]
	d := w.Devices[s.InDevice]
	switch skip, reason := w.skips(parent); {
	case reason != session.NotDropped:
		return drop(reason)
	case skip:
		w.skipped(parent)
		return w.again(d.In)
	}
	return w.send(d.Out)
}

// skips is the rule for established sessions: whether s goes around its device, or ends.
func (w *walk) skips(s *session.Session) (bool, session.DropReason) {
	d, pool := w.Devices[s.Device], w.Pools[s.Pool]
	sticky := s.Flags&session.BypassOut != 0
	if sticky && pool.ReturnNow && d.Service == chain.Full {
		w.giveBack(s)
		sticky = false
	}
	switch {
	case sticky:
		return true, session.NotDropped
	case d.Service >= chain.EstablishedOnly:
		return false, session.NotDropped
	case s.Flags&session.WasReset != 0:
		return false, session.Reset
	}
	return w.deviceDown(s, d, pool)
}

// deviceDown decides for a session whose device has just been found out of service.
func (w *walk) deviceDown(s *session.Session, d Device, pool Pool) (bool, session.DropReason) {
	if s.Flags&session.RewritesSeq != 0 {
		w.reset(s)
		return false, session.SeqRewritten
	}
	action := pool.Established
	if !chain.InService(w.candidates(pool), pool.MinActive) && pool.OnDown != chain.Bypass {
		action = pool.OnDown
	}
	switch action {
	case chain.Reset:
		w.reset(s)
		return false, session.Reset
	case chain.Drop:
		return false, session.PoolDown
	}
	w.bypass(s, d.Why())
	return true, session.NotDropped
}

// bypass makes s go around its device from now on, and its child know it.
func (w *walk) bypass(s *session.Session, reason session.BypassReason) {
	s.Flags |= session.BypassOut
	s.Bypass, s.BypassedAt = reason, w.now
	if child := w.Sessions[s.Child]; child != nil {
		child.Flags |= session.BypassIn
	}
	w.count(w.entry(s), LedgerEntry{Sessions: 1})
	w.tell(Bypassed, s, reason)
}

// giveBack ends a bypass: the device gets the session again.
func (w *walk) giveBack(s *session.Session) {
	s.Flags &^= session.BypassOut
	if child := w.Sessions[s.Child]; child != nil {
		child.Flags &^= session.BypassIn
	}
	w.tell(Returned, s, s.Bypass)
}

func (w *walk) reset(s *session.Session) {
	s.Flags |= session.WasReset
	s.State = session.Closed
	w.tell(ResetWanted, s, session.DeviceDown)
}

// skipped counts the packet as not seen by the device of s.
func (w *walk) skipped(s *session.Session) {
	s.SkippedBytes += w.packet.Bytes
	w.count(w.entry(s), LedgerEntry{Packets: 1, Bytes: w.packet.Bytes})
}

func (w *walk) entry(s *session.Session) LedgerKey {
	return LedgerKey{Chain: s.Chain, Pool: s.Pool, Device: s.Device, Reason: s.Bypass}
}

// skippedPools counts for the pools that were down when s was made.
func (w *walk) skippedPools(s *session.Session, add LedgerEntry) {
	for i, reason := range s.Skipped {
		if reason != session.NotBypassed {
			w.count(LedgerKey{Chain: s.Chain, Pool: w.Chains[s.Chain][i], Reason: reason}, add)
		}
	}
}

func (w *walk) tell(t EventType, s *session.Session, reason session.BypassReason) {
	w.Events = append(w.Events, Event{Type: t, Session: s.ID, Key: w.key, Device: s.Device, Reason: reason})
}

// touch counts the packet for a session it passes, and moves its state.
func (w *walk) touch(s *session.Session, dir session.Direction) {
	s.Seen = w.now
	s.Packets[dir]++
	s.Bytes[dir] += w.packet.Bytes
	w.skippedPools(s, LedgerEntry{Packets: 1, Bytes: w.packet.Bytes})
	switch {
	case w.packet.Error:
		s.Flags |= session.SawICMP
	case w.packet.Tuple.Proto == session.TCP:
		w.track(s, dir)
	case dir == session.Reply && s.State == session.New:
		s.State = session.Established
	}
}

func (w *walk) track(s *session.Session, dir session.Direction) {
	before := s.State
	if s.Track(w.packet.TCP, dir) && s.Parent == 0 {
		w.tell(Ended, s, s.Bypass)
	}
	if before == session.SynSent && s.State == session.SynReceived {
		w.compareSynAck(s)
	}
}

// compareSynAck finds a device that rewrites the server's sequence numbers: the child saw the
// SYN-ACK before the device did.
func (w *walk) compareSynAck(s *session.Session) {
	if child := w.Sessions[s.Child]; child != nil && child.SynAckSeq != s.SynAckSeq {
		w.rewrites(s)
	}
}

// rewrites marks a session whose device can not be skipped in mid-stream.
func (w *walk) rewrites(s *session.Session) {
	if s.Flags&session.RewritesSeq == 0 {
		s.Flags |= session.RewritesSeq
		w.tell(SeqRewritten, s, session.NotBypassed)
	}
}
