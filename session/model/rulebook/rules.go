package rulebook

import (
	"slices"
	"time"

	"sslo/chain"
	"sslo/session"
	"sslo/session/model"
)

// Step is a packet and what must become of it, or something that happens before the next packet.
type Step struct {
	Packet model.Packet
	Want   string // see Name
	Change Change
	Wait   time.Duration
}

// Rule is a row: steps that begin with the lab and no session.
type Rule struct {
	Name  string
	Steps []Step
}

func at(p model.Packet, want string) Step { return Step{Packet: p, Want: want} }
func do(c Change) Step                    { return Step{Change: c} }
func wait(d time.Duration) Step           { return Step{Wait: d} }

func steps(before []Step, then []Step) []Step { return slices.Concat(before, then) }

func onDown(a chain.Action) func(*model.Pool)      { return func(p *model.Pool) { p.OnDown = a } }
func established(a chain.Action) func(*model.Pool) { return func(p *model.Pool) { p.Established = a } }
func immediate(p *model.Pool)                      { p.ReturnNow = true }

func mirrored(p model.Packet) model.Packet { p.Tuple.Dst = p.Tuple.Src; return p }

// Opened is a connection through A and B, established.
func Opened() []Step {
	return []Step{
		at(Syn(Front), "to a1"), at(Syn(A2), "to b1"), at(Syn(B2), "to back"),
		at(SynAck(Back), "to b2"), at(SynAck(B1), "to a2"), at(SynAck(A1), "to front"),
		at(Ack(Front), "to a1"), at(Ack(A2), "to b1"), at(Ack(B2), "to back"),
	}
}

// Bypassed is the same after A failed, with a packet each way around it.
func Bypassed() []Step {
	return steps(Opened(), []Step{do(Fail(DevA)), at(Ack(Front), "to b1"), at(Answer(B1), "to front")})
}

// Closed is the same after both sides have closed.
func Closed() []Step {
	return steps(Opened(), []Step{
		at(Fin(Front, session.Orig), "to a1"), at(Fin(A2, session.Orig), "to b1"), at(Fin(B2, session.Orig), "to back"),
		at(Fin(Back, session.Reply), "to b2"), at(Fin(B1, session.Reply), "to a2"), at(Fin(A1, session.Reply), "to front"),
	})
}

// Uninspected is traffic that the ledger must know: past A, and past B by an operator's will.
func Uninspected() []Step {
	other := "192.0.2.9:9"
	return steps(Bypassed(), []Step{
		do(Restore(DevA)), at(Ack(Front), "to b1"), do(Serve(DevB, chain.Out, session.Forced)),
		at(From(other, Syn(Front)), "to a1"), at(From(other, Syn(A2)), "to back"),
	})
}

// Rules are all rows.
func Rules() []Rule {
	return slices.Concat(theWay(), beginnings(), expectations(), simpleBypass(), complexBypass(), rewriters(), reuse(), loops(), icmpErrors(),
		oneArm(), routed(), vlans(), taps())
}

// Through the chain and back.
func theWay() []Rule {
	return []Rule{
		{"through the chain and back", steps(Opened(), []Step{
			at(Answer(Back), "to b2"), at(Answer(B1), "to a2"), at(Answer(A1), "to front")})},
		{"udp needs no syn", []Step{
			at(UDP(Syn(Front)), "to a1"), at(UDP(Syn(A2)), "to b1"), at(UDP(SynAck(B1)), "to a2")}},
	}
}

// Where sessions may begin.
func beginnings() []Rule {
	return []Rule{
		{"a tcp session begins with a syn", []Step{at(Ack(Front), "drop not-syn"), at(SynAck(Front), "drop not-syn"),
			at(TCP(Front, session.Orig, session.SYN|session.FIN, 1), "drop not-syn")}},
		{"no chain", []Step{at(On(0, Syn(Front)), "drop no-chain"), at(On(99, Syn(Front)), "drop no-chain"),
			at(On(ChainEmpty, Syn(Front)), "drop no-chain")}},
		{"a device link creates nothing", []Step{at(Syn(A1), "drop no-session"), at(Syn(A2), "drop no-session"),
			at(Ack(B2), "drop no-session"), at(UDP(Syn(A2)), "drop no-session")}},
		{"back creates nothing", []Step{at(Syn(Back), "drop no-session")}},
		{"a syn-ack on the reply link creates nothing", []Step{at(SynAck(A1), "drop no-session")}},
		{"a client or server link without session is the box's own", []Step{
			at(Syn(Ext), "pass"), at(Ack(Int), "pass"), at(ICMP(Syn(Ext)), "pass")}},
		{"a monitor's own connection through a device makes no session", []Step{
			at(Probe(Syn(A2)), "pass"), at(Probe(SynAck(A1)), "pass"), at(Probe(UDP(Syn(A2))), "pass"), at(Probe(Ack(Back)), "drop no-session"),
			at(To("198.18.0.2:80", Syn(A2)), "drop no-session"), at(From("198.19.0.1:1", Syn(A2)), "drop no-session"),
			at(To("198.20.0.2:80", Probe(Syn(A2))), "drop no-session")}},
		{"icmp creates nothing", []Step{at(ICMP(Syn(Front)), "drop no-session"),
			at(Syn(Front), "to a1"), at(ICMP(Syn(A2)), "drop no-session"), at(Syn(A2), "to b1")}},
	}
}

// What a device returns may make a child.
func expectations() []Rule {
	return []Rule{
		{"only a syn is expected", []Step{at(Syn(Front), "to a1"), at(Ack(A2), "drop no-session"),
			at(SynAck(A2), "drop no-session"), at(Rst(A2, session.Orig), "drop no-session"), at(Syn(A2), "to b1")}},
		{"an expectation lives 30 s", []Step{at(Syn(Front), "to a1"), wait(model.ExpectationLife - time.Second), at(Syn(A2), "to b1")}},
		{"and no longer", []Step{at(Syn(Front), "to a1"), wait(model.ExpectationLife + time.Second), at(Syn(A2), "drop no-session")}},
		{"a retransmission arms it again", []Step{at(Syn(Front), "to a1"), wait(20 * time.Second),
			at(Syn(Front), "to a1"), wait(20 * time.Second), at(Syn(A2), "to b1")}},
		{"an icmp error does not", []Step{at(Syn(Front), "to a1"), wait(20 * time.Second),
			at(ICMP(Ack(Front)), "to a1"), wait(20 * time.Second), at(Syn(A2), "drop no-session")}},
		{"an expectation dies with its parent", []Step{at(Syn(Front), "to a1"), do(Fail(DevA)),
			at(On(ChainACB, Seq(7, Syn(Front))), "to c1"), at(Syn(A2), "drop no-session"), at(Seq(7, Syn(C2)), "to b1")}},
		{"a child is made once", steps(Opened(), []Step{at(Syn(A2), "to b1"), at(Ack(A2), "to b1")})},
	}
}

// Simple bypass: pools and devices that are down when the session is made.
func simpleBypass() []Rule {
	return []Rule{
		{"a pool that is down is skipped", []Step{do(Fail(DevA)), at(Syn(Front), "to b1"),
			at(Syn(B2), "to back"), at(SynAck(Back), "to b2"), at(SynAck(B1), "to front")}},
		{"the last pool too", []Step{do(Fail(DevB)), at(Syn(Front), "to a1"), at(Syn(A2), "to back"), at(SynAck(Back), "to a2")}},
		{"all of them", []Step{do(Fail(DevA)), do(Fail(DevB)), at(Syn(Front), "to back"), at(SynAck(Back), "to front")}},
		{"a device that is down is not chosen", []Step{do(Fail(DevA)), at(On(ChainACB, Syn(Front)), "to c1")}},
		{"a draining device is not chosen", []Step{
			do(Drain(DevA)), at(Syn(Front), "to b1")}},
		{"fewer devices than min_active", []Step{do(Configure(PoolAC, func(p *model.Pool) { p.MinActive = 2 })),
			do(Fail(DevC)), at(On(ChainACB, Syn(Front)), "to b1")}},
		{"on_down reset refuses the connection", []Step{do(Configure(PoolA, onDown(chain.Reset))), do(Fail(DevA)),
			at(Syn(Front), "drop reset")}},
		{"on_down drop is silent", []Step{do(Configure(PoolA, onDown(chain.Drop))), do(Fail(DevA)), at(Syn(Front), "drop pool-down")}},
		{"on_down at the second hop", []Step{do(Configure(PoolB, onDown(chain.Drop))), do(Fail(DevB)),
			at(Syn(Front), "to a1"), at(Syn(A2), "drop pool-down"), do(Restore(DevB)), at(Syn(A2), "to b1")}},
	}
}

// Complex bypass: a device goes down under an established session.
func complexBypass() []Rule {
	return []Rule{
		{"an established session goes around", Bypassed()},
		{"around the last device", steps(Opened(), []Step{do(Fail(DevB)), at(Ack(A2), "to back"), at(Answer(Back), "to a2")})},
		{"around both", steps(Opened(), []Step{do(Fail(DevA)), do(Fail(DevB)), at(Ack(Front), "to back"), at(Answer(Back), "to front")})},
		{"found by the reply direction", steps(Opened(), []Step{do(Fail(DevA)), at(Answer(B1), "to front"), at(Ack(Front), "to b1")})},
		{"before the child is born", []Step{at(Syn(Front), "to a1"), do(Fail(DevA)), at(Syn(Front), "to b1"),
			at(Syn(B2), "to back"), at(SynAck(Back), "to b2"), at(SynAck(B1), "to front")}},
		{"long before the child is born", []Step{at(Syn(Front), "to a1"), do(Fail(DevA)),
			wait(time.Minute), at(Syn(Front), "to b1")}},
		{"data cannot make the child", []Step{at(Syn(Front), "to a1"), do(Fail(DevA)), at(Ack(Front), "drop no-session")}},
		{"a draining device keeps what it has", steps(Opened(), []Step{
			do(Drain(DevA)), at(Ack(Front), "to a1")})},
		{"the pool's other device has not seen the start", []Step{at(On(ChainACB, Syn(Front)), "to a1"), at(Syn(A2), "to b1"),
			do(Fail(DevA)), at(Ack(Front), "to b1")}},
		{"a bypass is sticky", steps(Bypassed(), []Step{do(Restore(DevA)), at(Ack(Front), "to b1"), at(Answer(B1), "to front")})},
		{"new connections use the device again", steps(Bypassed(), []Step{do(Restore(DevA)),
			at(From("192.0.2.2:1", Syn(Front)), "to a1")})},
		{"return immediate", steps(Bypassed(), []Step{do(Restore(DevA)), do(Configure(PoolA, immediate)),
			at(Ack(Front), "to a1"), at(Ack(A2), "to b1"), at(Answer(B1), "to a2"), at(Answer(A1), "to front")})},
		{"return immediate by the reply", steps(Bypassed(), []Step{do(Restore(DevA)), do(Configure(PoolA, immediate)),
			at(Answer(B1), "to a2"), at(Ack(Front), "to a1")})},
		{"no return to a draining device", steps(Bypassed(), []Step{do(Configure(PoolA, immediate)),
			do(Drain(DevA)), at(Ack(Front), "to b1")})},
		{"established reset", steps(Opened(), []Step{do(Configure(PoolA, established(chain.Reset))), do(Fail(DevA)),
			at(Ack(Front), "drop reset"), do(Restore(DevA)), at(Ack(Front), "drop reset"), at(Answer(A1), "drop reset")})},
		{"established reset by the reply", steps(Opened(), []Step{do(Configure(PoolA, established(chain.Reset))), do(Fail(DevA)),
			at(Answer(B1), "drop reset"), at(Answer(B1), "drop reset"), at(Ack(Front), "drop reset")})},
		{"the whole pool down: on_down, not established", steps(Opened(), []Step{do(Configure(PoolA, onDown(chain.Drop))),
			do(Fail(DevA)), at(Ack(Front), "drop pool-down"), do(Restore(DevA)), at(Ack(Front), "to a1")})},
		{"one device of two down: established, not on_down", []Step{do(Configure(PoolAC, onDown(chain.Drop))),
			at(On(ChainACB, Syn(Front)), "to a1"), at(Syn(A2), "to b1"), do(Fail(DevA)), at(Ack(Front), "to b1")}},
	}
}

// Devices that rewrite sequence numbers.
func rewriters() []Rule {
	return []Rule{
		{"rewritten towards the server", []Step{at(Syn(Front), "to a1"), at(Seq(77, Syn(A2)), "to b1"),
			do(Fail(DevA)), at(Ack(Front), "drop sequence-rewritten"), at(Ack(Front), "drop reset")}},
		{"rewritten towards the client", []Step{at(Syn(Front), "to a1"), at(Syn(A2), "to b1"), at(Syn(B2), "to back"),
			at(SynAck(Back), "to b2"), at(Seq(77, SynAck(B1)), "to a2"), at(Seq(77, SynAck(A1)), "to front"),
			do(Fail(DevA)), at(Ack(Front), "to b1"), do(Fail(DevB)), at(Ack(Front), "drop sequence-rewritten")}},
	}
}

// A SYN for a tuple that is known.
func reuse() []Rule {
	return []Rule{
		{"a retransmitted syn follows the session", []Step{at(Syn(Front), "to a1"), at(Syn(Front), "to a1"), at(Syn(A2), "to b1")}},
		{"a new syn on the front link replaces", steps(Opened(), []Step{at(On(ChainACB, Seq(5, Syn(Front))), "to a1"),
			at(Ack(B2), "drop no-session"), at(Seq(5, Syn(A2)), "to b1")})},
		{"and takes the chain of its own mark", steps(Opened(), []Step{do(Fail(DevA)),
			at(On(ChainACB, Seq(5, Syn(Front))), "to c1"), at(Seq(5, Syn(C2)), "to b1")})},
		{"a new syn on a device link follows", steps(Opened(), []Step{at(Seq(5, Syn(A2)), "to b1"), at(Ack(A2), "to b1")})},
		{"an old session is gone even if the new one is refused", steps(Opened(), []Step{
			at(On(99, Seq(5, Syn(Front))), "drop no-chain"), at(Ack(Front), "drop not-syn"), at(Ack(A2), "drop no-session")})},
	}
}

// Never a loop, and no key to two sessions.
func loops() []Rule {
	return []Rule{
		{"a device that sends frames back", steps(Opened(), []Step{at(Ack(A1), "drop no-session")})},
		{"the frame may not leave where it came in", []Step{
			do(func(t *model.Topology) { t.Links[A1] = t.Links[Front] }), at(Syn(Front), "drop hairpin")}},
		{"lookups are bounded", steps(Opened(), []Step{do(Fail(DevA)),
			do(func(t *model.Topology) { d := t.Devices[DevA]; d.Out = Front; t.Devices[DevA] = d }), at(Ack(Front), "drop loop")})},
		{"the link is not there", []Step{do(func(t *model.Topology) { t.Links[A1] = model.Link{Role: model.DeviceLink} }), at(Syn(Front), "drop no-link")}},
		{"a key is not given twice", []Step{do(func(t *model.Topology) { t.Chains[ChainAB] = []session.PoolID{PoolA, PoolA} }),
			at(Syn(Front), "to a1"), at(Syn(A2), "drop conflict"), at(Syn(Front), "to a1")}},
		{"nor to both directions of one session", []Step{do(Fail(DevA)), do(Fail(DevB)),
			do(func(t *model.Topology) { t.Back = Front }),
			at(mirrored(Syn(Front)), "drop conflict")}},
	}
}

// ICMP errors go with their session.
func icmpErrors() []Rule {
	return []Rule{
		{"icmp errors follow", steps(Opened(), []Step{at(ICMP(Answer(Back)), "to b2"), at(ICMP(Answer(B1)), "to a2"),
			at(ICMP(Ack(Front)), "to a1"), at(ICMP(Ack(B1)), "drop no-session")})},
		{"icmp errors go around", steps(Opened(), []Step{do(Fail(DevA)), at(ICMP(Answer(B1)), "to front")})},
	}
}
