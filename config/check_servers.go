package config

import (
	"net/netip"
	"slices"

	"sslo/chain"
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
		if w := join(at, "weight"); c.given(w) && p.Method == chain.RoundRobin {
			c.warnf(w, "has no effect with method %s", Word(p.Method))
		}
		seen[m.Address] = true
	}
}

func (c *checker) checkServerTLS(t *ServerTLS, path string) {
	t.Trust = c.readTrust(&t.CA, &t.CRL, join(path, "ca"), join(path, "crl"))
	c.checkTrustFits(t.Trust, t.Protocol, t.CA, join(path, "ca"))
	c.checkServerSM(t, path)
	if t.ServerName != "" {
		if _, err := netip.ParseAddr(t.ServerName); err != nil && !validHost(t.ServerName) {
			c.errorf(join(path, "server_name"), "%q is not a host name", t.ServerName)
		}
	}
	c.checkServerNames(t, path)
}

// checkServerSM looks at what only concerns some protocols, and at the certificates that servers are shown.
func (c *checker) checkServerSM(t *ServerTLS, path string) {
	protocols := []Protocol{Protocol(t.Protocol)}
	if t.Protocol == ServerAuto {
		protocols = []Protocol{ProtocolTLS, ProtocolTLS13SM, ProtocolTLCP}
	}
	c.checkSuites(t.SM.Suites, protocols, join(path, "sm.suites"))
	at := join(path, "certificates")
	c.duplicates(at, t.Certificates)
	kinds := map[bool]string{}
	for i, name := range t.Certificates {
		place := index(at, i)
		crt := reference(c, "certificates", "certificate", name, place, c.Config.Certificates)
		if crt == nil || crt.Leaf() == nil {
			continue
		}
		isSM := crt.SM.Certificate != nil
		if other, twice := kinds[isSM]; twice {
			c.errorf(place, "there may be one certificate of SM2 and one of another kind, and %q is like %q", name, other)
		}
		kinds[isSM] = name
		if ok, why := anyServed(protocols, crt); !ok {
			c.errorf(place, "%s can not use it: it %s", Word(t.Protocol), why)
		}
	}
	if _, given := kinds[true]; !given && slices.ContainsFunc(t.SM.Suites, SMSuite.ecdhe) && !slices.ContainsFunc(t.SM.Suites, SMSuite.eccAlso) {
		c.errorf(join(path, "sm.suites"), "the ECDHE suites need a pair of SM2 certificates in certificates")
	}
}

// eccAlso are the suites of TLCP that do without a certificate of the client.
func (s SMSuite) eccAlso() bool { return s.protocol() == ProtocolTLCP && !s.ecdhe() }

// anyServed tells whether one of the protocols can show a certificate to a server. A client of TLCP needs no pair with ECC.
func anyServed(protocols []Protocol, crt *Certificate) (ok bool, why string) {
	for _, p := range protocols {
		if p == ProtocolTLCP {
			p = ProtocolTLS13SM
		}
		if why = p.usable(crt); why == "" {
			return true, ""
		}
	}
	return false, why
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
