package session

import "net/netip"

// Networks that are reserved for tests of devices (RFC 2544, RFC 5180), so that no client and no
// server is in them: the box's own connections through a device, made by monitors, have both their
// addresses there and belong to no session.
var (
	Reserved4 = netip.MustParsePrefix("198.18.0.0/15")
	Reserved6 = netip.MustParsePrefix("2001:2::/48")
)

// Reserved says whether an address is one of those that only monitors use.
func Reserved(a netip.Addr) bool { return Reserved4.Contains(a.Unmap()) || Reserved6.Contains(a) }
