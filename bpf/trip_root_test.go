package bpf

import (
	"testing"
	"time"

	"sslo/chain"
	"sslo/session"
	"sslo/session/model"
	"sslo/session/model/rulebook"
)

const tripAfter = 20 * time.Millisecond

// settle writes the settings as a daemon would that was last alive some time ago.
func (d *duel) settle(ago time.Duration) {
	d.Helper()
	put(d, d.Settings, 0, SsloSettings{
		HeartbeatNs: uint64(monotonic() - ago), TripMs: uint32(tripAfter / time.Millisecond),
		ChainShift: chainShift, ChainMask: chainMask, Front: uint16(rulebook.Front), Back: uint16(rulebook.Back),
	})
}

func (d *duel) want(p model.Packet, want string) {
	d.Helper()
	got := d.run(d, d.SteerFrame, p.Link, uint32(p.Chain)<<chainShift, frameOf(p))
	if name := rulebook.Name(got.Outcome); name != want {
		d.Fatalf("%v on %s: %s, want %s", p.Tuple, rulebook.LinkName(p.Link), name, want)
	}
}

// silence is traffic that goes into device A while nothing comes out.
func (d *duel) silence() {
	d.Helper()
	d.want(rulebook.Ack(rulebook.Front), "to a1")
	time.Sleep(tripAfter + 5*time.Millisecond)
	d.want(rulebook.Ack(rulebook.Front), "to a1")
}

func (d *duel) tripped() bool {
	for _, e := range d.drain(d) {
		if model.EventType(e.Type) == model.Trip && session.DeviceID(e.Device) == rulebook.DevA {
			return true
		}
	}
	return false
}

// While no daemon probes, a device that swallows everything is taken out of service, until the
// daemon is back.
func TestTrip(t *testing.T) {
	d := newDuel(t, newLab(t))
	d.play(rulebook.Opened(), asIs)
	d.settle(time.Minute)
	d.silence()
	if !d.tripped() {
		t.Error("no event")
	}
	d.want(rulebook.Ack(rulebook.Front), "to b1")
	for _, s := range dump[uint64, SsloSession](t, d.Sessions) {
		if s.Parent == 0 && session.BypassReason(s.Bypass) != session.Tripped {
			t.Errorf("bypassed for %v", session.BypassReason(s.Bypass))
		}
	}
	other := rulebook.From("192.0.2.2:2", rulebook.Syn(rulebook.Front))
	d.want(other, "to b1")
	d.settle(0) // the daemon is back, and has not found the device down
	d.want(rulebook.From("192.0.2.3:3", rulebook.Syn(rulebook.Front)), "to a1")
	d.want(rulebook.Ack(rulebook.Front), "to b1")
}

func TestNoTrip(t *testing.T) {
	l := newLab(t)
	tests := []struct {
		name  string
		setup func(*duel)
	}{
		{"while the daemon lives", func(d *duel) { d.settle(0); d.silence() }},
		{"when the heartbeat is ahead of the packets' coarse clock", func(d *duel) { d.settle(-time.Second); d.silence() }},
		{"unless asked for", func(d *duel) { d.silence() }},
		{"of a device that answers", func(d *duel) {
			d.settle(time.Minute)
			d.want(rulebook.Ack(rulebook.Front), "to a1")
			time.Sleep(tripAfter + 5*time.Millisecond)
			d.want(rulebook.Ack(rulebook.A2), "to b1")
		}},
	}
	for _, tt := range tests {
		t.Run(rowName(tt.name), func(t *testing.T) {
			d := newDuel(t, l)
			d.play(rulebook.Opened(), asIs)
			tt.setup(d)
			if d.tripped() {
				t.Error("tripped")
			}
			d.want(rulebook.Ack(rulebook.Front), "to a1")
		})
	}
}

// What a device returns is evidence whatever becomes of it: a server that never answers, and a
// later pool that refuses the connection, are not the device's fault.
func TestWhatIsReturnedIsEvidence(t *testing.T) {
	l := newLab(t)
	down := func(a chain.Action) []rulebook.Change {
		return []rulebook.Change{rulebook.Fail(rulebook.DevB), rulebook.Configure(rulebook.PoolB, func(p *model.Pool) { p.OnDown = a })}
	}
	tests := []struct {
		name   string
		opened bool
		down   []rulebook.Change
		sent   model.Packet
		back   model.Packet
		want   string
	}{
		{"a SYN", false, nil, rulebook.Syn(rulebook.Front), rulebook.Syn(rulebook.A2), "to b1"},
		{"a SYN that is reset", false, down(chain.Reset), rulebook.Syn(rulebook.Front), rulebook.Syn(rulebook.A2), "drop reset"},
		{"a SYN that is dropped", false, down(chain.Drop), rulebook.Syn(rulebook.Front), rulebook.Syn(rulebook.A2), "drop pool-down"},
		{"data that is reset", true, down(chain.Reset), rulebook.Ack(rulebook.Front), rulebook.Ack(rulebook.A2), "drop reset"},
		{"data that is dropped", true, down(chain.Drop), rulebook.Ack(rulebook.Front), rulebook.Ack(rulebook.A2), "drop pool-down"},
	}
	for _, tt := range tests {
		t.Run(rowName(tt.name), func(t *testing.T) {
			d := newDuel(t, l)
			if tt.opened {
				d.play(rulebook.Opened(), asIs)
			}
			for _, c := range tt.down {
				d.change(c)
			}
			for range 2 { // once reset, a session stays so
				d.want(tt.sent, "to a1")
				d.want(tt.back, tt.want)
				var rt SsloDeviceRuntime
				if err := d.DeviceRuntime.Lookup(uint32(rulebook.DevA), &rt); err != nil {
					t.Fatal(err)
				}
				if rt.Flow[session.Orig].PendingNs != 0 {
					t.Error("device A is still waited for")
				}
			}
		})
	}
}
