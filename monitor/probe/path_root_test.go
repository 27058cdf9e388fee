package probe

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sslo/internal/testutil"
	"sslo/monitor"
)

// bridgeDevice is an inline device: another network namespace with a learning bridge between
// the far ends of the box's NICs in and out.
type bridgeDevice struct {
	t       testing.TB
	pid     string
	in, out string
}

func newBridgeDevice(t testing.TB) *bridgeDevice {
	testutil.RequireRoot(t)
	sleeper := exec.Command("sleep", "600")
	sleeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	d := &bridgeDevice{t: t, pid: strconv.Itoa(sleeper.Process.Pid), in: "a1", out: "a2"}
	t.Cleanup(func() {
		sleeper.Process.Kill()
		sleeper.Wait()
		exec.Command("ip", "link", "del", d.in).Run()
		exec.Command("ip", "link", "del", d.out).Run()
	})
	d.inside("ip link add br0 type bridge stp_state 0 forward_delay 0")
	d.inside("ip link set br0 up")
	d.plug(d.in, "d1")
	d.plug(d.out, "d2")
	return d
}

// plug makes a NIC of the box and cables it to the bridge.
func (d *bridgeDevice) plug(nic, port string) {
	d.t.Helper()
	run(d.t, fmt.Sprintf("ip link add %s type veth peer name %s netns %s", nic, port, d.pid))
	run(d.t, "ip link set "+nic+" up")
	d.inside("ip link set " + port + " master br0 up")
}

func (d *bridgeDevice) inside(command string) {
	d.t.Helper()
	for c := range strings.SplitSeq(command, "; ") {
		run(d.t, "nsenter --net=/proc/"+d.pid+"/ns/net "+c)
	}
}

func run(t testing.TB, command string) {
	t.Helper()
	args := strings.Fields(command)
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

func (d *bridgeDevice) open() *Path {
	d.t.Helper()
	p, err := OpenPath(d.in, d.out)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { p.Close() })
	eventually(d.t, "path", func() bool { return probeFor(p, 50*time.Millisecond).OK }) // carrier comes up
	return p
}

func probeFor(p Prober, d time.Duration) monitor.Result {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return p.Probe(ctx)
}

func wantPass(t *testing.T, p Prober) monitor.Result {
	t.Helper()
	r := probeFor(p, 500*time.Millisecond)
	if !r.OK {
		t.Fatalf("probe failed: %s", r.Reason)
	}
	return r
}

func wantFail(t *testing.T, p Prober, reason string) {
	t.Helper()
	if r := probeFor(p, 100*time.Millisecond); r.OK || !strings.Contains(r.Reason, reason) {
		t.Fatalf("got %+v, want a failure with %q", r, reason)
	}
}

func TestPathPassesALearningBridge(t *testing.T) {
	p := newBridgeDevice(t).open()
	best := time.Hour
	for range 20 {
		best = min(best, wantPass(t, p).Latency)
	}
	t.Logf("best round trip %v", best)
	if best <= 0 || best > 20*time.Millisecond {
		t.Errorf("round trip %v", best)
	}
}

func TestPathMeasuresLatency(t *testing.T) {
	d := newRelay(t)
	p := d.open()
	wantPass(t, p)
	d.delay[0].Store(int64(30 * time.Millisecond)) // in→out only
	if r := wantPass(t, p); r.Latency < 30*time.Millisecond || r.Latency > 80*time.Millisecond {
		t.Errorf("round trip %v with 30ms one way", r.Latency)
	}
}

func TestPathFails(t *testing.T) {
	for _, c := range []struct{ name, fail, reason, restore string }{
		{"port down", "ip link set d2 down", "link NIC a2: no carrier", "ip link set d2 up"},
		{"isolated ports", "bridge link set dev d1 isolated on; bridge link set dev d2 isolated on",
			"in→out lost, out→in lost", "bridge link set dev d2 isolated off"},
		{"disabled port", "bridge link set dev d2 state 0", "in→out lost, out→in lost", "bridge link set dev d2 state 3"},
		{"port out of the bridge", "ip link set d2 nomaster", "in→out lost, out→in lost", "ip link set d2 master br0"},
		{"bridge down", "ip link set br0 down", "in→out lost, out→in lost", "ip link set br0 up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newBridgeDevice(t)
			p := d.open()
			wantPass(t, p)
			d.inside(c.fail)
			eventually(t, "failure with "+c.reason, func() bool { // the kernel tells of carrier a little late
				r := probeFor(p, 50*time.Millisecond)
				return !r.OK && strings.Contains(r.Reason, c.reason)
			})
			d.inside(c.restore)
			eventually(t, "recovery", func() bool { return probeFor(p, 50*time.Millisecond).OK })
		})
	}
}

func TestPathFailsInOneDirection(t *testing.T) {
	d := newRelay(t)
	p := d.open()
	wantPass(t, p)
	for i, reason := range []string{"in→out lost", "out→in lost"} {
		d.lose[i].Store(true)
		if r := probeFor(p, 100*time.Millisecond); r.OK || r.Reason != reason {
			t.Errorf("%+v, want %s", r, reason)
		}
		d.lose[i].Store(false)
	}
	wantPass(t, p)
}

func TestPathBlackholeByFilter(t *testing.T) {
	d := newBridgeDevice(t)
	p := d.open()
	wantPass(t, p)
	d.inside("nft add table bridge hole")
	d.inside("nft add chain bridge hole forward {type filter hook forward priority 0;policy drop;}")
	wantFail(t, p, "in→out lost, out→in lost")
	d.inside("nft delete table bridge hole")
	wantPass(t, p)
}

// A device that sends every frame back where it came from is not a path.
func TestPathReflected(t *testing.T) {
	d := newRelay(t)
	p := d.open()
	d.reflect.Store(true)
	wantFail(t, p, "in→out reflected to its sender, in→out lost, out→in reflected to its sender, out→in lost")
	d.reflect.Store(false)
	wantPass(t, p)
}

func TestPathFollowsANICThatComesBack(t *testing.T) {
	d := newBridgeDevice(t)
	p := d.open()
	wantPass(t, p)
	run(t, "ip link del a2")
	wantFail(t, p, "link NIC a2: no such device")
	d.plug("a2", "d2")
	eventually(t, "recovery", func() bool { return probeFor(p, 50*time.Millisecond).OK })
	run(t, "ip link set a1 down")
	wantFail(t, p, "link NIC a1: switched off")
	run(t, "ip link set a1 address 02:00:00:00:00:77 up")
	eventually(t, "recovery", func() bool { return probeFor(p, 50*time.Millisecond).OK })
}

// Two devices cabled to one switch hear each other's frames and must not take them for theirs.
func TestPathIgnoresForeignFrames(t *testing.T) {
	d := newBridgeDevice(t)
	p, q := d.open(), d.open()
	wantPass(t, p)
	wantPass(t, q)
	d.inside("ip link set br0 down")
	wantFail(t, p, "in→out lost, out→in lost")
}

func TestPathOverlappingProbes(t *testing.T) {
	d := newRelay(t)
	p := d.open()
	d.delay[0].Store(int64(60 * time.Millisecond))
	results := make(chan monitor.Result)
	for range 5 {
		go func() { results <- probeFor(p, 500*time.Millisecond) }()
	}
	for range 5 {
		if r := <-results; !r.OK {
			t.Error(r.Reason)
		}
	}
}

func BenchmarkPathThroughABridge(b *testing.B) {
	p := newBridgeDevice(b).open()
	for b.Loop() {
		if r := probeFor(p, time.Second); !r.OK {
			b.Fatal(r.Reason)
		}
	}
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("no %s in 5s", what)
}
