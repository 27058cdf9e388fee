package tlcp

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"
	"golang.org/x/crypto/cryptobyte"

	"sslo/tls/sm"
)

// What implementations in the field differ in, each in both roles where both of ours can show it.

func TestKeyExchangeForms(t *testing.T) {
	for _, long := range []bool{false, true} {
		for _, id := range []uint16{ECDHE_SM4_GCM_SM3, ECDHE_SM4_CBC_SM3} {
			t.Run(fmt.Sprintf("%s/%t", CipherSuiteName(id), long), func(t *testing.T) {
				client, server := configs(t)
				client.CipherSuites, client.LongKeyExchange = []uint16{id}, long
				c, s := tcpPair(t)
				wire := &tap{Conn: c, flip: -1}
				r := mustShake(t, wire, s, client, server)
				if n := lengthOf(wire.sent, typeClientKeyExchange); n != 69 && !long || n != 71 && long {
					t.Errorf("ClientKeyExchange has %d bytes", n)
				}
				echo(t, r, 1000)
			})
		}
	}
}

// lengthOf is the length of the first handshake message of a type in clear records, one message a record.
func lengthOf(sent []byte, typ byte) int {
	for _, r := range recordsOf(sent) {
		if r[0] == byte(sm.RecordHandshake) && r[sm.HeaderSize] == typ {
			return len(r) - sm.HeaderSize - 4
		}
	}
	return -1
}

func TestCertificateVerifyForms(t *testing.T) {
	for _, raw := range []bool{false, true} {
		client, server := configs(t)
		client.SignRawMessages, server.ClientAuth = raw, RequireAndVerifyClientCert
		c, s := tcpPair(t)
		echo(t, mustShake(t, c, s, client, server), 1000)
	}
}

func TestClientCertificateForms(t *testing.T) {
	for _, id := range []uint16{ECC_SM4_GCM_SM3, ECDHE_SM4_GCM_SM3} {
		for name, change := range map[string]func(*Config){
			"sign, enc, CAs": func(*Config) {},
			"sign, CAs, enc": func(c *Config) { c.Certificates[0].encLast = true },
			"sign, CAs":      func(c *Config) { c.OmitEncCertificate = true },
		} {
			t.Run(CipherSuiteName(id)+"/"+name, func(t *testing.T) {
				client, server := configs(t)
				client.CipherSuites, server.ClientAuth = []uint16{id}, RequireAndVerifyClientCert
				change(client)
				c, s := tcpPair(t)
				echo(t, mustShake(t, c, s, client, server), 1000)
			})
		}
	}
}

func TestServerCertificateForms(t *testing.T) {
	root, err := sm.ParseChainPEM(file(t, "certs/root.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Certificate){
		"sign, CAs, enc":   func(c *Certificate) { c.encLast = true },
		"with the root":    func(c *Certificate) { c.CAs = append(c.CAs, root[0]) },
		"root, then enc":   func(c *Certificate) { c.CAs, c.encLast = append(c.CAs, root[0]), true },
		"root before subs": func(c *Certificate) { c.CAs = []*smx509.Certificate{root[0], c.CAs[0]} },
	} {
		t.Run(name, func(t *testing.T) {
			client, server := configs(t)
			change(server.Certificates[0])
			c, s := tcpPair(t)
			echo(t, mustShake(t, c, s, client, server), 1000)
		})
	}
}

func TestEmptyBasicConstraints(t *testing.T) {
	ca := newAuthority(t)
	pair := ca.pair(t, func(sign, enc *smx509.Certificate) {
		sign.ExtraExtensions = append(sign.ExtraExtensions, emptyBasicConstraints)
		enc.ExtraExtensions = append(enc.ExtraExtensions, emptyBasicConstraints)
	})
	client := &Config{RootCAs: ca.pool(), ServerName: "localhost", Certificates: []*Certificate{pair}}
	server := &Config{ClientCAs: ca.pool(), Certificates: []*Certificate{pair}, ClientAuth: RequireAndVerifyClientCert}
	c, s := tcpPair(t)
	echo(t, mustShake(t, c, s, client, server), 1000)
}

func TestSilentKeyUsage(t *testing.T) {
	ca := newAuthority(t)
	pair := ca.pair(t, func(sign, enc *smx509.Certificate) { sign.KeyUsage, enc.KeyUsage = 0, 0 })
	pair.CAs = []*smx509.Certificate{ca.cert}
	for _, pair.encLast = range []bool{false, true} {
		c, s := tcpPair(t)
		r := mustShake(t, c, s, &Config{RootCAs: ca.pool(), ServerName: "localhost"}, &Config{Certificates: []*Certificate{pair}})
		echo(t, r, 100)
	}
}

// Our ClientHello has no extension but those that are asked for: some servers close on any other.
func TestClientHelloIsPlain(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"[]":        func(c *Config) { c.ServerName, c.InsecureSkipVerify = "", true },
		"[0]":       func(*Config) {},
		"[0 16]":    func(c *Config) { c.NextProtos = []string{"http/1.1"} },
		"[0 16 35]": func(c *Config) { c.NextProtos = []string{"h2"}; resumeBy(c, &Config{}, "ticket") },
	} {
		client, server := configs(t)
		change(client)
		server.NextProtos = client.NextProtos
		c, s := tcpPair(t)
		wire := &tap{Conn: c, flip: -1}
		mustShake(t, wire, s, client, server)
		var m clientHelloMsg
		rec := recordsOf(wire.sent)[0]
		if err := m.unmarshal(rec[sm.HeaderSize:]); err != nil || fmt.Sprint(m.extensions) != want || rec[1] != 1 || rec[2] != 1 {
			t.Errorf("extensions %v in a record of version %x%x, want %s: %v", m.extensions, rec[1], rec[2], want, err)
		}
	}
}

// Nobody gets an extension in ServerHello that it did not list, and no block at all when there is none to send.
func TestServerHelloIsPlain(t *testing.T) {
	for want, change := range map[string]func(c, s *Config){
		"[]":   func(_, s *Config) { s.NextProtos = []string{"h2"}; s.SessionCache = NewLRUServerSessionCache(1) },
		"[16]": func(c, s *Config) { c.NextProtos, s.NextProtos = []string{"a", "h2"}, []string{"h2"} },
		"[35]": func(c, s *Config) { resumeBy(c, s, "ticket") },
		"[16 35]": func(c, s *Config) {
			c.NextProtos, s.NextProtos = []string{"h2"}, []string{"h2"}
			resumeBy(c, s, "ticket")
		},
	} {
		client, server := configs(t)
		change(client, server)
		c, s := tcpPair(t)
		wire := &tap{Conn: s, flip: -1}
		mustShake(t, c, wire, client, server)
		var m serverHelloMsg
		rec := recordsOf(wire.sent)[0]
		if err := m.unmarshal(rec[sm.HeaderSize:]); err != nil || fmt.Sprint(m.extensions) != want {
			t.Errorf("extensions %v, want %s: %v", m.extensions, want, err)
		}
		if again, _ := m.marshal(); string(again) != string(rec[sm.HeaderSize:]) {
			t.Errorf("ServerHello %x", rec)
		}
	}
}

// Each message is sent in a record of its own.
func TestOneMessageARecord(t *testing.T) {
	client, server := configs(t)
	server.ClientAuth = RequireAndVerifyClientCert
	c, s := tcpPair(t)
	cw, sw := &tap{Conn: c, flip: -1}, &tap{Conn: s, flip: -1}
	mustShake(t, cw, sw, client, server)
	types := func(sent []byte) (got []byte) {
		for _, r := range recordsOf(sent) {
			if r[0] != byte(sm.RecordHandshake) {
				break
			}
			if n := int(r[6])<<16 + int(r[7])<<8 + int(r[8]); n+9 != len(r) {
				t.Errorf("record of %d bytes with a message of %d", len(r), n)
			}
			got = append(got, r[sm.HeaderSize])
		}
		return got
	}
	if got, want := types(cw.sent), []byte{1, 11, 16, 15}; !slices.Equal(got, want) {
		t.Errorf("client sent %d", got)
	}
	if got, want := types(sw.sent), []byte{2, 11, 12, 13, 14}; !slices.Equal(got, want) {
		t.Errorf("server sent %d", got)
	}
}

// hello makes a ClientHello of suites and, if there are any, extensions, as hex.
func hello(t *testing.T, suites, extensions string) []byte {
	t.Helper()
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	msg, err := message(typeClientHello, func(b *cryptobyte.Builder) {
		b.AddUint16(VersionTLCP11)
		b.AddBytes(newRandom())
		b.AddUint8(0)
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(unhex(suites)) })
		b.AddBytes([]byte{1, 0})
		if extensions != "none" {
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(unhex(extensions)) })
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func TestClientHellosOfTheField(t *testing.T) {
	for name, msg := range map[string][]byte{
		"no extensions block":         hello(t, "e013", "none"),
		"empty extensions block":      hello(t, "e013", ""),
		"GREASE suite, as Chromium":   hello(t, "8a8ae013", "none"),
		"GREASE extensions":           hello(t, "e053", "0a0a00001a1a000100"),
		"renegotiation SCSV":          hello(t, "e05300ff", "none"),
		"point formats, EMS, ff01":    hello(t, "e053", "000b000201000017000000160000ff01000100"),
		"ticket":                      hello(t, "e053", "00230000"),
		"groups without SM2":          hello(t, "e053", "000a00040002001d"),
		"groups and sigalgs, gotlcp":  hello(t, "e053", "000a000400020029000d000400020704"),
		"sigalgs of GmSSL":            hello(t, "e053", "000d000400020708"),
		"trusted authorities, 66":     hello(t, "e053", "000300010000420000"),
		"suites of TLS between ours":  hello(t, "c02f1301e053009c", "none"),
		"unknown name":                hello(t, "e053", "0000000e000c00000961626365662e636f6d"),
		"ALPN where none is answered": hello(t, "e053", "001000050003026832"),
	} {
		t.Run(name, func(t *testing.T) {
			client, server := configs(t)
			client.InsecureSkipVerify = true
			c, s := tcpPair(t)
			r := meet(scriptedClient(c, client, func(h *clientHandshake) error {
				if err := h.startRaw(msg); err != nil {
					return err
				}
				return h.rest()
			}), Server(s, server))
			fine(t, r)
		})
	}
}

// rest sends what follows the server's flight and ends the handshake.
func (h *clientHandshake) rest() error {
	if err := h.sendFlight(); err != nil {
		return err
	}
	return h.finish()
}

func TestFirstRecordsOfOtherVersions(t *testing.T) {
	for _, version := range []uint16{0x0301, 0x0303} {
		client, server := configs(t)
		c, s := tcpPair(t)
		cc := scriptedClient(c, client, func(h *clientHandshake) error {
			h.rec.SetRules(func(r *sm.Rules) { r.Version = version })
			if err := h.sendClientHello(); err != nil {
				return err
			}
			h.rec.SetRules(func(r *sm.Rules) { r.Version = VersionTLCP11 })
			if err := h.readServerHello(); err != nil {
				return err
			}
			if err := h.readFlight(); err != nil {
				return err
			}
			return h.rest()
		})
		fine(t, meet(cc, Server(s, server)))
	}
}

func TestRefusedHellos(t *testing.T) {
	base := hello(t, "e053", "none")
	tls12 := slices.Clone(base)
	tls12[4], tls12[5] = 3, 3
	deflate := slices.Clone(base)
	deflate[len(deflate)-1] = 1
	for name, x := range map[string]struct {
		msg   []byte
		alert sm.Alert
	}{
		"no common suite":  {hello(t, "c02f", "none"), sm.AlertHandshakeFailure},
		"no suite":         {hello(t, "", "none"), sm.AlertHandshakeFailure},
		"TLS 1.2":          {tls12, sm.AlertProtocolVersion},
		"only compressed":  {deflate, sm.AlertIllegalParameter},
		"torn":             {append([]byte{1, 0, 0, 4}, 1, 1, 0, 0), sm.AlertDecodeError},
		"not a hello":      {[]byte{16, 0, 0, 0}, sm.AlertUnexpectedMessage},
		"bytes behind":     {append([]byte{1, 0, 0, base[3] + 1}, append(slices.Clone(base[4:]), 0)...), sm.AlertDecodeError},
		"far too long":     {[]byte{1, 255, 255, 255}, sm.AlertDecodeError},
		"protocol unknown": {hello(t, "e053", "001000050003026833"), sm.AlertNoApplicationProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := configs(t)
			server.NextProtos = []string{"h2"}
			c, s := tcpPair(t)
			r := meet(scriptedClient(c, client, func(h *clientHandshake) error {
				h.writeRaw(x.msg)
				if err := h.rec.Flush(); err != nil {
					return err
				}
				_, err := h.rec.ReadHandshake()
				return err
			}), Server(s, server))
			wantAlert(t, r.serverErr, x.alert)
			wantAlert(t, r.clientErr, x.alert)
		})
	}
}

// encrypted runs a handshake with an ECC ClientKeyExchange that a test makes of the pre-master secret.
func encrypted(t *testing.T, make func(pms, ciphertext []byte) (usedPMS, sent []byte)) result {
	t.Helper()
	client, server := configs(t)
	c, s := tcpPair(t)
	return meet(scriptedClient(c, client, func(h *clientHandshake) error {
		if err := h.start(nil); err != nil {
			return err
		}
		pms, ciphertext, err := newPMS(h.peer.enc)
		if err != nil {
			return err
		}
		h.pms, ciphertext = make(pms, ciphertext)
		msg, err := encryptedMessage(ciphertext)
		if err != nil {
			return err
		}
		h.writeRaw(msg)
		h.secrets()
		return h.finish()
	}), Server(s, server))
}

func TestTrailingBytesBehindTheCiphertext(t *testing.T) {
	for _, tail := range []string{"\x00\x00", "random garbage", string(make([]byte, 300))} {
		fine(t, encrypted(t, func(pms, c []byte) ([]byte, []byte) { return pms, append(c, tail...) }))
	}
}

func TestVersionInPreMasterSecret(t *testing.T) {
	pair := pairOf(t, "server")
	for _, v := range [][2]byte{{1, 1}, {3, 3}, {0, 0}} {
		fine(t, encrypted(t, func(pms, _ []byte) ([]byte, []byte) {
			pms[0], pms[1] = v[0], v[1]
			c, err := sm2.EncryptASN1(rand.Reader, &pair.EncKey.PublicKey, pms)
			if err != nil {
				t.Fatal(err)
			}
			return pms, c
		}))
	}
}

// Whatever is wrong with the ciphertext shows at Finished only, and always in the same way.
func TestBadPreMasterSecret(t *testing.T) {
	pair := pairOf(t, "server")
	encrypt := func(b []byte) []byte {
		c, err := sm2.EncryptASN1(rand.Reader, &pair.EncKey.PublicKey, b)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for name, make := range map[string]func(pms, c []byte) []byte{
		"hash is wrong":  func(_, c []byte) []byte { c[80] ^= 1; return c },
		"not on curve":   func(_, c []byte) []byte { c[20] ^= 1; return c },
		"too short":      func(pms, _ []byte) []byte { return encrypt(pms[:47]) },
		"too long":       func(pms, _ []byte) []byte { return encrypt(append(pms, 0)) },
		"nothing":        func(_, _ []byte) []byte { return nil },
		"not ASN.1":      func(_, _ []byte) []byte { return []byte("what is this? what is this? what is this? what is this?") },
		"torn ASN.1":     func(_, c []byte) []byte { return c[:100] },
		"other sequence": func(_, _ []byte) []byte { return []byte{0x30, 3, 2, 1, 1} },
	} {
		t.Run(name, func(t *testing.T) {
			r := encrypted(t, func(pms, c []byte) ([]byte, []byte) { return slices.Clone(pms), make(pms, c) })
			wantAlert(t, r.serverErr, sm.AlertBadRecordMAC)
			wantAlert(t, r.clientErr, sm.AlertBadRecordMAC)
		})
	}
}

// A server that signs with the wrong key or ID, and a client that does.
func TestWrongSigners(t *testing.T) {
	pair := pairOf(t, "server")
	for name, sign := range map[string]func(parts ...[]byte) ([]byte, error){
		"other ID": func(parts ...[]byte) ([]byte, error) { return sm.Sign(pair.SignKey, sm.TLS13ID, parts...) },
		"enc key":  func(parts ...[]byte) ([]byte, error) { return sm.Sign(pair.EncKey, sm.DefaultID, parts...) },
		"garbage":  func(...[]byte) ([]byte, error) { return []byte("not a signature"), nil },
		"nothing":  func(...[]byte) ([]byte, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			client, server := configs(t)
			c, s := tcpPair(t)
			r := meet(Client(c, client), scriptedServer(s, server, func(h *serverHandshake) error {
				if err := h.readClientHello(); err != nil {
					return err
				}
				if err := h.choose(); err != nil {
					return err
				}
				sig, err := sign(h.clientRandom, h.serverRandom, eccSigned(pair.Enc))
				if err != nil {
					return err
				}
				for _, m := range []marshaler{h.reply, h.cert.message(true), &serverKeyExchangeMsg{sig: sig}} {
					if err := h.write(m); err != nil {
						return err
					}
				}
				if err := h.rec.Flush(); err != nil {
					return err
				}
				_, err = h.next()
				return err
			}))
			wantAlert(t, r.clientErr, sm.AlertDecryptError)
			wantAlert(t, r.serverErr, sm.AlertDecryptError)
		})
	}
}

func TestClientSignsWithTheEncryptionKey(t *testing.T) {
	client, server := configs(t)
	server.ClientAuth = RequireAndVerifyClientCert
	pair := *client.Certificates[0]
	pair.SignKey = pair.EncKey
	client.Certificates = []*Certificate{&pair}
	c, s := tcpPair(t)
	r := shake(c, s, client, server)
	wantAlert(t, r.serverErr, sm.AlertDecryptError)
	wantAlert(t, r.clientErr, sm.AlertDecryptError)
}
