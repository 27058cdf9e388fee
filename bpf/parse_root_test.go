package bpf

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/gopacket/layers"

	"sslo/session"
	"sslo/session/model"
	"sslo/session/model/rulebook"
)

// Offsets of the headers in the frames below.
const (
	ipAt   = ethernetHeader
	tcp4At = ipAt + 20
	tcp6At = ipAt + 40
)

// Data of an established connection as device A returns it, over each family. Rows change it.
func data4() []byte { return frameOf(rulebook.Ack(rulebook.A2)) }
func data6() []byte { return frameOf(over6(rulebook.Ack(rulebook.A2))) }

func edit(b []byte, change func([]byte)) []byte {
	b = slices.Clone(b)
	change(b)
	return b
}

func set(b []byte, at int, to byte) []byte { return edit(b, func(b []byte) { b[at] = to }) }

func set16(b []byte, at int, to uint16) []byte {
	return edit(b, func(b []byte) { binary.BigEndian.PutUint16(b[at:], to) })
}

func grow16(b []byte, at, by int) []byte {
	return set16(b, at, binary.BigEndian.Uint16(b[at:])+uint16(by))
}

// options4 puts n bytes of options behind the IPv4 header.
func options4(b []byte, n int) []byte {
	b = slices.Insert(slices.Clone(b), tcp4At, make([]byte, n)...)
	return grow16(set(b, ipAt, 0x40|byte(5+n/4)), ipAt+2, n)
}

// tcpOptions fills the header of a TCP packet with n bytes of options, taken from its payload.
func tcpOptions(b []byte, at, n int) []byte { return set(b, at+12, byte(5+n/4)<<4) }

// extension is an IPv6 extension header of a number of eight-byte units.
type extension struct {
	proto byte
	units int
}

func hopByHop(units int) extension { return extension{0, units} }
func routing(units int) extension  { return extension{43, units} }
func options(units int) extension  { return extension{60, units} }

// extend puts extension headers between the IPv6 and the TCP header.
func extend(b []byte, all ...extension) []byte {
	b = slices.Clone(b)
	for _, e := range slices.Backward(all) {
		header := make([]byte, 8*e.units)
		header[0], header[1] = b[ipAt+6], byte(e.units-1)
		b[ipAt+6] = e.proto
		b = grow16(slices.Insert(b, tcp6At, header...), ipAt+4, len(header))
	}
	return b
}

// tag puts a VLAN tag into the frame, as a driver without offload leaves it.
func tag(b []byte, ethertype uint16) []byte {
	b = slices.Insert(slices.Clone(b), 12, 0, 0, 0, 7)
	return set16(b, 12, ethertype)
}

func icmp4(typ uint8) []byte { return icmpFrame(rulebook.ICMP(rulebook.Ack(rulebook.A2)), typ, 0) }
func icmp6(typ uint8) []byte {
	return icmpFrame(over6(rulebook.ICMP(rulebook.Ack(rulebook.A2))), 0, typ)
}

// protocol changes the protocol of an IPv4 or the next header of an IPv6 packet.
func protocol4(b []byte, to byte) []byte { return set(b, ipAt+9, to) }
func protocol6(b []byte, to byte) []byte { return set(b, ipAt+6, to) }

// quotedProtocol is the place of the protocol in the packet that an ICMPv4 error quotes.
const quotedProtocol = tcp4At + 8 + 9

func TestParse(t *testing.T) {
	l := newLab(t)
	d := newDuel(t, l)
	d.play(rulebook.Opened(), asIs)
	d.play(rulebook.Opened(), over6)
	rows := []struct {
		name  string
		frame []byte
		want  string // on device A's far link; a client link passes them all
	}{
		{"ipv4", data4(), "to b1"},
		{"ipv4 options", options4(data4(), 40), "to b1"},
		{"ipv4 tcp options", tcpOptions(data4(), tcp4At, 40), "to b1"},
		{"ipv4 behind the end of the packet", append(data4(), 1, 2, 3), "to b1"},
		{"ipv4 longer than 64 kB says 0", set16(data4(), ipAt+2, 0), "to b1"},
		{"ipv4 do not fragment", set16(data4(), ipAt+6, 0x4000), "to b1"},
		{"ipv6", data6(), "to b1"},
		{"ipv6 tcp options", tcpOptions(data6(), tcp6At, 40), "to b1"},
		{"ipv6 longer than 64 kB says 0", set16(data6(), ipAt+4, 0), "to b1"},
		{"ipv6 hop-by-hop", extend(data6(), hopByHop(1)), "to b1"},
		{"ipv6 five extension headers", extend(data6(), hopByHop(1), options(2), routing(2), options(1), options(1)), "to b1"},

		{"first fragment", set16(data4(), ipAt+6, 0x2000), "drop fragment"},
		{"later fragment", set16(data4(), ipAt+6, 0x0010), "drop fragment"},
		{"ipv6 fragment", extend(data6(), extension{44, 1}), "drop fragment"},
		{"ipv6 fragment behind options", extend(data6(), options(1), extension{44, 1}), "drop fragment"},
		{"ipv6 six extension headers", extend(data6(), hopByHop(1), options(1), options(1), options(1), options(1), options(1)),
			"drop extension-headers"},
		{"ipv6 long extension headers", extend(data6(), hopByHop(10)), "drop extension-headers"},
		{"ipv6 authentication header", extend(data6(), extension{51, 2}), "drop protocol"},

		{"ipv4 cut in the tcp header", data4()[:tcp4At+19], "drop truncated"},
		{"ipv4 length behind the frame", set16(data4(), ipAt+2, 101), "drop truncated"},
		{"ipv4 length within the ip header", set16(data4(), ipAt+2, 19), "drop truncated"},
		{"ipv4 length within the tcp header", set16(data4(), ipAt+2, 39), "drop truncated"},
		{"ipv4 header too short", set(data4(), ipAt, 0x44), "drop truncated"},
		{"ipv4 header behind the frame", set(set16(data4()[:tcp4At+20], ipAt+2, 40), ipAt, 0x4f), "drop truncated"},
		{"ipv4 tcp header too short", set(data4(), tcp4At+12, 0x40), "drop truncated"},
		{"ipv4 tcp options behind the end", set(set16(data4(), ipAt+2, 40), tcp4At+12, 0x60), "drop truncated"},
		{"ipv4 frame with another version", set(data4(), ipAt, 0x65), "drop truncated"},
		{"ipv4 udp cut", protocol4(set16(data4(), ipAt+2, 27), 17), "drop truncated"},
		{"ipv6 cut in the tcp header", data6()[:tcp6At+19], "drop truncated"},
		{"ipv6 length behind the frame", set16(data6(), ipAt+4, 81), "drop truncated"},
		{"ipv6 extension behind the end", set(extend(data6(), hopByHop(1)), tcp6At+1, 200), "drop truncated"},
		{"ipv6 extension header cut", protocol6(data6(), 60)[:tcp6At+1], "drop truncated"},
		{"ipv6 frame with another version", set(data6(), ipAt, 0x45), "drop truncated"},

		{"gre", protocol4(data4(), 47), "drop protocol"},
		{"ipv6 no next header", protocol6(data6(), 59), "drop protocol"},
		{"igmp", protocol4(data4(), 2), "drop protocol"},
		{"udp that is no session", protocol4(data4(), 17), "drop no-session"},

		{"icmp unreachable", icmp4(3), "to b1"},
		{"icmp time exceeded", icmp4(11), "to b1"},
		{"icmp parameter problem", icmp4(12), "to b1"},
		{"icmp behind options", options4(icmp4(3), 8), "to b1"},
		{"icmp source quench", icmp4(4), "drop protocol"},
		{"icmp redirect", icmp4(5), "drop protocol"},
		{"icmp echo", icmp4(8), "drop protocol"},
		{"icmp about icmp", set(icmp4(3), quotedProtocol, 1), "drop protocol"},
		{"icmp about a later fragment", set16(icmp4(3), quotedProtocol-3, 0x0010), "drop fragment"},
		{"icmp about a first fragment", set16(icmp4(3), quotedProtocol-3, 0x2000), "to b1"},
		{"icmp about no ip header", set(icmp4(3), tcp4At+8, 0x44), "drop truncated"},
		{"icmp cut in its header", set16(icmp4(3), ipAt+2, 27)[:tcp4At+7], "drop truncated"},
		{"icmp cut in the quoted header", set16(icmp4(3), ipAt+2, 40)[:tcp4At+20], "drop truncated"},
		{"icmp cut in the quoted ports", set16(icmp4(3), ipAt+2, 50)[:tcp4At+30], "drop truncated"},
		{"icmp about another connection", set(icmp4(3), quotedProtocol+11, 9), "drop no-session"},
		{"icmp6 unreachable", icmp6(1), "to b1"},
		{"icmp6 packet too big", icmp6(2), "to b1"},
		{"icmp6 time exceeded", icmp6(3), "to b1"},
		{"icmp6 parameter problem", icmp6(4), "to b1"},
		{"icmp6 echo", icmp6(128), "drop protocol"},
		{"icmp6 neighbour solicitation", icmp6(135), "drop protocol"},
		{"icmp6 cut", set16(icmp6(2), ipAt+4, 30)[:tcp6At+30], "drop truncated"},

		{"arp", serialize(ethernet(layers.EthernetTypeARP), &layers.ARP{AddrType: 1, Protocol: 0x800, HwAddressSize: 6, ProtAddressSize: 4,
			SourceHwAddress: make([]byte, 6), SourceProtAddress: make([]byte, 4), DstHwAddress: make([]byte, 6), DstProtAddress: make([]byte, 4)}),
			"drop not-ip"},
		{"lldp", set16(data4(), 12, 0x88cc), "drop not-ip"},
		{"vlan tag", tag(data4(), 0x8100), "drop not-ip"},
		{"service tag", tag(data4(), 0x88a8), "drop not-ip"},
		{"path probe", set16(data4(), 12, 0x88b5), "pass"},
	}
	for _, r := range rows {
		t.Run(rowName(r.name), func(t *testing.T) {
			d.fault = t
			d.expect(rulebook.A2, r.frame, r.want)
			d.expect(rulebook.Ext, r.frame, "pass")
		})
	}
	t.Run("an-interface-that-is-no-link", func(t *testing.T) {
		if err := l.LinkIds.Delete(SsloLinkKey{Ifindex: uint32(l.ifindex[rulebook.C2])}); err != nil {
			t.Fatal(err)
		}
		d.fault = t
		d.expect(rulebook.C2, data4(), "pass")
	})
}

// expect runs a frame that the model can not know, and looks at what comes out.
func (d *duel) expect(link session.LinkID, frame []byte, want string) {
	d.Helper()
	before := d.dropped(link)
	got := d.run(d, d.SteerFrame, link, 0, frame)
	if name := rulebook.Name(got.Outcome); name != want {
		d.Fatalf("on %s: %s, want %s", rulebook.LinkName(link), name, want)
	}
	d.compareFrame(frame, got)
	if got.Verdict == model.Drop && d.dropped(link)[got.Reason] != before[got.Reason]+1 {
		d.Fatalf("not counted as %v", got.Reason)
	}
}
