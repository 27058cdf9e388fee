package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// builders of the devices that are neither bridges nor inspect.
var builders map[Kind]func(*deviceHost) error

func init() { // they look it up themselves
	builders = map[Kind]func(*deviceHost) error{
		Router: (*deviceHost).buildRouter, OneArm: (*deviceHost).buildOneArm, Tap: (*deviceHost).buildTap, VLAN: (*deviceHost).buildVLAN,
	}
}

// trunkHost is the host of all devices of kind VLAN.
const trunkHost = "trunk"

// hostOf is a new host for a device, or the trunk's.
func (l *Lab) hostOf(spec Device) (*Namespace, error) {
	if spec.Kind != VLAN {
		return l.host(spec.Name)
	}
	for _, other := range l.devices {
		if other.Kind == VLAN {
			return other.ns, nil
		}
	}
	return l.host(trunkHost)
}

// index tells devices apart in addresses and VLANs.
func (l *Lab) index(name string) int {
	return slices.IndexFunc(l.Topology.Devices, func(d Device) bool { return d.Name == name })
}

// VLANOf is the VLAN of a device of kind VLAN.
func (l *Lab) VLANOf(name string) int { return 101 + l.index(name) }

// leg is a subnet between the box and a routed device: of a device's side 1 (in) or 2 (out).
type leg struct{ box4, device4, box6, device6 netip.Prefix }

func (l *Lab) leg(name string, side int) leg {
	n := 50 + l.index(name)
	return leg{prefix("10.%d.%d.1/24", n, side), prefix("10.%d.%d.2/24", n, side),
		prefix("fd00:%d:%d::1/64", n, side), prefix("fd00:%d:%d::2/64", n, side)}
}

var routerSysctls = map[string]string{
	"ipv6/conf/all/accept_dad": "0", "ipv6/conf/default/accept_dad": "0", "ipv6/conf/all/accept_ra": "0", "ipv6/conf/default/accept_ra": "0",
	"ipv6/conf/all/keep_addr_on_down": "1", "ipv6/conf/default/keep_addr_on_down": "1",
	"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
	"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0",
	"ipv4/conf/all/send_redirects": "0", "ipv4/conf/default/send_redirects": "0",
}

// buildRouter has the clients behind its link in, and all else, the virtual servers too, behind its link out.
func (d *deviceHost) buildRouter() error {
	in, out, mtu := d.lab.leg(d.Name, 1), d.lab.leg(d.Name, 2), d.lab.Topology.MTU
	err := errors.Join(d.ns.sysctl(routerSysctls),
		cable(end{d.lab.Box, InNIC(d.Name)}, end{d.ns, DeviceIn}, mtu),
		cable(end{d.lab.Box, OutNIC(d.Name)}, end{d.ns, DeviceOut}, mtu),
		d.ns.address(DeviceIn, in.device4, in.device6), d.ns.address(DeviceOut, out.device4, out.device6))
	if err != nil {
		return err
	}
	return d.routes()
}

// routes are those of a routed device; it loses them with its carrier.
func (d *deviceHost) routes() (err error) {
	add := func(nic string, g leg, list ...netip.Prefix) {
		for _, dst := range list {
			if e := d.ns.route(nic, dst, pick(dst, g.box4, g.box6), 0); !errors.Is(e, unix.EEXIST) {
				err = errors.Join(err, e)
			}
		}
	}
	all := []netip.Prefix{prefix("0.0.0.0/0"), prefix("::/0")}
	switch d.Kind {
	case Router:
		add(DeviceIn, d.lab.leg(d.Name, 1), d.lab.clientPrefixes()...)
		add(DeviceOut, d.lab.leg(d.Name, 2), append(all, single(VIP4), single(VIP6))...)
	case OneArm:
		add(DeviceIn, d.lab.leg(d.Name, 1), all...)
	}
	return err
}

func (l *Lab) clientPrefixes() []netip.Prefix {
	all := []netip.Prefix{single(Roam4), single(Roam6)}
	for i := 1; i <= l.Topology.ClientLinks; i++ {
		_, host4, _, host6 := clientAddrs(i)
		all = append(all, host4.Masked(), host6.Masked())
	}
	return all
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func pick(dst, v4, v6 netip.Prefix) netip.Addr {
	if dst.Addr().Is4() {
		return v4.Addr()
	}
	return v6.Addr()
}

func (d *deviceHost) buildOneArm() error {
	g := d.lab.leg(d.Name, 1)
	return errors.Join(d.ns.sysctl(routerSysctls),
		cable(end{d.lab.Box, InNIC(d.Name)}, end{d.ns, DeviceIn}, d.lab.Topology.MTU),
		d.ns.address(DeviceIn, g.device4, g.device6), d.routes())
}

func (d *deviceHost) buildTap() error {
	return errors.Join(d.ns.sysctl(quiet), cable(end{d.lab.Box, InNIC(d.Name)}, end{d.ns, DeviceIn}, d.lab.Topology.MTU), d.ns.noARP(DeviceIn))
}

// buildVLAN builds the trunk with the first of its devices.
func (d *deviceHost) buildVLAN() error {
	for _, other := range d.lab.devices {
		if other.Kind == VLAN && other != d {
			return nil
		}
	}
	mtu := d.lab.Topology.MTU
	return errors.Join(d.ns.sysctl(quiet),
		cable(end{d.lab.Box, TrunkIn}, end{d.ns, DeviceIn}, mtu), cable(end{d.lab.Box, TrunkOut}, end{d.ns, DeviceOut}, mtu),
		d.ns.noARP(DeviceIn), d.ns.noARP(DeviceOut), d.ns.bridge(), d.attach())
}

// block makes the device swallow everything, or what goes one way only.
func (d *deviceHost) block(how Failure) error {
	nics := map[Failure][]string{Blackhole: {DeviceIn, DeviceOut}, Hang: {DeviceIn, DeviceOut}, BlackholeOrig: {DeviceIn}, BlackholeReply: {DeviceOut}}[how]
	if nics == nil {
		return fmt.Errorf("a device of kind %s can not fail so", d.Kind)
	}
	if d.Kind == OneArm || d.Kind == Tap {
		nics = []string{DeviceIn}
	}
	match := ""
	if d.Kind == VLAN {
		match = fmt.Sprintf("vlan id %d", d.lab.VLANOf(d.Name))
	}
	rules := "table netdev " + d.Name + " {\n"
	for _, nic := range nics {
		rules += fmt.Sprintf("chain %s { type filter hook ingress device %s priority 0; %s drop; }\n", nic, nic, match)
	}
	return d.nft(rules + "}\n")
}

func (d *deviceHost) unblock() error {
	return d.nft("table netdev " + d.Name + "\ndelete table netdev " + d.Name + "\n")
}

func (d *deviceHost) nft(script string) error {
	return d.ns.Do(func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
		return nil
	})
}

// deviceConfig is a device's part of the configuration, and its links.
func (l *Lab) deviceConfig(d Device, links dict) dict {
	in, out := InNIC(d.Name), OutNIC(d.Name)
	text := func(p ...netip.Prefix) (list []string) {
		for _, one := range p {
			list = append(list, one.Addr().String())
		}
		return list
	}
	legOf := func(side int) (dict, []string) {
		g := l.leg(d.Name, side)
		return dict{"nic": map[int]string{1: in, 2: out}[side], "addresses": []string{g.box4.String(), g.box6.String()}}, text(g.device4, g.device6)
	}
	var address, outAddress []string
	switch d.Kind {
	case Router:
		links[in], address = legOf(1)
		links[out], outAddress = legOf(2)
		return dict{"type": "l3", "in": in, "out": out, "address": address, "out_address": outAddress, "monitor": []string{"ping-fast"}}
	case OneArm:
		links[in], address = legOf(1)
		return dict{"type": "one-arm", "link": in, "address": address, "monitor": []string{"ping-fast"}}
	case Tap:
		links[in] = dict{"nic": in}
		return dict{"type": "tap", "link": in}
	case VLAN:
		links[in] = dict{"nic": TrunkIn, "vlan": l.VLANOf(d.Name)}
		links[out] = dict{"nic": TrunkOut, "vlan": l.VLANOf(d.Name)}
	default:
		links[in], links[out] = dict{"nic": in}, dict{"nic": out}
	}
	device := dict{"in": in, "out": out, "monitor": []string{"path-fast"}}
	if d.Kind == Inspect && !d.Offload {
		device["offload"] = "off"
	}
	return device
}
