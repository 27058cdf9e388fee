package config

import (
	"crypto/x509"
	"net/netip"
)

func (c *checker) checkServerPools() {
	for _, p := range c.ServerPools {
		path := join("server_pools", p.Name)
		c.checkMembers(p, join(path, "members"))
		c.checkServerTLS(&p.TLS, join(path, "tls"))
		p.Monitors = c.monitorsOf(&p.Monitor, join(path, "monitor"), forServer, netip.Addr{})
	}
}

func (c *checker) checkMembers(p *ServerPool, path string) {
	if len(p.Members) == 0 && c.given(path) && c.ok(path) {
		c.errorf(path, "a server pool needs at least one member")
	}
	seen := map[netip.AddrPort]bool{}
	for i, m := range p.Members {
		at := index(path, i)
		if !c.ok(at) || !m.Address.IsValid() {
			continue
		}
		if seen[m.Address] {
			c.errorf(at, "%s is in this pool twice", m.Address)
		}
		if a := m.Address.Addr(); a.IsUnspecified() || a.IsMulticast() {
			c.errorf(at, "%s can not be the address of a server", a)
		}
		seen[m.Address] = true
	}
}

func (c *checker) checkServerTLS(t *ServerTLS, path string) {
	if ca := c.readFile(&t.CA, join(path, "ca")); ca != nil {
		list, err := parseCertificates(ca)
		if err != nil {
			c.errorf(join(path, "ca"), "%s: %v", t.CA, err)
		}
		t.Roots, t.PEM = x509.NewCertPool(), string(ca)
		for _, cert := range list {
			t.Roots.AddCert(cert)
		}
	}
	if t.ServerName != "" {
		if _, err := netip.ParseAddr(t.ServerName); err != nil && !validHost(t.ServerName) {
			c.errorf(join(path, "server_name"), "%q is not a host name", t.ServerName)
		}
	}
	c.checkServerNames(t, path)
}

func (c *checker) checkServerNames(t *ServerTLS, path string) {
	switch {
	case !t.Enabled || !c.ok(path):
	case t.ServerName == "" && t.SNI == SNIConfigured:
		c.errorf(path, "sni is configured, but there is no server_name to send and to verify")
	case !t.Verify:
		c.warnf(join(path, "verify"), "certificates of the servers are not verified: anybody in between can be them")
	case t.ServerName == "":
		c.warnf(path, "without a server_name, connections of clients that send no SNI can not be verified, and fail")
	}
}
