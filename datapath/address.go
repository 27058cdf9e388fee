package datapath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// applyAddresses adds the announced addresses and the links' own that the host does not hold to their links, tells
// the neighbours, and withdraws those that we added and that are wanted no more.
func (h *host) applyAddresses(p *Plan) error {
	want := wantAddresses(p)
	var errs []error
	for _, a := range slices.Clone(h.st.Addresses) {
		if !slices.Contains(want, a) {
			errs = append(errs, h.withdraw(a))
		}
	}
	held, err := h.heldAddresses()
	if err != nil {
		return err
	}
	for _, a := range want {
		if !held[a.Prefix.Addr()] {
			errs = append(errs, h.addAddress(a))
		}
	}
	return errors.Join(append(errs, h.st.save())...)
}

// wantAddresses are the links' own and, of the virtual servers, single addresses: a whole prefix can be made local, not announced.
func wantAddresses(p *Plan) []ownAddress {
	nic := map[string]string{}
	for _, l := range p.Links {
		nic[l.Name] = l.NIC
	}
	var want []ownAddress
	for _, l := range p.Links {
		for _, own := range l.Prefixes {
			want = append(want, ownAddress{l.NIC, own})
		}
	}
	for _, a := range p.Addresses {
		o := ownAddress{nic[a.Link], a.Prefix.Masked()}
		if a.Announce && a.Prefix.IsSingleIP() && !slices.Contains(want, o) {
			want = append(want, o)
		}
	}
	return want
}

func (h *host) heldAddresses() (map[netip.Addr]bool, error) {
	addrs, err := h.nl.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	held := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			held[ip.Unmap()] = true
		}
	}
	return held, nil
}

func (a ownAddress) netlink() *netlink.Addr {
	ip := a.Prefix.Addr()
	n := &netlink.Addr{IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(a.Prefix.Bits(), ip.BitLen())}}
	if ip.Is6() {
		n.Flags = unix.IFA_F_NODAD // listeners bind at once
	}
	return n
}

func (h *host) addAddress(a ownAddress) error {
	l, err := h.link(a.NIC)
	if err != nil {
		return err
	}
	if !slices.Contains(h.st.Addresses, a) {
		h.st.Addresses = append(h.st.Addresses, a)
		if err := h.st.save(); err != nil {
			return err
		}
	}
	if err := h.nl.AddrAdd(l, a.netlink()); err != nil {
		return fmt.Errorf("add %s to %s: %w", a.Prefix, a.NIC, err)
	}
	if err := h.announce(l, a.Prefix.Addr()); err != nil {
		h.log.Warn("announcement not sent", "link", a.NIC, "address", a.Prefix.Addr(), "err", err)
	}
	return nil
}

func (h *host) withdraw(a ownAddress) error {
	h.st.Addresses = slices.DeleteFunc(h.st.Addresses, func(o ownAddress) bool { return o == a })
	l, err := h.link(a.NIC)
	if errors.Is(err, ErrNoLink) {
		return nil
	}
	if err == nil {
		err = h.nl.AddrDel(l, a.netlink())
	}
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("remove %s from %s: %w", a.Prefix, a.NIC, err)
	}
	return nil
}

// reannounce tells the neighbours again, when a link came back.
func (h *host) reannounce(nic string) {
	l, err := h.link(nic)
	if err != nil {
		return
	}
	for _, a := range h.st.Addresses {
		if a.NIC == nic {
			_ = h.announce(l, a.Prefix.Addr())
		}
	}
}

// announce sends a gratuitous ARP request (RFC 5227, 3) or an unsolicited neighbour
// advertisement (RFC 4861, 7.2.6) and does so twice, as one frame may be lost.
func (h *host) announce(l netlink.Link, ip netip.Addr) error {
	frame, err := announcement(l.Attrs().HardwareAddr, ip)
	if err != nil {
		return err
	}
	return errors.Join(h.send(l.Attrs().Index, frame), h.send(l.Attrs().Index, frame))
}

func announcement(mac net.HardwareAddr, ip netip.Addr) ([]byte, error) {
	if ip.Is4() {
		return serialize(&layers.Ethernet{SrcMAC: mac, DstMAC: layers.EthernetBroadcast, EthernetType: layers.EthernetTypeARP},
			&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6,
				ProtAddressSize: 4, Operation: layers.ARPRequest, SourceHwAddress: mac, SourceProtAddress: ip.AsSlice(),
				DstHwAddress: make([]byte, 6), DstProtAddress: ip.AsSlice()})
	}
	v6 := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolICMPv6, HopLimit: 255, SrcIP: ip.AsSlice(),
		DstIP: net.IPv6linklocalallnodes}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborAdvertisement, 0)}
	if err := icmp.SetNetworkLayerForChecksum(v6); err != nil {
		return nil, err
	}
	const override = 0x20
	return serialize(&layers.Ethernet{SrcMAC: mac, DstMAC: net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1},
		EthernetType: layers.EthernetTypeIPv6}, v6, icmp,
		&layers.ICMPv6NeighborAdvertisement{Flags: override, TargetAddress: ip.AsSlice(),
			Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: mac}}})
}

func serialize(ls ...gopacket.SerializableLayer) ([]byte, error) {
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...)
	if err != nil {
		return nil, fmt.Errorf("build frame: %w", err)
	}
	return buf.Bytes(), nil
}

// send puts a frame on an interface.
func (h *host) send(ifindex int, frame []byte) error {
	err := unix.Sendto(h.pkt, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifindex})
	if err != nil {
		return fmt.Errorf("send frame on interface %d: %w", ifindex, err)
	}
	return nil
}
