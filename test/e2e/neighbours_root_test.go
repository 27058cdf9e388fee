package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"sslo/admin/api"
	"sslo/test/lab"
)

// talk is a connection that says something again and again, and minds every answer that is late or missing.
type talk struct {
	name   string
	conn   net.Conn
	rounds atomic.Int64
	worst  atomic.Int64 // ns between two answers
	err    atomic.Pointer[error]
	done   chan struct{}
}

// converse starts a talk with an echo service.
func converse(name string, c net.Conn) *talk {
	t := &talk{name: name, conn: c, done: make(chan struct{})}
	go t.run()
	return t
}

func (t *talk) run() {
	defer close(t.done)
	buf := make([]byte, 64)
	for i := 0; ; i++ {
		began := time.Now()
		text := fmt.Sprintf("%032d", i)
		t.conn.SetDeadline(began.Add(10 * time.Second))
		_, err := io.WriteString(t.conn, text)
		if err == nil {
			_, err = io.ReadFull(t.conn, buf[:len(text)])
		}
		if err == nil && string(buf[:len(text)]) != text {
			err = fmt.Errorf("said %s, heard %s", text, buf[:len(text)])
		}
		if err != nil {
			t.err.Store(&err)
			return
		}
		t.rounds.Add(1)
		t.worst.Store(max(t.worst.Load(), int64(time.Since(began))))
		time.Sleep(10 * time.Millisecond)
	}
}

// goesOn expects ten more answers.
func (t *talk) goesOn(b *bed) {
	b.t.Helper()
	from := t.rounds.Load()
	b.eventually(10*time.Second, func() error {
		if err := t.err.Load(); err != nil {
			return fmt.Errorf("%s: %w", t.name, *err)
		}
		if n := t.rounds.Load() - from; n < 10 {
			return fmt.Errorf("%s: %d answers", t.name, n)
		}
		return nil
	})
}

// end closes it.
func (t *talk) end() {
	t.conn.Close()
	<-t.done
}

func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			io.Copy(c, c)
		}()
	}
}

// service is an echo service on a host that ends with the test.
func (b *bed) service(on *lab.Namespace, address string) {
	b.t.Helper()
	l, err := on.Listen("tcp", address)
	b.must(err)
	b.t.Cleanup(func() { l.Close() })
	go echo(l)
}

// other traffic of the box: what it serves itself on the client link, and what it routes.
var other = []struct{ name, to string }{
	{"a service of the box", "10.1.0.1:2222"},
	{"a service of the box, IPv6", "[fd00:1::1]:2222"},
	{"the box's port 443", "10.1.0.1:443"},
	{"routed to the server", "10.9.0.11:2222"},
	{"routed to the server, IPv6", "[fd00:9::11]:2222"},
}

// The box's other traffic is none of the daemon's business: connections of before, during and after it work.
func TestOtherTrafficIsUntouched(t *testing.T) {
	b := build(t, lab.Line(2, lab.Bridge))
	for _, address := range []string{"10.1.0.1:2222", "[fd00:1::1]:2222", "10.1.0.1:443"} {
		b.service(b.Box, address)
	}
	b.service(b.Server().Namespace, ":2222")
	old := b.talks("from before")
	b.pings(true)
	b.start()
	b.awaitReady()
	b.fetch("/", lab.ClientOptions{})
	during := b.talks("from meanwhile")
	b.pings(true, lab.VIP4, lab.VIP6)
	straight := lab.ClientOptions{Address: netip.MustParseAddrPort("10.9.0.11:443"), SNI: lab.OriginName}
	if got := b.fetch("/", straight); !strings.Contains(got, " to 10.1.0.10:") {
		t.Errorf("straight to the server: %s", got)
	}
	b.reload(set("virtual_servers.shop.plaintext_port", 8080))
	for _, talk := range append(old, during...) {
		talk.goesOn(b)
	}
	if n := b.dropped(lab.ClientNIC, "") + b.dropped(lab.ServerNIC, ""); n != 0 {
		t.Errorf("%d frames dropped on the links of clients and servers: %v", n, b.counters().Drops)
	}
	b.must(b.daemon.Stop())
	for _, talk := range append(append(old, during...), b.talks("from afterwards")...) {
		talk.goesOn(b)
		talk.end()
		t.Logf("%s: %d answers, the slowest after %v", talk.name, talk.rounds.Load(), time.Duration(talk.worst.Load()))
	}
	b.pings(true)
	b.pings(false, lab.VIP4, lab.VIP6)
}

func (b *bed) talks(when string) (all []*talk) {
	b.t.Helper()
	for _, o := range other {
		c, err := b.Client().DialContext(b.context(10*time.Second), "tcp", o.to)
		b.must(err)
		b.t.Cleanup(func() { c.Close() })
		talk := converse(o.name+" "+when, c)
		talk.goesOn(b)
		all = append(all, talk)
	}
	return all
}

// pings what the box and the server answer, or the addresses given.
func (b *bed) pings(answered bool, addresses ...netip.Addr) {
	b.t.Helper()
	if len(addresses) == 0 {
		addresses = []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00:1::1"), b.Server().Addr4, b.Server().Addr6}
	}
	for _, a := range addresses {
		_, err := b.Client().Exec(b.context(20*time.Second), "ping", "-c", "1", "-W", "1", "-w", "2", a.String())
		if (err == nil) != answered {
			b.t.Errorf("ping %s: %v", a, err)
		}
	}
}

// The addresses of a virtual server are announced when they come, answered for, and withdrawn at the end.
func TestAddressesAreAnnouncedAndWithdrawn(t *testing.T) {
	b := build(t, lab.Line(1, lab.Bridge))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan string, 100)
	b.must(b.Client().Capture(ctx, b.Client().NIC, func(p gopacket.Packet) {
		if text := announcement(p); text != "" {
			select {
			case seen <- text:
			default:
			}
		}
	}))
	b.start()
	b.awaitReady()
	mac := b.macOf(lab.ClientNIC)
	want := map[string]bool{lab.VIP4.String() + " is at " + mac: true, lab.VIP6.String() + " is at " + mac: true}
	for len(want) > 0 {
		select {
		case text := <-seen:
			delete(want, text)
		case <-time.After(5 * time.Second):
			t.Fatalf("not announced: %v", want)
		}
	}
	b.neighbour(mac)
	added := netip.MustParseAddr("10.1.0.101")
	b.reload(set("virtual_servers.shop.listen", []string{"10.1.0.100:443", "10.1.0.101:443"}))
	b.fetch("/", lab.ClientOptions{Address: netip.AddrPortFrom(added, 443)})
	b.pings(true, lab.VIP4, added)
	b.eventually(5*time.Second, func() error { return b.holds(lab.VIP6, false) })
	b.must(b.daemon.Stop())
	b.neighbour("")
	for _, a := range []netip.Addr{lab.VIP4, lab.VIP6, added} {
		b.must(b.holds(a, false))
	}
}

// announcement is what a gratuitous ARP or an unsolicited neighbour advertisement says.
func announcement(p gopacket.Packet) string {
	if arp, ok := p.Layer(layers.LayerTypeARP).(*layers.ARP); ok {
		ip, _ := netip.AddrFromSlice(arp.SourceProtAddress)
		target, _ := netip.AddrFromSlice(arp.DstProtAddress)
		if ip == target {
			return fmt.Sprintf("%s is at %s", ip, net.HardwareAddr(arp.SourceHwAddress))
		}
	}
	if na, ok := p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement); ok && na.Flags&0x40 == 0 {
		ip, _ := netip.AddrFromSlice(na.TargetAddress)
		for _, o := range na.Options {
			return fmt.Sprintf("%s is at %s", ip, net.HardwareAddr(o.Data))
		}
	}
	return ""
}

// neighbour asks anew who has the virtual server's address; "" is nobody.
func (b *bed) neighbour(mac string) {
	b.t.Helper()
	ctx := b.context(20 * time.Second)
	_, err := b.Client().Exec(ctx, "ip", "neighbour", "flush", "dev", b.Client().NIC)
	b.must(err)
	b.pings(mac != "", lab.VIP4)
	out, err := b.Client().Exec(ctx, "ip", "neighbour", "show", lab.VIP4.String())
	b.must(err)
	if got := strings.Contains(out, "lladdr "); got != (mac != "") || !strings.Contains(out, mac) {
		b.t.Errorf("neighbour %q, want %q", out, mac)
	}
}

// holds says whether the box has an address.
func (b *bed) holds(a netip.Addr, want bool) error {
	out, err := b.Box.Exec(b.context(10*time.Second), "ip", "-o", "address", "show", "to", a.String())
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(out) != ""; got != want {
		return errors.New(out)
	}
	return nil
}

// macOf a link, as the daemon tells it.
func (b *bed) macOf(link string) string {
	b.t.Helper()
	for _, l := range get[[]api.Link](b, "/v1/links") {
		if l.Name == link {
			return l.MAC
		}
	}
	b.t.Fatalf("no link %s", link)
	return ""
}
