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

func (r *Rule) matches(in *Input) bool {
	var given, held int
	count := func(isGiven, holds bool) {
		if isGiven {
			given++
			if holds {
				held++
			}
		}
	}
	w := &r.When
	count(len(w.Source) > 0, contains(w.Source, in.Source.Addr()))
	count(len(w.Destination) > 0, contains(w.Destination, in.Destination.Addr()))
	count(len(w.Port) > 0, inRanges(w.Port, in.Destination.Port()))
	count(len(w.Protocol) > 0, slices.Contains(w.Protocol, in.Protocol))
	count(len(w.Link) > 0, slices.Contains(w.Link, in.Link))
	count(len(w.SNI) > 0, matchesName(w.SNI, in.SNI))
	count(len(w.ALPN) > 0, overlap(w.ALPN, in.ALPN))
	count(len(w.TLSVersion) > 0, slices.Contains(w.TLSVersion, HighestVersion(in.TLSVersions)))
	if r.Match == Any {
		return held > 0 || given == 0
	}
	return held == given
}

// Unconditional reports whether the rule matches every connection.
func (r *Rule) Unconditional() bool {
	w := &r.When
	return len(w.Source)+len(w.Destination)+len(w.Port)+len(w.Protocol)+len(w.Link)+
		len(w.SNI)+len(w.ALPN)+len(w.TLSVersion) == 0
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
