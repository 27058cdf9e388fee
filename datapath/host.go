package datapath

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sslo/chain"
)

// host changes the network namespace it was opened in, everything but eBPF. Its sockets belong
// to that namespace, so they work from any thread.
type host struct {
	nl  *netlink.Handle
	eth *ethtool.Ethtool
	pkt int // AF_PACKET socket, for sending only
	st  *store
	log *slog.Logger
	ns  netns
	mtu int // of the inner connections, as applied
}

func openHost(st *store, log *slog.Logger) (*host, error) {
	h := &host{st: st, log: log, pkt: -1}
	var err error
	if h.ns, err = currentNetns(); err != nil {
		return nil, err
	}
	if h.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		h.close()
		return nil, fmt.Errorf("netlink: %w", err)
	}
	if h.eth, err = ethtool.NewEthtool(); err != nil {
		h.close()
		return nil, fmt.Errorf("ethtool: %w", err)
	}
	// Protocol 0: the socket receives nothing.
	if h.pkt, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		h.close()
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	return h, nil
}

func (h *host) close() {
	if h.nl != nil {
		h.nl.Close()
	}
	if h.eth != nil {
		h.eth.Close()
	}
	if h.pkt >= 0 {
		_ = unix.Close(h.pkt)
	}
	_ = h.ns.file.Close()
}

// link finds an interface; ErrNoLink when it is not there.
func (h *host) link(nic string) (netlink.Link, error) {
	l, err := h.nl.LinkByName(nic)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, fmt.Errorf("%s: %w", nic, ErrNoLink)
	}
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", nic, err)
	}
	return l, nil
}

// apply makes everything but eBPF match the plan.
func (h *host) apply(p *Plan, slots map[string]int) error {
	mtu, err := h.checkMTU(p)
	if err != nil {
		return err
	}
	net, err := h.wantNetwork(p, mtu, slots)
	if err != nil {
		return err
	}
	if err := h.checkClashes(p, net); err != nil {
		return err
	}
	h.mtu = mtu
	return errors.Join(h.ensureVeths(mtu), h.configure(p, net))
}

// refresh does for interfaces that came back what apply did, as far as interfaces are there.
func (h *host) refresh(p *Plan, slots map[string]int) error {
	net, err := h.wantNetwork(p, h.mtu, slots)
	if err != nil {
		return err
	}
	return h.configure(p, net)
}

func (h *host) configure(p *Plan, net *network) error {
	want, err := h.wantSysctls(p)
	if err != nil {
		return err
	}
	return errors.Join(h.quietDeviceLinks(p), h.applySysctls(want), h.applyNetwork(net), h.applyOffload(p), h.applyAddresses(p))
}

// teardown goes on after errors: the more is restored the better.
func (h *host) teardown() error {
	empty := &Plan{}
	errs := []error{
		h.applyAddresses(empty), h.applyNetwork(&network{}), h.applyOffload(empty),
		h.applySysctls(sysctls{}), h.quietDeviceLinks(empty), h.removeVeths(),
	}
	return errors.Join(errs...)
}

// checkMTU refuses devices whose two links differ, and gives the inner connections' MTU.
func (h *host) checkMTU(p *Plan) (int, error) {
	nic := map[string]string{}
	for _, l := range p.Links {
		nic[l.Name] = l.NIC
	}
	least := p.MTU
	var errs []error
	for _, d := range p.Devices {
		in, err1 := h.link(nic[d.In])
		out, err2 := h.link(nic[d.Out])
		if err := errors.Join(err1, err2); err != nil {
			errs = append(errs, fmt.Errorf("device %s: %w", d.Name, err))
			continue
		}
		if d.Type == chain.Tap { // it limits nothing: copies that do not fit are lost
			continue
		}
		a, b := in.Attrs().MTU, out.Attrs().MTU
		if a != b {
			errs = append(errs, fmt.Errorf("device %s: %w: %s (%s) has %d, %s (%s) has %d",
				d.Name, ErrMTU, d.In, nic[d.In], a, d.Out, nic[d.Out], b))
		}
		if p.MTU == 0 && (least == 0 || min(a, b) < least) {
			least = min(a, b)
		}
	}
	if least == 0 {
		least = 1500
	}
	return least, errors.Join(errs...)
}
