package datapath

import (
	"slices"
	"testing"
	"time"

	"sslo/chain"
	"sslo/session"
)

// An idle session of a device that goes out of service is reset at once if its pool says so, and left
// alone otherwise; either is reported once.
func TestIdleSessionsOfADeadDevice(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*chain.Pool)
		reset  bool
	}{
		"bypass":            {func(p *chain.Pool) {}, false},
		"established reset": {func(p *chain.Pool) { p.Established = chain.Reset }, true},
		"pool down reset":   {func(p *chain.Pool) { p.OnDown = chain.Reset }, true},
		"pool down drop":    {func(p *chain.Pool) { p.OnDown, p.Established = chain.Drop, chain.Reset }, false},
		"one of two down": {func(p *chain.Pool) {
			p.OnDown, p.Method = chain.Reset, chain.ActiveStandby
			p.Devices = append(p.Devices, chain.PoolMember{Device: "b"})
		}, false},
		"fewer than min_active": {func(p *chain.Pool) {
			p.OnDown, p.MinActive, p.Method = chain.Reset, 2, chain.ActiveStandby
			p.Devices = append(p.Devices, chain.PoolMember{Device: "b"})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, "a", "b")
			d := b.open()
			p := plan("a", "b")
			p.Pools, p.Chains[0].Pools = p.Pools[:1], p.Chains[0].Pools[:1]
			tc.change(&p.Pools[0])
			b.apply(d, p)
			up(t, d, "a", "b")
			e := newEnds(b, d)
			runDatapath(t, d)
			front, back := e.connect(client4, server4)
			exchange(t, front, back, 100)
			exchange(t, back, front, 100)
			must(t, d.SetDevice("a", chain.DeviceStatus{Service: chain.Out, Reason: session.DeviceDown}))
			if tc.reset {
				expectReset(t, "front", front)
				expectReset(t, "back", back)
			}
			want := []EventType{EventOpen}
			if tc.reset {
				want = append(want, EventReset)
			}
			got := eventTypes(d, 300*time.Millisecond)
			slices.Sort(got) // who reads them is later than who makes some
			if !slices.Equal(got, want) {
				t.Errorf("events %v, want %v", got, want)
			}
		})
	}
}

// eventTypes are the events until none comes for a while.
func eventTypes(d *Datapath, quiet time.Duration) (types []EventType) {
	for {
		select {
		case e := <-d.Events():
			types = append(types, e.Type)
		case <-time.After(quiet):
			return types
		}
	}
}
