package e2e

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sslo/admin/api"
	"sslo/admin/client"
	"sslo/test/device"
	"sslo/test/lab"
)

// request asks for a path on an open connection and returns the body.
func (b *bed) request(c net.Conn, path string) (string, error) {
	c.SetDeadline(time.Now().Add(10 * time.Second))
	defer c.SetDeadline(time.Time{})
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, lab.ShopName); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// mustRequest fails the test without an answer from the origin.
func (b *bed) mustRequest(c net.Conn) {
	b.t.Helper()
	body, err := b.request(c, "/")
	b.must(err)
	if !strings.HasPrefix(body, "hello from server") {
		b.t.Fatalf("answer %q", body)
	}
}

func local(c net.Conn) netip.AddrPort { return c.LocalAddr().(*net.TCPAddr).AddrPort() }

// One connection through [A, B] is three sessions: front0 → A, A → B, B → back0.
func TestTreeOfAConnection(t *testing.T) {
	b := up(t, lab.Line(2, lab.Bridge))
	for _, o := range []lab.ClientOptions{{}, {IPv6: true}} {
		b.sub(familyName(o.Target().Addr()), func(b *bed) {
			c := b.dial(b.Client(), o)
			b.mustRequest(c)
			legs := b.tree(local(c))
			b.checkTree(legs, local(c), netip.AddrPortFrom(o.Target().Addr(), 80))
			b.checkEveryIDTellsTheTree(legs)
		})
	}
	b.sub("keys", (*bed).checkKeysAreUnique)
}

func (b *bed) checkTree(legs []api.Session, client, server netip.AddrPort) {
	b.t.Helper()
	if len(legs) != 3 {
		b.t.Fatalf("%d sessions, want 3: %+v", len(legs), legs)
	}
	ids := []api.ID{0, legs[0].ID, legs[1].ID, legs[2].ID, 0}
	want := []api.Session{
		{Link: "front0", NextLink: "a-in", Position: 0, Pool: "pool-a", Device: "a"},
		{Link: "a-out", NextLink: "b-in", Position: 1, Pool: "pool-b", Device: "b", From: "a"},
		{Link: "b-out", NextLink: "back0", Position: 2, From: "b"},
	}
	for i, w := range want {
		w.ID, w.Parent, w.Child, w.Root = ids[i+1], ids[i], ids[i+2], legs[0].ID
		w.Protocol, w.Client, w.Server, w.Chain, w.State = "tcp", client, server, "inspect", "established"
		got := legs[i]
		if got.Packets[0] == 0 || got.Packets[1] == 0 || got.Bytes[0] == 0 || got.Bytes[1] == 0 {
			b.t.Errorf("session %d has counted nothing: %+v", i+1, got)
		}
		if got.Bytes != legs[0].Bytes {
			b.t.Errorf("session %d has other bytes than the first: %v, %v", i+1, got.Bytes, legs[0].Bytes)
		}
		got.Packets, got.Bytes, got.Age, got.Idle = w.Packets, w.Bytes, 0, 0
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", w) {
			b.t.Errorf("session %d:\n%+v, want\n%+v", i+1, got, w)
		}
	}
	if ids[1] == ids[2] || ids[2] == ids[3] || ids[1] == ids[3] || slices.Contains(ids[1:4], 0) {
		b.t.Errorf("ids %v", ids[1:4])
	}
}

// checkEveryIDTellsTheTree: whichever leg is asked for, the answer is the whole connection from the root on.
func (b *bed) checkEveryIDTellsTheTree(legs []api.Session) {
	b.t.Helper()
	for _, leg := range legs {
		var ids []api.ID
		for _, s := range get[api.SessionList](b, "/v1/sessions/"+leg.ID.String()).Sessions {
			ids = append(ids, s.ID)
		}
		if want := []api.ID{legs[0].ID, legs[1].ID, legs[2].ID}; !slices.Equal(ids, want) {
			b.t.Errorf("tree of %s is %v, want %v", leg.ID, ids, want)
		}
	}
}

// checkKeysAreUnique: no tuple on a link belongs to two sessions, in neither direction.
func (b *bed) checkKeysAreUnique() {
	type key struct {
		src, dst netip.AddrPort
		link     string
	}
	owner := map[key]api.ID{}
	for _, s := range b.sessions(client.SessionQuery{}) {
		for _, k := range []key{{s.Client, s.Server, s.Link}, {s.Server, s.Client, s.NextLink}} {
			if other, taken := owner[k]; taken {
				b.t.Errorf("%v belongs to %s and %s", k, other, s.ID)
			}
			owner[k] = s.ID
		}
	}
	if len(owner) < 12 {
		b.t.Errorf("only %d keys of two connections", len(owner))
	}
}

const reuses = 60 // of one port

var reuseChains = []struct {
	sni   string
	chain string
	way   []string
}{
	{"a." + lab.ShopName, "only-a", []string{"a"}},
	{"b." + lab.ShopName, "only-b", []string{"b"}},
	{"both." + lab.ShopName, "both", []string{"a", "b"}},
	{"none." + lab.ShopName, "none", nil},
}

// A client that uses its port again at once, with another name each time, must get the chain of the new
// name. The devices say what they have read.
func TestPortUsedAgainAtOnce(t *testing.T) {
	b := up(t, lab.Line(2, lab.Inspect), func(c lab.Config) {
		c.Set("chains.only-a.pools", []string{"pool-a"}).Set("chains.only-b.pools", []string{"pool-b"}).Set("chains.both.pools", []string{"pool-a", "pool-b"})
		var rules []any
		for _, r := range reuseChains {
			rules = append(rules, rule(r.chain, "sni", r.sni, "chain", r.chain))
		}
		c.Set("virtual_servers.shop.rules", rules)
	})
	port := uint16(30000)
	for _, end := range []struct {
		name string
		how  func(*tls.Conn)
	}{
		{"closed", func(c *tls.Conn) { c.Close() }},
		{"reset", func(c *tls.Conn) { c.NetConn().(*net.TCPConn).SetLinger(0); c.NetConn().Close() }},
		{"half-closed first", func(c *tls.Conn) { c.CloseWrite(); io.Copy(io.Discard, c); c.Close() }},
		{"vanished", vanish},
	} {
		for _, family := range []netip.Addr{b.Client().Addr4, b.Client().Addr6} {
			port++
			source := netip.AddrPortFrom(family, port)
			b.sub(end.name+"/"+familyName(family), func(b *bed) { b.useAgain(source, end.how) })
		}
	}
}

// vanish closes a connection without telling the other side, as a client does that is cut off.
func vanish(c *tls.Conn) {
	tcp := c.NetConn().(*net.TCPConn)
	raw, err := tcp.SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1) }) // else its FIN tells
	}
	tcp.Close()
}

func (b *bed) useAgain(source netip.AddrPort, end func(*tls.Conn)) {
	for i := range reuses {
		r := reuseChains[i%len(reuseChains)]
		c, err := b.dialFrom(source, r.sni)
		if err != nil {
			b.t.Fatalf("connection %d (%s): %v", i, r.sni, err)
		}
		path := fmt.Sprintf("/%s-%d-%d", r.chain, source.Port(), i)
		if body, err := b.request(c, path); err != nil {
			b.t.Fatalf("connection %d (%s): %q %v", i, r.sni, body, err)
		}
		for _, device := range []string{"a", "b"} {
			if read, want := b.hasRead(device, path), slices.Contains(r.way, device); read != want {
				b.t.Errorf("connection %d, chain %s: read by %s: %t, want %t", i, r.chain, device, read, want)
			}
		}
		end(c)
	}
}

// dialFrom retries while the client's own kernel still holds the port.
func (b *bed) dialFrom(source netip.AddrPort, sni string) (*tls.Conn, error) {
	o := lab.ClientOptions{IPv6: source.Addr().Is6(), Source: source, SNI: sni}
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		c, err := b.DialTLS(b.context(10*time.Second), b.Client(), o)
		if err == nil || !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.EADDRINUSE) || time.Now().After(end) {
			return c, err
		}
	}
}

func (b *bed) hasRead(name, path string) bool {
	b.t.Helper()
	stats, err := b.DeviceStats(name)
	b.must(err)
	return slices.ContainsFunc(stats.Seen, func(o device.Observation) bool { return strings.HasPrefix(o.Request, "GET "+path+" ") })
}

// A client that moves to another client link and keeps its port gets new sessions; those of its old
// connection are gone, and so is that connection.
func TestClientMovesToAnotherLink(t *testing.T) {
	topology := lab.Line(2, lab.Bridge)
	topology.ClientLinks = 2
	b := up(t, topology)
	for i, roam := range []netip.Addr{lab.Roam4, lab.Roam6} {
		b.sub(familyName(roam), func(b *bed) { b.moveClient(netip.AddrPortFrom(roam, uint16(31000+i)), uint64(i+1)) })
	}
}

func (b *bed) moveClient(source netip.AddrPort, moves uint64) {
	o := lab.ClientOptions{IPv6: source.Addr().Is6(), Source: source}
	before := b.dial(b.Clients[0], o)
	b.mustRequest(before)
	old := b.tree(source)
	after := b.dial(b.Clients[1], o)
	b.mustRequest(after)
	legs := b.tree(source)
	b.checkTree(legs, source, netip.AddrPortFrom(o.Target().Addr(), 80)) // exactly three: none of the old ones
	for _, was := range old {
		if slices.ContainsFunc(legs, func(s api.Session) bool { return s.ID == was.ID }) {
			b.t.Errorf("session %s is still the old one", was.ID)
		}
	}
	b.awaitCounter("ended/replaced", moves)
	before.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := before.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		b.t.Errorf("the old connection lives on: %v", err)
	}
	for range 3 {
		b.mustRequest(after)
	}
}
