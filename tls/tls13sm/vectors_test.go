package tls13sm

import (
	"bytes"
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
	"sslo/tls/sm/smtest"
)

// TestRecordedHandshakes walks through the handshakes of other stacks with our parsers, our key schedule,
// our records and our checks of certificates and signatures.
func TestRecordedHandshakes(t *testing.T) {
	files, _ := filepath.Glob("../testdata/vectors/tls13_*.pcap")
	if len(files) < 14 {
		t.Fatalf("%d captures", len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".pcap")
		t.Run(name, func(t *testing.T) {
			sessions, err := smtest.ReadCapture(file)
			if err != nil || len(sessions) == 0 {
				t.Fatalf("%d sessions, %v", len(sessions), err)
			}
			keys, err := smtest.ReadKeyLog(strings.TrimSuffix(file, ".pcap") + ".keylog")
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range sessions {
				r := &recorded{t: t, session: s, keys: keys, seen: map[uint8]int{}, psk: -1}
				r.run()
				r.check(name, i)
			}
		})
	}
}

type recorded struct {
	t       *testing.T
	session *smtest.Session
	keys    map[string]map[string][]byte
	hello   *clientHello
	suite   *suite
	retried bool
	psk     int
	tr      *sm.Transcript
	chains  [2][]*smx509.Certificate
	prot    [2]*protection
	phase   [2]int
	hand    [2][]byte
	data    [2][]byte
	seen    map[uint8]int
	proofs  int
	keep    *[][]byte // of messages, for who wants them
}

func (r *recorded) secret(side int, suffix string) (s secret, ok bool) {
	label := []string{"CLIENT", "SERVER"}[side] + suffix
	b := r.keys[label][hex.EncodeToString(r.hello.random[:])]
	return secret(append(b, make([]byte, secretSize-len(b))...)), len(b) == secretSize
}

func (r *recorded) run() {
	r.tr = sm.NewTranscript(false)
	for _, rec := range r.session.Records {
		side := 1
		if rec.FromClient {
			side = 0
		}
		typ, plain := sm.RecordType(rec.Type), rec.Body
		if typ == sm.RecordChangeCipherSpec {
			continue
		}
		if typ == sm.RecordApplicationData {
			if r.keys == nil {
				return
			}
			if r.phase[side] == 0 {
				r.next(side)
			}
			var err error
			if typ, plain, err = r.prot[side].Open(nil, typ, rec.Version, plain); err != nil {
				r.t.Fatalf("record of side %d: %v", side, err)
			}
		}
		switch typ {
		case sm.RecordHandshake:
			r.handshake(side, plain)
		case sm.RecordApplicationData:
			r.data[side] = append(r.data[side], plain...)
		case sm.RecordAlert:
			if plain[1] != byte(sm.AlertCloseNotify) {
				r.t.Errorf("alert %v", plain)
			}
		}
	}
}

// next changes to the side's next keys.
func (r *recorded) next(side int) {
	s, ok := r.secret(side, []string{"_HANDSHAKE_TRAFFIC_SECRET", "_TRAFFIC_SECRET_0"}[r.phase[side]])
	if !ok {
		r.t.Fatal("no key")
	}
	var err error
	if r.prot[side], err = newProtection(r.suite, s); err != nil {
		r.t.Fatal(err)
	}
	r.phase[side]++
}

func (r *recorded) handshake(side int, plain []byte) {
	r.hand[side] = append(r.hand[side], plain...)
	for len(r.hand[side]) >= 4 {
		h := r.hand[side]
		n := 4 + int(h[1])<<16 + int(h[2])<<8 + int(h[3])
		if len(h) < n {
			return
		}
		r.hand[side] = h[n:]
		r.message(side, h[:n:n])
	}
}

func (r *recorded) message(side int, raw []byte) {
	r.seen[raw[0]]++
	if r.keep != nil {
		*r.keep = append(*r.keep, raw)
	}
	var err error
	switch raw[0] {
	case typeClientHello:
		err = r.clientHello(raw)
	case typeServerHello:
		err = r.serverHello(raw)
	case typeEncryptedExtensions:
		_, err = parseEncryptedExtensions(raw)
	case typeCertificateRequest:
		_, err = parseCertificateRequest(raw)
	case typeCertificate:
		err = r.certificate(side, raw)
	case typeCertificateVerify:
		err = r.proof(side, raw)
	case typeFinished:
		err = r.finished(side, raw)
	case typeNewSessionTicket:
		_, err = parseNewSessionTicket(raw)
	default:
		r.t.Errorf("message of type %d", raw[0])
	}
	if err != nil {
		r.t.Errorf("message %d of side %d: %v", raw[0], side, err)
	}
	r.tr.Add(raw)
	if raw[0] == typeFinished {
		r.next(side)
	}
}

func (r *recorded) clientHello(raw []byte) (err error) {
	first := r.hello
	if r.hello, err = parseClientHello(raw); err != nil {
		return err
	}
	if first != nil && !sameHello(first, r.hello) {
		r.t.Error("second ClientHello is judged to differ")
	}
	return (&serverHandshake{hello: r.hello}).check()
}

func (r *recorded) serverHello(raw []byte) error {
	m, err := parseServerHello(raw)
	if err != nil {
		return err
	}
	if r.suite = suiteByID(m.suite); r.suite == nil || m.version != version13 {
		r.t.Errorf("suite %#x, version %#x", m.suite, m.version)
	}
	if m.retry() {
		r.retried = true
		r.tr.Restart()
		return nil
	}
	r.psk = m.psk
	key, err := generate(m.share.group)
	if err != nil {
		return err
	}
	_, err = key.agree(m.share.data)
	return err
}

func (r *recorded) certificate(side int, raw []byte) error {
	m, err := parseCertificate(raw)
	if err != nil {
		return err
	}
	c := &Conn{cfg: &Config{}}
	r.chains[side], err = c.parseChain(m.chain)
	return err
}

func (r *recorded) proof(side int, raw []byte) error {
	c := &Conn{cfg: &Config{}}
	r.proofs++
	return c.checkProof(raw, r.chains[side][0], []string{clientContext, serverContext}[side], r.tr.Sum())
}

func (r *recorded) finished(side int, raw []byte) error {
	mac, err := parseFinished(raw)
	s, _ := r.secret(side, "_HANDSHAKE_TRAFFIC_SECRET")
	if !bytes.Equal(mac, finishedMAC(s, r.tr.Sum())) {
		r.t.Errorf("Finished of side %d", side)
	}
	return err
}

func (r *recorded) check(name string, i int) {
	t := r.t
	if r.hello == nil || r.suite == nil {
		t.Fatal("no hellos")
	}
	if want := strings.Contains(name, "CCM"); want != (r.suite.id == TLS_SM4_CCM_SM3) {
		t.Errorf("suite %s", r.suite.name)
	}
	if r.keys == nil {
		return
	}
	resumed := strings.Contains(name, "resume") && i == 1
	proofs := map[bool]int{true: 2, false: 1}[strings.Contains(name, "mutual")]
	if resumed {
		proofs = 0
	}
	if r.proofs != proofs || (r.psk >= 0) != resumed || r.retried != strings.Contains(name, "hrr") || r.seen[typeFinished] != 2 {
		t.Errorf("session %d: %d proofs, PSK %d, retried %v, seen %v", i, r.proofs, r.psk, r.retried, r.seen)
	}
	if !bytes.HasPrefix(r.data[0], []byte("GET / ")) || !bytes.HasPrefix(r.data[1], []byte("HTTP/1.0 200")) {
		t.Errorf("data %.20q, %.20q", r.data[0], r.data[1])
	}
	for side, certs := range r.chains {
		if certs != nil {
			r.verify(side == 1, certs)
		}
	}
}

// verify checks a recorded chain by the strict rules.
func (r *recorded) verify(ofServer bool, certs []*smx509.Certificate) {
	roots := smx509.NewCertPool()
	roots.AppendCertsFromPEM(readVector(r.t, "certs/root.crt"))
	cfg := &Config{RootCAs: roots, ClientCAs: roots, ServerName: "localhost", Time: func() time.Time { return certs[0].NotBefore.Add(time.Hour) }}
	others := append(certs[1:len(certs):len(certs)], recordedChain(r.t)...)
	c := &Conn{cfg: cfg, client: ofServer}
	chains, err := c.chains(append(certs[:1:1], others...))
	if err != nil || len(chains) == 0 {
		r.t.Errorf("chain of %s: %v", certs[0].Subject, err)
	}
}
