package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sslo/policy"
)

func (c *checker) checkVirtualServers() {
	for _, vs := range c.VirtualServers {
		path := join("virtual_servers", vs.Name)
		c.checkClientLinks(vs, join(path, "links"))
		c.checkListen(vs, join(path, "listen"))
		c.checkVirtualCertificates(vs, path)
		c.checkProtocols(vs, path)
		c.checkSuites(vs.TLS.SM.Suites, vs.TLS.Protocols, join(path, "tls.sm.suites"))
		c.checkClientTrust(&vs.TLS, join(path, "tls"))
		c.checkALPN(vs, join(path, "alpn"))
		if vs.Chain == policy.NoChain {
			vs.Chain = ""
		}
		c.chain(vs.Chain, join(path, "chain"))
		c.serverPool(vs.ServerPool, join(path, "server_pool"))
		if vs.TLS.MinVersion > vs.TLS.MaxVersion {
			c.errorf(join(path, "tls"), "min_version is newer than max_version")
		}
		if m := join(path, "tls.min_version"); vs.TLS.MinVersion < 0x0303 {
			c.warnf(m, "TLS %s is broken; clients that need it should be upgraded", Word(vs.TLS.MinVersion))
		}
		c.checkRules(vs, join(path, "rules"))
		c.checkScript(&vs.Script, join(path, "script"))
	}
}

func (c *checker) checkClientLinks(vs *VirtualServer, path string) {
	if len(vs.Links) == 0 && c.given(path) && c.ok(path) {
		c.errorf(path, "a virtual server needs at least one client link")
	}
	c.duplicates(path, vs.Links)
	for i, name := range vs.Links {
		at := index(path, i)
		if l := c.link(name, at); l != nil && l.Role == RoleDevice {
			c.errorf(at, "link %q is the link of a device; it can not be a client link too", name)
		}
	}
}

func (c *checker) checkListen(vs *VirtualServer, path string) {
	if len(vs.Listen) == 0 && c.given(path) && c.ok(path) {
		c.errorf(path, "a virtual server needs at least one address")
	}
	for i, l := range vs.Listen {
		at := index(path, i)
		if a := l.Addr(); a.IsValid() && (a.IsMulticast() || a.IsLoopback()) {
			c.errorf(at, "clients can not reach %s", a)
		}
	}
}

func (c *checker) checkVirtualCertificates(vs *VirtualServer, path string) {
	at := join(path, "certificates")
	c.duplicates(at, vs.Certificates)
	for i, name := range vs.Certificates {
		reference(c, "certificates", "certificate", name, index(at, i), c.Certificates)
	}
	if len(vs.Certificates) == 0 && c.given(at) && c.ok(at) {
		c.errorf(at, "a virtual server needs at least one certificate")
	}
	c.checkCoverage(vs, at)
}

func (c *checker) checkALPN(vs *VirtualServer, path string) {
	if vs.Type == TypeHTTPS && !c.given(path) {
		vs.ALPN = []string{"http/1.1"}
	}
	c.duplicates(path, vs.ALPN)
	for i, p := range vs.ALPN {
		switch at := index(path, i); {
		case !c.ok(at):
		case len(p) == 0 || len(p) > 255:
			c.errorf(at, "a protocol has 1 to 255 characters")
		case vs.Type == TypeHTTPS && p != "http/1.1" && p != "http/1.0":
			c.errorf(at, "%q is not possible with type https: devices are sent HTTP/1.1; type tls relays any protocol", p)
		}
	}
}

// PortOf is the port of the inner connection for one of the listen addresses.
func (v *VirtualServer) PortOf(l netip.AddrPort) uint16 {
	switch {
	case v.PlaintextPort != 0:
		return uint16(v.PlaintextPort)
	case l.Port() == 443:
		return 80
	}
	return l.Port()
}

// listener is an address on a link.
type listener struct {
	vs   *VirtualServer
	path string
	addr netip.AddrPort
}

// checkListeners looks for addresses that two virtual servers would answer, outside and inside.
func (c *checker) checkListeners() {
	var all []listener
	for _, vs := range c.VirtualServers {
		for i, a := range vs.Listen {
			if l := (listener{vs, fmt.Sprintf("virtual_servers.%s.listen[%d]", vs.Name, i), a}); a.IsValid() && c.ok(l.path) {
				c.compareListener(l, all)
				all = append(all, l)
			}
		}
	}
}

func (c *checker) compareListener(l listener, all []listener) {
	for _, o := range all {
		if link, ok := l.overlaps(o); ok {
			c.errorf(l.path, "%s on link %q overlaps with %s of virtual server %q (line %d)",
				l.addr, link, o.addr, o.vs.Name, c.where(o.path).line)
			return
		}
		if port := l.vs.PortOf(l.addr); l.addr.Addr() == o.addr.Addr() && port == o.vs.PortOf(o.addr) {
			format := "its inner connections to %s would be those of %s of virtual server %q: give one another plaintext_port"
			report := c.errorf
			if l.vs == o.vs {
				report, format = c.warnf, "a client that uses one port for both would clash inside, at %s, with %s of %q"
			}
			report(l.path, format, netip.AddrPortFrom(l.addr.Addr(), port), o.addr, o.vs.Name)
			return
		}
	}
}

// overlaps reports the link on which a packet could be for both.
func (l listener) overlaps(o listener) (link string, ok bool) {
	a, b := l.addr.Addr(), o.addr.Addr()
	if l.addr.Port() != o.addr.Port() || a.Is4() != b.Is4() || a != b && !a.IsUnspecified() && !b.IsUnspecified() {
		return "", false
	}
	for _, link := range l.vs.Links {
		if slices.Contains(o.vs.Links, link) {
			return link, true
		}
	}
	return "", false
}

// Addresses are the virtual server's own: those of listen that are not "every address".
func (v *VirtualServer) Addresses() []netip.Addr {
	var out []netip.Addr
	for _, l := range v.Listen {
		if a := l.Addr(); !a.IsUnspecified() && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// canonicalSNI is a name condition as policy wants it; ok is false if it is none.
func canonicalSNI(s string) (string, bool) {
	s = strings.ToLower(strings.TrimSuffix(s, "."))
	host := strings.TrimPrefix(s, "*.")
	return s, s == "" || validHost(host)
}
