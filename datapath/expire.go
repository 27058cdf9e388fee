package datapath

import (
	"time"

	"sslo/session"
)

// defaults for timeouts that the plan leaves 0.
var defaultTimeouts = Timeouts{Syn: 10 * time.Second, Established: time.Hour, HalfClosed: 5 * time.Minute,
	Closing: 10 * time.Second, Closed: 2 * time.Second, UDP: time.Minute}

func (t Timeouts) withDefaults() Timeouts {
	for _, f := range []struct{ have, def *time.Duration }{
		{&t.Syn, &defaultTimeouts.Syn}, {&t.Established, &defaultTimeouts.Established},
		{&t.HalfClosed, &defaultTimeouts.HalfClosed}, {&t.Closing, &defaultTimeouts.Closing},
		{&t.Closed, &defaultTimeouts.Closed}, {&t.UDP, &defaultTimeouts.UDP},
	} {
		if *f.have <= 0 {
			*f.have = *f.def
		}
	}
	return t
}

// of is how long a session of this protocol and state may be silent.
func (t *Timeouts) of(p session.Protocol, s session.State) time.Duration {
	if p != session.TCP {
		return t.UDP
	}
	switch s {
	case session.New, session.SynSent, session.SynReceived:
		return t.Syn
	case session.Established:
		return t.Established
	case session.HalfClosed:
		return t.HalfClosed
	case session.Closing:
		return t.Closing
	}
	return t.Closed
}

// expired says whether a root session has been silent for too long. Time may seem to go
// backwards: a packet can pass between the reading of the clock and of the session.
func (t *Timeouts) expired(p session.Protocol, s session.State, seen, now time.Duration) bool {
	return now > seen && now-seen > t.of(p, s)
}

// unusedFor is how long an expectation may wait (bpf/types.h, EXPECT_NS).
const unusedFor = 30 * time.Second

// clockLag is more than the programs' coarse clock can be behind.
const clockLag = 100 * time.Millisecond

// census sorts the sessions of one scan into those that stay and those that go. A tree goes with
// its root. A leg whose root is not there goes too, unless it was made after the scan began: then
// its root may have been made behind the scan's back.
type census struct {
	timeouts Timeouts
	began    time.Duration
	alive    map[uint64]struct{} // roots
	dead     []corpse            // to remove
	gone     map[uint64]struct{} // dead roots
	legs     []leg
}

// corpse is a session to remove, and the device that has it no more.
type corpse struct {
	id     uint64
	device uint16
}

type leg struct {
	corpse
	root    uint64
	created time.Duration
}

func newCensus(t Timeouts, now time.Duration) *census {
	return &census{timeouts: t.withDefaults(), began: now, alive: map[uint64]struct{}{}, gone: map[uint64]struct{}{}}
}

func (c *census) root(x corpse, p session.Protocol, s session.State, seen time.Duration) {
	if !c.timeouts.expired(p, s, seen, c.began) {
		c.alive[x.id] = struct{}{}
		return
	}
	c.gone[x.id] = struct{}{}
	c.dead = append(c.dead, x)
}

func (c *census) leg(x corpse, root uint64, created time.Duration) {
	c.legs = append(c.legs, leg{x, root, created})
}

// verdict is the sessions to remove; the roots come first.
func (c *census) verdict() []corpse {
	for _, l := range c.legs {
		if _, ok := c.alive[l.root]; ok {
			continue
		}
		if _, ok := c.gone[l.root]; ok || l.created < c.began-clockLag {
			c.dead = append(c.dead, l.corpse)
		}
	}
	return c.dead
}
