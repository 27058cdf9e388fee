package policy

import (
	"net/netip"
	"slices"
	"strings"

	"sslo/session"
)

// Matches reports whether the rule's conditions hold.
func (r *Rule) Matches(in Input) bool {
	in.SNI = canonical(in.SNI)
	if in.Protocol == 0 {
		in.Protocol = session.TCP
	}
	return r.matches(&in)
}

// Held is a condition of a rule, by its name in the configuration, and whether it holds.
type Held struct {
	Condition string
	Holds     bool
}

// Check tells of each condition whether it holds, and whether the rule matches.
func (r *Rule) Check(in Input) (list []Held, matches bool) {
	in.SNI = canonical(in.SNI)
	if in.Protocol == 0 {
		in.Protocol = session.TCP
	}
	r.When.each(&in, func(condition string, holds bool) { list = append(list, Held{condition, holds}) })
	return list, r.matches(&in)
}

func (r *Rule) matches(in *Input) bool {
	var given, held int
	r.When.each(in, func(_ string, holds bool) {
		if given++; holds {
			held++
		}
	})
	if r.Match == Any {
		return held > 0 || given == 0
	}
	return held == given
}

// each tells of every condition that is given.
func (w *Conditions) each(in *Input, tell func(condition string, holds bool)) {
	if len(w.Source) > 0 {
		tell("source", contains(w.Source, in.Source.Addr()))
	}
	if len(w.Destination) > 0 {
		tell("destination", contains(w.Destination, in.Destination.Addr()))
	}
	if len(w.Port) > 0 {
		tell("port", inRanges(w.Port, in.Destination.Port()))
	}
	if len(w.Protocol) > 0 {
		tell("protocol", slices.Contains(w.Protocol, in.Protocol))
	}
	if len(w.Link) > 0 {
		tell("link", slices.Contains(w.Link, in.Link))
	}
	if len(w.SNI) > 0 {
		tell("sni", matchesName(w.SNI, in.SNI))
	}
	if len(w.ALPN) > 0 {
		tell("alpn", overlap(w.ALPN, in.ALPN))
	}
	if len(w.TLSVersion) > 0 {
		tell("tls_version", slices.Contains(w.TLSVersion, HighestVersion(in.TLSVersions)))
	}
	if len(w.TLSFamily) > 0 {
		tell("tls_family", slices.Contains(w.TLSFamily, in.TLSFamily))
	}
}

// Unconditional reports whether the rule matches every connection.
func (r *Rule) Unconditional() bool {
	w := &r.When
	return len(w.Source)+len(w.Destination)+len(w.Port)+len(w.Protocol)+len(w.Link)+
		len(w.SNI)+len(w.ALPN)+len(w.TLSVersion)+len(w.TLSFamily) == 0
}

// MatchesName reports whether a server name is one of the patterns: a name in lower case,
// "*.suffix", or "" for no name.
func MatchesName(patterns []string, name string) bool {
	return matchesName(patterns, canonical(name))
}

func matchesName(patterns []string, name string) bool {
	for _, p := range patterns {
		if p == name {
			return true
		}
		if len(p) > 2 && p[0] == '*' && len(name) > len(p)-1 && strings.HasSuffix(name, p[1:]) {
			return true
		}
	}
	return false
}

// canonical allocates only for names that are not in lower case already.
func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func inRanges(ranges []PortRange, port uint16) bool {
	for _, r := range ranges {
		if r.From <= port && port <= r.To {
			return true
		}
	}
	return false
}

func overlap(a, b []string) bool {
	for _, s := range b {
		if slices.Contains(a, s) {
			return true
		}
	}
	return false
}

// HighestVersion of those that a client offers. It ignores GREASE and versions to come (RFC 8701): they are no
// promise of anything.
func HighestVersion(versions []uint16) uint16 {
	var top uint16
	for _, v := range versions {
		if v >= 0x0300 && v <= 0x0304 {
			top = max(top, v)
		}
	}
	return top
}
