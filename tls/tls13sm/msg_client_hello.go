package tls13sm

import (
	"bytes"

	"sslo/tls/sm"
)

// clientHello is the first message.
type clientHello struct {
	raw       []byte
	legacy    uint16
	random    [32]byte
	sessionID []byte
	suites    []uint16
	exts      extensions

	serverName      string
	groups          []uint16
	signatures      []uint16
	versions        []uint16
	alpn            []string
	shares          []keyShare
	pskModes        []byte
	cookie          []byte
	recordSizeLimit uint16
	psks            []pskIdentity
	binders         [][]byte
	bindersSize     int // bytes at the end of raw
}

type pskIdentity struct {
	label []byte
	age   uint32 // obfuscated
}

func parseClientHello(raw []byte) (*clientHello, error) {
	h := &clientHello{raw: raw}
	r := reader{b: raw[4:]}
	h.legacy = r.u16()
	copy(h.random[:], r.take(32))
	h.sessionID = r.vec8()
	suites := r.sub16()
	h.suites = suites.u16s()
	compression := r.vec8()
	if r.bad || suites.bad || len(h.sessionID) > 32 || len(h.suites) == 0 {
		return nil, sm.Failf(sm.AlertDecodeError, "ClientHello is malformed")
	}
	var block reader
	if r.more() {
		block = r.sub16()
	}
	if !r.done() {
		return nil, sm.Failf(sm.AlertDecodeError, "ClientHello has a malformed tail")
	}
	var err error
	if h.exts, err = parseExtensions(block); err != nil {
		return nil, err
	}
	if err := h.extensions(); err != nil {
		return nil, err
	}
	if !bytes.Equal(compression, []byte{0}) && h.speaks13() {
		return nil, sm.Failf(sm.AlertIllegalParameter, "compression offered")
	}
	return h, nil
}

func (h *clientHello) extensions() error {
	for i, x := range h.exts {
		if x.typ == extPreSharedKey && i != len(h.exts)-1 {
			return sm.Failf(sm.AlertIllegalParameter, "pre_shared_key is not the last extension")
		}
		if !h.extension(x) {
			return sm.Failf(sm.AlertDecodeError, "extension %d of the ClientHello is malformed", x.typ)
		}
	}
	if h.psks != nil && len(h.psks) != len(h.binders) {
		return sm.Failf(sm.AlertIllegalParameter, "%d PSKs with %d binders", len(h.psks), len(h.binders))
	}
	return nil
}

func (h *clientHello) extension(x extension) (ok bool) {
	r := reader{b: x.body}
	switch x.typ {
	case extServerName:
		h.serverName, ok = parseServerName(x.body)
		return ok
	case extSupportedGroups:
		h.groups, ok = parseU16List(x.body)
		return ok
	case extSignatureAlgorithms:
		h.signatures, ok = parseU16List(x.body)
		return ok
	case extSignatureAlgorithmsC:
		_, ok = parseU16List(x.body)
		return ok
	case extALPN:
		h.alpn, ok = parseALPN(x.body)
		return ok
	case extSupportedVersions:
		list := r.sub8()
		h.versions = list.u16s()
		return r.done() && list.done() && len(h.versions) > 0
	case extKeyShare:
		list := r.sub16()
		for list.more() {
			h.shares = append(h.shares, list.share())
		}
		return r.done() && list.done()
	case extPSKModes:
		h.pskModes = r.vec8()
		return r.done() && len(h.pskModes) > 0
	case extCookie:
		h.cookie = r.vec16()
		return r.done() && len(h.cookie) > 0
	case extRecordSizeLimit:
		h.recordSizeLimit = r.u16()
		return r.done()
	case extEarlyData:
		return len(x.body) == 0
	case extPreSharedKey:
		return h.preSharedKeys(r)
	}
	return true
}

func (h *clientHello) preSharedKeys(r reader) bool {
	list := r.sub16()
	for list.more() {
		id := pskIdentity{label: list.vec16(), age: list.u32()}
		h.psks = append(h.psks, id)
		if len(id.label) == 0 {
			return false
		}
	}
	h.bindersSize = len(r.b)
	binders := r.sub16()
	for binders.more() {
		b := binders.vec8()
		if len(b) < 32 {
			return false
		}
		h.binders = append(h.binders, b)
	}
	return r.done() && list.done() && binders.done() && len(h.psks) > 0 && len(h.binders) > 0
}

func (h *clientHello) speaks13() bool {
	for _, v := range h.versions {
		if v == version13 {
			return true
		}
	}
	return false
}

// withoutBinders is what the binders are computed over.
func (h *clientHello) withoutBinders() []byte { return h.raw[:len(h.raw)-h.bindersSize] }

// share is the client's key for a group, and how many it sent.
func (h *clientHello) share(g CurveID) (data []byte, n int) {
	for _, s := range h.shares {
		if s.group == g {
			data = s.data
			n++
		}
	}
	return data, n
}

// marshal writes the message; the binders are zeros of the right length.
func (h *clientHello) marshal() []byte {
	h.raw = message(typeClientHello, func(w *builder) {
		w.u16(version12)
		w.raw(h.random[:])
		w.bytes8(h.sessionID)
		w.u16s(h.suites)
		w.bytes8([]byte{0})
		w.vec16(func() { h.marshalExtensions(w) })
	})
	return h.raw
}

func (h *clientHello) marshalExtensions(w *builder) {
	if h.serverName != "" {
		addExtension(w, extServerName, func() {
			w.vec16(func() { w.u8(0); w.bytes16([]byte(h.serverName)) })
		})
	}
	addExtension(w, extSupportedGroups, func() { w.u16s(h.groups) })
	addExtension(w, extSignatureAlgorithms, func() { w.u16s(h.signatures) })
	if len(h.alpn) > 0 {
		addALPN(w, h.alpn)
	}
	addExtension(w, extSupportedVersions, func() { w.vec8(func() { w.u16(version13) }) })
	if h.cookie != nil {
		addExtension(w, extCookie, func() { w.bytes16(h.cookie) })
	}
	addExtension(w, extPSKModes, func() { w.bytes8(h.pskModes) })
	addExtension(w, extKeyShare, func() {
		w.vec16(func() {
			for _, s := range h.shares {
				w.share(s)
			}
		})
	})
	if len(h.psks) > 0 {
		h.marshalPSKs(w)
	}
}

func (h *clientHello) marshalPSKs(w *builder) {
	addExtension(w, extPreSharedKey, func() {
		w.vec16(func() {
			for _, id := range h.psks {
				w.bytes16(id.label)
				w.u32(id.age)
			}
		})
		h.bindersSize = 2 + len(h.psks)*(1+secretSize)
		w.vec16(func() {
			for range h.psks {
				w.bytes8(make([]byte, secretSize))
			}
		})
	})
}

// setBinder writes the binder of the only PSK.
func (h *clientHello) setBinder(mac []byte) { copy(h.raw[len(h.raw)-secretSize:], mac) }
