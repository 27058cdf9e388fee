package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"sslo/admin/api"
	"sslo/test/device"
	"sslo/test/lab"
)

func (t *transfer) client() netip.AddrPort { return t.progress.Client() }

// plaintext shows that both devices see the request in the clear, with the client's own address.
func (d *demo) plaintext(ctx context.Context) error {
	d.title("A request by HTTPS, as the client, the devices and the server see it")
	listen, stop := context.WithCancel(ctx)
	defer stop()
	seen := &sightings{}
	if err := d.watch(listen, "waf1", seen); err != nil {
		return err
	}
	for _, vip := range []netip.Addr{lab.VIP4, lab.VIP6} {
		body, err := d.curl(ctx, vip, "/who-am-i")
		if err != nil {
			return err
		}
		d.say("answer     %s", strings.TrimSpace(body))
	}
	if err := d.showRequests("ips1"); err != nil {
		return err
	}
	for _, addr := range []netip.Addr{d.lab.Client().Addr4, d.lab.Client().Addr6} {
		line := seen.wait(addr, time.Second)
		d.say("on waf1    %s", line)
		d.check(line != "", "waf1's cable carries plaintext from the client's own address %s", addr)
	}
	return nil
}

// curl asks with curl on the client, or by itself where curl is not installed.
func (d *demo) curl(ctx context.Context, vip netip.Addr, path string) (string, error) {
	if _, err := exec.LookPath("curl"); err != nil {
		d.say("client     GET %s from %s", lab.URL(path), vip)
		return d.lab.Get(ctx, d.lab.Client(), path, lab.ClientOptions{IPv6: vip.Is6()})
	}
	resolve := fmt.Sprintf("%s:%d:%s", lab.ShopName, lab.TLSPort, vip)
	if vip.Is6() {
		resolve = fmt.Sprintf("%s:%d:[%s]", lab.ShopName, lab.TLSPort, vip)
	}
	d.say("client     curl --resolve %s %s", resolve, lab.URL(path))
	return d.lab.Client().Exec(ctx, "curl", "-sS", "--max-time", "5", "--cacert", d.lab.Path("ca.pem"), "--resolve", resolve, lab.URL(path))
}

func (d *demo) showRequests(name string) error {
	stats, err := d.lab.DeviceStats(name)
	if err != nil {
		return err
	}
	var four, six bool
	for _, o := range stats.Seen {
		d.say("on %s    %s > %s  %s", name, o.Client, o.Server, o.Request)
		four = four || o.Client.Addr() == d.lab.Client().Addr4
		six = six || o.Client.Addr() == d.lab.Client().Addr6
	}
	d.check(four && six && stats.BadChecksum == 0, "%s has read the plaintext of both, from the client's own addresses", name)
	return nil
}

// sightings are plaintext requests on a cable.
type sightings struct {
	mu    sync.Mutex
	lines map[netip.Addr]string
}

// watch listens to a device's cable, as tcpdump does.
func (d *demo) watch(ctx context.Context, name string, seen *sightings) error {
	host, err := d.lab.DeviceHost(name)
	if err != nil {
		return err
	}
	seen.lines = make(map[netip.Addr]string)
	return host.Capture(ctx, lab.DeviceIn, seen.add)
}

func (s *sightings) add(p gopacket.Packet) {
	tcp, ok := p.TransportLayer().(*layers.TCP)
	if !ok || !strings.HasPrefix(string(tcp.Payload), "GET /") {
		return
	}
	flow := p.NetworkLayer().NetworkFlow()
	src, _ := netip.AddrFromSlice(flow.Src().Raw())
	line, _, _ := strings.Cut(string(tcp.Payload), "\r\n")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines[src] = fmt.Sprintf("%s.%d > %s.%d: Flags [%s], length %d: HTTP: %s", flow.Src(), tcp.SrcPort, flow.Dst(), tcp.DstPort,
		"P.", len(tcp.Payload), line)
}

func (s *sightings) wait(from netip.Addr, limit time.Duration) string {
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		line := s.lines[from]
		s.mu.Unlock()
		if line != "" || time.Now().After(end) {
			return line
		}
	}
}

// attack sends the signature inside TLS.
func (d *demo) attack(ctx context.Context) error {
	path := "/?file=" + device.DefaultSignature
	d.title("An attack, hidden in TLS: GET https://shop.test%s", path)
	body, err := d.lab.Get(ctx, d.lab.Client(), path, lab.ClientOptions{})
	d.check(err != nil, "the client gets no answer: %s", reason(body, err))
	stats, err := d.lab.DeviceStats("ips1")
	if err != nil {
		return err
	}
	d.check(stats.Matches == 1 && stats.Resets > 0, "ips1 found the signature in the plaintext and reset both sides")
	body, err = d.lab.Get(ctx, d.lab.Client(), "/?file=harmless.txt", lab.ClientOptions{})
	d.check(err == nil, "a harmless request still works: %s", reason(strings.TrimSpace(body), err))
	return nil
}

func reason(body string, err error) string {
	if err != nil {
		return err.Error()
	}
	return body
}

const (
	demoRate  = 25_000_000 // bytes a second, each way
	demoBytes = 4 * demoRate
)

// failures breaks a device in the middle of a download and an upload, in each way that is silent.
func (d *demo) failures(ctx context.Context) error {
	for i, f := range []struct {
		device, what string
		how          lab.Failure
	}{
		{"ips1", "its cables are pulled", lab.LinkDown},
		{"waf1", "it silently drops everything", lab.Blackhole},
		{"ips1", "its process is stopped, links stay up", lab.Hang},
	} {
		d.title("%s dies (%s): %s, during a download and an upload of %s each", f.device, f.how, f.what, size(demoBytes))
		if err := d.failure(ctx, f.device, f.how, i == 0); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) failure(ctx context.Context, name string, how lab.Failure, verbose bool) error {
	trs, err := d.both(ctx, demoBytes, demoRate)
	if err != nil {
		return err
	}
	time.Sleep(time.Second)
	if verbose {
		d.say("the download's sessions before:")
		if list, err := d.tree(ctx, trs[0]); err == nil {
			d.showTree(list)
		}
	}
	failedAt := time.Now()
	if err := d.lab.Fail(name, how); err != nil {
		return err
	}
	down, err := d.waitState(ctx, name, "down")
	if err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond) // a tree with some bytes past the device
	if err := d.bypassed(ctx, trs, name, failedAt, down, verbose); err != nil {
		return err
	}
	d.newConnection(ctx, name)
	for _, tr := range trs {
		d.finished(tr, down.Since.Sub(failedAt))
	}
	return d.recover(ctx, name)
}

// waitState waits until the daemon says so.
func (d *demo) waitState(ctx context.Context, name, state string) (api.Device, error) {
	var last api.Device
	err := waitDevices(ctx, d.admin, 10*time.Second, func(dev api.Device) bool {
		if dev.Name != name {
			return true
		}
		last = dev
		return dev.State == state
	})
	return last, err
}

// bypassed prints the timeline and shows that the sessions go past the device.
func (d *demo) bypassed(ctx context.Context, trs []*transfer, name string, failedAt time.Time, down api.Device, verbose bool) error {
	d.say("%6s   %s fails", "0 ms", name)
	d.say("%6s   the daemon knows it: %s", millis(down.Since.Sub(failedAt)), down.Reason)
	for _, tr := range trs {
		list, err := d.tree(ctx, tr)
		if err != nil {
			return err
		}
		leg, found := bypassedLeg(list, name)
		if found {
			after := time.Since(failedAt) - time.Duration(leg.BypassFor*float64(time.Second))
			d.say("%6s   the %s's first packet goes past %s", millis(after), tr.name, name)
		}
		d.check(found, "the %s's session is bypassed around %s, and its tree says why: %s", tr.name, name, leg.Bypass)
		if verbose && tr == trs[0] {
			d.say("the download's sessions after:")
			d.showTree(list)
		}
	}
	return nil
}

func bypassedLeg(list api.SessionList, device string) (api.Session, bool) {
	for _, s := range list.Sessions {
		if s.Device == device && s.Bypass != "" {
			return s, true
		}
	}
	return api.Session{}, false
}

// newConnection is made while the device is down.
func (d *demo) newConnection(ctx context.Context, down string) {
	_, err := d.lab.Get(ctx, d.lab.Client(), "/new", lab.ClientOptions{})
	d.check(err == nil, "a new connection is made at once, past %s: %s", down, reason("200 OK", err))
}

// slack is what TCP may need to go on after the bypass.
const slack = 300 * time.Millisecond

func (d *demo) finished(tr *transfer, detected time.Duration) {
	<-tr.done
	if tr.err != nil {
		d.check(false, "the %s finished: %v", tr.name, tr.err)
		return
	}
	r := tr.result
	d.check(r.Right, "the %s finished with the right SHA-256 after %.1f s", tr.name, r.Took.Seconds())
	d.check(r.Stall <= detected+slack, "its longest stall was %s (detection + 300 ms allowed: %s)", millis(r.Stall), millis(detected+slack))
}

func millis(t time.Duration) string { return fmt.Sprintf("%d ms", t.Milliseconds()) }

// recover restores the device and waits until new connections take it again.
func (d *demo) recover(ctx context.Context, name string) error {
	restoredAt := time.Now()
	if err := d.lab.Restore(name); err != nil {
		return err
	}
	if _, err := d.waitState(ctx, name, "up"); err != nil {
		return err
	}
	took := time.Since(restoredAt)
	before, err := d.device(ctx, name)
	if err != nil {
		return err
	}
	_, getErr := d.lab.Get(ctx, d.lab.Client(), "/again", lab.ClientOptions{})
	after, err := d.device(ctx, name)
	d.check(getErr == nil && after.Opened > before.Opened, "%s is restored, up after %.1f s, and takes new connections again", name, took.Seconds())
	return err
}

// resets shows that a device which breaks connections is not papered over.
func (d *demo) resets(ctx context.Context) error {
	d.title("ips1 resets every connection in the middle of a download and an upload")
	trs, err := d.both(ctx, demoBytes, demoRate)
	if err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond)
	resetAt := time.Now()
	if err := d.lab.Fail("ips1", lab.Reset); err != nil {
		return err
	}
	for _, tr := range trs {
		<-tr.done
		d.say("%6s   the %s ends: %v", millis(time.Since(resetAt)), tr.name, tr.err)
		d.check(tr.err != nil && !tr.result.Right, "a broken %s is reported as broken, never as complete", tr.name)
		d.check(errors.Is(tr.err, syscall.ECONNRESET) || tr.err != nil && time.Since(resetAt) < time.Second, "and at once")
	}
	return nil
}

// operator takes the resetting device out of service by hand, and puts it back.
func (d *demo) operator(ctx context.Context) error {
	d.title("An operator bypasses ips1 by hand: sslo device bypass ips1")
	if _, err := d.admin.SetDevice(ctx, "ips1", "bypass"); err != nil {
		return err
	}
	trs, err := d.both(ctx, demoBytes/4, demoRate)
	if err != nil {
		return err
	}
	for _, tr := range trs {
		<-tr.done
		d.check(tr.err == nil && tr.result.Right, "the %s takes ips2 instead and finishes with the right SHA-256 (%s)", tr.name, reason("ok", tr.err))
	}
	if err := d.lab.Restore("ips1"); err != nil {
		return err
	}
	if _, err := d.admin.SetDevice(ctx, "ips1", "enable"); err != nil {
		return err
	}
	if _, err := d.waitState(ctx, "ips1", "up"); err != nil {
		return err
	}
	_, err = d.lab.Get(ctx, d.lab.Client(), "/", lab.ClientOptions{})
	d.check(err == nil, "restored and enabled: sslo device enable ips1")
	return nil
}

// ledger shows what no device has seen.
func (d *demo) ledger(ctx context.Context) error {
	d.title("The ledger: what went past a device, and why")
	var entries []api.LedgerEntry
	if err := d.admin.Get(ctx, "/v1/ledger", &entries); err != nil {
		return err
	}
	indented := *d.printer
	indented.w = &indenter{to: d.w, indent: "       "}
	showLedger(&indented, entries)
	counted := map[string]uint64{}
	for _, e := range entries {
		counted[e.Device] += e.Bytes
	}
	for _, name := range []string{"ips1", "waf1"} {
		d.check(counted[name] > 0, "the ledger has the bytes that went past %s: %s", name, size(counted[name]))
	}
	return nil
}
