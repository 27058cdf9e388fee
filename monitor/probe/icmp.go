package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"

	"sslo/monitor"
)

// ICMP probes by an echo request. Each probe has its own socket, connected to the target, so
// that the kernel gives it nothing but the target's messages.
type ICMP struct{ spec ICMPSpec }

// Open is part of Spec.
func (s ICMPSpec) Open() (Prober, error) { return ICMP{s}, nil }

func (s ICMPSpec) String() string { return "icmp " + s.Address.String() + by(s.NIC) }

// Close is part of Prober.
func (ICMP) Close() error { return nil }

// Probe is part of Prober.
func (p ICMP) Probe(ctx context.Context) monitor.Result {
	r := monitor.Result{Started: time.Now()}
	sock, err := dialICMP(p.spec)
	if err != nil {
		r.Reason = reason(ctx, err)
		return r
	}
	defer sock.Close()
	if deadline, ok := ctx.Deadline(); ok {
		sock.SetDeadline(deadline)
	}
	defer context.AfterFunc(ctx, func() { sock.SetDeadline(time.Unix(1, 0)) })()
	err = sock.exchange(rand.Uint64())
	r.Latency = time.Since(r.Started)
	if r.OK = err == nil; !r.OK {
		r.Reason = reason(ctx, err)
	}
	return r
}

// echoSocket is a connected ICMP socket.
type echoSocket struct {
	*os.File
	fd      int // while the File lives
	v6, raw bool
}

// dialICMP prefers a raw socket: datagram ICMP is closed to everybody, root included, unless
// net.ipv4.ping_group_range opens it.
func dialICMP(spec ICMPSpec) (*echoSocket, error) {
	addr := spec.Address.Unmap()
	s, err := openEcho(addr, true)
	if errors.Is(err, unix.EPERM) {
		s, err = openEcho(addr, false)
	}
	if err != nil {
		return nil, fmt.Errorf("icmp socket: %w", err)
	}
	if err := s.connect(spec.NIC, addr); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func openEcho(addr netip.Addr, raw bool) (*echoSocket, error) {
	family, proto, kind := unix.AF_INET, unix.IPPROTO_ICMP, unix.SOCK_DGRAM
	if addr.Is6() {
		family, proto = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	if raw {
		kind = unix.SOCK_RAW
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return nil, err
	}
	return &echoSocket{File: os.NewFile(uintptr(fd), "icmp"), fd: fd, v6: addr.Is6(), raw: raw}, nil
}

func (s *echoSocket) connect(nic string, addr netip.Addr) error {
	if nic != "" {
		if err := unix.BindToDevice(s.fd, nic); err != nil {
			return linkError{nic, err}
		}
	}
	if !s.v6 {
		return unix.Connect(s.fd, &unix.SockaddrInet4{Addr: addr.As4()})
	}
	sa := &unix.SockaddrInet6{Addr: addr.As16()}
	if zone := addr.Zone(); zone != "" {
		index, err := ifIndex(s.fd, zone)
		if err != nil {
			return err
		}
		sa.ZoneId = uint32(index)
	}
	return unix.Connect(s.fd, sa)
}

// exchange sends an echo request and waits for its answer.
func (s *echoSocket) exchange(nonce uint64) error {
	request, err := s.request(nonce)
	if err != nil {
		return err
	}
	if _, err := s.Write(request); err != nil {
		return err
	}
	buf := make([]byte, 2048)
	for {
		n, err := s.Read(buf)
		if err != nil {
			return err
		}
		if s.answers(buf[:n], nonce) {
			return nil
		}
	}
}

func payload(nonce uint64) []byte {
	return fmt.Appendf(nil, "sslo monitor %016x", nonce)
}

func (s *echoSocket) request(nonce uint64) ([]byte, error) {
	id, seq := uint16(nonce>>16), uint16(nonce)
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{ComputeChecksums: true}
	if !s.v6 {
		err := gopacket.SerializeLayers(buf, opts, &layers.ICMPv4{
			TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: id, Seq: seq,
		}, gopacket.Payload(payload(nonce)))
		return buf.Bytes(), err
	}
	opts.ComputeChecksums = false // the kernel does it, it knows the source address
	err := gopacket.SerializeLayers(buf, opts,
		&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeEchoRequest, 0)},
		&layers.ICMPv6Echo{Identifier: id, SeqNumber: seq}, gopacket.Payload(payload(nonce)))
	return buf.Bytes(), err
}

// answers reports whether the packet is the reply to the request with that nonce. The payload
// tells: the identifier of a datagram socket is the kernel's choice.
func (s *echoSocket) answers(packet []byte, nonce uint64) bool {
	first := gopacket.Decoder(layers.LayerTypeICMPv4)
	switch {
	case s.v6:
		first = layers.LayerTypeICMPv6
	case s.raw:
		first = layers.LayerTypeIPv4
	}
	p := gopacket.NewPacket(packet, first, gopacket.DecodeOptions{NoCopy: true})
	if l, ok := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok {
		return l.TypeCode.Type() == layers.ICMPv4TypeEchoReply && string(l.Payload) == string(payload(nonce))
	}
	l, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
	const idAndSeq = 4 // gopacket leaves them in the payload
	return ok && l.TypeCode.Type() == layers.ICMPv6TypeEchoReply && len(l.Payload) >= idAndSeq &&
		string(l.Payload[idAndSeq:]) == string(payload(nonce))
}
