package datapath

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func noARP(l netlink.Link) bool { return l.Attrs().RawFlags&unix.IFF_NOARP != 0 }
func isUp(l netlink.Link) bool  { return l.Attrs().Flags&net.FlagUp != 0 }

// carrier is IFF_LOWER_UP: the kernel reports it without the delay of operstate.
func carrier(l netlink.Link) bool { return l.Attrs().RawFlags&unix.IFF_LOWER_UP != 0 }

// quietDeviceLinks keeps the host from talking on L2 device links: ARP off, and IPv6 off
// (by sysctl, see wantSysctls; here the addresses that this costs are remembered, and given
// back after the sysctl was restored).
func (h *host) quietDeviceLinks(p *Plan) error {
	want := map[string]bool{}
	var errs []error
	for _, l := range p.Links {
		if l.quiet() {
			want[l.NIC] = true
			errs = append(errs, h.quiet(l.NIC))
		}
	}
	for _, nic := range slices.Clone(h.st.NoARP) {
		if !want[nic] {
			errs = append(errs, h.unquiet(nic))
		}
	}
	for nic := range maps.Clone(h.st.V6Lost) {
		if !want[nic] {
			errs = append(errs, h.restoreV6(nic))
		}
	}
	return errors.Join(append(errs, h.st.save())...)
}

func (h *host) quiet(nic string) error {
	l, err := h.link(nic)
	if err != nil {
		return err
	}
	if err := h.rememberV6(nic, l); err != nil || noARP(l) {
		return err
	}
	h.st.NoARP = append(h.st.NoARP, nic)
	if err := h.st.save(); err != nil {
		return err
	}
	if err := h.nl.LinkSetARPOff(l); err != nil {
		return fmt.Errorf("%s: arp off: %w", nic, err)
	}
	return nil
}

// keptFlags are the flags of an address that an operator sets.
const keptFlags = unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_HOMEADDRESS | unix.IFA_F_MANAGETEMPADDR

func (h *host) rememberV6(nic string, l netlink.Link) error {
	addrs, err := h.nl.AddrList(l, netlink.FAMILY_V6)
	if err != nil {
		return fmt.Errorf("%s: list addresses: %w", nic, err)
	}
	for _, a := range addrs {
		ip, _ := netip.AddrFromSlice(a.IP)
		ones, _ := a.Mask.Size()
		lost := lostAddress{netip.PrefixFrom(ip, ones), a.Flags & keptFlags}
		if !ip.IsLinkLocalUnicast() && !slices.Contains(h.st.V6Lost[nic], lost) {
			h.st.V6Lost[nic] = append(h.st.V6Lost[nic], lost)
		}
	}
	return h.st.save()
}

func (h *host) unquiet(nic string) error {
	h.st.NoARP = slices.DeleteFunc(h.st.NoARP, func(n string) bool { return n == nic })
	l, err := h.link(nic)
	if errors.Is(err, ErrNoLink) {
		return nil
	}
	if err == nil {
		err = h.nl.LinkSetARPOn(l)
	}
	return err
}

func (h *host) restoreV6(nic string) error {
	// IPv6 must be on first; Apply calls this before it restores the sysctl.
	if name := conf6(nic, "disable_ipv6"); h.st.Sysctls[name] != "" {
		if err := h.restoreSysctl(name); err != nil {
			return err
		}
	}
	lost := h.st.V6Lost[nic]
	delete(h.st.V6Lost, nic)
	l, err := h.link(nic)
	if err != nil {
		return nil // it took its addresses with it
	}
	var errs []error
	for _, a := range lost {
		errs = append(errs, h.nl.AddrReplace(l, &netlink.Addr{Flags: a.Flags,
			IPNet: &net.IPNet{IP: a.Prefix.Addr().AsSlice(), Mask: net.CIDRMask(a.Prefix.Bits(), 128)}}))
	}
	return errors.Join(errs...)
}

// offloadFeature says whether a feature leaves checksums or segments for the wire to finish.
func offloadFeature(name string) bool {
	return strings.HasPrefix(name, "tx-checksum-") || name == "tx-generic-segmentation" ||
		(strings.HasPrefix(name, "tx-") && strings.HasSuffix(name, "-segmentation"))
}

// applyOffload turns tx checksum and segmentation offload off on the links of devices that read
// frames in userspace, and restores the others.
func (h *host) applyOffload(p *Plan) error {
	want := map[string]bool{}
	nic := map[string]string{}
	for _, l := range p.Links {
		nic[l.Name] = l.NIC
	}
	for _, d := range p.Devices {
		if !d.Offload {
			want[nic[d.In]], want[nic[d.Out]] = true, true
		}
	}
	var errs []error
	for n := range want {
		errs = append(errs, h.offloadOff(n))
	}
	for n := range maps.Clone(h.st.Features) {
		if !want[n] {
			errs = append(errs, h.offloadRestore(n))
		}
	}
	return errors.Join(append(errs, h.st.save())...)
}

func (h *host) offloadOff(nic string) error {
	have, err := h.eth.FeaturesWithState(nic)
	if err != nil {
		return fmt.Errorf("%s: read offload features: %w", nic, err)
	}
	change := map[string]bool{}
	for name, s := range have {
		if offloadFeature(name) && s.Available && !s.NeverChanged && (s.Active || s.Requested) {
			change[name] = false
			h.rememberFeature(nic, name, s.Requested)
		}
	}
	if len(change) == 0 {
		return nil
	}
	if err := h.st.save(); err != nil {
		return err
	}
	if err := h.eth.Change(nic, change); err != nil {
		return fmt.Errorf("%s: offload off: %w", nic, err)
	}
	return nil
}

func (h *host) rememberFeature(nic, name string, was bool) {
	if h.st.Features[nic] == nil {
		h.st.Features[nic] = map[string]bool{}
	}
	if _, ok := h.st.Features[nic][name]; !ok {
		h.st.Features[nic][name] = was
	}
}

func (h *host) offloadRestore(nic string) error {
	was := h.st.Features[nic]
	delete(h.st.Features, nic)
	if _, err := h.link(nic); err != nil {
		return nil // the interface is gone
	}
	if err := h.eth.Change(nic, was); err != nil {
		return fmt.Errorf("%s: restore offload: %w", nic, err)
	}
	return nil
}
