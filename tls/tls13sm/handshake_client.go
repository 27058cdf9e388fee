package tls13sm

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"slices"
	"strings"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
)

// clientHandshake is what the client needs to know until its last flight is sent.
type clientHandshake struct {
	c       *Conn
	ctx     context.Context
	hello   *clientHello
	answer  *serverHello
	keys    []*ephemeral
	retried []byte // what the transcript has before the second ClientHello
	session *Session
	chains  [][]*smx509.Certificate // of the session
	request *certificateRequest
	mac     []byte // the server's Finished
}

func (c *Conn) clientHandshake(ctx context.Context) error {
	if c.cfg.verifyName() == "" && !c.cfg.InsecureSkipVerify {
		return ErrNoServerName
	}
	h := &clientHandshake{c: c, ctx: ctx}
	for _, step := range []func() error{h.sendHello, h.readHello, h.retry, h.keyExchange, h.readExtensions, h.readAuthentication, h.readFinished, h.sendFlight} {
		if err := step(); err != nil {
			return err
		}
	}
	return c.finish()
}

func (h *clientHandshake) sendHello() error {
	c := h.c
	m := &clientHello{sessionID: make([]byte, 32), suites: c.cfg.suites(), groups: toU16s(c.cfg.groups()),
		signatures: c.cfg.signatures(), alpn: c.cfg.NextProtos, pskModes: []byte{pskDHE}, serverName: sni(c.cfg.ServerName)}
	rand.Read(m.random[:])
	rand.Read(m.sessionID)
	for _, g := range c.cfg.keyShares() {
		if err := h.addShare(m, g); err != nil {
			return err
		}
	}
	h.hello, c.random, c.state.ServerName = m, m.random, c.cfg.ServerName
	h.offerSession()
	m.marshal()
	h.bind()
	c.say(m.raw)
	if err := c.rec.Flush(); err != nil {
		return err
	}
	c.rec.SetRules(func(r *sm.Rules) { r.Version, r.DropCCS = version12, true })
	return nil
}

func (h *clientHandshake) addShare(m *clientHello, g CurveID) error {
	key, err := generate(g)
	if err != nil {
		return sm.Fail(sm.AlertInternalError, err)
	}
	h.keys = append(h.keys, key)
	m.shares = append(m.shares, key.share())
	return nil
}

// sni is the name as it may be sent: addresses may not.
func sni(name string) string {
	name = strings.TrimSuffix(name, ".")
	if net.ParseIP(strings.Trim(name, "[]")) != nil {
		return ""
	}
	return name
}

// readHello reads a ServerHello or a HelloRetryRequest.
func (h *clientHandshake) readHello() error {
	raw, err := h.c.hear(typeServerHello)
	if err != nil {
		return err
	}
	if h.answer, err = parseServerHello(raw); err != nil {
		return err
	}
	return h.checkHello()
}

func (h *clientHandshake) checkHello() error {
	m, c := h.answer, h.c
	if !m.exts.has(extSupportedVersions) {
		if m.downgraded() {
			return sm.Failf(sm.AlertIllegalParameter, "server was made to believe that we do not speak TLS 1.3")
		}
		return sm.Failf(sm.AlertProtocolVersion, "server does not speak TLS 1.3")
	}
	if err := h.checkExtensions(); err != nil {
		return err
	}
	s := suiteByID(m.suite)
	switch {
	case m.version != version13 || m.legacy != version12:
		return sm.Failf(sm.AlertIllegalParameter, "server chose version %#04x, %#04x", m.legacy, m.version)
	case !bytes.Equal(m.sessionID, h.hello.sessionID):
		return sm.Failf(sm.AlertIllegalParameter, "server did not echo the session ID")
	case s == nil || !slices.Contains(h.hello.suites, m.suite):
		return sm.Failf(sm.AlertIllegalParameter, "server chose suite %#04x, which was not offered", m.suite)
	case c.suite != nil && c.suite != s:
		return sm.Failf(sm.AlertIllegalParameter, "server changed its suite")
	}
	c.suite = s
	return nil
}

// checkExtensions refuses what does not belong into the message.
func (h *clientHandshake) checkExtensions() error {
	for _, x := range h.answer.exts {
		ok := x.typ == extSupportedVersions || x.typ == extKeyShare
		if h.answer.retry() {
			ok = ok || x.typ == extCookie
		} else {
			ok = ok || x.typ == extPreSharedKey && h.session != nil
		}
		if !ok {
			return misplaced(x.typ, h.hello.exts13())
		}
	}
	return nil
}

// misplaced is the error for an extension in the wrong place.
func misplaced(typ uint16, offered []uint16) error {
	if slices.Contains(offered, typ) {
		return sm.Failf(sm.AlertIllegalParameter, "extension %d in the wrong message", typ)
	}
	return sm.Failf(sm.AlertUnsupportedExtension, "server answered extension %d, which was not offered", typ)
}

// exts13 are the extensions that our hello has.
func (h *clientHello) exts13() []uint16 {
	list := []uint16{extSupportedGroups, extSignatureAlgorithms, extSupportedVersions, extPSKModes, extKeyShare}
	if h.serverName != "" {
		list = append(list, extServerName)
	}
	if len(h.alpn) > 0 {
		list = append(list, extALPN)
	}
	if h.cookie != nil {
		list = append(list, extCookie)
	}
	if len(h.psks) > 0 {
		list = append(list, extPreSharedKey)
	}
	return list
}

// retry does what a HelloRetryRequest asks for.
func (h *clientHandshake) retry() error {
	c, m := h.c, h.answer
	if !m.retry() {
		return nil
	}
	if m.retryGroup == 0 && m.cookie == nil {
		return sm.Failf(sm.AlertIllegalParameter, "HelloRetryRequest that changes nothing")
	}
	if err := h.retryShare(m.retryGroup); err != nil {
		return err
	}
	if err := c.rec.SetIn(nil); err != nil { // nothing may follow in the record
		return err
	}
	h.retried = append(messageHash(h.hello.raw), m.raw...)
	c.transcript.Restart()
	c.transcript.Add(m.raw)
	c.state.HelloRetryRequest = true
	h.hello.cookie = m.cookie
	h.hello.marshal()
	h.bind()
	c.rec.WriteChangeCipherSpec(true)
	c.say(h.hello.raw)
	if err := c.rec.Flush(); err != nil {
		return err
	}
	return h.secondAnswer(m.retryGroup)
}

func (h *clientHandshake) secondAnswer(g CurveID) error {
	if err := h.readHello(); err != nil {
		return err
	}
	if h.answer.retry() {
		return sm.Failf(sm.AlertUnexpectedMessage, "second HelloRetryRequest")
	}
	if g != 0 && h.answer.share.group != g {
		return sm.Failf(sm.AlertIllegalParameter, "server changed its group")
	}
	return nil
}

func (h *clientHandshake) retryShare(g CurveID) error {
	if g == 0 {
		return nil
	}
	if _, n := h.hello.share(g); n > 0 || !slices.Contains(h.hello.groups, uint16(g)) {
		return sm.Failf(sm.AlertIllegalParameter, "server asks for group %d", g)
	}
	h.keys, h.hello.shares = nil, nil
	return h.addShare(h.hello, g)
}

// keyExchange changes to the handshake keys.
func (h *clientHandshake) keyExchange() error {
	c, m := h.c, h.answer
	i := slices.IndexFunc(h.keys, func(k *ephemeral) bool { return k.group == m.share.group })
	if !m.exts.has(extKeyShare) {
		return sm.Failf(sm.AlertMissingExtension, "ServerHello without key_share")
	}
	if i < 0 {
		return sm.Failf(sm.AlertIllegalParameter, "server chose group %d, which we sent no share for", m.share.group)
	}
	if err := h.chooseSession(); err != nil {
		return err
	}
	shared, err := h.keys[i].agree(m.share.data)
	if err != nil {
		return err
	}
	c.state.CurveID = m.share.group
	c.transcript.Add(m.raw)
	return h.handshakeKeys(shared)
}

// chooseSession learns whether the server resumes.
func (h *clientHandshake) chooseSession() error {
	c := h.c
	switch {
	case h.answer.psk < 0:
		h.session = nil
		c.schedule = newSchedule(nil)
		return nil
	case h.answer.psk > 0 || h.session == nil:
		return sm.Failf(sm.AlertIllegalParameter, "server chose PSK %d", h.answer.psk)
	}
	c.schedule = newSchedule(h.session.psk)
	c.state.DidResume = true
	c.peer(h.session.certs, h.chains)
	return nil
}

func (h *clientHandshake) handshakeKeys(shared []byte) error {
	c := h.c
	c.out, c.in = c.handshakeSecrets(shared)
	out, err := c.keys("CLIENT_HANDSHAKE_TRAFFIC_SECRET", c.out)
	if err != nil {
		return err
	}
	in, err := c.keys("SERVER_HANDSHAKE_TRAFFIC_SECRET", c.in)
	if err != nil {
		return err
	}
	if err := c.rec.SetIn(in); err != nil {
		return err
	}
	if !c.state.HelloRetryRequest {
		c.rec.WriteChangeCipherSpec(true)
	}
	c.rec.SetOut(out)
	return nil
}

func (h *clientHandshake) readExtensions() error {
	c := h.c
	raw, err := c.hear(typeEncryptedExtensions)
	if err != nil {
		return err
	}
	m, err := parseEncryptedExtensions(raw)
	if err != nil {
		return err
	}
	offered := h.hello.exts13()
	for _, x := range m.exts {
		if x.typ != extServerName && x.typ != extSupportedGroups && x.typ != extALPN || !slices.Contains(offered, x.typ) {
			return misplaced(x.typ, offered)
		}
		if x.typ == extServerName && len(x.body) != 0 {
			return sm.Failf(sm.AlertDecodeError, "server's server_name is not empty")
		}
	}
	if m.alpn != "" && !slices.Contains(c.cfg.NextProtos, m.alpn) {
		return sm.Failf(sm.AlertIllegalParameter, "server chose protocol %q, which was not offered", m.alpn)
	}
	c.state.NegotiatedProtocol = m.alpn
	c.transcript.Add(raw)
	return nil
}
