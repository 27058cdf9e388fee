package model_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sslo/chain"
	"sslo/session"
	"sslo/session/model"
	"sslo/session/model/rulebook"
)

// world drives a model at random: packets where a well or badly behaved device, client or
// server might send them, and changes of service in between.
type world struct {
	*model.Model
	now time.Duration
}

func (w *world) send(t *rapid.T, p model.Packet) model.Outcome {
	skipped, ledger := w.skippedBytes()
	out := w.Handle(w.now, p)
	if s, l := w.skippedBytes(); !w.told(model.Replaced) && s-skipped != l-ledger {
		t.Fatalf("%d bytes skipped a device, the ledger has %d of them", s-skipped, l-ledger)
	}
	if out.Lookups > model.MaxLookups {
		t.Fatalf("%d lookups", out.Lookups)
	}
	if out.Verdict == model.Forward && w.Links[out.Out].Ifindex == w.Links[p.Link].Ifindex {
		t.Fatalf("sent back where it came from, link %d", p.Link)
	}
	if w.told(model.Opened) && (p.Error || p.Link != rulebook.Front) {
		t.Fatalf("%+v created a root session", p)
	}
	if err := w.Check(w.now); err != nil {
		t.Fatalf("after %+v: %v", p, err)
	}
	return out
}

func (w *world) told(what model.EventType) bool {
	return slices.ContainsFunc(w.Events, func(e model.Event) bool { return e.Type == what })
}

// skippedBytes is what the sessions and what the ledger say of traffic that skipped devices.
func (w *world) skippedBytes() (sessions, ledger uint64) {
	for _, s := range w.Sessions {
		sessions += s.SkippedBytes
	}
	for k, e := range w.Ledger {
		if k.Device != 0 {
			ledger += e.Bytes
		}
	}
	return sessions, ledger
}

func (w *world) roots() (ids []session.ID) {
	for id, s := range w.Sessions {
		if s.Parent == 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// through walks a packet of a connection to its end as devices that forward would.
func (w *world) through(t *rapid.T, p model.Packet) model.Outcome {
	for range chain.MaxPools + 1 {
		out := w.send(t, p)
		next, ok := rulebook.Next(&w.Topology, out.Out)
		if out.Verdict != model.Forward || !ok {
			return out
		}
		p.Link = next
	}
	t.Fatal("a packet circulates")
	return model.Outcome{}
}

func (w *world) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"packet":  func(t *rapid.T) { w.send(t, rulebook.RandomPacket(t)) },
		"through": func(t *rapid.T) { w.through(t, rulebook.RandomPacket(t)) },
		"time":    func(t *rapid.T) { w.now += time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second },
		"change":  func(t *rapid.T) { rulebook.RandomChange(t)(&w.Topology) },
		"collect": func(t *rapid.T) {
			for _, id := range w.roots() {
				if rapid.Bool().Draw(t, "dies") {
					w.RemoveTree(id)
				}
			}
		},
	}
}

func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{Model: model.New(rulebook.Lab())}
		t.Repeat(w.actions())
	})
}

// However devices fail and return, a connection whose pools may be bypassed goes on.
func TestBypassNeverBreaksAConnection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{Model: model.New(rulebook.Lab())}
		toggle := func(t *rapid.T) {
			d := session.DeviceID(rapid.IntRange(1, 3).Draw(t, "device"))
			if rapid.Bool().Draw(t, "up") {
				rulebook.Restore(d)(&w.Topology)
			} else {
				rulebook.Fail(d)(&w.Topology)
			}
		}
		mustReach := func(p model.Packet, end session.LinkID) {
			if out := w.through(t, p); out.Verdict != model.Forward || out.Out != end {
				t.Fatalf("%v from %s: %v", p.Tuple, rulebook.LinkName(p.Link), rulebook.Name(out))
			}
		}
		mustReach(rulebook.On(rulebook.ChainACB, rulebook.Syn(rulebook.Front)), rulebook.Back)
		toggle(t)
		mustReach(rulebook.SynAck(rulebook.Back), rulebook.Front)
		t.Repeat(map[string]func(*rapid.T){
			"toggle": toggle,
			"up":     func(*rapid.T) { mustReach(rulebook.Ack(rulebook.Front), rulebook.Back) },
			"down":   func(*rapid.T) { mustReach(rulebook.Answer(rulebook.Back), rulebook.Front) },
		})
	})
}

func BenchmarkHandle(b *testing.B) {
	m := model.New(rulebook.Lab())
	for _, s := range rulebook.Opened() {
		m.Handle(0, s.Packet)
	}
	for b.Loop() {
		m.Handle(0, rulebook.Ack(rulebook.A2))
	}
}
