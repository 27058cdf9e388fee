package tls13sm

import (
	"crypto/tls"

	"sslo/tls/sm"
)

// Handshake types.
const (
	typeClientHello         = 1
	typeServerHello         = 2
	typeNewSessionTicket    = 4
	typeEncryptedExtensions = 8
	typeCertificate         = 11
	typeCertificateRequest  = 13
	typeCertificateVerify   = 15
	typeFinished            = 20
	typeKeyUpdate           = 24
	typeMessageHash         = 254
)

// Extensions.
const (
	extServerName           = 0
	extStatusRequest        = 5
	extSupportedGroups      = 10
	extSignatureAlgorithms  = 13
	extALPN                 = 16
	extSCT                  = 18
	extRecordSizeLimit      = 28
	extPreSharedKey         = 41
	extEarlyData            = 42
	extSupportedVersions    = 43
	extCookie               = 44
	extPSKModes             = 45
	extAuthorities          = 47
	extSignatureAlgorithmsC = 50
	extKeyShare             = 51
)

const (
	version12 = tls.VersionTLS12
	version13 = tls.VersionTLS13

	pskDHE = 1 // psk_dhe_ke
)

// extension is one extension, with its body as on the wire.
type extension struct {
	typ  uint16
	body []byte
}

type extensions []extension

func (e extensions) find(typ uint16) ([]byte, bool) {
	for _, x := range e {
		if x.typ == typ {
			return x.body, true
		}
	}
	return nil, false
}

func (e extensions) has(typ uint16) bool {
	_, ok := e.find(typ)
	return ok
}

// seen remembers extension types; there may be thousands in one message.
type seen [1 << 10]uint64

func (s *seen) add(typ uint16) (fresh bool) {
	word, bit := typ>>6, uint64(1)<<(typ&63)
	fresh = s[word]&bit == 0
	s[word] |= bit
	return fresh
}

// parseExtensions reads a block of extensions. None may come twice.
func parseExtensions(r reader) (list extensions, err error) {
	var types seen
	for r.more() {
		x := extension{typ: r.u16()}
		x.body = r.vec16()
		if !r.bad && !types.add(x.typ) {
			return nil, sm.Failf(sm.AlertIllegalParameter, "extension %d twice", x.typ)
		}
		list = append(list, x)
	}
	if r.bad {
		return nil, sm.Failf(sm.AlertDecodeError, "extensions are cut")
	}
	return list, nil
}

// addExtension writes an extension.
func addExtension(w *builder, typ uint16, f func()) {
	w.u16(typ)
	w.vec16(f)
}

// parseSignatures, parseALPN and the like read one extension's body; ok tells that it is whole.
func parseU16List(b []byte) (list []uint16, ok bool) {
	r := reader{b: b}
	in := r.sub16()
	list = in.u16s()
	return list, r.done() && in.done() && len(list) > 0
}

func parseServerName(b []byte) (name string, ok bool) {
	r := reader{b: b}
	list := r.sub16()
	for first := true; list.more(); first = false {
		kind, host := list.u8(), list.vec16()
		if kind != 0 || !first {
			continue
		}
		if name = string(host); name == "" {
			return "", false
		}
	}
	return name, r.done() && list.done() && len(b) > 2
}

func parseALPN(b []byte) (list []string, ok bool) {
	r := reader{b: b}
	in := r.sub16()
	for in.more() {
		p := in.vec8()
		if len(p) == 0 {
			return nil, false
		}
		list = append(list, string(p))
	}
	return list, r.done() && in.done() && len(list) > 0
}

func addALPN(w *builder, protocols []string) {
	addExtension(w, extALPN, func() {
		w.vec16(func() {
			for _, p := range protocols {
				w.bytes8([]byte(p))
			}
		})
	})
}

func parseAuthorities(b []byte) (list [][]byte, ok bool) {
	r := reader{b: b}
	in := r.sub16()
	for in.more() {
		list = append(list, in.vec16())
	}
	return list, r.done() && in.done() && len(list) > 0
}

// keyShare is a public key for one group.
type keyShare struct {
	group CurveID
	data  []byte
}

func (r *reader) share() keyShare {
	g := CurveID(r.u16())
	return keyShare{g, r.vec16()}
}

func (w *builder) share(s keyShare) {
	w.u16(uint16(s.group))
	w.bytes16(s.data)
}
