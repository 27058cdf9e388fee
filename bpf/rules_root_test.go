package bpf

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"sslo/chain"
	"sslo/session"
	"sslo/session/model"
	"sslo/session/model/rulebook"
)

// Every rule of the session plane, in the kernel.
func TestRules(t *testing.T) {
	l := newLab(t)
	for family, as := range families {
		for _, r := range rulebook.Rules() {
			t.Run(family+"/"+rowName(r.Name), func(t *testing.T) { newDuel(t, l).play(r.Steps, as) })
		}
		t.Run(family+"/closed", func(t *testing.T) { newDuel(t, l).play(rulebook.Closed(), as) })
		t.Run(family+"/uninspected", func(t *testing.T) { newDuel(t, l).play(rulebook.Uninspected(), as) })
	}
}

// Whatever comes and whatever fails, the program does what the model does.
func TestProgramAgreesWithModel(t *testing.T) {
	l := newLab(t)
	rapid.Check(t, func(t *rapid.T) {
		d := newDuel(t, l)
		as := asIs
		if rapid.Bool().Draw(t, "ipv6") {
			as = over6
		}
		t.Repeat(map[string]func(*rapid.T){
			"packet":  func(t *rapid.T) { d.send(as(rulebook.RandomPacket(t))) },
			"through": func(t *rapid.T) { d.through(as(rulebook.RandomPacket(t))) },
			"change":  func(t *rapid.T) { d.change(rulebook.RandomChange(t)) },
			"wait":    func(t *rapid.T) { d.wait(model.ExpectationLife * 2 / 3) }, // twice is too long, whatever the clocks say
			"connect": func(t *rapid.T) { d.connect(t, as) },
		})
	})
}

// through sends a packet on as devices that forward would, to its end.
func (d *duel) through(p model.Packet) {
	for range chain.MaxPools + 1 {
		out := d.send(p)
		next, ok := rulebook.Next(&d.m.Topology, out.Out)
		if out.Verdict != model.Forward || !ok {
			return
		}
		p.Link = next
	}
	d.Fatalf("%v circulates", p.Tuple)
}

// connect is a handshake, because chance alone seldom gets that far.
func (d *duel) connect(t *rapid.T, as func(model.Packet) model.Packet) {
	src := rapid.SampledFrom([]string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.7:1"}).Draw(t, "client")
	id := rapid.SampledFrom([]session.ChainID{rulebook.ChainAB, rulebook.ChainACB}).Draw(t, "chain")
	there := func(p model.Packet) model.Packet { return as(rulebook.From(src, rulebook.On(id, p))) }
	back := func(p model.Packet) model.Packet {
		p.Tuple.Dst = netip.MustParseAddrPort(src)
		return as(p)
	}
	d.through(there(rulebook.Syn(rulebook.Front)))
	d.through(back(rulebook.SynAck(rulebook.Back)))
	d.through(there(rulebook.Ack(rulebook.Front)))
}
