package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"sslo/test/lab"
)

// packet is a TCP packet on a device's cable.
type packet struct {
	src, dst netip.AddrPort
	syn, ack bool
	rst, fin bool
	payload  []byte
}

func (p packet) String() string {
	return fmt.Sprintf("%s > %s syn=%t ack=%t rst=%t fin=%t %d bytes", p.src, p.dst, p.syn, p.ack, p.rst, p.fin, len(p.payload))
}

// isTLS says that the payload begins with a record of the handshake or of data.
func (p packet) isTLS() bool {
	return len(p.payload) > 5 && (p.payload[0] == 22 || p.payload[0] == 23) && p.payload[1] == 3
}

// sighting is all TCP packets on one NIC.
type sighting struct {
	mu   sync.Mutex
	list []packet
}

// watch listens to a device's cable towards the client until ctx ends.
func (b *bed) watch(ctx context.Context, device string) *sighting {
	b.t.Helper()
	host, err := b.DeviceHost(device)
	b.must(err)
	return b.watchNIC(ctx, host, lab.DeviceIn)
}

// watchNIC listens to a NIC until ctx ends.
func (b *bed) watchNIC(ctx context.Context, ns *lab.Namespace, nic string) *sighting {
	b.t.Helper()
	s := &sighting{}
	b.must(ns.Capture(ctx, nic, s.add))
	return s
}

func (s *sighting) add(p gopacket.Packet) {
	tcp, ok := p.TransportLayer().(*layers.TCP)
	if !ok {
		return
	}
	flow := p.NetworkLayer().NetworkFlow()
	src, _ := netip.AddrFromSlice(flow.Src().Raw()) // decoded: 4 or 16 bytes
	dst, _ := netip.AddrFromSlice(flow.Dst().Raw())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, packet{
		src: netip.AddrPortFrom(src, uint16(tcp.SrcPort)), dst: netip.AddrPortFrom(dst, uint16(tcp.DstPort)),
		syn: tcp.SYN, ack: tcp.ACK, rst: tcp.RST, fin: tcp.FIN, payload: bytes.Clone(tcp.Payload)})
}

func (s *sighting) packets() []packet {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]packet(nil), s.list...)
}

// from is the packets of one sender.
func (s *sighting) from(a netip.AddrPort) (out []packet) {
	for _, p := range s.packets() {
		if p.src == a {
			out = append(out, p)
		}
	}
	return out
}

func (s *sighting) atLeast(n int) error {
	if got := len(s.packets()); got < n {
		return fmt.Errorf("%d packets, not %d", got, n)
	}
	return nil
}
