package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"sslo/admin/api"
	"sslo/test/lab"
	"sslo/tls/term"
	"sslo/tls/tlcp"
	"sslo/tls/tls13sm"
)

// TestSM: international and SM clients on the same port, servers of every protocol behind it.
func TestSM(t *testing.T) {
	b := smBed(t)
	b.sub("suites", (*bed).everySuite)
	b.sub("crossings", (*bed).everyCrossing)
	b.sub("record", (*bed).bothSidesAreRecorded)
	b.sub("devices", (*bed).devicesSeePlaintext)
	b.sub("server finds out", (*bed).serversOfAllKinds)
	b.sub("server asks", (*bed).serverWantsCertificate)
	b.sub("certificates", (*bed).anyCertificates)
	b.sub("bad pairs", (*bed).badPairsAreRefused)
	b.sub("no SNI", (*bed).noSNI)
	b.sub("failures", (*bed).failuresAreCounted)
	b.sub("silence", (*bed).silentClients)
	b.sub("monitors", (*bed).monitorsSpeakSM)
}

var smSuites = []struct {
	family term.Family
	id     uint16
	name   string
}{
	{term.TLCP, tlcp.ECC_SM4_GCM_SM3, "ECC_SM4_GCM_SM3"},
	{term.TLCP, tlcp.ECC_SM4_CBC_SM3, "ECC_SM4_CBC_SM3"},
	{term.TLCP, tlcp.ECDHE_SM4_GCM_SM3, "ECDHE_SM4_GCM_SM3"},
	{term.TLCP, tlcp.ECDHE_SM4_CBC_SM3, "ECDHE_SM4_CBC_SM3"},
	{term.TLS13SM, tls13sm.TLS_SM4_GCM_SM3, "TLS_SM4_GCM_SM3"},
	{term.TLS13SM, tls13sm.TLS_SM4_CCM_SM3, "TLS_SM4_CCM_SM3"},
}

var framings = map[string]func(net.Conn) net.Conn{
	"bytes":     func(c net.Conn) net.Conn { return byteSender{c.(*net.TCPConn)} },
	"coalesced": func(c net.Conn) net.Conn { return &joiner{TCPConn: c.(*net.TCPConn)} },
}

// everySuite, with and without a certificate of the client, in full and resumed, in segments of a byte and with all
// messages of a flight in a record, by IPv4 and IPv6, through both devices.
func (b *bed) everySuite() {
	for _, s := range smSuites {
		for _, mutual := range []bool{false, true} {
			for _, ipv6 := range []bool{false, true} {
				for framing, send := range framings {
					c := smClient{family: s.family, suite: s.id, mutual: mutual || strings.HasPrefix(s.name, "ECDHE"), ipv6: ipv6, send: send}
					if mutual {
						c.port = mutualPort
					}
					cl := b.client(c)
					for _, resumed := range []bool{false, true} {
						b.checkSuite(fmt.Sprintf("%s, mutual %t, %s, %s, resumed %t", s.name, mutual, familyName(c.address().Addr()), framing, resumed),
							cl, c, s.name, resumed)
					}
				}
			}
		}
	}
}

func (b *bed) checkSuite(name string, cl *term.Client, c smClient, suite string, resumed bool) {
	b.t.Helper()
	conn, err := b.connect(cl, c)
	if err != nil {
		b.t.Errorf("%s: %v", name, err)
		return
	}
	defer conn.Close()
	body, err := b.request(conn, "/")
	s := conn.State()
	if err != nil || !strings.Contains(body, "hello from server1") || s.Suite != suite || s.Resumed != resumed {
		b.t.Errorf("%s: %q, %v, %+v", name, body, err, s)
	}
	b.checkWay(name, conn)
}

// checkWay looks at the newest connection of the client's port, which may have been used before.
func (b *bed) checkWay(name string, conn net.Conn) {
	b.t.Helper()
	if way := b.way(conn); !strings.HasSuffix(way, "a b") {
		b.t.Errorf("%s: way %q", name, way)
	}
}

var families = []term.Family{term.TLS, term.TLCP, term.TLS13SM}

// everyCrossing is every protocol of the client with every protocol of the server.
func (b *bed) everyCrossing() {
	for _, client := range families {
		for _, server := range []struct {
			family term.Family
			port   int
			name   string
		}{{term.TLS, lab.TLSPort, "server1"}, {term.TLCP, toTLCPPort, "tlcp"}, {term.TLS13SM, toTLS13Port, "tls13"}} {
			for _, ipv6 := range []bool{false, true} {
				c := smClient{family: client, port: server.port, ipv6: ipv6}
				conn, err := b.connect(b.client(c), c)
				if err != nil {
					b.t.Errorf("%s to %s: %v", client, server.family, err)
					continue
				}
				for range 2 { // on one connection
					if body, err := b.request(conn, "/"); err != nil || !strings.Contains(body, "hello from "+server.name+" ") {
						b.t.Errorf("%s to %s, IPv6 %t: %q %v", client, server.family, ipv6, body, err)
					}
				}
				b.checkWay(fmt.Sprintf("%s to %s", client, server.family), conn)
				conn.Close()
			}
		}
	}
}

// bothSidesAreRecorded: connection, session and counters tell family, version and suite of client and server.
func (b *bed) bothSidesAreRecorded() {
	c := smClient{family: term.TLCP, port: toTLS13Port}
	conn, err := b.connect(b.client(c), c)
	b.must(err)
	defer conn.Close()
	_, err = b.request(conn, "/")
	b.must(err)
	want := [2]api.TLS{{Family: "tlcp", Version: "TLCP 1.1", Suite: "ECC_SM4_GCM_SM3"}, {Family: "tls13-sm", Version: "TLS 1.3", Suite: "TLS_SM4_GCM_SM3"}}
	check := func(where string, r api.Connection) {
		if r.TLS == nil || r.ServerTLS == nil {
			b.t.Fatalf("%s: %+v", where, r)
		}
		if r.ServerTLS.Resumed = false; *r.TLS != want[0] || *r.ServerTLS != want[1] {
			b.t.Errorf("%s: %+v, %+v", where, r.TLS, r.ServerTLS)
		}
	}
	list := get[api.ConnectionList](b, "/v1/connections?client="+local(conn).String())
	if len(list.Connections) != 1 {
		b.t.Fatalf("%+v", list)
	}
	check("connection", list.Connections[0])
	legs := b.tree(local(conn))
	tree := get[api.SessionList](b, "/v1/sessions/"+legs[0].ID.String())
	if tree.Connection == nil {
		b.t.Fatal("no connection with the session")
	}
	check("session", *tree.Connection)
	counters := b.counters()
	if n := counters.VirtualServers["to-tls13"]["handshake/tlcp/TLCP 1.1/ECC_SM4_GCM_SM3"]; n == 0 {
		b.t.Errorf("no handshake of the client in %v", counters.VirtualServers["to-tls13"])
	}
	n := uint64(0)
	for name, count := range counters.ServerPools["tls13"] {
		if strings.Contains(name, "/handshake/tls13-sm/TLS 1.3/TLS_SM4_GCM_SM3") {
			n += count
		}
	}
	if n == 0 {
		b.t.Errorf("no handshake with the server in %v", counters.ServerPools["tls13"])
	}
}

// devicesSeePlaintext: what an SM client sends is inspected like all else.
func (b *bed) devicesSeePlaintext() {
	for _, f := range families {
		c := smClient{family: f, port: toTLCPPort}
		conn, err := b.connect(b.client(c), c)
		b.must(err)
		if body, err := b.request(conn, "/../../etc/passwd"); err == nil {
			b.t.Errorf("%s: an attack was answered: %q", f, body)
		}
		conn.Close()
	}
}

// serversOfAllKinds: members of one pool that speak different protocols, none of which is told.
func (b *bed) serversOfAllKinds() {
	seen := map[string]bool{}
	for _, f := range families {
		for range 12 { // both addresses of three servers, at least once
			c := smClient{family: f, port: toAutoPort}
			conn, err := b.connect(b.client(c), c)
			b.must(err)
			body, err := b.request(conn, "/")
			if err != nil {
				b.t.Errorf("%s: %v", f, err)
			}
			name, _, _ := strings.Cut(strings.TrimPrefix(body, "hello from "), " ")
			seen[name] = true
			conn.Close()
		}
	}
	if len(seen) != 3 || !seen["server1"] || !seen["tlcp"] || !seen["tls13"] {
		b.t.Errorf("answers came from %v", seen)
	}
}

// serverWantsCertificate: ECDHE and a certificate of the client, both required by the server.
func (b *bed) serverWantsCertificate() {
	for _, f := range families {
		c := smClient{family: f, port: toMutualPort}
		conn, err := b.connect(b.client(c), c)
		b.must(err)
		if body, err := b.request(conn, "/"); err != nil || !strings.Contains(body, "hello from mutual ") {
			b.t.Errorf("%s: %q %v", f, body, err)
		}
		conn.Close()
	}
}

// anyCertificates: SM alone, RSA alone, both in each order, and a certificate for TLS 1.3 alone.
func (b *bed) anyCertificates() {
	for _, x := range []struct {
		port int
		good []term.Family
	}{
		{smOnlyPort, []term.Family{term.TLCP, term.TLS13SM}},
		{rsaOnlyPort, []term.Family{term.TLS}},
		{smFirstPort, families},
		{rsaFirstPort, families},
		{lonePort, []term.Family{term.TLS13SM}},
	} {
		for _, f := range families {
			want := false
			for _, g := range x.good {
				want = want || g == f
			}
			c := smClient{family: f, port: x.port}
			if x.port == lonePort {
				c.sni = "lone.test"
			}
			conn, err := b.connect(b.lenient(c), c)
			if (err == nil) != want {
				b.t.Errorf("port %d, %s: %v, want a handshake: %t", x.port, f, err, want)
			}
			if err == nil {
				if _, err := b.request(conn, "/"); err != nil {
					b.t.Errorf("port %d, %s: %v", x.port, f, err)
				}
				conn.Close()
			}
		}
	}
}

// lenient verifies by the name that it asks for.
func (b *bed) lenient(c smClient) *term.Client {
	name := c.sni
	if name == "" {
		name = lab.ShopName
	}
	return term.NewClient(term.ClientOptions{CA: b.CA.Pool(), ServerName: name, Families: []term.Family{c.family}, SM: &term.SMClient{CA: b.smRoots()}})
}

// badPairsAreRefused: a reload with a pair that is none says where and why, and nothing changes.
func (b *bed) badPairsAreRefused() {
	for _, x := range []struct{ key, value, says string }{
		{"enc_key", "sm.key", "sm.key is not the key of the encryption certificate"},
		{"key", "sm-enc.key", "sm-enc.key is not the key of the certificate"},
		{"enc_cert", "sm-other-enc.pem", "is not the key of the encryption certificate"},
		{"cert", "sm-enc.pem", "lacks digitalSignature"},
	} {
		good := b.config["certificates"].(map[string]any)["sm"].(map[string]any)[x.key]
		b.config.Set("certificates.sm."+x.key, b.Path(x.value))
		_, err := b.WriteConfig(b.config)
		b.must(err)
		_, err = b.admin.Reload(b.context(10 * time.Second))
		problem, ok := err.(*api.Problem)
		if !ok || len(problem.Errors) == 0 || problem.Errors[0].Line == 0 || !strings.Contains(problem.Errors[0].Message, x.says) {
			b.t.Errorf("%s %s: %+v", x.key, x.value, err)
		}
		b.config.Set("certificates.sm."+x.key, good)
	}
	b.reload()
	c := smClient{family: term.TLCP}
	conn, err := b.connect(b.client(c), c)
	b.must(err)
	conn.Close()
}

// noSNI: without a name a TLCP client gets the first pair, with one its own.
func (b *bed) noSNI() {
	for sni, want := range map[string]string{"": lab.ShopName, "other.test": "other.test", "x." + lab.ShopName: lab.ShopName, "unknown.test": lab.ShopName} {
		for _, ipv6 := range []bool{false, true} {
			tcp, err := b.DialTCP(b.context(10*time.Second), b.Client(), lab.ClientOptions{Address: smClient{port: twicePort, ipv6: ipv6}.address()})
			b.must(err)
			tcp.SetDeadline(time.Now().Add(10 * time.Second))
			conn := tlcp.Client(tcp, &tlcp.Config{ServerName: sni, InsecureSkipVerify: true})
			b.must(conn.Handshake())
			if got := conn.ConnectionState().PeerCertificates[0].Subject.CommonName; got != want {
				b.t.Errorf("SNI %q: certificate of %s, want %s", sni, got, want)
			}
			if body, err := b.request(conn, "/"); err != nil || !strings.Contains(body, "hello from server1") {
				b.t.Errorf("SNI %q: %q %v", sni, body, err)
			}
			conn.Close()
		}
	}
}

// failuresAreCounted by family and reason.
func (b *bed) failuresAreCounted() {
	c := smClient{family: term.TLCP, port: mutualPort}
	if conn, err := b.connect(b.client(c), c); err == nil {
		if _, err = b.request(conn, "/"); err == nil {
			b.t.Error("a client without a certificate was let in")
		}
		conn.Close()
	}
	for _, f := range families { // does not know the root
		c := smClient{family: f}
		stranger := term.NewClient(term.ClientOptions{ServerName: "nobody.test", CA: b.CA.Pool(), Families: []term.Family{f}, SM: &term.SMClient{CA: b.smRoots()}})
		if conn, err := b.connect(stranger, c); err == nil {
			b.t.Errorf("%s: the name was not verified", f)
			conn.Close()
		}
	}
	b.eventually(5*time.Second, func() error {
		c := b.counters().VirtualServers
		for _, name := range []string{"handshake-failed/tls/peer: bad certificate", "handshake-failed/tlcp/peer: bad certificate",
			"handshake-failed/tls13-sm/peer: bad certificate"} {
			if c["shop"][name] == 0 {
				return fmt.Errorf("no %s in %v", name, c["shop"])
			}
		}
		for name, n := range c["mutual"] {
			if strings.HasPrefix(name, "handshake-failed/tlcp/") && n > 0 {
				return nil
			}
		}
		return fmt.Errorf("no failure in %v", c["mutual"])
	})
	b.eventually(10*time.Second, func() error { // of many in a second not each is told
		stranger := term.NewClient(term.ClientOptions{ServerName: "nobody.test", Families: []term.Family{term.TLCP}, SM: &term.SMClient{CA: b.smRoots()}})
		if conn, err := b.connect(stranger, smClient{}); err == nil {
			conn.Close()
			return errors.New("the name was not verified")
		}
		if !hasLine(b.daemon.Output(), "connection ended", "reason=handshake-failed", "tls=tlcp", "err=") {
			return errors.New("not in the log")
		}
		return nil
	})
}

// silentClients: whatever a client does not send, it is over at the deadline, and nobody spins meanwhile.
func (b *bed) silentClients() {
	hello := b.recordedHello()
	ends := map[string]func(*net.TCPConn) error{
		"hello, then silence":          func(c *net.TCPConn) error { return whole(c, hello) },
		"hello, then FIN":              func(c *net.TCPConn) error { whole(c, hello); return c.CloseWrite() },
		"five bytes, then silence":     func(c *net.TCPConn) error { return whole(c, hello[:5]) },
		"five bytes, then FIN":         func(c *net.TCPConn) error { whole(c, hello[:5]); return c.CloseWrite() },
		"half of it, then silence":     func(c *net.TCPConn) error { return whole(c, hello[:len(hello)/2]) },
		"an endless row of warnings":   func(c *net.TCPConn) error { return drip(c, []byte{21, 1, 1, 0, 2, 1, 90}) },
		"a byte a tenth of a second":   func(c *net.TCPConn) error { return drip(c, hello) },
		"empty records without an end": func(c *net.TCPConn) error { return drip(c, []byte{22, 1, 1, 0, 0}) },
	}
	before, began := b.cpu(), time.Now()
	done := make(chan string, len(ends))
	for name, send := range ends {
		c, err := b.DialTCP(b.context(20*time.Second), b.Client(), lab.ClientOptions{Address: smClient{port: slowPort}.address()})
		b.must(err)
		defer c.Close()
		go func() {
			go send(c)
			c.SetReadDeadline(time.Now().Add(20 * time.Second))
			buf := make([]byte, 4096)
			for {
				if _, err := c.Read(buf); err != nil {
					if ne, ok := err.(net.Error); ok && ne.Timeout() {
						done <- name + ": is still open"
					} else {
						done <- ""
					}
					return
				}
			}
		}()
	}
	for range ends {
		if failed := <-done; failed != "" {
			b.t.Error(failed)
		}
	}
	if used, took := b.cpu()-before, time.Since(began); used > took/2 {
		b.t.Errorf("%v of CPU in %v of silence", used, took)
	}
	b.eventually(5*time.Second, func() error {
		c := b.counters().VirtualServers["slow"]
		if c["open"] != 0 || c["ended/hello-timeout"] == 0 || c["ended/handshake-timeout"] == 0 {
			return fmt.Errorf("%v", c)
		}
		return nil
	})
}

// monitorsSpeakSM: what a server speaks no more, its monitor finds out; all were up until now because theirs did.
func (b *bed) monitorsSpeakSM() {
	state := func(pool, state, why string) error {
		for _, p := range get[[]api.ServerPool](b, "/v1/servers") {
			for _, m := range p.Members {
				if p.Name == pool && (m.State != state || !strings.Contains(m.Reason, why)) {
					return fmt.Errorf("%s of %s is %s: %s", m.Address, pool, m.State, m.Reason)
				}
			}
		}
		return nil
	}
	for _, pool := range []string{"tlcp", "tls13", "any", "mutual"} {
		b.must(state(pool, "up", ""))
	}
	b.reload(set("server_pools.tlcp.tls.protocol", "tls13-sm"), set("server_pools.mutual.tls.certificates", nil), set("server_pools.mutual.tls.sm", nil))
	b.eventually(10*time.Second, func() error {
		return errors.Join(state("tlcp", "down", "health: TLS: "), state("mutual", "down", "health: TLS: "), state("any", "up", ""))
	})
	b.reload(set("server_pools.tlcp.tls.protocol", "auto"))
	b.eventually(10*time.Second, func() error { return state("tlcp", "up", "") })
}

// drip sends again and again, a byte at a time, until nobody takes it.
func drip(c *net.TCPConn, what []byte) error {
	for i := 0; ; i++ {
		if err := whole(c, what[i%len(what):][:1]); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// recordedHello is the ClientHello of a TLCP client.
func (b *bed) recordedHello() []byte {
	here, there := net.Pipe()
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	go tlcp.Client(here, &tlcp.Config{ServerName: lab.ShopName}).HandshakeContext(ctx)
	buf := make([]byte, 4096)
	n, err := there.Read(buf)
	b.must(err)
	return buf[:n]
}
