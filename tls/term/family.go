package term

import (
	"crypto/tls"
	"fmt"
	"slices"

	"sslo/tls/hello"
	"sslo/tls/tls13sm"
)

// Family is a protocol family, each with a stack of its own.
type Family uint8

// Families.
const (
	TLS     Family = iota + 1 // crypto/tls
	TLCP                      // GB/T 38636
	TLS13SM                   // RFC 8998
)

var familyNames = map[Family]string{TLS: "tls", TLCP: "tlcp", TLS13SM: "tls13-sm"}

func (f Family) String() string { return familyNames[f] }

// ParseFamily reads a name as String writes it.
func ParseFamily(s string) (Family, error) {
	for f, name := range familyNames {
		if name == s {
			return f, nil
		}
	}
	return 0, fmt.Errorf("unknown protocol %q: tls, tlcp or tls13-sm", s)
}

// stdSuites are the suites that crypto/tls could choose.
var stdSuites = func() map[uint16]bool {
	m := map[uint16]bool{}
	for _, s := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		m[s.ID] = true
	}
	return m
}()

// offers tells whether a client can speak a family.
func offers(h *hello.Hello, f Family, tolerant bool) bool {
	switch f {
	case TLCP:
		return h.TLCP()
	case TLS13SM:
		sm := slices.Contains(h.Suites, tls13sm.TLS_SM4_GCM_SM3) || slices.Contains(h.Suites, tls13sm.TLS_SM4_CCM_SM3)
		return sm && !h.TLCP() && slices.Contains(h.Versions, hello.TLS13) && (tolerant ||
			slices.Contains(h.Groups, uint16(tls13sm.CurveSM2)) && slices.Contains(h.Signatures, uint16(tls13sm.SM2SigSM3)))
	}
	return !h.TLCP() && slices.ContainsFunc(h.Suites, func(id uint16) bool { return stdSuites[id] })
}
