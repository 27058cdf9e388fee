package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sslo/test/lab"
)

// lengths is a bed with chains of 0, 1, 2 and 3 bridges, chosen by the names c0.shop.test to c3.shop.test.
func lengths(t *testing.T) *bed {
	return up(t, lab.Line(3, lab.Bridge), func(c lab.Config) {
		var rules []any
		for n := range 4 {
			chain := fmt.Sprintf("chain%d", n)
			if n == 0 {
				chain = "none"
			} else {
				c.Set("chains."+chain+".pools", []string{"pool-a", "pool-b", "pool-c"}[:n])
			}
			rules = append(rules, rule(fmt.Sprintf("length%d", n), "sni", chainName(n), "chain", chain))
		}
		c.Set("virtual_servers.shop.rules", rules)
	})
}

func chainName(n int) string { return fmt.Sprintf("c%d.%s", n, lab.ShopName) }

// rule with one condition, and more keys and values.
func rule(name, condition string, value any, more ...any) map[string]any {
	r := map[string]any{"name": name, "when": map[string]any{condition: value}}
	for i := 0; i < len(more); i += 2 {
		r[more[i].(string)] = more[i+1]
	}
	return r
}

// request is one GET by a program that is not ours.
type request struct {
	tool   string // curl, s_client
	tls    string // 1.2, 1.3
	name   string // SNI
	path   string
	source netip.AddrPort
}

func (r request) target() netip.Addr {
	if r.source.Addr().Is6() {
		return lab.VIP6
	}
	return lab.VIP4
}

// visit returns all that the program printed: the body, and which TLS version was spoken.
func (b *bed) visit(r request) string {
	b.t.Helper()
	out, err := r.command(b).CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s: %v\n%s", r.tool, err, out)
	}
	return string(out)
}

func (r request) command(b *bed) *lab.Cmd {
	ctx := b.context(15 * time.Second)
	if r.tool == "curl" {
		return b.Client().Command(ctx, "curl", "-sSv", "--max-time", "10", "--cacert", b.Path("ca.pem"), "--tls-max", r.tls, "--tlsv"+r.tls,
			"--resolve", fmt.Sprintf("%s:%d:[%s]", r.name, lab.TLSPort, r.target()),
			"--interface", r.source.Addr().String(), "--local-port", fmt.Sprint(r.source.Port()),
			fmt.Sprintf("https://%s%s", r.name, r.path))
	}
	c := b.Client().Command(ctx, "openssl", "s_client", "-connect", netip.AddrPortFrom(r.target(), lab.TLSPort).String(),
		"-bind", r.source.String(), "-servername", r.name, "-verify_hostname", r.name, "-verify_return_error",
		"-CAfile", b.Path("ca.pem"), "-tls"+strings.ReplaceAll(r.tls, ".", "_"), "-ign_eof")
	c.Stdin = strings.NewReader(fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", r.path, r.name))
	return c
}

func TestChains(t *testing.T) {
	b := lengths(t)
	b.sub("tools", toolsThroughChains)
	b.sub("plaintext", devicesSeePlaintext)
	b.sub("no ciphertext", devicesSeeNoCiphertext)
}

// Both tools, both families and both TLS versions through chains of every length, as strangers to our code.
func toolsThroughChains(b *bed) {
	port := uint16(20000)
	for n := range 4 {
		for _, tool := range []string{"curl", "s_client"} {
			for _, family := range []netip.Addr{b.Client().Addr4, b.Client().Addr6} {
				for _, version := range []string{"1.2", "1.3"} {
					port++
					r := request{tool, version, chainName(n), "/", netip.AddrPortFrom(family, port)}
					b.sub(fmt.Sprintf("%d devices/%s/%s/TLS %s", n, tool, familyName(family), version), func(b *bed) { b.checkRequest(r, n) })
				}
			}
		}
	}
	b.awaitCounter("ended/ok", 32)
}

func familyName(a netip.Addr) string {
	if a.Is6() {
		return "IPv6"
	}
	return "IPv4"
}

// checkRequest asks, and compares the answer, the TLS version and the way through the devices.
func (b *bed) checkRequest(r request, devices int) {
	out := b.visit(r)
	for _, want := range []string{"hello from server1", fmt.Sprintf("sni=%q", r.name), "TLSv" + r.tls} {
		if !strings.Contains(out, want) {
			b.t.Errorf("no %q in:\n%s", want, out)
		}
	}
	var way []string
	for _, s := range b.tree(r.source) {
		way = append(way, s.Device)
	}
	want := append(strings.Split("a b c", " ")[:devices], "")
	if devices == 0 { // inside the process: no session at all
		want = nil
	}
	if fmt.Sprint(way) != fmt.Sprint(want) {
		b.t.Errorf("way %q, want %q", way, want)
	}
}

// tcpdump runs in a device, on the cable towards the client, until the test ends; its output is in the log.
func (b *bed) tcpdump(device string, filter ...string) *lab.Process {
	b.t.Helper()
	host, err := b.DeviceHost(device)
	b.must(err)
	args := append([]string{"-i", lab.DeviceIn, "-n", "-A", "-l", "-U", "-s", "0"}, filter...)
	p, err := b.Start(host, "tcpdump-"+device, "tcpdump", args...)
	b.must(err)
	b.t.Cleanup(func() { p.Stop() })
	b.eventually(5*time.Second, func() error {
		if !strings.Contains(p.Output(), "listening on") {
			return fmt.Errorf("tcpdump does not listen: %s", p.Output())
		}
		return nil
	})
	return p
}

// Every device of a chain sees the request and the answer in the clear, from the client's own address and port
// to the virtual server's address and the plaintext port.
func devicesSeePlaintext(b *bed) {
	dumps := map[string]*lab.Process{}
	for _, d := range b.DeviceNames() {
		dumps[d] = b.tcpdump(d, "tcp")
	}
	for i, family := range []netip.Addr{b.Client().Addr4, b.Client().Addr6} {
		r := request{"curl", "1.3", chainName(3), "/who", netip.AddrPortFrom(family, uint16(21000+i))}
		b.visit(r)
		for d, p := range dumps {
			b.sub(d+"/"+familyName(family), func(b *bed) {
				b.awaitOutput(p, fmt.Sprintf(" %s.%d > %s.80: Flags [S]", family, r.source.Port(), r.target()))
				b.awaitOutput(p, fmt.Sprintf(" %s.80 > %s.%d: Flags [S.]", r.target(), family, r.source.Port()))
				b.awaitOutput(p, "GET /who HTTP/1.1\n")
				b.awaitOutput(p, "Host: "+r.name)
				b.awaitOutput(p, "HTTP/1.1 200 OK\n")
				b.awaitOutput(p, "hello from server1")
			})
		}
	}
}

func (b *bed) awaitOutput(p *lab.Process, text string) {
	b.t.Helper()
	b.eventually(3*time.Second, func() error {
		if out := p.Output(); !strings.Contains(out, text) {
			return fmt.Errorf("%s has no %q:\n%s", p.Name, text, out[:min(len(out), 4000)])
		}
		return nil
	})
}

// Nothing of the outside appears inside: neither TLS nor the port 443 crosses a device.
func devicesSeeNoCiphertext(b *bed) {
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	seen := b.watch(ctx, "b")
	for _, o := range []lab.ClientOptions{{SNI: chainName(3)}, {SNI: chainName(3), IPv6: true}} {
		b.fetch("/bytes/100000", o)
	}
	b.eventually(3*time.Second, func() error { return seen.atLeast(10) })
	for _, p := range seen.packets() {
		if p.src.Port() != 80 && p.dst.Port() != 80 {
			b.t.Errorf("a foreign packet inside the device: %s", p)
		}
		if p.isTLS() {
			b.t.Errorf("a TLS record inside the device: %s", p)
		}
	}
}
