package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sslo/config"
	"sslo/config/plan"
	"sslo/tls/cert"
	"sslo/tls/hello"
	"sslo/tls/survey"
	"sslo/tls/term"
)

// must runs a command line that is to succeed.
func must(t *testing.T, line string) string {
	t.Helper()
	code, out, errs := command(t, strings.Fields(line)...)
	if code != exitOK {
		t.Fatalf("sslo %s: exit code %d: %s", line, code, errs)
	}
	return out
}

// makePKI makes what a lab needs: roots of both kinds in one file, and leaves of all kinds.
func makePKI(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "password"), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"ca", "leaf www.test 127.0.0.1 --type rsa", "leaf www.test --file ecdsa",
		"ca --type sm2 --file ca-sm", "ca --type sm2 --file sub-sm --ca ca-sm --subject Middle",
		"leaf www.test 127.0.0.1 --type sm2 --ca sub-sm --file sm",
		"leaf www.test --type sm2 --ca sub-sm --file locked --password-file " + dir + "/password",
		"leaf www.test --type sm2 --ca ca-sm --file sm13 --single",
		"crl " + dir + "/locked.pem --ca sub-sm",
	} {
		must(t, "cert "+line+" --dir "+dir)
	}
	var all []byte
	for _, f := range []string{"ca.pem", "ca-sm.pem", "sub-sm.pem"} {
		data, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data...)
	}
	if err := os.WriteFile(filepath.Join(dir, "all.pem"), all, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

const smConfig = `links: {ext: {nic: eth0}}
certificates:
  www: {cert: www.pem, key: www.key}
  sm: {cert: sm.pem, key: sm.key, enc_cert: sm-enc.pem, enc_key: sm-enc.key}
  locked: {cert: locked.pem, key: locked.key, enc_cert: locked-enc.pem, enc_key: locked-enc.key, password_file: password}
  sm13: {cert: sm13.pem, key: sm13.key}
server_pools:
  web: {members: ["10.0.0.1:443"], tls: {protocol: auto, ca: all.pem, crl: ca.crl, server_name: www.test, certificates: [locked]}}
virtual_servers:
  all: {links: [ext], listen: ["192.0.2.1:443"], certificates: [sm13, sm, www], server_pool: web}
  sm: {links: [ext], listen: ["192.0.2.2:443"], certificates: [sm], server_pool: web, tls: {client_certificates: required, client_ca: all.pem, client_crl: ca.crl}}
`

// anyNIC is a machine that has every interface.
type anyNIC struct{}

func (anyNIC) NIC(string) (config.NIC, bool) { return config.NIC{MTU: 1500}, true }

// What sslo cert makes, sslo check takes without a warning.
func TestMadeCertificatesAreGood(t *testing.T) {
	dir := makePKI(t)
	file := filepath.Join(dir, "sslo.yml")
	if err := os.WriteFile(file, []byte(smConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Loader{Host: anyNIC{}}.Load(file)
	if err != nil || len(c.Warnings) > 0 {
		t.Fatal(err, c)
	}
	var text bytes.Buffer
	if err := plan.New(c).WriteText(&text); err != nil {
		t.Fatal(err)
	}
	out := text.String()
	for _, want := range []string{"sm (default)", "SM2 pair, until", "tlcp, else tls13-sm, else TLS 1.2 to 1.3, SM strict",
		"certificate required, verified by", "whichever of TLS 1.2 or newer, tls13-sm, tlcp is spoken", "shown locked"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestCertRefuses(t *testing.T) {
	dir := makePKI(t)
	for line, want := range map[string]struct {
		code int
		says string
	}{
		"ca":                                      {exitFailed, "ca.pem is there already"},
		"ca --file x --type dsa":                  {exitUsage, `not "dsa"`},
		"ca --file x --days 0":                    {exitUsage, "at least one day"},
		"leaf a.test --type sm2 --file x":         {exitFailed, "an authority of another kind"},
		"leaf a.test --ca ca-sm --file x":         {exitFailed, "an authority of another kind"},
		"leaf a.test --ca www --file x":           {exitFailed, "is no authority"},
		"leaf a.test --ca nowhere --file x":       {exitFailed, "no such file"},
		"leaf":                                    {exitUsage, "requires at least 1 arg"},
		"crl " + dir + "/sm.pem --ca ca --file x": {exitFailed, "was not issued by"},
	} {
		code, _, errs := command(t, append(strings.Fields("cert "+line), "--dir", dir)...)
		if code != want.code || !strings.Contains(errs, want.says) {
			t.Errorf("sslo cert %s: exit code %d, %q", line, code, errs)
		}
	}
	for _, name := range []string{"sm.key", "sm-enc.key", "ca.key"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// endpoint speaks some families on a port.
func endpoint(t *testing.T, dir string, families ...term.Family) (address string) {
	t.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	std, err := cert.Load("www", at("www.pem"), at("www.key"))
	if err != nil {
		t.Fatal(err)
	}
	sm, err := cert.LoadSM("sm", cert.SMFiles{Cert: at("sm.pem"), Key: at("sm.key"), EncCert: at("sm-enc.pem"), EncKey: at("sm-enc.key")})
	if err != nil {
		t.Fatal(err)
	}
	s := term.NewServer(term.ServerOptions{ALPN: []string{"http/1.1"}, Families: families, SM: &term.SMServer{Certificates: []cert.SMPair{sm}}},
		cert.NewStore([]cert.Pair{std}), term.NewTickets(time.Now()), "x")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(s, c)
		}
	}()
	return l.Addr().String()
}

func serve(s *term.Server, c net.Conn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	p := &peeked{Conn: c}
	h, err := hello.Read(p)
	if err != nil {
		return
	}
	if conn, err := s.Handshake(p, h); err == nil {
		conn.Read(make([]byte, 1))
	}
}

// peeked gives what was read of a connection once more.
type peeked struct {
	net.Conn
	first []byte
}

func (p *peeked) Buffered() []byte { return p.first }

func (p *peeked) Fill() error {
	buf := make([]byte, 4096)
	n, err := p.Conn.Read(buf)
	p.first = append(p.first, buf[:n]...)
	return err
}

func (p *peeked) Read(b []byte) (int, error) {
	if len(p.first) > 0 {
		n := copy(b, p.first)
		p.first = p.first[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

func TestProbeTLS(t *testing.T) {
	dir := makePKI(t)
	all, tlcp := endpoint(t, dir), endpoint(t, dir, term.TLCP)
	code, out, errs := command(t, "probe-tls", all, "--name", "www.test", "--ca", dir+"/all.pem", "--alpn", "http/1.1")
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{"tls  yes: TLS 1.3 ", "tls13-sm  yes: TLS 1.3 TLS_SM4_GCM_SM3, curveSM2, ALPN http/1.1, verified",
		"tlcp  yes: TLCP 1.1 ECC_SM4_GCM_SM3, ALPN http/1.1, verified", "  1 CN=www.test  SM2 encrypts, by CN=Middle", "  2 CN=Middle  SM2 CA", "RSA 2048"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	code, out, _ = command(t, "probe-tls", tlcp, "-o", "json", "--suites", "--name", "other.test", "--ca", dir+"/ca-sm.pem",
		"--cert", dir+"/locked.pem", "--key", dir+"/locked.key", "--enc-cert", dir+"/locked-enc.pem", "--enc-key", dir+"/locked-enc.key",
		"--password-file", dir+"/password")
	var tries []survey.Try
	if err := json.Unmarshal([]byte(out), &tries); err != nil || code != exitOK {
		t.Fatal(code, err)
	}
	good := 0
	for _, x := range tries {
		switch {
		case x.OK != (x.Family == "tlcp"):
			t.Errorf("%+v", x)
		case !x.OK && (x.Reason != "peer: handshake failure" && x.Reason != "peer: protocol version not supported" || x.Error == ""):
			t.Errorf("%s with %s: %s", x.Family, x.With, x.Reason)
		case x.OK && (x.Verified || !strings.Contains(x.VerifyError, "other.test") || x.Suite != x.With || x.Asked != strings.HasPrefix(x.Suite, "ECDHE")):
			t.Errorf("%+v", x)
		case x.OK:
			good++
		}
	}
	if good != 4 {
		t.Errorf("%d suites", good)
	}
}

func TestProbeTLSWithoutEndpoint(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent := l.Addr().String()
	defer l.Close()
	code, out, _ := command(t, "probe-tls", silent, "--timeout", "200ms")
	if code != exitFailed || strings.Count(out, "timeout") < 3 {
		t.Errorf("silent: exit code %d, %s", code, out)
	}
	l.Close()
	if code, out, _ = command(t, "probe-tls", silent); code != exitFailed || strings.Count(out, "not reached") != 1 {
		t.Errorf("nobody: exit code %d, %s", code, out)
	}
	if code, _, _ = command(t, "probe-tls", "nonsense"); code != exitUsage {
		t.Errorf("no port: exit code %d", code)
	}
}
