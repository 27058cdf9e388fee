package rulebook

import (
	"net/netip"

	"sslo/session"
	"sslo/session/model"
)

// A one-arm device returns on the link where it got: the directions differ by their tuples alone.
func oneArm() []Rule {
	there := []Step{do(OneArm(DevA)), at(Syn(Front), "to a1"), at(Syn(A1), "to b1"), at(Syn(B2), "to back"),
		at(SynAck(Back), "to b2"), at(SynAck(B1), "to a1"), at(SynAck(A1), "to front"), at(Ack(Front), "to a1"), at(Ack(A1), "to b1")}
	return []Rule{
		{"one arm", there},
		{"around one arm", steps(there, []Step{do(Fail(DevA)), at(Ack(Front), "to b1"), at(Answer(B1), "to front")})},
		{"around one arm before the child is born", []Step{do(OneArm(DevA)), at(Syn(Front), "to a1"), do(Fail(DevA)), at(Syn(Front), "to b1")}},
		{"one arm last", []Step{do(OneArm(DevB)), at(Syn(Front), "to a1"), at(Syn(A2), "to b1"), at(Syn(B1), "to back"),
			at(SynAck(Back), "to b1"), at(SynAck(B1), "to a2")}},
		{"one arm begins nothing", []Step{do(OneArm(DevA)), at(Syn(A1), "drop no-session"), at(SynAck(A1), "drop no-session")}},
		{"a tuple that is its own answer has no way through one arm", []Step{do(OneArm(DevA)),
			at(mirrored(Syn(Front)), "to a1"), at(mirrored(Syn(A1)), "to front")}},
		{"twice the same one arm would be a loop", []Step{do(OneArm(DevA)),
			do(func(t *model.Topology) { t.Chains[ChainAB] = []session.PoolID{PoolA, PoolA} }),
			at(Syn(Front), "to a1"), at(Syn(A1), "drop conflict")}},
	}
}

// A routed device gets packets by its address, and may talk with the box as far as a rule says.
func routed() []Rule {
	all4, all6 := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")
	dns := func(p netip.Prefix) Change {
		return Control(A2, model.Control{Source: p, Destination: p, Protocol: session.UDP, From: 80, To: 81})
	}
	tcp := func(from, to uint16) Change {
		return Control(A2, model.Control{Source: netip.MustParsePrefix("192.0.2.0/24"), Destination: all4, Protocol: session.TCP, From: from, To: to})
	}
	tcp6 := Control(A2, model.Control{Source: netip.MustParsePrefix("2001:db8::c000:0/108"), Destination: all6, Protocol: session.TCP, From: 1, To: 80})
	return []Rule{
		{"routed devices", steps([]Step{do(Route(DevA)), do(Route(DevB))}, steps(Opened(), []Step{
			do(Fail(DevA)), at(Ack(Front), "to b1"), at(Answer(B1), "to front")}))},
		{"what no rule allows is dropped", []Step{do(Route(DevA)), do(dns(all4)), do(dns(all6)), at(Syn(A2), "drop no-session")}},
		{"what a rule allows is the box's", []Step{do(Route(DevA)), do(dns(all4)), do(dns(all6)), at(UDP(Syn(A2)), "pass"),
			at(UDP(Syn(A1)), "drop no-session"), at(ICMP(UDP(Syn(A2))), "drop no-session")}},
		{"a rule for a prefix", []Step{do(Route(DevA)), do(tcp(1, 79)), at(Ack(A2), "drop no-session"),
			do(tcp(80, 80)), do(tcp6), at(Ack(A2), "pass")}},
		{"a rule takes nothing from a session", steps([]Step{do(tcp(80, 80)), do(tcp6)}, Opened())},
	}
}

// Links that share a NIC.
func vlans() []Rule {
	return []Rule{
		{"a frame may leave by its own nic with another tag", steps([]Step{do(Tag(A1, Front, 101)), do(Tag(B1, A2, 102))}, Opened())},
	}
}

// Taps get copies and change nothing.
func taps() []Rule {
	tap := func(before int) Step { return do(Tap(ChainAB, before, DevC)) }
	return []Rule{
		{"tap in front", []Step{tap(0), at(Syn(Front), "to a1, copy to c1"), at(Syn(A2), "to b1"), at(Syn(B2), "to back"),
			at(SynAck(Back), "to b2"), at(SynAck(B1), "to a2"), at(SynAck(A1), "to front, copy to c1")}},
		{"tap between", []Step{tap(1), at(Syn(Front), "to a1"), at(Syn(A2), "to b1, copy to c1"), at(Syn(B2), "to back"),
			at(SynAck(Back), "to b2"), at(SynAck(B1), "to a2, copy to c1"), at(SynAck(A1), "to front")}},
		{"tap at the end", []Step{tap(2), at(Syn(Front), "to a1"), at(Syn(A2), "to b1"), at(Syn(B2), "to back, copy to c1"),
			at(SynAck(Back), "to b2, copy to c1")}},
		{"a bypass passes the taps of all its legs", []Step{tap(1), at(Syn(Front), "to a1"), at(Syn(A2), "to b1, copy to c1"),
			do(Fail(DevA)), at(Ack(Front), "to b1, copy to c1"), at(Answer(B1), "to front, copy to c1")}},
		{"a pool that is skipped takes no tap with it", []Step{tap(0), tap(1), do(Fail(DevA)), at(Syn(Front), "to b1, copy to c1")}},
		{"a tap that is down gets nothing", []Step{tap(0), do(Fail(DevC)), at(Syn(Front), "to a1"), do(Restore(DevC)), at(Syn(Front), "to a1, copy to c1")}},
		{"nor one that is not there", []Step{tap(0), do(func(t *model.Topology) { t.Links[C1] = model.Link{Role: model.DeviceLink} }),
			at(Syn(Front), "to a1")}},
		{"a chain of taps alone", []Step{do(Tap(ChainEmpty, 0, DevC)), at(On(ChainEmpty, Syn(Front)), "to back, copy to c1"),
			at(SynAck(Back), "to front, copy to c1")}},
		{"what is dropped is not copied", []Step{tap(0), at(Syn(Front), "to a1, copy to c1"), do(Fail(DevA)), at(Ack(Front), "drop no-session")}},
	}
}
