package model_test

import (
	"slices"
	"testing"
	"time"

	"sslo/chain"
	"sslo/session"
	"sslo/session/model"
	. "sslo/session/model/rulebook"
)

// play runs the steps of a row and gives the model and its events in order.
func play(t *testing.T, list []Step) (*model.Model, []model.EventType) {
	t.Helper()
	m := model.New(Lab())
	var now time.Duration
	var events []model.EventType
	for i, s := range list {
		now += s.Wait
		if s.Change != nil {
			s.Change(&m.Topology)
		}
		if s.Want == "" {
			continue
		}
		if got := Name(m.Handle(now, s.Packet)); got != s.Want {
			t.Fatalf("step %d, %v on %s: %v, want %s", i, s.Packet.Tuple, LinkName(s.Packet.Link), got, s.Want)
		}
		for _, e := range m.Events {
			events = append(events, e.Type)
		}
		if err := m.Check(now); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	return m, events
}

func TestRules(t *testing.T) {
	for _, r := range Rules() {
		t.Run(r.Name, func(t *testing.T) { play(t, r.Steps) })
	}
}

func key(link session.LinkID, tuple session.Tuple) session.Key {
	return session.Key{Tuple: tuple, Link: link}
}

// The tree of a connection through two devices is three sessions and no more.
func TestSessionTree(t *testing.T) {
	m, _ := play(t, Opened())
	there, back := Connection, Connection.Reverse()
	want := []session.Session{
		{ID: 1, Root: 1, Child: 2, Orig: key(Front, there), Reply: key(A1, back), Pool: PoolA, Device: DevA},
		{ID: 2, Root: 1, Parent: 1, Child: 3, Orig: key(A2, there), Reply: key(B1, back), Pool: PoolB, Device: DevB,
			InDevice: DevA, Position: 1, First: 1},
		{ID: 3, Root: 1, Parent: 2, Orig: key(B2, there), Reply: key(Back, back), InDevice: DevB, Position: 2, First: 2},
	}
	if len(m.Sessions) != len(want) || len(m.Expectations) != 0 {
		t.Fatalf("%d sessions, %d expectations", len(m.Sessions), len(m.Expectations))
	}
	for _, w := range want {
		got := m.Sessions[w.ID]
		if got.Orig != w.Orig || got.Reply != w.Reply || got.Root != w.Root || got.Parent != w.Parent || got.Child != w.Child {
			t.Errorf("tree: got %+v, want %+v", got, w)
		}
		if got.Pool != w.Pool || got.Device != w.Device || got.InDevice != w.InDevice || got.Position != w.Position || got.First != w.First {
			t.Errorf("hop: got %+v, want %+v", got, w)
		}
		if got.State != session.Established || got.Packets != [2]uint64{2, 1} || got.SynAckSeq != ServerSeq {
			t.Errorf("session %d: %v, %v packets, answered with %d", got.ID, got.State, got.Packets, got.SynAckSeq)
		}
	}
}

func TestCloseReachesTheWholeTree(t *testing.T) {
	m, _ := play(t, Closed())
	for id, s := range m.Sessions {
		if s.State != session.Closing {
			t.Errorf("session %d is %v", id, s.State)
		}
	}
}

func TestLedger(t *testing.T) {
	m, _ := play(t, Uninspected())
	want := map[model.LedgerKey]model.LedgerEntry{
		{Chain: ChainAB, Pool: PoolA, Device: DevA, Reason: session.DeviceDown}: {Sessions: 1, Packets: 3, Bytes: 300},
		{Chain: ChainAB, Pool: PoolB, Reason: session.Forced}:                   {Sessions: 1, Packets: 1, Bytes: 40},
	}
	if len(m.Ledger) != len(want) {
		t.Errorf("ledger %+v", m.Ledger)
	}
	for k, w := range want {
		if m.Ledger[k] != w {
			t.Errorf("%+v: %+v, want %+v", k, m.Ledger[k], w)
		}
	}
	if s := m.Sessions[1]; s.SkippedBytes != 300 || s.Bypass != session.DeviceDown {
		t.Errorf("session 1 skipped %d bytes, %v", s.SkippedBytes, s.Bypass)
	}
}

func then(before []Step, more ...Step) []Step { return slices.Concat(before, more) }

func TestEvents(t *testing.T) {
	reset := func(p *model.Pool) { p.OnDown, p.Established = chain.Reset, chain.Reset }
	failA := Step{Change: Fail(DevA)}
	resetA := Step{Change: Configure(PoolA, reset)}
	tests := []struct {
		name  string
		steps []Step
		want  []model.EventType
	}{
		{"opened", Opened(), []model.EventType{model.Opened}},
		{"closed", Closed(), []model.EventType{model.Opened, model.Ended}},
		{"retransmitted", []Step{{Packet: Syn(Front), Want: "to a1"}, {Packet: Syn(Front), Want: "to a1"}}, []model.EventType{model.Opened}},
		{"replaced", then(Opened(), Step{Packet: Seq(5, Syn(Front)), Want: "to a1"}), []model.EventType{model.Opened, model.Replaced, model.Opened}},
		{"bypassed", Bypassed(), []model.EventType{model.Opened, model.Bypassed}},
		{"returned", then(Bypassed(), Step{Change: Restore(DevA)}, Step{Change: Configure(PoolA, func(p *model.Pool) { p.ReturnNow = true })},
			Step{Packet: Ack(Front), Want: "to a1"}), []model.EventType{model.Opened, model.Bypassed, model.Returned}},
		{"refused", []Step{resetA, failA, {Packet: Syn(Front), Want: "drop reset"}}, []model.EventType{model.ResetWanted}},
		{"reset, told once", then(Opened(), resetA, failA, Step{Packet: Ack(Front), Want: "drop reset"}, Step{Packet: Ack(Front), Want: "drop reset"}),
			[]model.EventType{model.Opened, model.ResetWanted}},
		{"rewritten", []Step{{Packet: Syn(Front), Want: "to a1"}, {Packet: Seq(1, Syn(A2)), Want: "to b1"}},
			[]model.EventType{model.Opened, model.SeqRewritten}},
		{"reset by a peer", then(Opened(), Step{Packet: Rst(A1, session.Reply), Want: "to front"}, Step{Packet: Rst(Front, session.Orig), Want: "to a1"}),
			[]model.EventType{model.Opened, model.Ended}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, got := play(t, tt.steps); !slices.Equal(got, tt.want) {
				t.Errorf("events %v, want %v", got, tt.want)
			}
		})
	}
}
