// Package tinytcp owns a TCP that is just enough for a probe: one host with one address and a few
// short connections, which says what it would send and is told what came in. It knows no socket and
// no NIC. What it lacks (congestion control, reassembly, options but the MSS) a probe of a few
// packets does not need; what is lost is sent again.
package tinytcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// Errors of connections.
var (
	ErrReset   = errors.New("connection reset")
	ErrRefused = errors.New("connection refused")
	ErrClosed  = errors.New("connection closed")
)

// Stack is a host.
type Stack struct {
	addr netip.Addr
	send func(packet []byte) error

	mu        sync.Mutex
	conns     map[key]*Conn
	listeners map[uint16]func(*Conn)
	datagrams map[uint16]func(from netip.AddrPort, data []byte)
	admit     func(from netip.AddrPort) bool
}

// key is what tells connections of one host apart.
type key struct {
	local  uint16
	remote netip.AddrPort
}

// New makes a host that sends IP packets by send.
func New(addr netip.Addr, send func(packet []byte) error) *Stack {
	return &Stack{addr: addr.Unmap(), send: send, conns: map[key]*Conn{}, listeners: map[uint16]func(*Conn){},
		datagrams: map[uint16]func(netip.AddrPort, []byte){}}
}

// Listen accepts connections on a port. The callback has its own goroutine.
func (s *Stack) Listen(port uint16, accept func(*Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners[port] = accept
}

// Admit makes the host deaf to all that a function does not admit: other probes may share the wire.
func (s *Stack) Admit(admit func(from netip.AddrPort) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admit = admit
}

// Has says whether something of this host's has the address and port.
func (s *Stack) Has(local netip.AddrPort) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.datagrams[local.Port()] != nil {
		return local.Addr() == s.addr
	}
	for k := range s.conns {
		if k.local == local.Port() {
			return local.Addr() == s.addr
		}
	}
	return false
}

// ListenUDP takes datagrams on a port; nil ends that. The callback must not block.
func (s *Stack) ListenUDP(port uint16, receive func(from netip.AddrPort, data []byte)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.datagrams[port] = receive; receive == nil {
		delete(s.datagrams, port)
	}
}

// Dial connects from a free port.
func (s *Stack) Dial(ctx context.Context, to netip.AddrPort) (*Conn, error) {
	c := s.newConn(key{s.freePort(to), to}, synSent)
	c.mu.Lock()
	c.flush()
	c.mu.Unlock()
	stop := context.AfterFunc(ctx, c.Abort)
	defer stop()
	if err := c.wait(func() bool { return c.state == established }); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return c, nil
}

func (s *Stack) freePort(to netip.AddrPort) uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		port := uint16(32768 + rand.IntN(28000))
		if _, taken := s.conns[key{port, to}]; !taken && s.datagrams[port] == nil {
			return port
		}
	}
}

// FreeUDP is a port that no datagrams are taken on.
func (s *Stack) FreeUDP() uint16 { return s.freePort(netip.AddrPort{}) }

func (s *Stack) newConn(k key, st state) *Conn {
	c := &Conn{stack: s, key: k, state: st, una: rand.Uint32()}
	c.next, c.top = c.una, c.una
	c.changed.L = &c.mu
	c.life = time.AfterFunc(lifetime, c.Abort)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[k] = c
	return c
}

func (s *Stack) forget(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[c.key] == c {
		delete(s.conns, c.key)
	}
}

// Close aborts all connections.
func (s *Stack) Close() {
	s.mu.Lock()
	conns := make([]*Conn, 0, len(s.conns))
	for _, c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.Abort()
	}
}

// Deliver takes an IP packet. What is not for this host, or makes no sense, is ignored.
func (s *Stack) Deliver(packet []byte) {
	first := gopacket.Decoder(layers.LayerTypeIPv4)
	if s.addr.Is6() {
		first = layers.LayerTypeIPv6
	}
	p := gopacket.NewPacket(packet, first, gopacket.DecodeOptions{NoCopy: true, Lazy: false})
	if p.NetworkLayer() == nil {
		return
	}
	flow := p.NetworkLayer().NetworkFlow()
	from, _ := netip.AddrFromSlice(flow.Src().Raw())
	to, _ := netip.AddrFromSlice(flow.Dst().Raw())
	if to != s.addr {
		return
	}
	s.mu.Lock()
	admit := s.admit
	s.mu.Unlock()
	switch l := p.TransportLayer().(type) {
	case *layers.TCP:
		if from := netip.AddrPortFrom(from, uint16(l.SrcPort)); admit != nil && !admit(from) {
			return
		}
		s.segment(netip.AddrPortFrom(from, uint16(l.SrcPort)), l)
	case *layers.UDP:
		if from := netip.AddrPortFrom(from, uint16(l.SrcPort)); admit != nil && !admit(from) {
			return
		}
		s.mu.Lock()
		receive := s.datagrams[uint16(l.DstPort)]
		s.mu.Unlock()
		if receive != nil {
			receive(netip.AddrPortFrom(from, uint16(l.SrcPort)), l.Payload)
		}
	}
}

func (s *Stack) segment(from netip.AddrPort, t *layers.TCP) {
	k := key{uint16(t.DstPort), from}
	s.mu.Lock()
	c, accept := s.conns[k], s.listeners[k.local]
	s.mu.Unlock()
	switch {
	case c != nil:
		c.segment(t)
	case t.RST:
	case t.SYN && !t.ACK && accept != nil:
		c = s.newConn(k, synReceived)
		c.mu.Lock()
		c.accept, c.rcv = accept, t.Seq+1
		c.flush()
		c.mu.Unlock()
	case t.SYN && !t.ACK:
		_ = s.sendTCP(k, &layers.TCP{RST: true, ACK: true, Ack: t.Seq + 1}, nil)
	}
}

// SendUDP sends a datagram.
func (s *Stack) SendUDP(from uint16, to netip.AddrPort, data []byte) error {
	udp := &layers.UDP{SrcPort: layers.UDPPort(from), DstPort: layers.UDPPort(to.Port())}
	ip := s.network(to.Addr(), layers.IPProtocolUDP)
	if err := udp.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer)); err != nil {
		return err
	}
	return s.serialize(ip, udp, data)
}

func (s *Stack) sendTCP(k key, t *layers.TCP, data []byte) error {
	t.SrcPort, t.DstPort, t.Window = layers.TCPPort(k.local), layers.TCPPort(k.remote.Port()), window
	ip := s.network(k.remote.Addr(), layers.IPProtocolTCP)
	if err := t.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer)); err != nil {
		return err
	}
	return s.serialize(ip, t, data)
}

func (s *Stack) network(to netip.Addr, proto layers.IPProtocol) gopacket.SerializableLayer {
	if s.addr.Is6() {
		return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: s.addr.AsSlice(), DstIP: to.AsSlice()}
	}
	return &layers.IPv4{Version: 4, TTL: 64, Id: uint16(rand.Uint32()), Flags: layers.IPv4DontFragment, Protocol: proto,
		SrcIP: s.addr.AsSlice(), DstIP: to.AsSlice()}
}

func (s *Stack) serialize(ip, transport gopacket.SerializableLayer, data []byte) error {
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, ip, transport, gopacket.Payload(data)); err != nil {
		return fmt.Errorf("make a packet: %w", err)
	}
	return s.send(buf.Bytes())
}
