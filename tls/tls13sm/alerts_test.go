package tls13sm

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"
)

// edit changes the n-th message of an end.
type edit struct {
	fromServer bool
	n          int
	change     func(msg []byte) []byte
}

func body(typ uint8, b []byte) []byte { return message(typ, func(w *builder) { w.raw(b) }) }

// hello changes the extensions of a ClientHello (or ServerHello) and what is before them.
func hello(change func(head []byte, x extensions) ([]byte, extensions)) func([]byte) []byte {
	return func(msg []byte) []byte {
		at := 4 + 2 + 32
		at += 1 + int(msg[at])
		if msg[0] == typeServerHello {
			at += 3
		} else {
			at += 2 + int(binary.BigEndian.Uint16(msg[at:]))
			at += 1 + int(msg[at])
		}
		exts, _ := parseExtensions(reader{b: msg[at+2:]})
		head, exts := change(slices.Clone(msg[4:at]), exts)
		return message(msg[0], func(w *builder) {
			w.raw(head)
			w.vec16(func() {
				for _, x := range exts {
					addExtension(w, x.typ, func() { w.raw(x.body) })
				}
			})
		})
	}
}

func exts(change func(x extensions) extensions) func([]byte) []byte {
	return hello(func(head []byte, x extensions) ([]byte, extensions) { return head, change(x) })
}

func without(types ...uint16) func([]byte) []byte {
	return exts(func(x extensions) extensions {
		return slices.DeleteFunc(x, func(e extension) bool { return slices.Contains(types, e.typ) })
	})
}

func with(typ uint16, body ...byte) func([]byte) []byte {
	return exts(func(x extensions) extensions { return append(x, extension{typ, body}) })
}

func replaced(typ uint16, body ...byte) func([]byte) []byte {
	return exts(func(x extensions) extensions {
		for i := range x {
			if x[i].typ == typ {
				x[i].body = body
			}
		}
		return x
	})
}

func headByte(i int, v byte) func([]byte) []byte {
	return hello(func(head []byte, x extensions) ([]byte, extensions) { head[i] = v; return head, x })
}

func flip(i int) func([]byte) []byte {
	return func(msg []byte) []byte {
		if i < 0 {
			i += len(msg)
		}
		msg[i] ^= 0x10
		return msg
	}
}

func become(typ uint8, b ...byte) func([]byte) []byte {
	return func([]byte) []byte { return body(typ, b) }
}

func dropped([]byte) []byte { return nil }

func smShare(change func(point []byte) []byte) func([]byte) []byte {
	return exts(func(x extensions) extensions {
		for i := range x {
			if x[i].typ == extKeyShare {
				r := reader{b: x[i].body}
				list := r.sub16()
				s := list.share()
				w := &builder{}
				w.vec16(func() { w.share(keyShare{s.group, change(slices.Clone(s.data))}) })
				x[i].body = w.b
			}
		}
		return x
	})
}

// A message that is wrong is answered with the alert that says so, and the other end is told.
func TestAlerts(t *testing.T) {
	const client, server = false, true
	cases := map[string]struct {
		edit
		alert int
	}{
		"CH no versions":         {edit{client, 0, without(extSupportedVersions)}, 70},
		"CH old versions":        {edit{client, 0, replaced(extSupportedVersions, 2, 3, 3)}, 70},
		"CH extension twice":     {edit{client, 0, with(extKeyShare, 0, 0)}, 47},
		"CH PSK not last":        {edit{client, 0, func(m []byte) []byte { return with(9999)(with(extPreSharedKey, pskBody()...)(m)) }}, 47},
		"CH PSK without modes":   {edit{client, 0, func(m []byte) []byte { return with(extPreSharedKey, pskBody()...)(without(extPSKModes)(m)) }}, 109},
		"CH PSK malformed":       {edit{client, 0, with(extPreSharedKey, 0, 1, 2)}, 50},
		"CH no key share":        {edit{client, 0, without(extKeyShare)}, 109},
		"CH no groups":           {edit{client, 0, without(extSupportedGroups)}, 109},
		"CH no signatures":       {edit{client, 0, without(extSignatureAlgorithms)}, 109},
		"CH other signatures":    {edit{client, 0, replaced(extSignatureAlgorithms, 0, 2, 8, 4)}, 40},
		"CH no extensions":       {edit{client, 0, exts(func(extensions) extensions { return nil })}, 70},
		"CH short share":         {edit{client, 0, smShare(func(p []byte) []byte { return p[:64] })}, 47},
		"CH share off the curve": {edit{client, 0, smShare(func(p []byte) []byte { p[64] ^= 1; return p })}, 47},
		"CH compressed share":    {edit{client, 0, smShare(func(p []byte) []byte { p[0] = 2; return p[:33] })}, 47},
		"CH share of no offer":   {edit{client, 0, replaced(extSupportedGroups, 0, 2, 0, 29)}, 47},
		"CH no group in common": {edit{client, 0, func(m []byte) []byte {
			return replaced(extKeyShare, 0, 0)(replaced(extSupportedGroups, 0, 2, 0, 29)(m))
		}}, 40},
		"CH two shares of a group":  {edit{client, 0, exts(doubleShare)}, 47},
		"CH other suite":            {edit{client, 0, headByte(2+32+1+32+3, 0x99)}, 40},
		"CH compression":            {edit{client, 0, headByte(2+32+1+32+2+2+1, 1)}, 47},
		"CH cut":                    {edit{client, 0, func(m []byte) []byte { return body(typeClientHello, m[4:40]) }}, 50},
		"CH tail":                   {edit{client, 0, func(m []byte) []byte { return body(typeClientHello, append(m[4:], 0)) }}, 50},
		"CH empty server name":      {edit{client, 0, replaced(extServerName, 0, 3, 0, 0, 0)}, 50},
		"CH small record size":      {edit{client, 0, with(extRecordSizeLimit, 0, 63)}, 47},
		"Finished first":            {edit{client, 0, become(typeFinished)}, 10},
		"huge message":              {edit{client, 0, func([]byte) []byte { return []byte{1, 0xff, 0, 0} }}, 50},
		"SH suite of no offer":      {edit{server, 0, headByte(2+32+1+32+1, 0xc7)}, 47},
		"SH session ID":             {edit{server, 0, headByte(2+32+1, 0)}, 47},
		"SH compression":            {edit{server, 0, headByte(2+32+1+32+2, 1)}, 47},
		"SH no version":             {edit{server, 0, without(extSupportedVersions)}, 70},
		"SH version 1.2":            {edit{server, 0, replaced(extSupportedVersions, 3, 3)}, 47},
		"SH downgrade":              {edit{server, 0, func(m []byte) []byte { return downgrade(without(extSupportedVersions)(m)) }}, 47},
		"SH no share":               {edit{server, 0, without(extKeyShare)}, 109},
		"SH other group":            {edit{server, 0, replaced(extKeyShare, 0, 29, 0, 1, 1)}, 47},
		"SH unknown extension":      {edit{server, 0, with(9999)}, 110},
		"SH misplaced extension":    {edit{server, 0, with(extSupportedGroups)}, 47},
		"SH PSK without offer":      {edit{server, 0, with(extPreSharedKey, 0, 0)}, 110},
		"SH cut":                    {edit{server, 0, func(m []byte) []byte { return body(typeServerHello, m[4:50]) }}, 50},
		"HRR that changes nothing":  {edit{server, 0, func(m []byte) []byte { return toRetry(without(extKeyShare)(m)) }}, 47},
		"HRR for a group sent":      {edit{server, 0, func(m []byte) []byte { return toRetry(replaced(extKeyShare, 0, 41)(m)) }}, 47},
		"HRR for a group not known": {edit{server, 0, func(m []byte) []byte { return toRetry(replaced(extKeyShare, 0, 29)(m)) }}, 47},
		"EE dropped":                {edit{server, 1, dropped}, 10},
		"EE unknown extension":      {edit{server, 1, become(typeEncryptedExtensions, 0, 4, 0x99, 0x99, 0, 0)}, 110},
		"EE misplaced extension":    {edit{server, 1, become(typeEncryptedExtensions, 0, 4, 0, extKeyShare, 0, 0)}, 47},
		"EE ALPN of no offer":       {edit{server, 1, become(typeEncryptedExtensions, 0, 9, 0, extALPN, 0, 5, 0, 3, 2, 'h', '3')}, 47},
		"EE two protocols":          {edit{server, 1, become(typeEncryptedExtensions, 0, 10, 0, extALPN, 0, 6, 0, 4, 1, 'x', 1, 'y')}, 50},
		"CR context":                {edit{server, 2, become(typeCertificateRequest, 1, 9, 0, 8, 0, 13, 0, 4, 0, 2, 7, 8)}, 47},
		"CR no signatures":          {edit{server, 2, become(typeCertificateRequest, 0, 0, 0)}, 109},
		"server without chain":      {edit{server, 3, become(typeCertificate, 0, 0, 0, 0)}, 50},
		"server chain garbage":      {edit{server, 3, become(typeCertificate, 0, 0, 0, 6, 0, 0, 1, 9, 0, 0)}, 42},
		"server chain extension":    {edit{server, 3, become(typeCertificate, 0, 0, 0, 10, 0, 0, 1, 9, 0, 4, 0, 5, 0, 0)}, 110},
		"server CV dropped":         {edit{server, 4, dropped}, 10},
		"server CV scheme":          {edit{server, 4, flip(5)}, 47},
		"server CV flipped":         {edit{server, 4, flip(-1)}, 51},
		"server Finished flipped":   {edit{server, 5, flip(-1)}, 51},
		"server Finished short":     {edit{server, 5, become(typeFinished, 1, 2)}, 50},
		"client without chain":      {edit{client, 1, become(typeCertificate, 0, 0, 0, 0)}, 116},
		"client chain garbage":      {edit{client, 1, become(typeCertificate, 0, 0, 0, 6, 0, 0, 1, 9, 0, 0)}, 42},
		"client chain context":      {edit{client, 1, become(typeCertificate, 1, 1, 0, 0, 0)}, 47},
		"client chain extension":    {edit{client, 1, become(typeCertificate, 0, 0, 0, 10, 0, 0, 1, 9, 0, 4, 0, 5, 0, 0)}, 110},
		"client CV dropped":         {edit{client, 2, dropped}, 10},
		"client CV flipped":         {edit{client, 2, flip(-1)}, 51},
		"client Finished flipped":   {edit{client, 3, flip(-1)}, 51},
		"client KeyUpdate early":    {edit{client, 3, become(typeKeyUpdate, 0)}, 10},
	}
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc, cc := mutualConfigs(t)
			m := &middle{suite: TLS_SM4_GCM_SM3, edit: x.apply}
			expectAlert(t, m, sc, cc, x.fromServer, x.alert)
		})
	}
}

func mutualConfigs(t *testing.T) (sc, cc *Config) {
	w := testWorld(t)
	sc, cc = w.configs()
	sc.ClientAuth = tls.RequireAndVerifyClientCert
	sc.NextProtos, cc.NextProtos = []string{"h2"}, []string{"h2"}
	cc.Certificates = []Certificate{w.client}
	cc.CipherSuites = []uint16{TLS_SM4_GCM_SM3}
	return sc, cc
}

func (e edit) apply(fromServer bool, n int, msg []byte) []byte {
	if fromServer != e.fromServer || n != e.n {
		return msg
	}
	return e.change(msg)
}

// expectAlert runs a handshake that one end must refuse; the other must be told.
func expectAlert(t *testing.T, m *middle, sc, cc *Config, byClient bool, alert int) {
	t.Helper()
	server, client := m.pair(t, sc, cc)
	se, ce := both(server, client)
	if ce == nil { // the client is done before the server judges it
		client.SetDeadline(time.Now().Add(5 * time.Second))
		_, ce = client.Read(make([]byte, 1))
	}
	own, told := se, ce
	if byClient {
		own, told = ce, se
	}
	if ownAlert(own) != alert || peerAlert(told) != alert {
		t.Errorf("want alert %d, got %d (%v), told %d (%v)", alert, ownAlert(own), own, peerAlert(told), told)
	}
}

func pskBody() []byte {
	w := &builder{}
	w.vec16(func() { w.bytes16([]byte("x")); w.u32(0) })
	w.vec16(func() { w.bytes8(make([]byte, 32)) })
	return w.b
}

func doubleShare(x extensions) extensions {
	for i := range x {
		if x[i].typ == extKeyShare {
			one := x[i].body[2:]
			w := &builder{}
			w.vec16(func() { w.raw(one); w.raw(one) })
			x[i].body = w.b
		}
	}
	return x
}

func downgrade(m []byte) []byte {
	copy(m[4+2+24:], "DOWNGRD\x01")
	return m
}

func toRetry(m []byte) []byte {
	copy(m[4+2:], helloRetryRandom[:])
	return m
}

// wrongSigner signs otherwise than it should.
type wrongSigner struct {
	*sm2.PrivateKey
	id    []byte
	other *sm2.PrivateKey
}

func (w wrongSigner) Sign(_ io.Reader, msg []byte, _ crypto.SignerOpts) ([]byte, error) {
	k := w.PrivateKey
	if w.other != nil {
		k = w.other
	}
	return k.Sign(rand.Reader, msg, sm2.NewSM2SignerOption(true, w.id))
}

// What certificates and their proofs are refused with, in both roles.
func TestAlertsOfCertificates(t *testing.T) {
	w := testWorld(t)
	other := newAuthority(t, newSM2(t))
	key := w.server.PrivateKey.(*sm2.PrivateKey)
	signedBy := func(c Certificate, s crypto.Signer) Certificate { c.PrivateKey = s; return c }
	issue := func(change func(*smx509.Certificate)) Certificate {
		return w.ca.issue(t, newSM2(t), "server.test", change)
	}
	cases := map[string]struct {
		cert  Certificate
		alert int
	}{
		"default ID":       {signedBy(w.server, wrongSigner{key, nil, nil}), 51},
		"another key":      {signedBy(w.server, wrongSigner{key, []byte("TLSv1.3+GM+Cipher+Suite"), newSM2(t)}), 51},
		"unknown CA":       {other.issue(t, newSM2(t), "server.test"), 48},
		"expired":          {issue(func(c *smx509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), 45},
		"encryption usage": {issue(func(c *smx509.Certificate) { c.KeyUsage = smx509.KeyUsageKeyEncipherment }), 43},
		"other usage":      {issue(func(c *smx509.Certificate) { c.ExtKeyUsage = []smx509.ExtKeyUsage{smx509.ExtKeyUsageCodeSigning} }), 43},
	}
	for name, x := range cases {
		t.Run("server/"+name, func(t *testing.T) {
			sc, cc := w.configs()
			sc.Certificates = []Certificate{x.cert}
			expectAlert(t, &middle{suite: TLS_SM4_GCM_SM3}, sc, cc, true, x.alert)
		})
		t.Run("client/"+name, func(t *testing.T) {
			sc, cc := mutualConfigs(t)
			cc.Certificates = []Certificate{x.cert}
			expectAlert(t, &middle{suite: TLS_SM4_GCM_SM3}, sc, cc, false, x.alert)
		})
	}
	t.Run("name", func(t *testing.T) {
		sc, cc := w.configs()
		cc.ServerName = "other.test"
		expectAlert(t, &middle{suite: TLS_SM4_GCM_SM3}, sc, cc, true, 42)
	})
	t.Run("no protocol", func(t *testing.T) {
		sc, cc := w.configs()
		sc.NextProtos, cc.NextProtos = []string{"a"}, []string{"b"}
		expectAlert(t, &middle{suite: TLS_SM4_GCM_SM3}, sc, cc, false, 120)
	})
	t.Run("no certificate", func(t *testing.T) {
		sc, cc := w.configs()
		sc.ClientAuth = tls.RequireAnyClientCert
		expectAlert(t, &middle{suite: TLS_SM4_GCM_SM3}, sc, cc, false, 116)
	})
	t.Run("no suite", func(t *testing.T) {
		sc, cc := w.configs()
		sc.CipherSuites, cc.CipherSuites = []uint16{TLS_SM4_CCM_SM3}, []uint16{TLS_SM4_GCM_SM3}
		expectAlert(t, &middle{suite: TLS_SM4_GCM_SM3}, sc, cc, false, 40)
	})
}
