package config

import (
	"net/netip"
	"slices"

	"sslo/policy"
	"sslo/policy/schedule"
	"sslo/session"
)

func (c *checker) checkRules(vs *VirtualServer, path string) {
	seen := map[string]bool{}
	last := "" // the first rule that always matches
	for i := range vs.Rules {
		r, at := &vs.Rules[i], index(path, i)
		if msg := checkName(r.Name); r.Name != "" && msg != "" {
			c.errorf(join(at, "name"), "%s", msg)
		}
		if r.Name != "" && seen[r.Name] {
			c.errorf(join(at, "name"), "there is a rule %q already", r.Name)
		}
		seen[r.Name] = true
		c.checkWhen(vs, &r.When, join(at, "when"))
		c.checkOutcome(r, at)
		if last != "" {
			c.warnf(at, "is never reached: rule %q always matches", last)
		}
		if p := r.Policy(); p.Unconditional() && r.OnFailure != policy.FailNext && last == "" && c.ok(at) {
			last = r.Name
		}
	}
}

func (c *checker) checkOutcome(r *Rule, path string) {
	if r.Chain != policy.NoChain {
		c.chain(r.Chain, join(path, "chain"))
	}
	c.serverPool(r.ServerPool, join(path, "server_pool"))
	if r.Action == policy.Reject || r.Action == policy.Drop {
		for _, key := range []string{"chain", "server_pool", "on_failure"} {
			if p := join(path, key); c.given(p) {
				c.errorf(p, "has no meaning with action %s", r.Action)
			}
		}
	}
}

func (c *checker) checkWhen(vs *VirtualServer, w *When, path string) {
	for i, s := range w.SNI {
		at := index(join(path, "sni"), i)
		name, ok := canonicalSNI(s)
		if w.SNI[i] = name; !ok && c.ok(at) {
			c.errorf(at, "%q is neither a host name nor *. and a host name", s)
		}
	}
	for i, l := range w.Link {
		at := index(join(path, "link"), i)
		if c.link(l, at) != nil && !slices.Contains(vs.Links, l) {
			c.errorf(at, "never matches: link %q is not a link of virtual server %q", l, vs.Name)
		}
	}
	for i, p := range w.Protocol {
		if at := index(join(path, "protocol"), i); p == session.UDP {
			c.errorf(at, "never matches: a virtual server of type %s is TCP", Word(vs.Type))
		}
	}
	for i, a := range w.ALPN {
		if at := index(join(path, "alpn"), i); c.ok(at) && (a == "" || len(a) > 255) {
			c.errorf(at, "a protocol has 1 to 255 characters")
		}
	}
	for i, f := range w.TLSFamily {
		if at := index(join(path, "tls_family"), i); c.ok(at) && !slices.Contains(vs.TLS.Protocols, f) {
			c.errorf(at, "never matches: virtual server %q does not speak %s", vs.Name, Word(f))
		}
	}
	c.warnNeverMatches(vs, w, path)
}

// warnNeverMatches looks for conditions on what the virtual server never listens to.
func (c *checker) warnNeverMatches(vs *VirtualServer, w *When, path string) {
	for i, r := range w.Port {
		fits := func(l netip.AddrPort) bool { return r.From <= l.Port() && l.Port() <= r.To }
		if at := index(join(path, "port"), i); c.ok(at) && !slices.ContainsFunc(vs.Listen, fits) {
			c.warnf(at, "never matches: virtual server %q listens on no such port", vs.Name)
		}
	}
	for i, p := range w.Destination {
		fits := func(l netip.AddrPort) bool { return p.Contains(l.Addr()) || l.Addr().IsUnspecified() }
		if at := index(join(path, "destination"), i); c.ok(at) && !slices.ContainsFunc(vs.Listen, fits) {
			c.warnf(at, "never matches: virtual server %q has no such address", vs.Name)
		}
	}
}

// Policy is the rule as package policy takes it.
func (r *Rule) Policy() policy.Rule {
	w := &r.When
	out := policy.Rule{Name: r.Name, Match: r.Match, Action: r.Action, Chain: r.Chain, ServerPool: r.ServerPool,
		OnFailure: r.OnFailure, When: policy.Conditions{Source: w.Source, Destination: w.Destination, Port: w.Port,
			Protocol: w.Protocol, Link: w.Link, SNI: w.SNI, ALPN: w.ALPN}}
	for _, v := range w.TLSVersion {
		out.When.TLSVersion = append(out.When.TLSVersion, uint16(v))
	}
	for _, f := range w.TLSFamily {
		out.When.TLSFamily = append(out.When.TLSFamily, Word(f))
	}
	return out
}

// Scheduling is what decides about the virtual server's connections.
func (v *VirtualServer) Scheduling() schedule.Server {
	s := schedule.Server{Name: v.Name, Script: v.Script.Program, ScriptRejects: v.Script.OnError == ScriptReject,
		Own: policy.Defaults{Chain: v.Chain, ServerPool: v.ServerPool}}
	for i := range v.Rules {
		s.Rules = append(s.Rules, v.Rules[i].Policy())
	}
	return s
}
