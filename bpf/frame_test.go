package bpf

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"sslo/session"
	"sslo/session/model"
)

const ethernetHeader = 14

// ethernet is the header of a frame as it comes in; the programs change its addresses.
func ethernet(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{
		SrcMAC:       net.HardwareAddr{2, 0, 0, 0, 0, 1},
		DstMAC:       net.HardwareAddr{2, 0, 0, 0, 0, 2},
		EthernetType: t,
	}
}

func serialize(all ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, all...); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

// network is the Ethernet and IP header of a packet.
func network(src, dst netip.Addr, proto layers.IPProtocol) (gopacket.SerializableLayer, gopacket.NetworkLayer) {
	if src.Is4() {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
		return ethernet(layers.EthernetTypeIPv4), ip
	}
	ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	return ethernet(layers.EthernetTypeIPv6), ip
}

// transport is the TCP or UDP header and the payload.
func transport(p model.Packet, ip gopacket.NetworkLayer) []gopacket.SerializableLayer {
	if p.Tuple.Proto == session.UDP {
		udp := &layers.UDP{SrcPort: layers.UDPPort(p.Tuple.Src.Port()), DstPort: layers.UDPPort(p.Tuple.Dst.Port())}
		udp.SetNetworkLayerForChecksum(ip)
		return []gopacket.SerializableLayer{udp, gopacket.Payload(make([]byte, 60))}
	}
	f := p.TCP.Flags
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(p.Tuple.Src.Port()), DstPort: layers.TCPPort(p.Tuple.Dst.Port()), Seq: p.TCP.Seq, Ack: p.TCP.Ack,
		FIN: f.Has(session.FIN), SYN: f.Has(session.SYN), RST: f.Has(session.RST), ACK: f.Has(session.ACK),
	}
	tcp.SetNetworkLayerForChecksum(ip)
	return []gopacket.SerializableLayer{tcp, gopacket.Payload(make([]byte, p.TCP.Payload))}
}

// frameOf is a packet of the model as it is on the wire.
func frameOf(p model.Packet) []byte {
	if p.Error {
		return icmpFrame(p, layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv6TypePacketTooBig)
	}
	eth, ip := network(p.Tuple.Src.Addr(), p.Tuple.Dst.Addr(), layers.IPProtocol(p.Tuple.Proto))
	return serialize(append([]gopacket.SerializableLayer{eth, ip.(gopacket.SerializableLayer)}, transport(p, ip)...)...)
}

// ipLength is the length that a frame's IP header gives: short frames are padded.
func ipLength(frame []byte) uint64 {
	if frame[ethernetHeader]>>4 == 6 {
		return 40 + uint64(binary.BigEndian.Uint16(frame[ethernetHeader+4:]))
	}
	return uint64(binary.BigEndian.Uint16(frame[ethernetHeader+2:]))
}

// quote is the IP header and the first eight bytes of the packet that an ICMP error is about.
func quote(t session.Tuple) gopacket.Payload {
	eth, ip := network(t.Src.Addr(), t.Dst.Addr(), layers.IPProtocol(t.Proto))
	p := model.Packet{Tuple: t}
	whole := serialize(append([]gopacket.SerializableLayer{eth, ip.(gopacket.SerializableLayer)}, transport(p, ip)...)...)
	header := 20
	if t.Src.Addr().Is6() {
		header = 40
	}
	return gopacket.Payload(whole[ethernetHeader : ethernetHeader+header+8])
}

// icmpFrame is an ICMP error about a packet that went against the direction of p.
func icmpFrame(p model.Packet, v4, v6 uint8) []byte {
	quoted := quote(p.Tuple.Reverse())
	if p.Tuple.Src.Addr().Is4() {
		eth, ip := network(netip.MustParseAddr("203.0.113.9"), p.Tuple.Dst.Addr(), layers.IPProtocolICMPv4)
		return serialize(eth, ip.(gopacket.SerializableLayer), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(v4, 4)}, quoted)
	}
	eth, ip := network(netip.MustParseAddr("2001:db8::9"), p.Tuple.Dst.Addr(), layers.IPProtocolICMPv6)
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(v6, 0)}
	icmp.SetNetworkLayerForChecksum(ip)
	return serialize(eth, ip.(gopacket.SerializableLayer), icmp, gopacket.Payload(append(make([]byte, 4), quoted...)))
}

// over6 is the same packet over IPv6.
func over6(p model.Packet) model.Packet {
	p.Tuple.Src, p.Tuple.Dst = mapped6(p.Tuple.Src), mapped6(p.Tuple.Dst)
	return p
}

func mapped6(a netip.AddrPort) netip.AddrPort {
	v4, v6 := a.Addr().As4(), netip.MustParseAddr("2001:db8::").As16()
	if session.Reserved(a.Addr()) {
		v6 = session.Reserved6.Addr().As16()
	}
	copy(v6[12:], v4[:])
	return netip.AddrPortFrom(netip.AddrFrom16(v6), a.Port())
}
