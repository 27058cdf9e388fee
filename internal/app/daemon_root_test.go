package app_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sslo/admin/api"
	"sslo/admin/client"
	"sslo/internal/testutil"
	"sslo/test/lab"
)

// bed is a lab with a daemon and a client of its admin API.
type bed struct {
	*testing.T
	*lab.Lab
	admin  *client.Client
	daemon *lab.Process
	config lab.Config
}

func newBed(t *testing.T) *bed {
	t.Helper()
	testutil.RequireRoot(t)
	l := lab.Test(t, lab.Standard())
	b := &bed{T: t, Lab: l, config: l.Config(), admin: client.New(l.AdminSocket())}
	return b
}

func (b *bed) start() {
	b.Helper()
	b.daemon = b.RunDaemon(b.T, b.config)
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) get(path string, out any) {
	b.Helper()
	b.must(b.admin.Get(b.Context(), path, out))
}

func (b *bed) device(name string) (d api.Device) {
	b.Helper()
	b.get("/v1/devices/"+name, &d)
	return d
}

func (b *bed) awaitState(name, state string) api.Device {
	b.Helper()
	lab.Eventually(b.T, 10*time.Second, func() error {
		if d := b.device(name); d.State != state {
			return fmt.Errorf("%s is %s (%s), not %s", name, d.State, d.Reason, state)
		}
		return nil
	})
	return b.device(name)
}

func (b *bed) awaitAllUp() {
	b.Helper()
	for _, name := range b.DeviceNames() {
		b.awaitState(name, "up")
	}
}

// hostState is what a daemon could leave behind.
func (b *bed) hostState() string {
	b.Helper()
	var all strings.Builder
	for _, args := range [][]string{
		{"-br", "link"}, {"-br", "-4", "address"}, {"-br", "-6", "address"}, {"-4", "rule"}, {"-6", "rule"},
		{"-4", "route", "show", "table", "all"}, {"-6", "route", "show", "table", "all"}, {"neighbour", "show", "nud", "permanent"},
	} {
		out, err := b.Box.Exec(b.Context(), "ip", args...)
		b.must(err)
		// The kernel makes this route when duplicate address detection ends, and sometimes not again
		// after IPv6 was off on a link.
		lines := slices.DeleteFunc(strings.Split(out, "\n"), func(l string) bool { return strings.HasPrefix(l, "anycast fe80:: ") })
		slices.Sort(lines) // a route that was made again is at another place
		fmt.Fprintf(&all, "ip %s\n%s\n", strings.Join(args, " "), strings.Join(lines, "\n"))
	}
	sysctl, err := b.Box.Exec(b.Context(), "sysctl", "-a", "--pattern", `^net\.ipv[46]\.(conf|ip_)`)
	b.must(err)
	fmt.Fprintf(&all, "%s\n", sysctl)
	return all.String()
}

// awaitHost waits until the host is as before: link-local addresses that were taken away come back after a while.
func (b *bed) awaitHost(before string) {
	b.Helper()
	lab.Eventually(b.T, 10*time.Second, func() error {
		if d := diff(before, b.hostState()); d != "" {
			return fmt.Errorf("left behind:\n%s", d)
		}
		return nil
	})
}

func diff(before, after string) string {
	var out []string
	had := strings.Split(before, "\n")
	has := strings.Split(after, "\n")
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

func TestCleanEndLeavesNothing(t *testing.T) {
	b := newBed(t)
	before := b.hostState()
	b.start()
	b.awaitAllUp()
	if during := b.hostState(); during == before {
		t.Error("a running daemon changed nothing: this test sees nothing")
	}
	b.must(b.daemon.Stop())
	b.awaitHost(before)
	for _, path := range []string{b.PinPath(), b.AdminSocket(), b.Path("run")} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("left behind: %s (%v)", path, err)
		}
	}
}

// TestKilledDaemonIsAdopted: after kill -9 the next daemon finds devices as they were, since when and
// why included, and what an operator decided.
func TestKilledDaemonIsAdopted(t *testing.T) {
	b := newBed(t)
	b.start()
	b.awaitAllUp()
	b.must(b.Fail("waf1", lab.Blackhole))
	down := b.awaitState("waf1", "down")
	if _, err := b.admin.SetDevice(b.Context(), "ips2", "bypass"); err != nil {
		t.Fatal(err)
	}
	b.must(b.daemon.Kill())
	if _, err := os.Stat(b.PinPath()); err != nil {
		t.Errorf("the session plane went with the daemon: %v", err)
	}
	b.start()
	var status api.Status
	b.get("/v1/status", &status)
	if !status.Adopted {
		t.Error("not adopted")
	}
	if d := b.device("waf1"); d.State != "down" || !d.Since.Equal(down.Since) {
		t.Errorf("waf1 %s since %v, was down since %v", d.State, d.Since, down.Since)
	}
	if d := b.device("ips2"); d.State != "forced-bypass" || d.Operator == nil || d.Service != "none" || d.Bypass != "forced" {
		t.Errorf("ips2 %+v", d)
	}
	b.noTransitions("ips1", "waf2")
	if _, err := b.admin.SetDevice(b.Context(), "ips2", "enable"); err != nil {
		t.Fatal(err)
	}
	b.awaitState("ips2", "up")
}

// noTransitions: a device that was up all the time is not announced as coming up.
func (b *bed) noTransitions(names ...string) {
	b.Helper()
	var events []api.Event
	b.get("/v1/events", &events)
	for _, e := range events {
		if e.Kind == "device" && slices.Contains(names, e.Device) {
			b.Errorf("event %q", e.Message)
		}
	}
}

func TestReload(t *testing.T) {
	b := newBed(t)
	b.start()
	b.awaitAllUp()
	b.must(b.Fail("ips1", lab.LinkDown))
	down := b.awaitState("ips1", "down")
	var events []api.Event
	b.get("/v1/events", &events)
	last := events[len(events)-1].Seq

	b.config.Set("device_pools.ips.on_down", "explode")
	path, err := b.WriteConfig(b.config)
	b.must(err)
	_, err = b.admin.Reload(b.Context())
	var problem *api.Problem
	if !errors.As(err, &problem) || len(problem.Errors) != 1 || problem.Errors[0].Line == 0 || !strings.Contains(problem.Errors[0].String(), "on_down") {
		t.Fatalf("bad configuration: %v", err)
	}
	b.config.Set("device_pools.ips.on_down", "reset")
	_, err = b.WriteConfig(b.config)
	b.must(err)
	result, err := b.admin.Reload(b.Context())
	b.must(err)
	if !slices.Equal(result.Changes, []string{"device pool ips: changed"}) {
		t.Errorf("changes %q", result.Changes)
	}
	if result, err = b.admin.Reload(b.Context()); err != nil || len(result.Changes) != 0 {
		t.Errorf("once more: %q, %v", result.Changes, err)
	}
	if d := b.device("ips1"); d.State != "down" || !d.Since.Equal(down.Since) {
		t.Errorf("ips1 %s since %v, was down since %v", d.State, d.Since, down.Since)
	}
	b.get(fmt.Sprintf("/v1/events?after=%d", last), &events)
	for _, e := range events {
		if e.Kind == "device" {
			t.Errorf("a reload made an event of a device: %q", e.Message)
		}
	}
	b.hangup(path)
}

// hangup: SIGHUP does what reload does.
func (b *bed) hangup(path string) {
	b.Helper()
	text, err := os.ReadFile(path)
	b.must(err)
	b.must(os.WriteFile(path, append(text, "nonsense: 1\n"...), 0o644))
	b.must(b.daemon.Signal(syscall.SIGHUP))
	lab.Eventually(b.T, 5*time.Second, func() error {
		if !strings.Contains(b.daemon.Output(), "nonsense") {
			return errors.New("the log does not say what is wrong")
		}
		return nil
	})
	b.awaitState("ips2", "up")
}

func TestRefusesASecondDaemon(t *testing.T) {
	b := newBed(t)
	b.start()
	before := b.hostState()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	program, err := lab.Program()
	b.must(err)
	out, err := b.Box.Command(ctx, program, "run", "--config", filepath.Join(b.Dir, "sslo.yaml")).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Errorf("a second daemon ran: %s", out)
	}
	if d := diff(before, b.hostState()); d != "" {
		t.Errorf("the second daemon changed\n%s", d)
	}
	b.awaitAllUp()
}

// TestKeepIsForUpgrades: what --keep leaves is adopted by the next daemon, and removed at its clean end.
func TestKeepIsForUpgrades(t *testing.T) {
	b := newBed(t)
	before := b.hostState()
	path, err := b.WriteConfig(b.config)
	b.must(err)
	program, err := lab.Program()
	b.must(err)
	first, err := b.Start(b.Box, "first", program, "run", "--keep", "--config", path)
	b.must(err)
	lab.Eventually(t, 10*time.Second, func() error { return b.admin.Get(t.Context(), "/v1/status", new(api.Status)) })
	b.must(first.Stop())
	if _, err := os.Stat(b.PinPath()); err != nil {
		t.Errorf("nothing kept: %v", err)
	}
	b.start()
	var status api.Status
	b.get("/v1/status", &status)
	if !status.Adopted {
		t.Error("not adopted")
	}
	b.noTransitions(b.DeviceNames()...)
	b.must(b.daemon.Stop())
	b.awaitHost(before)
}

// TestFailedStartLeavesNothing: what goes wrong last must undo what went right before.
func TestFailedStartLeavesNothing(t *testing.T) {
	b := newBed(t)
	before := b.hostState()
	taken, err := b.Box.Listen("tcp", ":443")
	b.must(err)
	defer taken.Close()
	path, err := b.WriteConfig(b.config)
	b.must(err)
	program, err := lab.Program()
	b.must(err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := b.Box.Command(ctx, program, "run", "--config", path).CombinedOutput()
	if err == nil || ctx.Err() != nil || !strings.Contains(string(out), "address already in use") {
		t.Errorf("%v: %s", err, out)
	}
	b.awaitHost(before)
	if _, err := os.Lstat(b.PinPath()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %s (%v)", b.PinPath(), err)
	}
}
