package rulebook

import (
	"net/netip"

	"sslo/session"
	"sslo/session/model"
)

// Connection is the tuple of the rows' packets.
var Connection = session.Tuple{
	Proto: session.TCP,
	Src:   netip.MustParseAddrPort("192.0.2.1:12345"),
	Dst:   netip.MustParseAddrPort("198.51.100.1:80"),
}

// First sequence numbers of the two sides, and the size of all packets but the SYNs.
const (
	ClientSeq = 1000
	ServerSeq = 9000
	Payload   = 60
)

// Bytes in front of a TCP and a UDP payload, from the IPv4 header on.
const (
	TCPHeaders = 40
	UDPHeaders = 28
)

// TCP is a packet of the connection.
func TCP(link session.LinkID, dir session.Direction, flags session.TCPFlags, seq uint32) model.Packet {
	p := model.Packet{Link: link, Chain: ChainAB, Tuple: Connection}
	p.TCP = session.Segment{Flags: flags, Seq: seq}
	if flags.Has(session.ACK) {
		p.TCP.Ack = acknowledged(dir)
	}
	if !flags.Has(session.SYN) {
		p.TCP.Payload = Payload
	}
	p.Bytes = TCPHeaders + uint64(p.TCP.Payload)
	if dir == session.Reply {
		p.Tuple = p.Tuple.Reverse()
	}
	return p
}

// The packets of a connection, as they come in on a link.
func Syn(link session.LinkID) model.Packet {
	return TCP(link, session.Orig, session.SYN, ClientSeq)
}

func SynAck(link session.LinkID) model.Packet {
	return TCP(link, session.Reply, session.SYN|session.ACK, ServerSeq)
}

func Ack(link session.LinkID) model.Packet {
	return TCP(link, session.Orig, session.ACK, ClientSeq+1)
}

func Answer(link session.LinkID) model.Packet {
	return TCP(link, session.Reply, session.ACK, ServerSeq+1)
}

func Fin(link session.LinkID, dir session.Direction) model.Packet {
	return TCP(link, dir, session.FIN|session.ACK, sequence(dir))
}

func Rst(link session.LinkID, dir session.Direction) model.Packet {
	return TCP(link, dir, session.RST, sequence(dir))
}

// sequence is the number of what a side sends after the packets above.
func sequence(dir session.Direction) uint32 {
	if dir == session.Reply {
		return ServerSeq + 1 + Payload
	}
	return ClientSeq + 1 + Payload
}

// acknowledged is what a side acknowledges with them: the other's SYN.
func acknowledged(dir session.Direction) uint32 {
	if dir == session.Reply {
		return ClientSeq + 1
	}
	return ServerSeq + 1
}

// On marks a packet for a chain.
func On(c session.ChainID, p model.Packet) model.Packet { p.Chain = c; return p }

// Seq changes its sequence number.
func Seq(n uint32, p model.Packet) model.Packet { p.TCP.Seq = n; return p }

// From changes its source.
func From(src string, p model.Packet) model.Packet {
	p.Tuple.Src = netip.MustParseAddrPort(src)
	return p
}

// To gives the packet another destination.
func To(dst string, p model.Packet) model.Packet {
	p.Tuple.Dst = netip.MustParseAddrPort(dst)
	return p
}

// Probe makes it one of a monitor's.
func Probe(p model.Packet) model.Packet { return To("198.19.255.254:80", From("198.18.0.1:40000", p)) }

// UDP makes it a datagram.
func UDP(p model.Packet) model.Packet {
	p.TCP, p.Tuple.Proto, p.Bytes = session.Segment{}, session.UDP, UDPHeaders+Payload
	return p
}

// ICMPBytes is the size of an ICMP error: IP header, ICMP header, and the quoted IP header and ports.
const ICMPBytes = 20 + 8 + 20 + 8

// ICMP makes it an ICMP error that travels as the packet would.
func ICMP(p model.Packet) model.Packet {
	p.TCP, p.Error, p.Bytes = session.Segment{}, true, ICMPBytes
	return p
}
