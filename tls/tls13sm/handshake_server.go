package tls13sm

import (
	"bytes"
	"context"
	"crypto/rand"
	"slices"

	"sslo/tls/sm"
)

// serverHandshake is what the server needs to know until its flight is sent.
type serverHandshake struct {
	c         *Conn
	ctx       context.Context
	hello     *clientHello
	group     CurveID
	retried   []byte // what the transcript has before the second ClientHello
	cert      *Certificate
	scheme    SignatureScheme
	psk       int // number of the PSK; -1: none
	canResume bool
	clientHS  secret
}

func (c *Conn) serverHandshake(ctx context.Context) error {
	h := &serverHandshake{c: c, ctx: ctx, psk: -1}
	for _, step := range []func() error{h.readHello, h.negotiate, h.retry, h.authenticate, h.keyExchange, h.sendFlight, h.readFlight} {
		if err := step(); err != nil {
			return err
		}
	}
	return c.finish()
}

func (h *serverHandshake) readHello() (err error) {
	raw, err := h.c.hear(typeClientHello)
	if err != nil {
		return err
	}
	h.c.rec.SetRules(func(r *sm.Rules) { r.Version, r.DropCCS = version12, true })
	if h.hello, err = parseClientHello(raw); err != nil {
		return err
	}
	if err := h.spans(); err != nil {
		return err
	}
	h.c.random = h.hello.random
	h.c.state.ServerName = h.hello.serverName
	return h.check()
}

// spans refuses more in the record of a ClientHello than the ClientHello: keys change behind it.
func (h *serverHandshake) spans() error { return h.c.rec.SetIn(nil) }

// check refuses hellos that RFC 8446 forbids or that are not for us.
func (h *serverHandshake) check() error {
	m := h.hello
	shares, groups := m.exts.has(extKeyShare), m.exts.has(extSupportedGroups)
	switch {
	case !m.speaks13():
		return sm.Failf(sm.AlertProtocolVersion, "client does not offer TLS 1.3")
	case shares != groups:
		return sm.Failf(sm.AlertMissingExtension, "key_share and supported_groups do not come together")
	case m.psks != nil && m.pskModes == nil:
		return sm.Failf(sm.AlertMissingExtension, "pre_shared_key without psk_key_exchange_modes")
	case !shares || m.psks == nil && m.signatures == nil:
		return sm.Failf(sm.AlertMissingExtension, "ClientHello without key_share or signature_algorithms")
	case m.exts.has(extRecordSizeLimit) && m.recordSizeLimit < 64:
		return sm.Failf(sm.AlertIllegalParameter, "record size limit of %d", m.recordSizeLimit)
	}
	return nil
}

// negotiate chooses suite, group and protocol.
func (h *serverHandshake) negotiate() error {
	c, m := h.c, h.hello
	for _, id := range c.cfg.suites() {
		if s := suiteByID(id); s != nil && slices.Contains(m.suites, id) {
			c.suite = s
			break
		}
	}
	if c.suite == nil {
		return sm.Failf(sm.AlertHandshakeFailure, "no suite in common")
	}
	if err := h.chooseGroup(); err != nil {
		return err
	}
	h.canResume = bytes.IndexByte(m.pskModes, pskDHE) >= 0
	return h.chooseProtocol()
}

// chooseGroup prefers groups that the client sent a share for, to save a round trip.
func (h *serverHandshake) chooseGroup() error {
	for _, g := range h.c.cfg.groups() {
		offered := slices.Contains(h.hello.groups, uint16(g))
		_, n := h.hello.share(g)
		switch {
		case n > 1:
			return sm.Failf(sm.AlertIllegalParameter, "%d key shares for group %d", n, g)
		case n == 1 && !offered:
			return sm.Failf(sm.AlertIllegalParameter, "key share for group %d, which is not offered", g)
		case n == 1 && h.group == 0:
			h.group = g
		}
	}
	if h.group != 0 {
		return nil
	}
	for _, g := range h.c.cfg.groups() {
		if slices.Contains(h.hello.groups, uint16(g)) {
			h.group = g
			return nil
		}
	}
	return sm.Failf(sm.AlertHandshakeFailure, "no group in common")
}

func (h *serverHandshake) chooseProtocol() error {
	ours, theirs := h.c.cfg.NextProtos, h.hello.alpn
	if len(ours) == 0 || len(theirs) == 0 {
		return nil
	}
	for _, p := range ours {
		if slices.Contains(theirs, p) {
			h.c.state.NegotiatedProtocol = p
			return nil
		}
	}
	return sm.Failf(sm.AlertNoApplicationProtocol, "no application protocol in common: client offers %q", theirs)
}

// retry asks for a key share of the group, if there is none.
func (h *serverHandshake) retry() error {
	if _, n := h.hello.share(h.group); n == 1 {
		return nil
	}
	c, first := h.c, h.hello
	c.transcript.Add(first.raw)
	c.transcript.Restart()
	m := &serverHello{random: helloRetryRandom, sessionID: first.sessionID, suite: c.suite.id, retryGroup: h.group, psk: -1}
	h.retried = append(messageHash(first.raw), m.marshal()...)
	c.say(m.raw)
	h.sendCCS()
	if err := c.rec.Flush(); err != nil {
		return err
	}
	c.state.HelloRetryRequest = true
	return h.secondHello(first)
}

func (h *serverHandshake) secondHello(first *clientHello) error {
	early := first.exts.has(extEarlyData)
	if early {
		if err := h.c.rec.SetIn(&passOver{skip: maxEarly}); err != nil {
			return err
		}
	}
	raw, err := h.c.hear(typeClientHello)
	if err != nil {
		return err
	}
	if err := h.spans(); err != nil {
		return err
	}
	second, err := parseClientHello(raw)
	if err != nil {
		return err
	}
	h.hello = second
	if _, n := second.share(h.group); n != 1 || len(second.shares) != 1 {
		return sm.Failf(sm.AlertIllegalParameter, "second ClientHello without the one key share that was asked for")
	}
	if !sameHello(first, second) {
		return sm.Failf(sm.AlertIllegalParameter, "second ClientHello differs from the first")
	}
	return h.check()
}

// sameHello tells that a client changed no more between its hellos than it may.
func sameHello(a, b *clientHello) bool {
	mayChange := func(typ uint16) bool {
		return typ == extKeyShare || typ == extPreSharedKey || typ == extEarlyData || typ == extCookie || typ == 21 // padding
	}
	return a.legacy == b.legacy && a.random == b.random && bytes.Equal(a.sessionID, b.sessionID) &&
		slices.Equal(a.suites, b.suites) && !b.exts.has(extEarlyData) && !b.exts.has(extCookie) &&
		equalExtensions(a.exts, b.exts, mayChange)
}

// sendCCS pleases middleboxes, if the client does.
func (h *serverHandshake) sendCCS() {
	if len(h.hello.sessionID) > 0 && !h.c.state.HelloRetryRequest {
		h.c.rec.WriteChangeCipherSpec(true)
	}
}

// authenticate decides how: by a PSK or by a certificate.
func (h *serverHandshake) authenticate() error {
	if err := h.resume(); err != nil || h.psk >= 0 {
		return err
	}
	if h.hello.signatures == nil {
		return sm.Failf(sm.AlertMissingExtension, "ClientHello without signature_algorithms")
	}
	cert, err := h.certificate()
	if err != nil {
		return err
	}
	h.cert = cert
	return nil
}

func (h *serverHandshake) certificate() (*Certificate, error) {
	candidates := h.c.cfg.Certificates
	if get := h.c.cfg.GetCertificate; get != nil {
		cert, err := get(h.info())
		if err != nil {
			return nil, sm.Fail(sm.AlertHandshakeFailure, err)
		}
		if cert != nil {
			candidates = []Certificate{*cert}
		}
	}
	return h.usable(candidates)
}

// usable is the first certificate that the client can verify; one for the name comes before the others.
func (h *serverHandshake) usable(list []Certificate) (*Certificate, error) {
	var any *Certificate
	for i := range list {
		leaf, err := list[i].leaf()
		if err != nil {
			continue
		}
		scheme := h.c.cfg.schemeFor(leaf.PublicKey, h.hello.signatures)
		if scheme == 0 {
			continue
		}
		named := h.hello.serverName != "" && len(list) > 1 && leaf.VerifyHostname(h.hello.serverName) == nil
		if any == nil || named {
			any, h.scheme = &list[i], scheme
		}
		if named {
			break
		}
	}
	if any == nil {
		return nil, sm.Fail(sm.AlertHandshakeFailure, ErrNoCertificate)
	}
	return any, nil
}

func (h *serverHandshake) info() *ClientHelloInfo {
	m := h.hello
	return &ClientHelloInfo{
		ServerName: m.serverName, CipherSuites: m.suites, SupportedCurves: fromU16s[CurveID](m.groups),
		SignatureSchemes: fromU16s[SignatureScheme](m.signatures), SupportedProtos: m.alpn, Conn: h.c.NetConn(), Context: h.ctx,
	}
}

// keyExchange sends the ServerHello and changes to the handshake keys.
func (h *serverHandshake) keyExchange() error {
	c := h.c
	key, err := generate(h.group)
	if err != nil {
		return sm.Fail(sm.AlertInternalError, err)
	}
	peer, _ := h.hello.share(h.group)
	shared, err := key.agree(peer)
	if err != nil {
		return err
	}
	c.state.CurveID = h.group
	c.transcript.Add(h.hello.raw)
	m := &serverHello{sessionID: h.hello.sessionID, suite: c.suite.id, share: key.share(), psk: h.psk}
	rand.Read(m.random[:])
	c.say(m.marshal())
	h.sendCCS()
	return h.handshakeKeys(shared)
}

func (h *serverHandshake) handshakeKeys(shared []byte) error {
	c := h.c
	c.in, c.out = c.handshakeSecrets(shared)
	h.clientHS = c.in
	in, err := c.keys("CLIENT_HANDSHAKE_TRAFFIC_SECRET", c.in)
	if err != nil {
		return err
	}
	out, err := c.keys("SERVER_HANDSHAKE_TRAFFIC_SECRET", c.out)
	if err != nil {
		return err
	}
	if h.hello.exts.has(extEarlyData) {
		in.skip = maxEarly
	}
	c.rec.SetOut(out)
	return c.rec.SetIn(in)
}
