package model

import (
	"testing"
	"time"

	"sslo/chain"
	"sslo/session"
)

var immediate = func(p *Pool) { p.ReturnNow = true }

func onDown(a chain.Action) func(*Pool)      { return func(p *Pool) { p.OnDown = a } }
func established(a chain.Action) func(*Pool) { return func(p *Pool) { p.Established = a } }

// bypassed is opened, then A fails and both directions go around it.
func bypassed() []step {
	return steps(opened(), []step{do(fail(devA)), at(ack(front), "to b1"), at(answer(b1), "to front")})
}

func TestRules(t *testing.T) {
	mirror := session.Tuple{Proto: session.TCP, Src: tuple.Src, Dst: tuple.Src}
	tests := []struct {
		name  string
		steps []step
	}{
		{"through the chain and back", steps(opened(), []step{
			at(answer(back), "to b2"), at(answer(b1), "to a2"), at(answer(a1), "to front")})},
		{"udp needs no syn", []step{
			at(syn(front).udp(), "to a1"), at(syn(a2).udp(), "to b1"), at(synAck(b1).udp(), "to a2")}},

		// Where sessions may begin.
		{"a tcp session begins with a syn", []step{at(ack(front), "drop not-syn"), at(synAck(front), "drop not-syn"),
			at(tcp(front, session.Orig, session.SYN|session.FIN, 1), "drop not-syn")}},
		{"no chain", []step{at(syn(front).on(0), "drop no-chain"), at(syn(front).on(99), "drop no-chain"),
			at(syn(front).on(chainEmpty), "drop no-chain")}},
		{"a device link creates nothing", []step{at(syn(a1), "drop no-session"), at(syn(a2), "drop no-session"),
			at(ack(b2), "drop no-session"), at(syn(a2).udp(), "drop no-session")}},
		{"back creates nothing", []step{at(syn(back), "drop no-session")}},
		{"a syn-ack on the reply link creates nothing", []step{at(synAck(a1), "drop no-session")}},
		{"a client or server link without session is the box's own", []step{
			at(syn(ext), "pass"), at(ack(internal), "pass"), at(syn(ext).icmp(), "pass")}},
		{"icmp creates nothing", []step{at(syn(front).icmp(), "drop no-session"),
			at(syn(front), "to a1"), at(syn(a2).icmp(), "drop no-session"), at(syn(a2), "to b1")}},

		// Expectations.
		{"only a syn is expected", []step{at(syn(front), "to a1"), at(ack(a2), "drop no-session"),
			at(synAck(a2), "drop no-session"), at(rst(a2, session.Orig), "drop no-session"), at(syn(a2), "to b1")}},
		{"an expectation lives 30 s", []step{at(syn(front), "to a1"), do(wait(ExpectationLife)), at(syn(a2), "to b1")}},
		{"and no longer", []step{at(syn(front), "to a1"), do(wait(ExpectationLife + 1)), at(syn(a2), "drop no-session")}},
		{"a retransmission arms it again", []step{at(syn(front), "to a1"), do(wait(20 * time.Second)),
			at(syn(front), "to a1"), do(wait(20 * time.Second)), at(syn(a2), "to b1")}},
		{"an expectation dies with its parent", []step{at(syn(front), "to a1"),
			at(syn(front).seq(7).on(chainACB), "to a1"), at(rst(front, session.Orig), "to a1"),
			do(func(m *Model) { m.RemoveTree(2) }), at(syn(a2), "drop no-session")}},
		{"a child is made once", steps(opened(), []step{at(syn(a2), "to b1"), at(ack(a2), "to b1")})},

		// Simple bypass.
		{"a pool that is down is skipped", []step{do(fail(devA)), at(syn(front), "to b1"),
			at(syn(b2), "to back"), at(synAck(back), "to b2"), at(synAck(b1), "to front")}},
		{"the last pool too", []step{do(fail(devB)), at(syn(front), "to a1"), at(syn(a2), "to back"), at(synAck(back), "to a2")}},
		{"all of them", []step{do(fail(devA)), do(fail(devB)), at(syn(front), "to back"), at(synAck(back), "to front")}},
		{"a device that is down is not chosen", []step{do(fail(devA)), at(syn(front).on(chainACB), "to c1")}},
		{"a draining device is not chosen", []step{
			do(func(m *Model) { m.set(devA, chain.EstablishedOnly, session.Disabled) }), at(syn(front), "to b1")}},
		{"fewer devices than min_active", []step{do(pool(poolAC, func(p *Pool) { p.MinActive = 2 })),
			do(fail(devC)), at(syn(front).on(chainACB), "to b1")}},
		{"on_down reset refuses the connection", []step{do(pool(poolA, onDown(chain.Reset))), do(fail(devA)),
			at(syn(front), "drop reset")}},
		{"on_down drop is silent", []step{do(pool(poolA, onDown(chain.Drop))), do(fail(devA)), at(syn(front), "drop pool-down")}},
		{"on_down at the second hop", []step{do(pool(poolB, onDown(chain.Drop))), do(fail(devB)),
			at(syn(front), "to a1"), at(syn(a2), "drop pool-down"), do(restore(devB)), at(syn(a2), "to b1")}},

		// Complex bypass.
		{"an established session goes around", bypassed()},
		{"around the last device", steps(opened(), []step{do(fail(devB)), at(ack(a2), "to back"), at(answer(back), "to a2")})},
		{"around both", steps(opened(), []step{do(fail(devA)), do(fail(devB)), at(ack(front), "to back"), at(answer(back), "to front")})},
		{"found by the reply direction", steps(opened(), []step{do(fail(devA)), at(answer(b1), "to front"), at(ack(front), "to b1")})},
		{"before the child is born", []step{at(syn(front), "to a1"), do(fail(devA)), at(syn(front), "to b1"),
			at(syn(b2), "to back"), at(synAck(back), "to b2"), at(synAck(b1), "to front")}},
		{"long before the child is born", []step{at(syn(front), "to a1"), do(fail(devA)),
			do(wait(time.Minute)), at(syn(front), "to b1")}},
		{"data cannot make the child", []step{at(syn(front), "to a1"), do(fail(devA)), at(ack(front), "drop no-session")}},
		{"a draining device keeps what it has", steps(opened(), []step{
			do(func(m *Model) { m.set(devA, chain.EstablishedOnly, session.Disabled) }), at(ack(front), "to a1")})},
		{"the pool's other device has not seen the start", []step{at(syn(front).on(chainACB), "to a1"), at(syn(a2), "to b1"),
			do(fail(devA)), at(ack(front), "to b1")}},
		{"a bypass is sticky", steps(bypassed(), []step{do(restore(devA)), at(ack(front), "to b1"), at(answer(b1), "to front")})},
		{"new connections use the device again", steps(bypassed(), []step{do(restore(devA)),
			at(syn(front).from("192.0.2.2:1"), "to a1")})},
		{"return immediate", steps(bypassed(), []step{do(restore(devA)), do(pool(poolA, immediate)),
			at(ack(front), "to a1"), at(ack(a2), "to b1"), at(answer(b1), "to a2"), at(answer(a1), "to front")})},
		{"return immediate by the reply", steps(bypassed(), []step{do(restore(devA)), do(pool(poolA, immediate)),
			at(answer(b1), "to a2"), at(ack(front), "to a1")})},
		{"no return to a draining device", steps(bypassed(), []step{do(pool(poolA, immediate)),
			do(func(m *Model) { m.set(devA, chain.EstablishedOnly, session.Disabled) }), at(ack(front), "to b1")})},
		{"established reset", steps(opened(), []step{do(pool(poolA, established(chain.Reset))), do(fail(devA)),
			at(ack(front), "drop reset"), do(restore(devA)), at(ack(front), "drop reset"), at(answer(a1), "drop reset")})},
		{"established reset by the reply", steps(opened(), []step{do(pool(poolA, established(chain.Reset))), do(fail(devA)),
			at(answer(b1), "drop reset"), at(answer(b1), "drop reset"), at(ack(front), "drop reset")})},
		{"the whole pool down: on_down, not established", steps(opened(), []step{do(pool(poolA, onDown(chain.Drop))),
			do(fail(devA)), at(ack(front), "drop pool-down"), do(restore(devA)), at(ack(front), "to a1")})},
		{"one device of two down: established, not on_down", []step{do(pool(poolAC, onDown(chain.Drop))),
			at(syn(front).on(chainACB), "to a1"), at(syn(a2), "to b1"), do(fail(devA)), at(ack(front), "to b1")}},

		// Devices that rewrite sequence numbers.
		{"rewritten towards the server", []step{at(syn(front), "to a1"), at(syn(a2).seq(77), "to b1"),
			do(fail(devA)), at(ack(front), "drop sequence-rewritten"), at(ack(front), "drop reset")}},
		{"rewritten towards the client", []step{at(syn(front), "to a1"), at(syn(a2), "to b1"), at(syn(b2), "to back"),
			at(synAck(back), "to b2"), at(synAck(b1).seq(77), "to a2"), at(synAck(a1).seq(77), "to front"),
			do(fail(devA)), at(ack(front), "to b1"), do(fail(devB)), at(ack(front), "drop sequence-rewritten")}},

		// Reuse of a port.
		{"a retransmitted syn follows the session", []step{at(syn(front), "to a1"), at(syn(front), "to a1"), at(syn(a2), "to b1")}},
		{"a new syn on the front link replaces", steps(opened(), []step{at(syn(front).seq(5).on(chainACB), "to a1"),
			at(ack(b2), "drop no-session"), at(syn(a2).seq(5), "to b1")})},
		{"and takes the chain of its own mark", steps(opened(), []step{do(fail(devA)),
			at(syn(front).seq(5).on(chainACB), "to c1"), at(syn(c2).seq(5), "to b1")})},
		{"a new syn on a device link follows", steps(opened(), []step{at(syn(a2).seq(5), "to b1"), at(ack(a2), "to b1")})},
		{"an old session is gone even if the new one is refused", steps(opened(), []step{
			at(syn(front).seq(5).on(99), "drop no-chain"), at(ack(front), "drop not-syn"), at(ack(a2), "drop no-session")})},

		// Never a loop.
		{"a device that sends frames back", steps(opened(), []step{at(ack(a1), "drop no-session")})},
		{"the frame may not leave where it came in", []step{
			do(func(m *Model) { m.Links[a1] = m.Links[front] }), at(syn(front), "drop hairpin")}},
		{"lookups are bounded", steps(opened(), []step{do(fail(devA)),
			do(func(m *Model) { d := m.Devices[devA]; d.Out = front; m.Devices[devA] = d }), at(ack(front), "drop loop")})},
		{"the link is not there", []step{do(func(m *Model) { m.Links[a1] = Link{Role: DeviceLink} }), at(syn(front), "drop no-link")}},
		{"a key is not given twice", []step{do(func(m *Model) { m.Chains[chainAB] = []session.PoolID{poolA, poolA} }),
			at(syn(front), "to a1"), at(syn(a2), "drop conflict"), at(syn(front), "to a1")}},
		{"nor to both directions of one session", []step{do(fail(devA)), do(fail(devB)),
			do(func(m *Model) { m.Back = front }),
			at(Packet{Link: front, Chain: chainAB, Tuple: mirror, TCP: session.Segment{Flags: session.SYN}}, "drop conflict")}},

		// ICMP errors go with their session.
		{"icmp errors follow", steps(opened(), []step{at(answer(back).icmp(), "to b2"), at(answer(b1).icmp(), "to a2"),
			at(ack(front).icmp(), "to a1"), at(ack(b1).icmp(), "drop no-session")})},
		{"icmp errors go around", steps(opened(), []step{do(fail(devA)), at(answer(b1).icmp(), "to front")})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { play(t, tt.steps) })
	}
}

func TestSessionTree(t *testing.T) {
	m, events := play(t, opened())
	reply := tuple.Reverse()
	want := []session.Session{
		{ID: 1, Root: 1, Child: 2, Orig: session.Key{Tuple: tuple, Link: front}, Reply: session.Key{Tuple: reply, Link: a1},
			Pool: poolA, Device: devA},
		{ID: 2, Root: 1, Parent: 1, Child: 3, Orig: session.Key{Tuple: tuple, Link: a2}, Reply: session.Key{Tuple: reply, Link: b1},
			Pool: poolB, Device: devB, InDevice: devA, Position: 1, First: 1},
		{ID: 3, Root: 1, Parent: 2, Orig: session.Key{Tuple: tuple, Link: b2}, Reply: session.Key{Tuple: reply, Link: back},
			InDevice: devB, Position: 2, First: 2},
	}
	if len(m.Sessions) != len(want) || len(m.Expectations) != 0 {
		t.Fatalf("%d sessions, %d expectations", len(m.Sessions), len(m.Expectations))
	}
	for _, w := range want {
		got := m.Sessions[w.ID]
		shape := session.Session{ID: got.ID, Root: got.Root, Parent: got.Parent, Child: got.Child, Orig: got.Orig,
			Reply: got.Reply, Pool: got.Pool, Device: got.Device, InDevice: got.InDevice, Position: got.Position, First: got.First}
		if shape.Orig != w.Orig || shape.Reply != w.Reply || shape.ID != w.ID || shape.Root != w.Root ||
			shape.Parent != w.Parent || shape.Child != w.Child || shape.Pool != w.Pool || shape.Device != w.Device ||
			shape.InDevice != w.InDevice || shape.Position != w.Position || shape.First != w.First {
			t.Errorf("got %+v\nwant %+v", shape, w)
		}
		if got.State != session.Established {
			t.Errorf("session %d is %v", got.ID, got.State)
		}
	}
	if got := types(events); got != "[1]" {
		t.Errorf("events %s", got)
	}
}

func TestCloseIsToldByTheRoot(t *testing.T) {
	m, events := play(t, steps(opened(), []step{
		at(fin(front, session.Orig), "to a1"), at(fin(a2, session.Orig), "to b1"), at(fin(b2, session.Orig), "to back"),
		at(fin(back, session.Reply), "to b2"), at(fin(b1, session.Reply), "to a2"), at(fin(a1, session.Reply), "to front"),
	}))
	for id, s := range m.Sessions {
		if s.State != session.Closing {
			t.Errorf("session %d is %v", id, s.State)
		}
	}
	if got := types(events); got != "[1 2]" {
		t.Errorf("events %s", got)
	}
}

func TestLedger(t *testing.T) {
	list := steps(bypassed(), []step{do(restore(devA)), at(ack(front), "to b1")})
	list = append(list, do(func(m *Model) { m.set(devB, chain.Out, session.Forced) }),
		at(syn(front).from("192.0.2.9:9"), "to a1"), at(syn(a2).from("192.0.2.9:9"), "to back"))
	m, events := play(t, list)
	want := map[LedgerKey]LedgerEntry{
		{chainAB, poolA, devA, session.DeviceDown}: {Sessions: 1, Packets: 3, Bytes: 300},
		{chainAB, poolB, 0, session.Forced}:        {Sessions: 1, Packets: 1, Bytes: 100},
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
	if got := types(events); got != "[1 3 1]" {
		t.Errorf("events %s", got)
	}
}

func TestEvents(t *testing.T) {
	tests := []struct {
		name  string
		steps []step
		want  []EventType
	}{
		{"retransmitted", []step{at(syn(front), "to a1"), at(syn(front), "to a1")}, []EventType{Opened}},
		{"replaced", steps(opened(), []step{at(syn(front).seq(5), "to a1")}), []EventType{Opened, Replaced, Opened}},
		{"returned", steps(bypassed(), []step{do(restore(devA)), do(pool(poolA, immediate)), at(ack(front), "to a1")}),
			[]EventType{Opened, Bypassed, Returned}},
		{"refused", []step{do(pool(poolA, onDown(chain.Reset))), do(fail(devA)), at(syn(front), "drop reset")},
			[]EventType{ResetWanted}},
		{"reset once", steps(opened(), []step{do(pool(poolA, established(chain.Reset))), do(fail(devA)),
			at(ack(front), "drop reset"), at(ack(front), "drop reset")}), []EventType{Opened, ResetWanted}},
		{"rewritten", []step{at(syn(front), "to a1"), at(syn(a2).seq(1), "to b1")}, []EventType{Opened, SeqRewritten}},
		{"connection reset by a peer", steps(opened(), []step{at(rst(a1, session.Reply), "to front"),
			at(rst(front, session.Orig), "to a1")}), []EventType{Opened, Ended}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, events := play(t, tt.steps)
			var got []EventType
			for _, e := range events {
				got = append(got, e.Type)
			}
			if len(got) != len(tt.want) {
				t.Fatalf("events %v, want %v", got, tt.want)
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Errorf("events %v, want %v", got, tt.want)
				}
			}
		})
	}
}
