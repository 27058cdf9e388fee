package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"sslo/admin/api"
	"sslo/admin/client"
	"sslo/test/lab"
)

// twoPools is [ips: a, c] [waf: b].
func twoPools() lab.Topology {
	return lab.Topology{Devices: []lab.Device{{Name: "a", Kind: lab.Inspect}, {Name: "b"}, {Name: "c"}}, Chain: []string{"ips", "waf"},
		Pools: []lab.Pool{{Name: "ips", Devices: []string{"a", "c"}}, {Name: "waf", Devices: []string{"b"}}}}
}

// TestKillRestartUpgradeEnd kills the daemon in the middle of traffic, twice. The session plane goes on by
// itself, the next daemon adopts it, a newer binary replaces its programs in place, and when that ends in order
// nothing is left.
func TestKillRestartUpgradeEnd(t *testing.T) {
	b := build(t, twoPools())
	b.config.Set("system.timeouts", map[string]any{"closing": "10m", "closed": "10m", "half_closed": "1h"})
	b.config.Set("system.trip_after", "500ms")
	before := b.leftovers()
	b.start()
	b.awaitReady()
	b.fail("c", lab.Blackhole)
	down := b.device("c")
	pinned := b.hooks()

	known := b.killInTraffic()
	inner, echoes := b.innerTalk()
	time.Sleep(heartbeatStale)
	b.must(b.Lab.Fail("b", lab.Blackhole)) // nobody probes: the programs find out by themselves
	inner.goesOn(b)
	b.must(b.Restore("b"))
	if now := b.hooks(); !maps.Equal(now, pinned) {
		t.Errorf("links and programs %v, were %v", now, pinned)
	}

	b.start()
	b.adopted(down)
	b.higherNumbers(known)
	inner.goesOn(b)
	legs := b.tree(innerClient)
	if len(legs) != 3 || legs[1].Bypass != "tripped" {
		t.Errorf("sessions of the inner connection: %+v", legs)
	}

	b.must(b.daemon.Kill())
	b.startNewer()
	b.adopted(down)
	b.replacedInPlace(pinned)
	inner.goesOn(b)
	if now := b.tree(innerClient); ids(now) != ids(legs) {
		t.Errorf("sessions %s, were %s", ids(now), ids(legs))
	}
	t.Logf("over two kills, a dead device and two starts: %d answers, the slowest after %v",
		inner.rounds.Load(), time.Duration(inner.worst.Load()).Round(time.Millisecond))
	inner.end()
	b.must(echoes.Close())
	b.endsClean(before)
}

// heartbeatStale is how long after the daemon's last sign of life the programs act by themselves.
const heartbeatStale = 5500 * time.Millisecond

// adopted: the daemon has found what the one before left, devices in their states included.
func (b *bed) adopted(down api.Device) {
	b.t.Helper()
	if s := get[api.Status](b, "/v1/status"); !s.Adopted {
		b.t.Errorf("not adopted: %+v", s)
	}
	was := b.device("c")
	if was.State != "down" || !was.Since.Equal(down.Since) || was.Service != "none" {
		b.t.Errorf("c is %s (%s) since %v, was down since %v", was.State, was.Service, was.Since, down.Since)
	}
	for range 10 {
		b.fetch("/", lab.ClientOptions{})
	}
	if now := b.device("c"); now.Opened != was.Opened || now.Sent != was.Sent {
		b.t.Errorf("c is down and got %d sessions", now.Opened-was.Opened)
	}
	b.noEventOf("a", 0)
	b.noEventOf("c", 0)
}

// higherNumbers: the sessions of before the kill are there, and new ones have numbers of their own.
func (b *bed) higherNumbers(known map[api.ID]bool) {
	b.t.Helper()
	now := map[api.ID]bool{}
	for _, s := range b.sessions(client.SessionQuery{}) {
		now[s.ID] = true
	}
	last := slices.Max(slices.Collect(maps.Keys(known)))
	for id := range known {
		if !now[id] {
			b.t.Errorf("session %s is lost", id)
		}
	}
	c := b.dial(b.Client(), lab.ClientOptions{})
	b.asks(c)
	for _, s := range b.tree(c.LocalAddr().(*net.TCPAddr).AddrPort()) {
		if s.ID <= last {
			b.t.Errorf("session %s is new, %s was there before", s.ID, last)
		}
	}
}

// startNewer starts another build of the daemon.
func (b *bed) startNewer() {
	b.t.Helper()
	program := b.Path("sslo-newer")
	cmd := exec.CommandContext(b.context(time.Minute), "go", "build", "-ldflags", "-X main.version=newer", "-o", program, "sslo/cmd/sslo")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	b.daemon, err = b.Start(b.Box, "newer", program, "run", "--config", b.Path("sslo.yaml"), "--drain", "2s")
	b.must(err)
	b.t.Cleanup(func() {
		b.daemon.Stop()
		if b.t.Failed() {
			b.t.Log(b.daemon.Output())
		}
	})
	b.eventually(20*time.Second, func() error {
		var s api.Status
		if err := b.admin.Get(b.t.Context(), "/v1/status", &s); err != nil {
			return err
		}
		if s.Version != "newer" {
			return fmt.Errorf("version %s", s.Version)
		}
		return nil
	})
}

// replacedInPlace: the same links run other programs, so that no frame was without one.
func (b *bed) replacedInPlace(before hooks) {
	b.t.Helper()
	now := b.hooks()
	if len(now) != len(before) {
		b.t.Errorf("links %v, were %v", now, before)
	}
	for name, was := range before {
		if is := now[name]; is.link != was.link || is.program == was.program {
			b.t.Errorf("%s: link and program %v, were %v", name, is, was)
		}
	}
}

// endsClean: with a connection open that does not end by itself, nothing stays when the daemon is told to end.
func (b *bed) endsClean(before string) {
	b.t.Helper()
	c := b.dial(b.Client(), lab.ClientOptions{})
	b.asks(c)
	all := b.hooks()
	if b.leftovers() == before {
		b.t.Error("a running daemon changes nothing: this test sees nothing")
	}
	b.must(b.daemon.Stop())
	b.eventually(10*time.Second, func() error { return gone(all) })
	var left string
	for range 20 { // addresses that IPv6 makes itself take a moment
		if left = changed(before, b.leftovers()); left == "" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.t.Errorf("left behind:\n%s", left)
}

// leftovers is everything that a daemon could leave on the box.
func (b *bed) leftovers() string {
	b.t.Helper()
	var all strings.Builder
	for _, cmd := range []string{
		"ip -d link", "ip -d address", "ip -4 rule", "ip -6 rule", "ip -d -4 route show table all", "ip -d -6 route show table all",
		"ip neighbour show nud permanent", "sysctl -a --pattern ^net", "tc qdisc", "tc filter show dev ext", "nft list ruleset",
		"ss -Hltnu", "ss -Hxl", "ss -Htn state established", "ss -H0", "bpftool net",
		"ethtool -k ext", "ethtool -k int", "ethtool -k a-in", "ethtool -k a-out", "ethtool -k b-in", "ethtool -k b-out",
		"find " + b.Path("run") + " " + b.PinPath() + " " + b.AdminSocket(),
	} {
		args := strings.Fields(cmd)
		out, _ := b.Box.Command(b.context(20*time.Second), args[0], args[1:]...).CombinedOutput() // what fails says so, and does so twice
		lines := strings.Split(string(out), "\n")
		slices.Sort(lines) // what was made again is at another place
		for _, line := range lines {
			if !strings.Contains(line, "congestion_control") { // whoever loads one changes these on the whole machine
				fmt.Fprintf(&all, "%s: %s\n", cmd, volatile(line))
			}
		}
	}
	return all.String()
}

// volatile takes out what changes by itself.
func volatile(line string) string {
	for _, key := range []string{"valid_lft ", "preferred_lft ", "expires ", "age "} {
		if at := strings.Index(line, key); at >= 0 {
			line = line[:at]
		}
	}
	return line
}

func changed(before, after string) string {
	var out []string
	had, has := strings.Split(before, "\n"), strings.Split(after, "\n")
	for _, line := range had {
		if !slices.Contains(has, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range has {
		if !slices.Contains(had, line) {
			out = append(out, "+ "+line)
		}
	}
	return strings.Join(out, "\n")
}

// killInTraffic kills the daemon during a download, which must not look whole, and returns the ids of the
// sessions that there were.
func (b *bed) killInTraffic() map[api.ID]bool {
	b.t.Helper()
	p := &lab.Progress{}
	done := make(chan error, 1)
	ctx := b.context(30 * time.Second)
	go func() {
		tr, err := b.Download(ctx, b.Client(), 100<<20, 10<<20, lab.ClientOptions{Progress: p})
		if err == nil && !tr.Right {
			err = errors.New("wrong hash")
		}
		done <- err
	}()
	known := map[api.ID]bool{}
	b.eventually(5*time.Second, func() error {
		for _, s := range b.sessions(client.SessionQuery{}) {
			known[s.ID] = true
		}
		if len(known) != 3 || !p.Client().IsValid() {
			return fmt.Errorf("%d sessions", len(known))
		}
		return nil
	})
	b.must(b.daemon.Kill())
	if err := <-done; err == nil {
		b.t.Error("the download looks whole")
	}
	return known
}

// programs and links of the session plane, by what they are pinned as.
type hooks map[string]hook

type hook struct {
	link    link.ID
	program ebpf.ProgramID
}

func (b *bed) hooks() hooks {
	b.t.Helper()
	pins, err := filepath.Glob(filepath.Join(b.PinPath(), "links", "*"))
	b.must(err)
	all := hooks{}
	for _, pin := range pins {
		l, err := link.LoadPinnedLink(pin, nil)
		b.must(err)
		info, err := l.Info()
		b.must(err)
		all[filepath.Base(pin)] = hook{info.ID, info.Program}
		l.Close()
	}
	if len(all) < 8 {
		b.t.Errorf("only these links are pinned: %v", all)
	}
	return all
}

// gone says whether the kernel has none of the links and programs any more. It gives no id twice.
func gone(all hooks) error {
	for name, id := range all {
		if l, err := link.NewFromID(id.link); err == nil {
			l.Close()
			return fmt.Errorf("link %d (%s) is still there", id.link, name)
		}
		if p, err := ebpf.NewProgramFromID(id.program); err == nil {
			p.Close()
			return fmt.Errorf("program %d (%s) is still there", id.program, name)
		}
	}
	return nil
}

// innerClient is an address of the client, and a port that it does not use.
var innerClient = netip.MustParseAddrPort("10.1.0.10:900")

// chainMark is the socket mark of the first chain: its number, from the configured bit on.
const chainMark = 1 << 16

// innerTalk makes an inner connection without any proxy, as front and back would: it crosses the devices and is
// no daemon's, so it can live through anything that the session plane lives through.
func (b *bed) innerTalk() (*talk, net.Listener) {
	b.t.Helper()
	var l net.Listener
	var c net.Conn
	there := netip.AddrPortFrom(lab.VIP4, 80)
	b.must(b.Box.Do(func() (err error) {
		lc := net.ListenConfig{Control: inside("back0", 0)}
		l, err = lc.Listen(context.Background(), "tcp", there.String())
		return err
	}))
	b.t.Cleanup(func() { l.Close() })
	go echo(l)
	b.must(b.Box.Do(func() (err error) {
		d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(innerClient), Control: inside("front0", chainMark)}
		c, err = d.Dial("tcp", there.String())
		return err
	}))
	b.t.Cleanup(func() { c.Close() })
	t := converse("inner connection", c)
	t.goesOn(b)
	return t, l
}

// inside gives a socket what the proxies' sockets have.
func inside(nic string, mark int) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) {
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
				unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1),
				unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, nic),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark))
		})
		return errors.Join(cerr, err)
	}
}
