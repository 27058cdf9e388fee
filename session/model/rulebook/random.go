package rulebook

import (
	"net/netip"

	"pgregory.net/rapid"

	"sslo/chain"
	"sslo/session"
	"sslo/session/model"
)

// RandomPacket is a packet where a well or a badly behaved device, client or server might send
// it: of few connections and few sequence numbers, so that they meet.
func RandomPacket(t *rapid.T) model.Packet {
	flags := []session.TCPFlags{session.SYN, session.SYN, session.SYN | session.ACK, session.ACK, session.ACK,
		session.FIN | session.ACK, session.RST, session.RST | session.ACK, session.SYN | session.FIN}
	link := session.LinkID(rapid.IntRange(int(Front), int(Int)).Draw(t, "link"))
	p := TCP(link, session.Orig, rapid.SampledFrom(flags).Draw(t, "flags"), rapid.Uint32Range(1, 3).Draw(t, "seq"))
	if p.TCP.Flags.Has(session.ACK) {
		p.TCP.Ack = rapid.Uint32Range(1, 3).Draw(t, "ack")
	}
	p.Chain = session.ChainID(rapid.SampledFrom([]int{1, 1, 2, 2, 3, 0}).Draw(t, "chain"))
	p.Tuple.Src = netip.AddrPortFrom(p.Tuple.Src.Addr(), rapid.Uint16Range(1, 2).Draw(t, "port"))
	if rapid.Bool().Draw(t, "reply") {
		p.Tuple = p.Tuple.Reverse()
	}
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		return ICMP(p)
	case 1:
		return UDP(p)
	}
	return p
}

// RandomChange is a device that changes its service, or a pool that is configured anew.
func RandomChange(t *rapid.T) Change {
	if rapid.Bool().Draw(t, "device") {
		return Serve(session.DeviceID(rapid.IntRange(1, 3).Draw(t, "id")),
			chain.Service(rapid.SampledFrom([]int{0, 0, 1, 2, 2, 2}).Draw(t, "service")),
			session.BypassReason(rapid.IntRange(0, 4).Draw(t, "reason")))
	}
	return Configure(session.PoolID(rapid.IntRange(1, 3).Draw(t, "id")), func(p *model.Pool) {
		p.Method = chain.Method(rapid.IntRange(0, 4).Draw(t, "method"))
		p.OnDown = chain.Action(rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "on_down"))
		p.Established = chain.Action(rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "established"))
		p.ReturnNow = rapid.Bool().Draw(t, "return_now")
		p.MinActive = rapid.IntRange(0, 2).Draw(t, "min_active")
		for i := range p.Members {
			p.Members[i].Weight = rapid.IntRange(0, 3).Draw(t, "weight")
		}
	})
}

// Next is where a device that forwards sends a frame it got by a link on; not ok when the link
// is not a device's.
func Next(t *model.Topology, got session.LinkID) (session.LinkID, bool) {
	for _, d := range t.Devices {
		switch got {
		case d.In:
			return d.Out, true
		case d.Out:
			return d.In, true
		}
	}
	return 0, false
}
