package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sslo/chain"
)

// reserved are the session plane's own virtual links.
var reservedLinks, reservedNICs = []string{"front", "back"}, []string{"front0", "front1", "back0", "back1"}

func (c *checker) checkLinks() {
	byNIC := map[string]string{}
	for _, l := range c.Links {
		path := join("links", l.Name)
		if slices.Contains(reservedLinks, l.Name) {
			c.errorf(path, "the name %q is taken by sslo itself", l.Name)
		}
		c.checkNIC(l, join(path, "nic"), byNIC)
		if p := join(path, "gateway"); l.Gateway.IsValid() && !l.Gateway.Is4() {
			c.errorf(p, "must be an IPv4 address; gateway6 is for IPv6")
		}
		if p := join(path, "gateway6"); l.Gateway6.IsValid() && !l.Gateway6.Is6() {
			c.errorf(p, "must be an IPv6 address")
		}
	}
	c.assignRoles()
	for _, l := range c.Links {
		if p := join(join("links", l.Name), "vlan"); l.VLAN != 0 && l.Role != RoleDevice {
			c.errorf(p, "is for the links of devices; make a VLAN interface for this one and name it as nic")
		}
	}
}

func (c *checker) checkNIC(l *Link, path string, byNIC map[string]string) {
	if !c.ok(path) || l.NIC == "" {
		return
	}
	key := l.NIC
	if l.VLAN != 0 {
		key = fmt.Sprintf("%s.%d", l.NIC, l.VLAN)
	}
	switch other, taken := byNIC[key]; {
	case len(l.NIC) > 15 || strings.ContainsAny(l.NIC, "/: \t\n") || l.NIC == "." || l.NIC == "..":
		c.errorf(path, "%q can not be the name of an interface", l.NIC)
	case l.NIC == "lo" || slices.Contains(reservedNICs, l.NIC):
		c.errorf(path, "the interface %q can not be a link", l.NIC)
	case taken:
		c.errorf(path, "the interface %q is link %q already", l.NIC, other)
	default:
		byNIC[key] = l.Name
		if _, there := c.Host.NIC(l.NIC); !there {
			c.warnf(path, "the interface %q does not exist on this machine", l.NIC)
		}
	}
}

func (c *checker) assignRoles() {
	for _, vs := range c.VirtualServers {
		for _, name := range vs.Links {
			if l := c.Config.Link(name); l != nil {
				l.Role = RoleClient
			}
		}
	}
	for _, d := range c.Devices {
		for _, name := range []string{d.In, d.Out, d.Link} {
			if l := c.Config.Link(name); l != nil {
				l.Role = RoleDevice
			}
		}
	}
}

func (c *checker) checkDevices() {
	users := map[string]string{} // link → path that uses it
	for _, d := range c.Devices {
		path := join("devices", d.Name)
		c.checkKeys(d, path)
		for _, key := range linkKeys[d.Type] {
			c.deviceLink(*d.linkKey(key), join(path, key), users)
		}
		if d.Type == chain.OneArm || d.Type == chain.Tap {
			d.In, d.Out = d.Link, d.Link
		}
		c.checkHopAddresses(d, path)
		c.checkDeviceNICs(d, path)
		c.checkDeviceMonitors(d, join(path, "monitor"))
	}
}

// linkKeys are the keys that name a device's links, by its type.
var linkKeys = map[chain.DeviceType][]string{chain.L2: {"in", "out"}, chain.L3: {"in", "out"}, chain.OneArm: {"link"}, chain.Tap: {"link"}}

func (d *Device) linkKey(key string) *string {
	return map[string]*string{"in": &d.In, "out": &d.Out, "link": &d.Link}[key]
}

// checkKeys finds the keys that a device of its type must not have, and those that it must.
func (c *checker) checkKeys(d *Device, path string) {
	need := map[string]bool{"address": d.Type.Routed(), "out_address": d.Type == chain.L3}
	for _, key := range []string{"in", "out", "link"} {
		need[key] = slices.Contains(linkKeys[d.Type], key)
	}
	for _, key := range []string{"in", "out", "link", "address", "out_address"} {
		switch given := c.given(join(path, key)); {
		case need[key] && !given && c.ok(join(path, key)) && (c.ok(path) || c.given(path)):
			c.errorf(path, "%s is required for a device of type %s", key, Word(d.Type))
		case given && !need[key]:
			c.errorf(join(path, key), "a device of type %s has no %s", Word(d.Type), key)
		}
	}
	if p := join(path, "control"); c.given(p) && !d.Type.Routed() {
		c.errorf(p, "only routed devices talk with the box; this one is of type %s", Word(d.Type))
	}
	if p := join(path, "control"); len(d.Control) > maxControls {
		c.errorf(p, "at most %d rules, these are %d", maxControls, len(d.Control))
	}
}

// maxControls is bpf/types.h, LINK_CONTROLS.
const maxControls = 16

// checkHopAddresses looks at a routed device's addresses.
func (c *checker) checkHopAddresses(d *Device, path string) {
	if !d.Type.Routed() {
		return
	}
	in, out := d.Domain().InHops, d.Domain().OutHops
	if in.V4.IsValid() != out.V4.IsValid() || in.V6.IsValid() != out.V6.IsValid() {
		c.errorf(path, "address and out_address must be of the same families")
	}
	for key, list := range map[string][]netip.Addr{"address": d.Address, "out_address": d.OutAddress} {
		if len(list) > 2 || len(list) == 2 && list[0].Is4() == list[1].Is4() {
			c.errorf(join(path, key), "at most one IPv4 and one IPv6 address")
		}
	}
	for _, key := range linkKeys[d.Type] {
		if l := c.Config.Link(*d.linkKey(key)); l != nil && l.VLAN != 0 {
			c.errorf(join(path, key), "link %q has a vlan, which a routed device's can not: make a VLAN interface and name it as nic", l.Name)
		}
	}
}

// checkDeviceMonitors gives the device its monitors; without the key, those that fit its type.
func (c *checker) checkDeviceMonitors(d *Device, path string) {
	if !c.given(path) || c.given(join(path, "require")) && !c.given(join(path, "of")) {
		d.Monitor.Of = map[chain.DeviceType][]string{chain.L2: {"path"}, chain.L3: {"icmp"}, chain.OneArm: {"icmp"}}[d.Type]
	}
	var own netip.Addr
	if len(d.Address) > 0 {
		own = d.Address[0]
	}
	d.Monitors = c.monitorsOf(&d.Monitor, path, forDevice, own)
	for i, name := range d.Monitor.Of {
		switch m := c.monitor(name); {
		case m == nil || d.Type == chain.L2:
		case m.Type == MonitorPath:
			c.errorf(index(c.ofPath(path), i), "monitor %q is of type path, which only passes devices of type l2", name)
		case m.Through:
			c.errorf(index(c.ofPath(path), i), "monitor %q goes through the device, which is only possible with devices of type l2", name)
		}
	}
}

func (c *checker) deviceLink(link, path string, users map[string]string) {
	if c.link(link, path) == nil {
		return
	}
	if other, taken := users[link]; taken {
		if parentPath(other) == parentPath(path) {
			c.errorf(path, "link %q is the in link too; a device of this type is between two links", link)
		} else {
			c.errorf(path, "link %q is used by %s already; the link could not tell the two devices apart", link, other)
		}
		return
	}
	users[link] = path
}

// checkDeviceNICs looks at the machine: what is not there was warned of with its link.
func (c *checker) checkDeviceNICs(d *Device, path string) {
	in, out := c.Config.Link(d.In), c.Config.Link(d.Out)
	if in == nil || out == nil || d.Type == chain.Tap || in == out && d.Type != chain.OneArm {
		return
	}
	a, okA := c.Host.NIC(in.NIC)
	b, okB := c.Host.NIC(out.NIC)
	if !okA || !okB {
		return
	}
	if a.MTU != b.MTU {
		c.errorf(path, "its links have different MTUs: %s (%s) %d, %s (%s) %d; packets between them would be lost",
			in.Name, in.NIC, a.MTU, out.Name, out.NIC, b.MTU)
	}
	if least := min(a.MTU, b.MTU); c.System.MTU > least {
		c.errorf("system.mtu", "is %d, but device %q has an MTU of %d", c.System.MTU, d.Name, least)
	}
	if d.Offload && (a.Virtual || b.Virtual) {
		c.warnf(path, "a link of it is a virtual interface and offload is on: a device that reads packets in "+
			"software would see unfilled checksums; set offload: off unless it is a plain bridge")
	}
}
