package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/emmansun/gmsm/smx509"

	"sslo/internal/testutil"
	"sslo/test/lab"
	"sslo/test/lab/origin"
	"sslo/tls/cert"
	clienthello "sslo/tls/hello"
	"sslo/tls/sm"
	"sslo/tls/term"
)

// Ports of the virtual servers of smBed, beside 443, and of its servers.
const (
	mutualPort, toTLCPPort, toTLS13Port, toAutoPort, toMutualPort           = 8443, 8444, 8445, 8446, 8447
	smOnlyPort, rsaOnlyPort, smFirstPort, rsaFirstPort, lonePort, twicePort = 8450, 8451, 8452, 8453, 8454, 8455
	slowPort                                                                = 8460

	tlcpOrigin, tls13Origin, mutualOrigin = 1443, 2443, 3443
)

// smBed has virtual servers for every combination of protocols, in front of servers of every protocol.
func smBed(t *testing.T) *bed {
	testutil.RequireRoot(t)
	line := lab.Line(2, lab.Bridge)
	line.Devices[0].Kind = lab.Inspect
	b := build(t, line)
	b.makeSM()
	b.serveSM(tlcpOrigin, "tlcp", term.ServerOptions{Families: []term.Family{term.TLCP}})
	b.serveSM(tls13Origin, "tls13", term.ServerOptions{Families: []term.Family{term.TLS13SM}})
	b.serveSM(mutualOrigin, "mutual", term.ServerOptions{Families: []term.Family{term.TLCP}, ClientAuth: tls.RequireAndVerifyClientCert})
	b.configureSM()
	b.start()
	b.awaitReady()
	return b
}

// makeSM makes the certificates with the product's own command.
func (b *bed) makeSM() {
	b.t.Helper()
	program, err := lab.Program()
	b.must(err)
	for _, args := range [][]string{
		{"ca", "--type", "sm2", "--file", "sm-root"},
		{"ca", "--type", "sm2", "--file", "sm-sub", "--ca", "sm-root"},
		{"leaf", lab.ShopName, "*." + lab.ShopName, "--type", "sm2", "--ca", "sm-sub", "--file", "sm"},
		{"leaf", "other.test", "--type", "sm2", "--ca", "sm-sub", "--file", "sm-other"},
		{"leaf", "lone.test", "--type", "sm2", "--ca", "sm-sub", "--file", "sm-lone", "--single"},
		{"leaf", lab.OriginName, lab.ShopName, "--type", "sm2", "--ca", "sm-sub", "--file", "sm-origin"},
		{"leaf", "client.test", "--type", "sm2", "--ca", "sm-sub", "--file", "sm-client"},
	} {
		_, err := b.Box.Exec(b.context(10*time.Second), program, append(append([]string{"cert"}, args...), "--dir", b.Dir)...)
		b.must(err)
	}
	leaf, err := b.CA.Issue(0, "client.test")
	b.must(err)
	b.must(leaf.Write(b.Dir, "client"))
	var all []byte
	for _, name := range []string{"ca.pem", "sm-root.pem"} {
		data, err := os.ReadFile(b.Path(name))
		b.must(err)
		all = append(all, data...)
	}
	b.must(os.WriteFile(b.Path("all.pem"), all, 0o644))
}

func (b *bed) pair(name string) cert.SMPair {
	b.t.Helper()
	p, err := cert.LoadSM(name, cert.SMFiles{Cert: b.Path(name + ".pem"), Key: b.Path(name + ".key"),
		EncCert: b.Path(name + "-enc.pem"), EncKey: b.Path(name + "-enc.key")})
	b.must(err)
	return p
}

func (b *bed) smRoots() *smx509.CertPool {
	b.t.Helper()
	data, err := os.ReadFile(b.Path("sm-root.pem"))
	b.must(err)
	p := smx509.NewCertPool()
	if !p.AppendCertsFromPEM(data) {
		b.t.Fatal("no root")
	}
	return p
}

// serveSM runs the lab's origin on a port of the server, behind our own SM stacks.
func (b *bed) serveSM(port int, name string, o term.ServerOptions) {
	b.t.Helper()
	o.ALPN = []string{"http/1.1"}
	o.SM = &term.SMServer{Certificates: []cert.SMPair{b.pair("sm-origin")}, ClientCAs: b.smRoots()}
	s := term.NewServer(o, cert.NewStore(nil), term.NewTickets(time.Now()), name)
	l, err := b.Server().Listen("tcp", fmt.Sprintf(":%d", port))
	b.must(err)
	w := &smListener{Listener: l, ready: make(chan net.Conn), done: make(chan struct{})}
	go w.run(s)
	h := &http.Server{Handler: origin.Handler(name), ReadHeaderTimeout: time.Minute}
	go h.Serve(w) // ends with Close
	b.t.Cleanup(func() { close(w.done); h.Close() })
}

// smListener gives connections whose handshake is done.
type smListener struct {
	net.Listener
	ready chan net.Conn
	done  chan struct{}
}

func (l *smListener) run(s *term.Server) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return
		}
		go l.handshake(s, c)
	}
}

func (l *smListener) handshake(s *term.Server, c net.Conn) {
	c.SetDeadline(time.Now().Add(10 * time.Second))
	p := &peeked{Conn: c}
	h, err := clienthello.Read(p)
	if err == nil {
		var conn net.Conn
		if conn, err = s.Handshake(p, h); err == nil {
			c.SetDeadline(time.Time{})
			select {
			case l.ready <- conn:
				return
			case <-l.done:
			}
		}
	}
	c.Close()
}

func (l *smListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// peeked gives what was read of a connection once more.
type peeked struct {
	net.Conn
	first []byte
}

func (p *peeked) Read(b []byte) (int, error) {
	if len(p.first) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.first)
	p.first = p.first[n:]
	return n, nil
}

func (p *peeked) Buffered() []byte { return p.first }

func (p *peeked) Fill() error {
	buf := make([]byte, 4096)
	n, err := p.Conn.Read(buf)
	p.first = append(p.first, buf[:n]...)
	return err
}

func (b *bed) configureSM() {
	c := b.config
	for _, name := range []string{"sm", "sm-other", "sm-client"} {
		c.Set("certificates."+name, map[string]any{"cert": b.Path(name + ".pem"), "key": b.Path(name + ".key"),
			"enc_cert": b.Path(name + "-enc.pem"), "enc_key": b.Path(name + "-enc.key")})
	}
	c.Set("certificates.sm-lone", map[string]any{"cert": b.Path("sm-lone.pem"), "key": b.Path("sm-lone.key")})
	toServers := func(name, protocol string, certs []string, ports ...int) {
		var members []string
		for _, p := range ports {
			members = append(members, netip.AddrPortFrom(b.Server().Addr4, uint16(p)).String(), netip.AddrPortFrom(b.Server().Addr6, uint16(p)).String())
		}
		c.Set("server_pools."+name, map[string]any{"members": members, "tls": map[string]any{
			"protocol": protocol, "ca": b.Path("all.pem"), "server_name": lab.OriginName, "certificates": certs},
			"monitor": []string{"health"}})
	}
	c.Set("monitors.health", map[string]any{"type": "https", "path": "/", "body": "hello from", "interval": "200ms", "timeout": "2s", "rise": 1, "fall": 1})
	toServers("tlcp", "tlcp", nil, tlcpOrigin)
	toServers("tls13", "tls13-sm", nil, tls13Origin)
	toServers("any", "auto", nil, lab.TLSPort, tlcpOrigin, tls13Origin)
	toServers("mutual", "tlcp", []string{"sm-client"}, mutualOrigin)
	c.Set("server_pools.mutual.tls.sm", map[string]any{"suites": []string{"ECDHE_SM4_GCM_SM3"}})

	virtual := func(name string, port int, pool string, tls map[string]any, certs ...string) {
		c.Set("virtual_servers."+name, map[string]any{"links": []string{lab.ClientNIC}, "chain": "inspect", "server_pool": pool,
			"listen":       []string{fmt.Sprintf("%s:%d", lab.VIP4, port), fmt.Sprintf("[%s]:%d", lab.VIP6, port)},
			"certificates": certs, "tls": tls})
	}
	c.Set("virtual_servers.shop.certificates", []string{"www", "www-rsa", "sm"})
	required := map[string]any{"client_certificates": "required", "client_ca": b.Path("all.pem")}
	virtual("mutual", mutualPort, "web", required, "sm", "www")
	virtual("to-tlcp", toTLCPPort, "tlcp", nil, "sm", "www")
	virtual("to-tls13", toTLS13Port, "tls13", nil, "sm", "www")
	virtual("to-any", toAutoPort, "any", nil, "sm", "www")
	virtual("to-mutual", toMutualPort, "mutual", nil, "sm", "www")
	virtual("sm-only", smOnlyPort, "web", nil, "sm")
	virtual("rsa-only", rsaOnlyPort, "web", nil, "www-rsa")
	virtual("sm-first", smFirstPort, "web", nil, "sm", "www-rsa")
	virtual("rsa-first", rsaFirstPort, "web", nil, "www-rsa", "sm")
	virtual("lone", lonePort, "web", nil, "sm-lone")
	virtual("twice", twicePort, "web", nil, "sm", "sm-other")
	virtual("slow", slowPort, "web", nil, "sm", "www")
	c.Set("virtual_servers.slow.timeouts", map[string]any{"client_hello": "1s", "handshake": "1s"})
}

// smClient is how a client connects.
type smClient struct {
	family term.Family
	suite  uint16 // 0: any
	mutual bool
	ipv6   bool
	port   int // 0: 443
	sni    string
	send   func(net.Conn) net.Conn // frames what is sent; nil: as it is
}

func (c smClient) address() netip.AddrPort {
	port := uint16(lab.TLSPort)
	if c.port != 0 {
		port = uint16(c.port)
	}
	if c.ipv6 {
		return netip.AddrPortFrom(lab.VIP6, port)
	}
	return netip.AddrPortFrom(lab.VIP4, port)
}

// client is a client that remembers sessions.
func (b *bed) client(c smClient) *term.Client {
	b.t.Helper()
	o := term.ClientOptions{CA: b.CA.Pool(), ServerName: lab.ShopName, Families: []term.Family{c.family}, SM: &term.SMClient{CA: b.smRoots()}}
	if c.suite != 0 {
		o.SM.Suites = []uint16{c.suite}
	}
	if c.mutual {
		pair := b.pair("sm-client")
		o.SM.Certificate = &pair
		std, err := tls.LoadX509KeyPair(b.Path("client.pem"), b.Path("client.key"))
		b.must(err)
		o.Certificates = []tls.Certificate{std}
	}
	return term.NewClient(o)
}

// connect makes a connection and its handshake.
func (b *bed) connect(cl *term.Client, c smClient) (term.Conn, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	tcp, err := b.DialTCP(ctx, b.Client(), lab.ClientOptions{Address: c.address()})
	if err != nil {
		return nil, err
	}
	b.t.Cleanup(func() { tcp.Close() })
	tcp.SetDeadline(time.Now().Add(20 * time.Second))
	var nc net.Conn = tcp
	if c.send != nil {
		nc = c.send(tcp)
	}
	sni := c.sni
	if sni == "" {
		sni = lab.ShopName
	}
	return cl.Handshake(nc, sni, "")
}

// byteSender makes a segment of every byte.
type byteSender struct{ *net.TCPConn }

func (s byteSender) Write(p []byte) (int, error) { return len(p), byteByByte(s.TCPConn, p) }

// joiner puts all handshake messages of a flight of TLCP into one record, until change_cipher_spec.
type joiner struct {
	*net.TCPConn
	ccs bool
}

func (j *joiner) Write(p []byte) (int, error) {
	if j.ccs || len(p) < sm.HeaderSize {
		return j.TCPConn.Write(p)
	}
	var messages, rest []byte
	for b := p; len(b) >= sm.HeaderSize; {
		n := min(len(b), sm.HeaderSize+int(b[3])<<8+int(b[4]))
		if !j.ccs && b[0] == byte(sm.RecordHandshake) {
			messages = append(messages, b[sm.HeaderSize:n]...)
		} else {
			j.ccs = true
			rest = append(rest, b[:n]...)
		}
		b = b[n:]
	}
	var out []byte
	if len(messages) > 0 {
		out = append(sm.AppendHeader(nil, sm.RecordHandshake, uint16(p[1])<<8|uint16(p[2]), len(messages)), messages...)
	}
	if _, err := j.TCPConn.Write(append(out, rest...)); err != nil {
		return 0, err
	}
	return len(p), nil
}
