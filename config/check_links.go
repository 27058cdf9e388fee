package config

import (
	"slices"
	"strings"
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
}

func (c *checker) checkNIC(l *Link, path string, byNIC map[string]string) {
	if !c.ok(path) || l.NIC == "" {
		return
	}
	switch other, taken := byNIC[l.NIC]; {
	case len(l.NIC) > 15 || strings.ContainsAny(l.NIC, "/: \t\n") || l.NIC == "." || l.NIC == "..":
		c.errorf(path, "%q can not be the name of an interface", l.NIC)
	case l.NIC == "lo" || slices.Contains(reservedNICs, l.NIC):
		c.errorf(path, "the interface %q can not be a link", l.NIC)
	case taken:
		c.errorf(path, "the interface %q is link %q already", l.NIC, other)
	default:
		byNIC[l.NIC] = l.Name
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
		for _, name := range []string{d.In, d.Out} {
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
		c.deviceLink(d.Name, d.In, join(path, "in"), users)
		c.deviceLink(d.Name, d.Out, join(path, "out"), users)
		c.checkDeviceNICs(d, path)
		d.Monitors = c.monitorsOf(&d.Monitor, join(path, "monitor"), forDevice)
	}
}

func (c *checker) deviceLink(device, link, path string, users map[string]string) {
	if c.link(link, path) == nil {
		return
	}
	if other, taken := users[link]; taken {
		if parentPath(other) == parentPath(path) {
			c.errorf(path, "link %q is the in link too; a device of type l2 is between two links", link)
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
	if in == nil || out == nil || in == out {
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
