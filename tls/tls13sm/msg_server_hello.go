package tls13sm

import (
	"bytes"

	"sslo/tls/sm"
)

// helloRetryRandom marks a ServerHello as a HelloRetryRequest.
var helloRetryRandom = [32]byte{
	0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
	0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
}

// serverHello is a ServerHello or a HelloRetryRequest.
type serverHello struct {
	raw       []byte
	legacy    uint16
	random    [32]byte
	sessionID []byte
	suite     uint16
	exts      extensions

	version    uint16
	share      keyShare // of a ServerHello
	retryGroup CurveID  // of a HelloRetryRequest; 0: none
	cookie     []byte
	psk        int // number of the PSK; -1: none
}

func (h *serverHello) retry() bool { return h.random == helloRetryRandom }

func parseServerHello(raw []byte) (*serverHello, error) {
	h := &serverHello{raw: raw, psk: -1}
	r := reader{b: raw[4:]}
	h.legacy = r.u16()
	copy(h.random[:], r.take(32))
	h.sessionID = r.vec8()
	h.suite = r.u16()
	compression := r.u8()
	var block reader
	if r.more() {
		block = r.sub16()
	}
	if !r.done() || len(h.sessionID) > 32 {
		return nil, sm.Failf(sm.AlertDecodeError, "ServerHello is malformed")
	}
	var err error
	if h.exts, err = parseExtensions(block); err != nil {
		return nil, err
	}
	for _, x := range h.exts {
		if !h.extension(x) {
			return nil, sm.Failf(sm.AlertDecodeError, "extension %d of the ServerHello is malformed", x.typ)
		}
	}
	if compression != 0 {
		return nil, sm.Failf(sm.AlertIllegalParameter, "server chose compression")
	}
	return h, nil
}

func (h *serverHello) extension(x extension) bool {
	r := reader{b: x.body}
	switch x.typ {
	case extSupportedVersions:
		h.version = r.u16()
	case extKeyShare:
		if h.retry() {
			h.retryGroup = CurveID(r.u16())
			return r.done() && h.retryGroup != 0
		}
		h.share = r.share()
		return r.done() && len(h.share.data) > 0
	case extCookie:
		h.cookie = r.vec16()
		return r.done() && len(h.cookie) > 0
	case extPreSharedKey:
		h.psk = int(r.u16())
	default:
		return true
	}
	return r.done()
}

// downgraded tells that the random says that the server could do better than its version.
func (h *serverHello) downgraded() bool {
	tail := h.random[24:]
	return bytes.Equal(tail, []byte("DOWNGRD\x00")) || bytes.Equal(tail, []byte("DOWNGRD\x01"))
}

func (h *serverHello) marshal() []byte {
	h.raw = message(typeServerHello, func(w *builder) {
		w.u16(version12)
		w.raw(h.random[:])
		w.bytes8(h.sessionID)
		w.u16(h.suite)
		w.u8(0)
		w.vec16(func() { h.marshalExtensions(w) })
	})
	return h.raw
}

func (h *serverHello) marshalExtensions(w *builder) {
	addExtension(w, extSupportedVersions, func() { w.u16(version13) })
	if h.retryGroup != 0 {
		addExtension(w, extKeyShare, func() { w.u16(uint16(h.retryGroup)) })
	}
	if h.share.group != 0 {
		addExtension(w, extKeyShare, func() { w.share(h.share) })
	}
	if h.psk >= 0 {
		addExtension(w, extPreSharedKey, func() { w.u16(uint16(h.psk)) })
	}
}
