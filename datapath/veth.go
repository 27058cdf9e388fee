package datapath

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// ownAlias marks the interfaces that are ours, for operators and for adoption.
const ownAlias = "sslo"

// addrGenNone is IN6_ADDR_GEN_MODE_NONE: no link-local address.
const addrGenNone = 1

func (h *host) ensureVeths(mtu int) error {
	return errors.Join(h.ensureVeth(frontLink, frontPeer, mtu), h.ensureVeth(backLink, backPeer, mtu))
}

// ensureVeth makes a pair, or repairs one that a process left half made.
func (h *host) ensureVeth(name, peer string, mtu int) error {
	l, err := h.link(name)
	if errors.Is(err, ErrNoLink) {
		if err := h.addVeth(name, peer, mtu); err != nil {
			return err
		}
		l, err = h.link(name)
	}
	if err != nil {
		return err
	}
	p, err := h.link(peer)
	if err != nil {
		return err
	}
	return errors.Join(h.prepareVeth(l, mtu), h.prepareVeth(p, mtu))
}

func (h *host) addVeth(name, peer string, mtu int) error {
	h.st.Veths = true
	if err := h.st.save(); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	if err := h.nl.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: peer, PeerMTU: uint32(mtu)}); err != nil {
		return fmt.Errorf("make %s: %w", name, err)
	}
	return nil
}

// prepareVeth sets ARP and IPv6 addresses off before the interface comes up.
func (h *host) prepareVeth(l netlink.Link, mtu int) error {
	a := l.Attrs()
	var errs []error
	step := func(what string, needed bool, err func() error) {
		if needed {
			if e := err(); e != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", a.Name, what, e))
			}
		}
	}
	step("alias", a.Alias != ownAlias, func() error { return h.nl.LinkSetAlias(l, ownAlias) })
	step("mtu", a.MTU != mtu, func() error { return h.nl.LinkSetMTU(l, mtu) })
	step("arp off", !noARP(l), func() error { return h.nl.LinkSetARPOff(l) })
	step("addrgenmode", !isUp(l), func() error { return h.nl.LinkSetIP6AddrGenMode(l, addrGenNone) })
	step("up", !isUp(l), func() error { return h.nl.LinkSetUp(l) })
	return errors.Join(errs...)
}

// removeVeths removes pairs that are ours; a pair goes with either end.
func (h *host) removeVeths() error {
	var errs []error
	for _, name := range []string{frontLink, backLink} {
		l, err := h.link(name)
		if errors.Is(err, ErrNoLink) || (err == nil && !h.ownVeth(l)) {
			continue
		}
		if err == nil {
			err = h.nl.LinkDel(l)
		}
		errs = append(errs, err)
	}
	h.st.Veths = false
	return errors.Join(append(errs, h.st.save())...)
}

func (h *host) ownVeth(l netlink.Link) bool {
	return l.Attrs().Alias == ownAlias || (h.st.Veths && l.Type() == "veth")
}
