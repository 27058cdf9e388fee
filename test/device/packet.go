package device

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

const (
	tcpFIN = 1 << iota
	tcpSYN
	tcpRST
	tcpPSH
	tcpACK
)

// packet is a TCP packet inside a frame. Offsets are into eth.
type packet struct {
	frame
	v6       bool
	ip, tcp  int // offsets of the headers
	data     int // offset of the payload
	end      int // end of the IP packet: what follows is padding
	src, dst netip.AddrPort
}

func (p *packet) seq() uint32     { return be32(p.eth[p.tcp+4:]) }
func (p *packet) ack() uint32     { return be32(p.eth[p.tcp+8:]) }
func (p *packet) flags() byte     { return p.eth[p.tcp+13] }
func (p *packet) has(f byte) bool { return p.flags()&f != 0 }
func (p *packet) payload() []byte { return p.eth[p.data:p.end] }

// length in sequence space.
func (p *packet) length() uint32 {
	n := uint32(p.end - p.data)
	if p.has(tcpSYN) {
		n++
	}
	if p.has(tcpFIN) {
		n++
	}
	return n
}

// parse finds the TCP packet in a frame; false for anything else, fragments included.
func parse(f frame) (packet, bool) {
	p := packet{frame: f, ip: 14}
	switch be16(f.eth[12:]) {
	case 0x0800:
		return p, p.parse4() && p.parseTCP()
	case 0x86DD:
		return p, p.parse6() && p.parseTCP()
	}
	return p, false
}

func (p *packet) parse4() bool {
	h := p.eth[p.ip:]
	if len(h) < 20 || h[9] != 6 || be16(h[6:])&0x3fff != 0 {
		return false
	}
	p.tcp = p.ip + int(h[0]&15)*4
	p.end = p.ip + int(be16(h[2:]))
	p.src = netip.AddrPortFrom(netip.AddrFrom4([4]byte(h[12:])), 0)
	p.dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(h[16:])), 0)
	return true
}

func (p *packet) parse6() bool {
	h := p.eth[p.ip:]
	if len(h) < 40 || h[6] != 6 {
		return false
	}
	p.v6 = true
	p.tcp = p.ip + 40
	p.end = p.tcp + int(be16(h[4:]))
	p.src = netip.AddrPortFrom(netip.AddrFrom16([16]byte(h[8:])), 0)
	p.dst = netip.AddrPortFrom(netip.AddrFrom16([16]byte(h[24:])), 0)
	return true
}

func (p *packet) parseTCP() bool {
	if p.end > len(p.eth) || p.tcp+20 > p.end {
		return false
	}
	h := p.eth[p.tcp:]
	p.data = p.tcp + int(h[12]>>4)*4
	p.src = netip.AddrPortFrom(p.src.Addr(), be16(h))
	p.dst = netip.AddrPortFrom(p.dst.Addr(), be16(h[2:]))
	return p.data >= p.tcp+20 && p.data <= p.end
}

// connection names the TCP connection by its client and server, whatever the packet's direction.
type connection struct{ client, server netip.AddrPort }

func (p *packet) connection(from side) connection {
	if from == sideIn {
		return connection{p.src, p.dst}
	}
	return connection{p.dst, p.src}
}

// sum adds up b as 16-bit words without folding.
func sum(b []byte) (s uint64) {
	for len(b) >= 8 {
		v := binary.BigEndian.Uint64(b)
		s += v>>32 + v&0xffffffff
		b = b[8:]
	}
	for len(b) >= 2 {
		s += uint64(be16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

func fold(s uint64) uint16 {
	for s>>16 != 0 {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// pseudo is the sum of the pseudo header.
func (p *packet) pseudo() uint64 {
	addrs := p.eth[p.ip+12 : p.ip+20]
	if p.v6 {
		addrs = p.eth[p.ip+8 : p.ip+40]
	}
	return sum(addrs) + 6 + uint64(p.end-p.tcp)
}

// checksumOK verifies the TCP checksum, unless it is left to the hardware.
func (p *packet) checksumOK() bool {
	return p.partial() || fold(p.pseudo()+sum(p.eth[p.tcp:p.end])) == 0xffff
}

// fixChecksum fills it after a change of the TCP header. An unfilled one covers only the pseudo header.
func (p *packet) fixChecksum() {
	if p.partial() {
		return
	}
	field := p.eth[p.tcp+16 : p.tcp+18]
	field[0], field[1] = 0, 0
	binary.BigEndian.PutUint16(field, ^fold(p.pseudo()+sum(p.eth[p.tcp:p.end])))
}

// reply says whether a crafted packet goes back to the sender of p or on to its receiver.
type heading bool

const (
	onward heading = false
	back   heading = true
)

// craft builds a TCP packet of p's connection with gopacket.
func (p *packet) craft(to heading, tcp layers.TCP, payload []byte) ([]byte, error) {
	src, dst, smac, dmac := p.src, p.dst, p.eth[6:12], p.eth[0:6]
	if to == back {
		src, dst, smac, dmac = dst, src, dmac, smac
	}
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr(smac), DstMAC: net.HardwareAddr(dmac), EthernetType: layers.EthernetTypeIPv4}
	var ip gopacket.NetworkLayer
	if p.v6 {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
	} else {
		ip = &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
	}
	tcp.SrcPort, tcp.DstPort = layers.TCPPort(src.Port()), layers.TCPPort(dst.Port())
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		eth, ip.(gopacket.SerializableLayer), &tcp, gopacket.Payload(payload))
	if err != nil {
		return nil, fmt.Errorf("craft TCP packet: %w", err)
	}
	return buf.Bytes(), nil
}
