package tlcp

import (
	"bytes"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/emmansun/gmsm/ecdh"
	"github.com/emmansun/gmsm/sm2"

	"sslo/tls/sm"
	"sslo/tls/sm/smtest"
)

// replay walks through a recorded handshake with our parsers, our key schedule and our records.
type replay struct {
	t       *testing.T
	session *smtest.Session
	keys    map[string][]byte // client random to master secret
	known   map[string][]byte // session id to master secret, of the sessions before
	encKeys []*sm2.PrivateKey // of servers

	hello    clientHelloMsg
	reply    serverHelloMsg
	suite    *suite
	certs    peerPair
	client   *peerPair
	master   []byte
	tr       *sm.Transcript
	hand     [2][]byte
	prot     [2]sm.Protection
	seen     map[byte]int
	finishes int
	plain    [2][]byte
	clear    bool // an alert in clear after the handshake
	raw      int  // CertificateVerify over the messages
}

func side(fromClient bool) int {
	if fromClient {
		return 0
	}
	return 1
}

func (r *replay) run() {
	for _, rec := range r.session.Records {
		d := side(rec.FromClient)
		typ, plain := sm.RecordType(rec.Type), rec.Body
		if rec.Version != VersionTLCP11 {
			r.t.Fatalf("record of version %#x", rec.Version)
		}
		if r.prot[d] != nil {
			if typ == sm.RecordAlert && len(plain) == 2 {
				r.clear = true
				continue
			}
			var err error
			if typ, plain, err = r.prot[d].Open(nil, typ, rec.Version, plain); err != nil {
				r.t.Fatalf("record of type %d from %d: %v", rec.Type, d, err)
			}
		}
		switch typ {
		case sm.RecordHandshake:
			r.hand[d] = append(r.hand[d], plain...)
			r.messages(d)
		case sm.RecordChangeCipherSpec:
			if !r.change(d) {
				return
			}
		case sm.RecordApplicationData:
			r.plain[d] = append(r.plain[d], plain...)
		}
	}
}

func (r *replay) messages(d int) {
	for len(r.hand[d]) >= 4 {
		h := r.hand[d]
		n := 4 + int(h[1])<<16 + int(h[2])<<8 + int(h[3])
		if len(h) < n {
			return
		}
		r.hand[d] = h[n:]
		r.seen[h[0]]++
		r.message(d, h[:n])
		r.tr.Add(h[:n])
	}
}

func (r *replay) must(err error, what string) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
}

func (r *replay) same(m marshaler, msg []byte, what string) {
	r.t.Helper()
	b, err := m.marshal()
	r.must(err, what)
	if !bytes.Equal(b, msg) {
		r.t.Errorf("%s is not marshaled as it was recorded:\n%x\n%x", what, b, msg)
	}
}

func (r *replay) message(d int, msg []byte) {
	switch msg[0] {
	case typeClientHello:
		r.must(r.hello.unmarshal(msg), "ClientHello")
	case typeServerHello:
		r.serverHello(msg)
	case typeCertificate:
		r.certificate(d, msg)
	case typeServerKeyExchange:
		r.serverKeyExchange(msg)
	case typeCertificateRequest:
		var m certificateRequestMsg
		r.must(m.unmarshal(msg), "CertificateRequest")
		r.same(&m, msg, "CertificateRequest")
	case typeClientKeyExchange:
		r.clientKeyExchange(msg)
	case typeCertificateVerify:
		r.certificateVerify(msg)
	case typeNewSessionTicket:
		var m newSessionTicketMsg
		r.must(m.unmarshal(msg), "NewSessionTicket")
		r.same(&m, msg, "NewSessionTicket")
	case typeFinished:
		r.finished(d, msg)
	case typeServerHelloDone:
		if len(msg) != 4 {
			r.t.Error("ServerHelloDone with content")
		}
	default:
		r.t.Errorf("handshake message %d", msg[0])
	}
}

func (r *replay) serverHello(msg []byte) {
	r.must(r.reply.unmarshal(msg), "ServerHello")
	r.must(r.reply.unlisted(&r.hello), "ServerHello")
	if r.suite = suiteByID(r.reply.suite); r.suite == nil {
		r.t.Fatalf("suite %#x", r.reply.suite)
	}
	if m := r.known[string(r.reply.sessionID)]; m != nil && bytes.Equal(r.reply.sessionID, r.hello.sessionID) {
		r.master = m
	}
	r.keylog()
}

// keylog takes the master secret of the log, or checks ours against it.
func (r *replay) keylog() {
	logged := r.keys[hex.EncodeToString(r.hello.random)]
	switch {
	case logged == nil:
	case r.master == nil && r.seen[typeCertificate] == 0, r.suite.ecdhe:
		r.master = logged
	case r.master != nil && !bytes.Equal(r.master, logged):
		r.t.Error("master secret is not the logged one")
	}
}

func (r *replay) certificate(d int, msg []byte) {
	var m certificateMsg
	r.must(m.unmarshal(msg), "Certificate")
	r.same(&m, msg, "Certificate")
	p, err := parsePair(m.certs)
	r.must(err, "Certificate")
	if d == 0 {
		r.client = &p
		return
	}
	if r.certs = p; p.enc == nil {
		r.t.Fatal("the server's encryption certificate was not found")
	}
}

func (r *replay) serverKeyExchange(msg []byte) {
	var m serverKeyExchangeMsg
	r.must(m.unmarshal(msg, r.suite.ecdhe), "ServerKeyExchange")
	r.same(&m, msg, "ServerKeyExchange")
	signed := m.params
	if !r.suite.ecdhe {
		signed = eccSigned(r.certs.enc)
	}
	pub, err := sm.PublicKey(r.certs.sign)
	r.must(err, "ServerKeyExchange")
	if !sm.Verify(pub, sm.DefaultID, m.sig, r.hello.random, r.reply.random, signed) {
		r.t.Error("the signature of ServerKeyExchange does not verify")
	}
}

func (r *replay) clientKeyExchange(msg []byte) {
	if r.suite.ecdhe {
		p, err := readPoint(msg)
		r.must(err, "ClientKeyExchange")
		again, err := pointMessage(p.Bytes(), len(msg) == 4+71)
		if err != nil || !bytes.Equal(again, msg) {
			r.t.Errorf("ClientKeyExchange is not marshaled as it was recorded: %v", err)
		}
		r.keylog()
		return
	}
	c, err := readEncrypted(msg)
	r.must(err, "ClientKeyExchange")
	for _, k := range r.encKeys {
		if pub, err := sm.PublicKey(r.certs.enc); err == nil && k.PublicKey.Equal(pub) {
			pms := decryptPMS(k, c)
			if pms[0] != 1 || pms[1] != 1 {
				r.t.Error("pre-master secret was not decrypted")
			}
			r.master = masterSecret(pms, r.hello.random, r.reply.random)
		}
	}
	if r.master == nil {
		r.t.Fatal("no key for the server's encryption certificate")
	}
	r.keylog()
}

func (r *replay) certificateVerify(msg []byte) {
	var m certificateVerifyMsg
	r.must(m.unmarshal(msg), "CertificateVerify")
	r.same(&m, msg, "CertificateVerify")
	pub, err := sm.PublicKey(r.client.sign)
	r.must(err, "CertificateVerify")
	switch {
	case sm.Verify(pub, sm.DefaultID, m.sig, r.tr.Sum()):
	case sm.Verify(pub, sm.DefaultID, m.sig, r.tr.Raw()):
		r.raw++
	default:
		r.t.Error("CertificateVerify does not verify")
	}
}

// change sets the keys of one direction; false when they can not be known.
func (r *replay) change(d int) bool {
	if r.master == nil {
		return false
	}
	client, server, err := r.suite.protections(macOf(r.master), r.hello.random, r.reply.random)
	r.must(err, "keys")
	r.prot[d] = []sm.Protection{client, server}[d]
	return true
}

func (r *replay) finished(d int, msg []byte) {
	var m finishedMsg
	r.must(m.unmarshal(msg), "Finished")
	want := finished(macOf(r.master), []string{clientFinished, serverFinished}[d], r.tr.Sum())
	if subtle.ConstantTimeCompare(want, m.verify) != 1 {
		r.t.Errorf("Finished of %d is wrong", d)
	}
	r.finishes++
}

func encKeys(t *testing.T) (keys []*sm2.PrivateKey) {
	for _, dir := range []string{"certs", "certs_gmssl311"} {
		k, err := sm.ParseKeyPEM(file(t, dir+"/server_enc.key"), nil)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	return keys
}

func TestRecordedHandshakes(t *testing.T) {
	names, _ := filepath.Glob(filepath.Join(vectorDir, "tlcp_*.pcap"))
	if len(names) < 20 {
		t.Fatalf("%d captures", len(names))
	}
	keys := encKeys(t)
	for _, name := range names {
		base := strings.TrimSuffix(filepath.Base(name), ".pcap")
		t.Run(base, func(t *testing.T) { replayCapture(t, name, base, keys) })
	}
}

func replayCapture(t *testing.T, name, base string, keys []*sm2.PrivateKey) {
	sessions, err := smtest.ReadCapture(name)
	if err != nil {
		t.Fatal(err)
	}
	logged, err := smtest.ReadKeyLog(strings.TrimSuffix(name, "pcap") + "keylog")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string][]byte{}
	for i, s := range sessions {
		r := &replay{t: t, session: s, keys: logged["CLIENT_RANDOM"], known: known, encKeys: keys, tr: sm.NewTranscript(true), seen: map[byte]int{}}
		r.run()
		r.judge(base, i)
		if len(r.reply.sessionID) > 0 && r.master != nil {
			known[string(r.reply.sessionID)] = r.master
		}
	}
}

// judge checks that what the name of the capture says was there.
func (r *replay) judge(base string, i int) {
	secret := strings.HasPrefix(base, "tlcp_G_G_ECDHE") // no log of keys
	if !secret && (r.finishes != 2 || len(r.plain[0])+len(r.plain[1]) == 0) {
		r.t.Errorf("session %d: %d Finished, %d and %d bytes", i, r.finishes, len(r.plain[0]), len(r.plain[1]))
	}
	want := fmt.Sprintf("%t", strings.Contains(base, "mutual"))
	if got := fmt.Sprintf("%t", r.seen[typeCertificateVerify] == 1); got != want {
		r.t.Errorf("CertificateVerify: %s, want %s", got, want)
	}
	if full := i == 0 || !strings.Contains(base, "resume"); full != (r.seen[typeCertificate] > 0) {
		r.t.Errorf("session %d: %d Certificates", i, r.seen[typeCertificate])
	}
	if r.clear != strings.Contains(base, "G311cli") {
		r.t.Errorf("alert in clear: %t", r.clear)
	}
	if (r.raw > 0) != (strings.HasPrefix(base, "tlcp_G_G") && r.seen[typeCertificateVerify] > 0) {
		r.t.Errorf("CertificateVerify over the messages: %d", r.raw)
	}
}

func TestKeyExchangeKnownAnswer(t *testing.T) {
	kat := map[string]string{}
	for _, line := range strings.Split(string(file(t, "sm2_kex_kat.txt")), "\n") {
		if k, v, ok := strings.Cut(line, "="); ok {
			kat[k] = v
		}
	}
	private := func(name string) *ecdh.PrivateKey {
		b, err := hex.DecodeString(kat[name])
		if err != nil {
			t.Fatal(name, err)
		}
		k, err := ecdh.P256().NewPrivateKey(b)
		if err != nil {
			t.Fatal(name, err)
		}
		return k
	}
	server, client := private("server_enc_d"), private("client_enc_d")
	serverEph, clientEph := private("server_eph_d"), private("client_eph_d")
	if got := hex.EncodeToString(serverEph.PublicKey().Bytes()); got != kat["server_eph_pub"] {
		t.Errorf("server's ephemeral key %s", got)
	}
	a, err := agree(true, server, serverEph, client.PublicKey(), clientEph.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	b, err := agree(false, client, clientEph, server.PublicKey(), serverEph.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	if hex.EncodeToString(a) != kat["pms"] || !bytes.Equal(a, b) {
		t.Errorf("pre-master secrets %x and %x, want %s", a, b, kat["pms"])
	}
}

func macOf(master []byte) *sm.MAC {
	m := sm.NewMAC(master)
	return &m
}
