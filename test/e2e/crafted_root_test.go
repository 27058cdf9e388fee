package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"sslo/admin/api"
	"sslo/test/lab"
)

// wire is where a forged frame enters the box.
type wire struct {
	link string         // the box's name for it
	host *lab.Namespace // at the other end of the cable
	nic  string
	mac  net.HardwareAddr // the box's
}

// wires are those of devices, by name of link.
func (b *bed) wires(devices ...string) map[string]wire {
	b.t.Helper()
	macs := map[string]net.HardwareAddr{}
	for _, l := range get[[]api.Link](b, "/v1/links") {
		mac, _ := net.ParseMAC(l.MAC)
		macs[l.Name] = mac
	}
	all := map[string]wire{
		lab.ClientNIC: {lab.ClientNIC, b.Client().Namespace, b.Client().NIC, macs[lab.ClientNIC]},
		lab.ServerNIC: {lab.ServerNIC, b.Server().Namespace, b.Server().NIC, macs[lab.ServerNIC]},
	}
	for _, d := range devices {
		host, err := b.DeviceHost(d)
		b.must(err)
		all[lab.InNIC(d)] = wire{lab.InNIC(d), host, lab.DeviceIn, macs[lab.InNIC(d)]}
		all[lab.OutNIC(d)] = wire{lab.OutNIC(d), host, lab.DeviceOut, macs[lab.OutNIC(d)]}
	}
	return all
}

// inject sends a packet from one address to another; the layers are what follows the IP header.
func (b *bed) inject(w wire, src, dst netip.Addr, proto layers.IPProtocol, above ...gopacket.SerializableLayer) {
	b.t.Helper()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}, DstMAC: w.mac, EthernetType: layers.EthernetTypeIPv4}
	if src.Is6() {
		eth.EthernetType = layers.EthernetTypeIPv6
	}
	b.must(w.host.Inject(w.nic, serialize(append([]gopacket.SerializableLayer{eth, ipLayer(src, dst, proto)}, above...)...)))
}

func ipLayer(src, dst netip.Addr, proto layers.IPProtocol) gopacket.SerializableLayer {
	if src.Is4() {
		return &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	}
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
}

func tcpLayer(src, dst netip.AddrPort, tcp layers.TCP) *layers.TCP {
	tcp.SrcPort, tcp.DstPort, tcp.Window = layers.TCPPort(src.Port()), layers.TCPPort(dst.Port()), 65535
	_ = tcp.SetNetworkLayerForChecksum(ipLayer(src.Addr(), dst.Addr(), layers.IPProtocolTCP).(gopacket.NetworkLayer)) // fits
	return &tcp
}

// serialize does not fail with layers that fit each other.
func serialize(all ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

// TestForgedPacketsMakeNoSession: whatever enters on a link of a device, or as an answer on any link,
// is no new flow.
func TestForgedPacketsMakeNoSession(t *testing.T) {
	b := up(t, lab.Line(2, lab.Bridge))
	k := b.keep(1)[0]
	inner := netip.AddrPortFrom(lab.VIP4, 80)
	stranger := netip.AddrPortFrom(k.client().Addr(), 7)
	sessions := b.counters().Sessions
	for link, w := range b.wires("a", "b") {
		for name, tcp := range map[string]layers.TCP{"SYN-ACK": {SYN: true, ACK: true}, "SYN": {SYN: true}, "ACK": {ACK: true}, "RST": {RST: true}} {
			if name == "SYN" && (link == lab.ClientNIC || link == lab.ServerNIC) {
				continue // that is how clients begin
			}
			tcp.Seq, tcp.Ack = 1000, 2000
			before := b.dropped(link, "")
			for _, way := range [][2]netip.AddrPort{{inner, stranger}, {stranger, inner}} {
				b.inject(w, way[0].Addr(), way[1].Addr(), layers.IPProtocolTCP, tcpLayer(way[0], way[1], tcp))
			}
			b.eventually(2*time.Second, func() error {
				if n := b.dropped(link, "") - before; w.nic != b.Client().NIC && n != 2 {
					return fmt.Errorf("%s on %s: %d of 2 were dropped: %+v", name, link, n, b.counters().Drops)
				}
				return nil
			})
			if now := b.counters().Sessions; now != sessions {
				t.Fatalf("%s on %s: %d sessions, were %d", name, link, now, sessions)
			}
		}
	}
	b.mustNotHurt(k, sessions)
}

// mustNotHurt forges answers to a connection that exists, on the links where its true answers come in.
func (b *bed) mustNotHurt(k *kept, sessions uint64) {
	b.t.Helper()
	inner := netip.AddrPortFrom(lab.VIP4, 80)
	all := b.wires("a", "b")
	for _, link := range []string{"a-in", "b-in"} {
		b.inject(all[link], inner.Addr(), k.client().Addr(), layers.IPProtocolTCP,
			tcpLayer(inner, k.client(), layers.TCP{SYN: true, ACK: true, Seq: 5, Ack: 6}))
	}
	b.must(k.ask())
	k.wantAt("a", "")
	if now := b.counters().Sessions; now != sessions {
		b.t.Errorf("%d sessions, were %d", now, sessions)
	}
}

// sequences follow a connection on a cable: what each side would send next.
type sequences struct {
	mu   sync.Mutex
	next map[netip.AddrPort]uint32 // by sender
}

func (b *bed) sequences(ctx context.Context, device string) *sequences {
	b.t.Helper()
	host, err := b.DeviceHost(device)
	b.must(err)
	s := &sequences{next: map[netip.AddrPort]uint32{}}
	b.must(host.Capture(ctx, lab.DeviceIn, func(p gopacket.Packet) {
		tcp, ok := p.TransportLayer().(*layers.TCP)
		if !ok {
			return
		}
		src, _ := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Src().Raw()) // decoded
		s.mu.Lock()
		defer s.mu.Unlock()
		s.next[netip.AddrPortFrom(src, uint16(tcp.SrcPort))] = tcp.Seq + uint32(len(tcp.Payload))
	}))
	return s
}

func (s *sequences) of(sender netip.AddrPort) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next[sender]
}

const smallMTU = 1300

// tooBig sends the ICMP error "too big" about a packet from src to dst, from a router between them.
func (b *bed) tooBig(w wire, src, dst netip.AddrPort, seq uint32) {
	b.t.Helper()
	quoted := gopacket.Payload(serialize(ipLayer(src.Addr(), dst.Addr(), layers.IPProtocolTCP), tcpLayer(src, dst, layers.TCP{ACK: true, Seq: seq})))
	if src.Addr().Is4() {
		b.inject(w, dst.Addr(), src.Addr(), layers.IPProtocolICMPv4, &layers.ICMPv4{Seq: smallMTU, // where the MTU is
			TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeFragmentationNeeded)}, quoted)
		return
	}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypePacketTooBig, 0)}
	b.must(icmp.SetNetworkLayerForChecksum(ipLayer(dst.Addr(), src.Addr(), layers.IPProtocolICMPv6).(gopacket.NetworkLayer)))
	b.inject(w, dst.Addr(), src.Addr(), layers.IPProtocolICMPv6, icmp, gopacket.Payload([]byte{0, 0, smallMTU >> 8, smallMTU & 255}), quoted)
}

// TestErrorsFollowTheirSession: "too big" from a host among the devices reaches the proxy whose packet it
// is about, through the devices on the way, and that sends smaller packets.
func TestErrorsFollowTheirSession(t *testing.T) {
	b := up(t, lab.Line(2, lab.Bridge))
	for _, o := range []lab.ClientOptions{{}, {IPv6: true}} {
		b.sub(familyName(o.Target().Addr()), func(b *bed) {
			seqs := b.sequences(t.Context(), "a")
			c := b.dial(b.Client(), o)
			b.mustRequest(c)
			client, server := local(c), netip.AddrPortFrom(o.Target().Addr(), 80)
			b.wantPMTU("front0", client, 1500)
			b.wantPMTU("back0", client, 1500)
			all := b.wires("a", "b")
			b.tooBig(all["b-in"], client, server, seqs.of(client))
			b.wantPMTU("front0", client, smallMTU)
			b.wantPMTU("back0", client, 1500)
			b.tooBig(all["a-out"], server, client, seqs.of(server))
			b.wantPMTU("back0", client, smallMTU)
			b.mustRequest(c)
			before := b.dropped("b-in", "no-session")
			b.tooBig(all["b-in"], netip.AddrPortFrom(client.Addr(), 9), server, 1)
			b.eventually(time.Second, func() error {
				if n := b.dropped("b-in", "no-session") - before; n != 1 {
					return fmt.Errorf("an error of no session: dropped %d times", n)
				}
				return nil
			})
		})
	}
}

var pmtuOf = regexp.MustCompile(`pmtu:(\d+)`)

// wantPMTU waits until the inner socket of a client on a link thinks so of the path.
func (b *bed) wantPMTU(link string, client netip.AddrPort, want int) {
	b.t.Helper()
	b.eventually(2*time.Second, func() error {
		out, err := b.Box.Exec(b.t.Context(), "ss", "-tinH", "dev", link)
		if err != nil {
			return err
		}
		list := strings.Split(out, "\n")
		for i, line := range list[:len(list)-1] {
			if !strings.Contains(line+" ", fmt.Sprintf(":%d ", client.Port())) {
				continue
			}
			if m := pmtuOf.FindStringSubmatch(list[i+1]); m != nil && m[1] == fmt.Sprint(want) {
				return nil
			}
			return fmt.Errorf("not %d: %s", want, list[i+1])
		}
		return fmt.Errorf("no socket of %s on %s:\n%s", client, link, out)
	})
}
