package datapath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/google/gopacket/layers"
	"github.com/vishvananda/netlink"

	"sslo/bpf"
	"sslo/chain"
	"sslo/session"
)

// Reset ends a session's whole tree: nothing passes any more, and both ends and the devices in
// between get a RST.
func (d *Datapath) Reset(id session.ID) error { return d.resetTree(id, nil) }

// answerReset does what a program asks for. Without a session it asks to answer a SYN.
func (d *Datapath) answerReset(e Event) error {
	if e.Key.Proto != session.TCP {
		return nil
	}
	if e.Session != 0 {
		return d.resetTree(e.Session, &e)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sendRST(e.link, rst{tuple: e.Key.Reverse(), ack: e.seq + 1})
}

// rst is a reset segment (RFC 9293, 3.5.2 and 3.10.7.4): seq must be exactly what the receiver
// expects next; ack counts for a receiver that has sent a SYN and heard nothing.
type rst struct {
	tuple    session.Tuple
	seq, ack uint32
}

func (d *Datapath) resetTree(id session.ID, e *Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kernel == nil {
		return ErrNotSet
	}
	legs, err := d.kernel.tree(uint64(id))
	if err != nil {
		return err
	}
	errs := []error{d.kernel.silence(legs)}
	if session.Protocol(legs[0].Orig.Proto) != session.TCP {
		return errors.Join(errs...)
	}
	for i := range legs {
		errs = append(errs, d.resetDevice(&legs[i]))
	}
	return errors.Join(append(errs, d.resetEnds(legs, e))...)
}

// silence marks every leg, so that neither late packets nor our own RSTs, when a device passes
// them on, go any further. The counters of a packet that passes just now may be lost.
func (k *kernel) silence(legs []bpf.SsloSession) error {
	var errs []error
	for i := range legs {
		s := legs[i]
		s.Flags |= uint8(session.WasReset)
		s.State = uint8(session.Closed)
		err := k.SsloObjects.Sessions.Update(s.Id, s, ebpf.UpdateExist)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("mark session %d reset: %w", s.Id, err))
		}
	}
	return errors.Join(errs...)
}

// resetEnds resets the client's and the server's end. The leg next to an end knows best what
// arrived there: between them nothing is lost. The packet that an event is about knows what its
// sender expects.
func (d *Datapath) resetEnds(legs []bpf.SsloSession, e *Event) error {
	first, last := &legs[0], &legs[len(legs)-1]
	toClient, toServer := replyRST(first), origRST(last)
	if e != nil && e.tcpFlags&tcpACK != 0 {
		if e.Direction == session.Orig {
			toClient.seq = e.ack
		} else {
			toServer.seq = e.ack
		}
	}
	err := d.sendRST(first.Orig.Link, toClient)
	if last.Device == 0 { // else it never got as far as the server
		err = errors.Join(err, d.sendRST(last.Reply.Link, toServer))
	}
	return err
}

const tcpACK = 0x10

func origRST(s *bpf.SsloSession) rst {
	return rst{toKey(&s.Orig).Tuple, s.Traffic[session.Orig].NextSeq, s.Traffic[session.Reply].NextSeq}
}

func replyRST(s *bpf.SsloSession) rst {
	return rst{toKey(&s.Reply).Tuple, s.Traffic[session.Reply].NextSeq, s.Traffic[session.Orig].NextSeq}
}

// resetDevice tells a device in service on both its sides, so that it forgets the flow.
func (d *Datapath) resetDevice(s *bpf.SsloSession) error {
	var dev bpf.SsloDevice
	if s.Device == 0 || s.Flags&uint8(session.BypassOut) != 0 {
		return nil
	}
	if err := d.kernel.Devices.Lookup(uint32(s.Device), &dev); err != nil {
		return fmt.Errorf("device %d: %w", s.Device, err)
	}
	if chain.Service(dev.Service) == chain.Out {
		return nil
	}
	return errors.Join(d.sendRST(dev.InLink, origRST(s)), d.sendRST(dev.OutLink, replyRST(s)))
}

// sendRST sends a RST out of a link, towards what is behind it.
func (d *Datapath) sendRST(link uint16, r rst) error {
	nic, dst, err := d.towards(link, r.tuple.Dst.Addr())
	if err != nil {
		return err
	}
	frame, err := r.frame(nic.Attrs().HardwareAddr, dst)
	if err != nil {
		return err
	}
	return d.host.send(nic.Attrs().Index, tagged(frame, d.linkOf(link).VLAN))
}

// tagged is a frame with a VLAN tag (IEEE 802.1Q), if it needs one.
func tagged(frame []byte, vlan int) []byte {
	if vlan == 0 {
		return frame
	}
	return slices.Insert(slices.Clone(frame), 12, 0x81, 0x00, byte(vlan>>8), byte(vlan))
}

// linkOf is the plan's link of an id; an empty one for the virtual links.
func (d *Datapath) linkOf(id uint16) Link {
	name := d.names.Load().links.name(id)
	for _, l := range d.plan.Links {
		if l.Name == name {
			return l
		}
	}
	return Link{}
}

// towards is the interface to send on and the MAC to send to. front0 and back0 are reached
// through the other end of their pair; a transparent device through its other link; others by neighbour.
func (d *Datapath) towards(id uint16, ip netip.Addr) (netlink.Link, net.HardwareAddr, error) {
	switch id {
	case frontID:
		return d.host.pair(frontPeer, frontLink)
	case backID:
		return d.host.pair(backPeer, backLink)
	}
	name, r6 := d.names.Load().links.name(id), ip.Is6()
	for _, dev := range d.plan.Devices {
		if dev.In != name && dev.Out != name {
			continue
		}
		hops, other := dev.InHops, dev.Out
		if dev.Out == name {
			hops, other = dev.OutHops, dev.In
		}
		if !dev.Type.Routed() {
			return d.host.pair(d.nicOf(name), d.nicOf(other))
		}
		if ip = hops.V4; r6 {
			ip = hops.V6
		}
	}
	l, err := d.host.link(d.nicOf(name))
	if err != nil {
		return nil, nil, fmt.Errorf("link %s: %w", name, err)
	}
	dst, err := d.host.neighbour(l, ip)
	return l, dst, err
}

func (d *Datapath) nicOf(link string) string {
	for _, l := range d.plan.Links {
		if l.Name == link {
			return l.NIC
		}
	}
	return link
}

// pair is the interface out, and the MAC of the interface to.
func (h *host) pair(out, to string) (netlink.Link, net.HardwareAddr, error) {
	a, err1 := h.link(out)
	b, err2 := h.link(to)
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, err
	}
	return a, b.Attrs().HardwareAddr, nil
}

// neighbour is the MAC of the next hop to ip by the link.
func (h *host) neighbour(l netlink.Link, ip netip.Addr) (net.HardwareAddr, error) {
	hop := ip.AsSlice()
	routes, err := h.nl.RouteGetWithOptions(hop, &netlink.RouteGetOptions{OifIndex: l.Attrs().Index})
	if err == nil && len(routes) > 0 && routes[0].Gw != nil {
		hop = routes[0].Gw
	}
	neighbours, err := h.nl.NeighList(l.Attrs().Index, familyOf(ip))
	if err != nil {
		return nil, fmt.Errorf("neighbours of %s: %w", l.Attrs().Name, err)
	}
	for _, n := range neighbours {
		if n.IP.Equal(hop) && len(n.HardwareAddr) == 6 {
			return n.HardwareAddr, nil
		}
	}
	return nil, fmt.Errorf("no neighbour %s on %s", net.IP(hop), l.Attrs().Name)
}

func (r rst) frame(src, dst net.HardwareAddr) ([]byte, error) {
	eth := &layers.Ethernet{SrcMAC: src, DstMAC: dst}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(r.tuple.Src.Port()), DstPort: layers.TCPPort(r.tuple.Dst.Port()),
		Seq: r.seq, Ack: r.ack, RST: true, ACK: true}
	from, to := r.tuple.Src.Addr(), r.tuple.Dst.Addr()
	if from.Is4() {
		eth.EthernetType = layers.EthernetTypeIPv4
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: from.AsSlice(), DstIP: to.AsSlice(),
			Flags: layers.IPv4DontFragment}
		if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
			return nil, err
		}
		return serialize(eth, ip, tcp)
	}
	eth.EthernetType = layers.EthernetTypeIPv6
	ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	return serialize(eth, ip, tcp)
}
