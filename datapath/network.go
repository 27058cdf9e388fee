package datapath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ownProtocol marks our rules and routes (iproute2 shows "proto 83"), so that leftovers of a
// crash are recognised as ours and everything else is left alone.
const ownProtocol = 83

const (
	mainTable  = unix.RT_TABLE_MAIN
	rtoMin     = 20 // ms: the inner connection's path is inside the box
	tablesBase = 4  // tables of the virtual links; two a client link follow
)

// rule is one policy routing rule, comparable.
type rule struct {
	family   int
	priority int
	iif, oif string
	table    int
	noMain   bool // do not use default routes of that table (suppress_prefixlength 0)
}

// route is one route, comparable.
type route struct {
	table   int
	dst     netip.Prefix
	local   bool
	nic     string
	gateway netip.Addr
	mtu     int
	rtoMin  int
}

// network is the rules and routes of a plan.
type network struct {
	rules  []rule
	routes []route
	tables []int // all in use
}

var families = []int{netlink.FAMILY_V4, netlink.FAMILY_V6}

func everything(family int) netip.Prefix {
	if family == netlink.FAMILY_V4 {
		return netip.MustParsePrefix("0.0.0.0/0")
	}
	return netip.MustParsePrefix("::/0")
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// builder adds rules with rising priorities.
type builder struct {
	network
	priority int
}

func (b *builder) rule(r rule) {
	r.priority = b.priority
	b.rules = append(b.rules, r)
}

func (b *builder) table(t int) {
	if !slices.Contains(b.tables, t) {
		b.tables = append(b.tables, t)
	}
}

// wantNetwork is the plan's rules and routes. slots gives every link its own pair of tables.
func (h *host) wantNetwork(p *Plan, mtu int, slots map[string]int) (*network, error) {
	b := &builder{priority: p.RulePriority}
	b.virtual(frontLink, p.TablesFrom, mtu)
	b.virtual(backLink, p.TablesFrom+2, mtu)
	for _, l := range p.Links {
		t := p.TablesFrom + tablesBase + 2*slots[l.Name]
		b.local(l, p.Addresses, t)
		b.gateway(l, t+1)
	}
	for _, t := range b.tables {
		if t >= unix.RT_TABLE_DEFAULT && t <= unix.RT_TABLE_LOCAL {
			return nil, fmt.Errorf("routing table %d is the kernel's own: %w; set the first table to 256 or more", t, ErrClash)
		}
	}
	return &b.network, nil
}

// virtual makes everything local that comes in on a virtual link, and sends what is bound to it
// into it: where it really goes is decided in eBPF.
func (b *builder) virtual(nic string, table, mtu int) {
	b.table(table)
	b.table(table + 1)
	for _, f := range families {
		b.rule(rule{family: f, iif: nic, table: table})
		b.routes = append(b.routes, route{table: table, dst: everything(f), local: true, nic: "lo"})
	}
	b.priority++
	for _, f := range families {
		b.rule(rule{family: f, oif: nic, table: table + 1})
		b.routes = append(b.routes, route{table: table + 1, dst: everything(f), nic: nic, mtu: mtu, rtoMin: rtoMin})
	}
	b.priority++
}

// local makes the virtual servers' prefixes, and nothing else, local for what comes in on the link.
func (b *builder) local(l Link, addrs []Address, table int) {
	seen := map[int]bool{}
	for _, a := range addrs {
		if a.Link != l.Name {
			continue
		}
		r := route{table: table, dst: a.Prefix.Masked(), local: true, nic: "lo"}
		if slices.Contains(b.routes, r) {
			continue
		}
		b.routes = append(b.routes, r)
		if f := familyOf(a.Prefix.Addr()); !seen[f] {
			seen[f] = true
			b.table(table)
			b.rule(rule{family: f, iif: l.NIC, table: table})
		}
	}
	b.priority++
}

// gateway sends replies that leave by the link to its own gateway; what the main table knows
// better than by a default route stays there.
func (b *builder) gateway(l Link, table int) {
	for _, gw := range []netip.Addr{l.Gateway, l.Gateway6} {
		if !gw.IsValid() {
			continue
		}
		f := familyOf(gw)
		b.table(table)
		b.rule(rule{family: f, oif: l.NIC, table: mainTable, noMain: true})
		b.priority++
		b.rule(rule{family: f, oif: l.NIC, table: table})
		b.priority--
		b.routes = append(b.routes, route{table: table, dst: everything(f), nic: l.NIC, gateway: gw})
	}
	b.priority += 2
}

// applyNetwork adds before it removes, so that a change of the plan leaves no gap.
func (h *host) applyNetwork(want *network) error {
	haveRoutes, err := h.ownRoutes()
	if err != nil {
		return err
	}
	haveRules, err := h.ownRules()
	if err != nil {
		return err
	}
	err = errors.Join(diff(want.routes, haveRoutes, h.addRoute, nil), diff(want.rules, haveRules, h.addRule, h.delRule))
	// Read again: an added route may have replaced one, and IPv6 would delete by less than all fields.
	haveRoutes, err2 := h.ownRoutes()
	return errors.Join(err, err2, diff(want.routes, haveRoutes, nil, h.delRoute))
}

// diff adds what is wanted and not there, removes what is there and not wanted.
func diff[T comparable](want, have []T, add, del func(T) error) error {
	var errs []error
	for _, w := range want {
		if add != nil && !slices.Contains(have, w) {
			errs = append(errs, add(w))
		}
	}
	for _, x := range have {
		if del != nil && !slices.Contains(want, x) {
			errs = append(errs, del(x))
		}
	}
	return errors.Join(errs...)
}

func (r rule) netlink() *netlink.Rule {
	n := netlink.NewRule()
	n.Family, n.Priority, n.IifName, n.OifName, n.Table, n.Protocol = r.family, r.priority, r.iif, r.oif, r.table, ownProtocol
	if r.noMain {
		n.SuppressPrefixlen = 0
	}
	return n
}

func fromRule(n netlink.Rule) rule {
	return rule{n.Family, n.Priority, n.IifName, n.OifName, n.Table, n.SuppressPrefixlen == 0}
}

func (h *host) addRule(r rule) error {
	if err := h.nl.RuleAdd(r.netlink()); err != nil {
		return fmt.Errorf("add rule %d: %w", r.priority, err)
	}
	return nil
}

func (h *host) delRule(r rule) error {
	if err := h.nl.RuleDel(r.netlink()); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove rule %d: %w", r.priority, err)
	}
	return nil
}

func (h *host) ownRules() ([]rule, error) {
	var own []rule
	for _, f := range families {
		rules, err := h.nl.RuleList(f)
		if err != nil {
			return nil, fmt.Errorf("list rules: %w", err)
		}
		for _, r := range rules {
			if r.Protocol == ownProtocol {
				r.Family = f
				own = append(own, fromRule(r))
			}
		}
	}
	return own, nil
}

// allRoutes lists the routes of every table.
func (h *host) allRoutes(family int) ([]netlink.Route, error) {
	rs, err := h.nl.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return rs, nil
}

func (h *host) ownRoutes() ([]route, error) {
	var own []route
	for _, f := range families {
		rs, err := h.allRoutes(f)
		if err != nil {
			return nil, err
		}
		for _, r := range rs {
			if r.Protocol == ownProtocol {
				own = append(own, h.fromRoute(f, r))
			}
		}
	}
	return own, nil
}

func (h *host) fromRoute(family int, r netlink.Route) route {
	out := route{table: r.Table, dst: everything(family), local: r.Type == unix.RTN_LOCAL, mtu: r.MTU}
	if r.RtoMinLock {
		out.rtoMin = r.RtoMin
	}
	if r.Dst != nil {
		ip, _ := netip.AddrFromSlice(r.Dst.IP)
		ones, _ := r.Dst.Mask.Size()
		out.dst = netip.PrefixFrom(ip.Unmap(), ones)
	}
	if gw, ok := netip.AddrFromSlice(r.Gw); ok {
		out.gateway = gw.Unmap()
	}
	if l, err := h.nl.LinkByIndex(r.LinkIndex); err == nil {
		out.nic = l.Attrs().Name
	}
	return out
}

func (h *host) toRoute(r route) (*netlink.Route, error) {
	l, err := h.link(r.nic)
	if err != nil {
		return nil, err
	}
	n := &netlink.Route{LinkIndex: l.Attrs().Index, Table: r.table, Protocol: ownProtocol, Family: familyOf(r.dst.Addr()),
		Type: unix.RTN_UNICAST, Scope: netlink.SCOPE_LINK, MTU: r.mtu,
		RtoMin: r.rtoMin, RtoMinLock: r.rtoMin > 0, // TCP heeds it only when it is locked
		Dst: &net.IPNet{IP: r.dst.Addr().AsSlice(), Mask: net.CIDRMask(r.dst.Bits(), r.dst.Addr().BitLen())}}
	if r.local {
		n.Type, n.Scope = unix.RTN_LOCAL, netlink.SCOPE_HOST
	}
	if r.gateway.IsValid() {
		// onlink: the gateway may be known only by a route of another table.
		n.Gw, n.Scope, n.Flags = r.gateway.AsSlice(), netlink.SCOPE_UNIVERSE, int(netlink.FLAG_ONLINK)
	}
	return n, nil
}

func (h *host) addRoute(r route) error {
	n, err := h.toRoute(r)
	if err == nil {
		err = h.nl.RouteReplace(n)
	}
	if err != nil {
		return fmt.Errorf("add route %s table %d dev %s: %w", r.dst, r.table, r.nic, err)
	}
	return nil
}

// delRoute takes a route that vanished with its interface for removed.
func (h *host) delRoute(r route) error {
	n, err := h.toRoute(r)
	if errors.Is(err, ErrNoLink) {
		return nil
	}
	if err == nil {
		err = h.nl.RouteDel(n)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove route %s table %d dev %s: %w", r.dst, r.table, r.nic, err)
	}
	return nil
}
