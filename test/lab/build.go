package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hostSysctls make hosts quiet and quick: no duplicate address detection, no router search.
var hostSysctls = map[string]string{
	"ipv6/conf/all/accept_dad": "0", "ipv6/conf/default/accept_dad": "0",
	"ipv6/conf/all/accept_ra": "0", "ipv6/conf/default/accept_ra": "0",
	"ipv6/conf/default/router_solicitations": "0",
	"ipv4/tcp_tw_reuse":                      "1", "ipv4/tcp_tw_reuse_delay": "1", // tests use a port again at once
	"ipv4/ip_local_port_range": "1024 65000",
	"ipv4/tcp_max_syn_backlog": "8192",
	"core/somaxconn":           "8192",
}

func (l *Lab) buildBox() (err error) {
	if l.Box, err = l.host("box"); err != nil {
		return err
	}
	return l.Box.sysctl(map[string]string{
		"ipv6/conf/all/accept_dad": "0", "ipv6/conf/default/accept_dad": "0",
		"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
		"core/somaxconn": "8192", "ipv4/tcp_max_syn_backlog": "8192",
	})
}

func (l *Lab) buildClients() error {
	for i := 1; i <= l.Topology.ClientLinks; i++ {
		role, nic := "client", ClientNIC
		if i > 1 {
			role, nic = fmt.Sprintf("client%d", i), fmt.Sprintf("ext%d", i)
		}
		h, err := l.buildClient(role, nic, i)
		if err != nil {
			return fmt.Errorf("%s: %w", role, err)
		}
		l.Clients = append(l.Clients, h)
	}
	return nil
}

func (l *Lab) buildClient(role, boxNIC string, link int) (*Host, error) {
	ns, err := l.host(role)
	if err != nil {
		return nil, err
	}
	box4, host4, box6, host6 := clientAddrs(link)
	err = errors.Join(
		ns.sysctl(hostSysctls),
		cable(end{l.Box, boxNIC}, end{ns, "eth0"}, 1500),
		l.Box.address(boxNIC, box4, box6),
		ns.address("eth0", host4, host6),
		ns.address("lo", netip.PrefixFrom(Roam4, 32), netip.PrefixFrom(Roam6, 128)),
		ns.defaultVia(box4.Addr(), box6.Addr()),
		l.Box.route(boxNIC, netip.PrefixFrom(Roam4, 32), host4.Addr(), 100*link),
		l.Box.route(boxNIC, netip.PrefixFrom(Roam6, 128), host6.Addr(), 100*link),
	)
	return &Host{ns, "eth0", host4.Addr(), host6.Addr()}, err
}

// buildServers cables one server straight to the box, several by way of a switch.
func (l *Lab) buildServers() error {
	box4, box6 := serverGateways()
	join := func(ns *Namespace, _ int) error { return cable(end{l.Box, ServerNIC}, end{ns, "eth0"}, 1500) }
	if l.Topology.Servers > 1 {
		lan, err := l.host("lan")
		if err != nil {
			return err
		}
		err = errors.Join(lan.bridge(), cable(end{l.Box, ServerNIC}, end{lan, "box"}, 1500), lan.enslave("box"))
		if err != nil {
			return fmt.Errorf("server switch: %w", err)
		}
		join = func(ns *Namespace, i int) error {
			port := fmt.Sprintf("server%d", i)
			return errors.Join(cable(end{lan, port}, end{ns, "eth0"}, 1500), lan.enslave(port))
		}
	}
	for i := 1; i <= l.Topology.Servers; i++ {
		role := fmt.Sprintf("server%d", i)
		ns, err := l.host(role)
		if err != nil {
			return err
		}
		v4, v6 := serverAddrs(i)
		err = errors.Join(ns.sysctl(hostSysctls), join(ns, i), ns.address("eth0", v4, v6), ns.defaultVia(box4.Addr(), box6.Addr()))
		if err != nil {
			return fmt.Errorf("%s: %w", role, err)
		}
		l.Servers = append(l.Servers, &Host{ns, "eth0", v4.Addr(), v6.Addr()})
	}
	return l.Box.address(ServerNIC, box4, box6)
}

type end struct {
	ns  *Namespace
	nic string
}

// cable joins two namespaces with a veth pair and brings both ends up.
func cable(a, b end, mtu int) error {
	return b.ns.netlinkNS(func(peerNS int) error {
		return a.ns.netlink(func(h *netlink.Handle) error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.MTU = a.nic, mtu
			veth := &netlink.Veth{LinkAttrs: attrs, PeerName: b.nic, PeerNamespace: netlink.NsFd(peerNS)}
			if err := h.LinkAdd(veth); err != nil {
				return fmt.Errorf("cable %s-%s: %w", a.nic, b.nic, err)
			}
			return errors.Join(a.ns.setUp(a.nic, true), b.ns.setMTU(b.nic, mtu), b.ns.setUp(b.nic, true))
		})
	})
}

// onLink runs fn with a NIC of the namespace.
func (n *Namespace) onLink(nic string, fn func(*netlink.Handle, netlink.Link) error) error {
	return n.netlink(func(h *netlink.Handle) error {
		link, err := h.LinkByName(nic)
		if err == nil {
			err = fn(h, link)
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", n.Name, nic, err)
		}
		return nil
	})
}

// setUp brings a NIC up or down; the other end of the cable loses its carrier with it.
func (n *Namespace) setUp(nic string, up bool) error {
	return n.onLink(nic, func(h *netlink.Handle, link netlink.Link) error {
		if up {
			return h.LinkSetUp(link)
		}
		return h.LinkSetDown(link)
	})
}

func (n *Namespace) setMTU(nic string, mtu int) error {
	return n.onLink(nic, func(h *netlink.Handle, link netlink.Link) error { return h.LinkSetMTU(link, mtu) })
}

func (n *Namespace) address(nic string, prefixes ...netip.Prefix) error {
	return n.onLink(nic, func(h *netlink.Handle, link netlink.Link) error {
		for _, p := range prefixes {
			a := &netlink.Addr{IPNet: ipNet(p)}
			if p.Addr().Is6() {
				a.Flags = unix.IFA_F_NODAD
			}
			if err := h.AddrAdd(link, a); err != nil {
				return fmt.Errorf("address %s: %w", p, err)
			}
		}
		return nil
	})
}

func (n *Namespace) defaultVia(gateways ...netip.Addr) error {
	for _, g := range gateways {
		dst := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if g.Is6() {
			dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		if err := n.route("eth0", dst, g, 0); err != nil {
			return err
		}
	}
	return nil
}

func (n *Namespace) route(nic string, dst netip.Prefix, via netip.Addr, metric int) error {
	return n.onLink(nic, func(h *netlink.Handle, link netlink.Link) error {
		r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(dst), Gw: via.AsSlice(), Priority: metric}
		if err := h.RouteAdd(r); err != nil {
			return fmt.Errorf("route %s via %s: %w", dst, via, err)
		}
		return nil
	})
}

// bridge makes br0, which forwards and learns and does nothing else.
func (n *Namespace) bridge() error {
	return n.netlink(func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "br0"
		snooping, ageing := false, uint32((5*time.Minute).Seconds()*100)
		br := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping, AgeingTime: &ageing}
		if err := h.LinkAdd(br); err != nil {
			return fmt.Errorf("%s: bridge: %w", n.Name, err)
		}
		return h.LinkSetUp(br)
	})
}

func (n *Namespace) enslave(nic string) error {
	return n.onLink(nic, func(h *netlink.Handle, link netlink.Link) error {
		br, err := h.LinkByName("br0")
		if err != nil {
			return err
		}
		return h.LinkSetMaster(link, br)
	})
}

func (n *Namespace) free(nic string) error {
	return n.onLink(nic, func(h *netlink.Handle, link netlink.Link) error { return h.LinkSetNoMaster(link) })
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
