package probe

import (
	"testing"
	"time"

	"sslo/monitor"
)

func pathTarget(c monitor.Config) Target {
	return Target{Kind: "device", Name: "ips1", Links: []string{"a1", "a2"}, Monitors: []Monitor{
		{Name: "path-fast", Config: c, Probe: PathSpec{In: "a1", Out: "a2"}},
	}}
}

// Passive suspicion is confirmed in a fraction of the interval, and a device that is merely slow is spared.
func TestSuspicionOfAPath(t *testing.T) {
	d := newRelay(t)
	rec := &recorder{}
	set := NewSet(rec.logger(), rec.report)
	defer set.Close()
	slow := monitor.DeviceDefaults
	slow.Interval = 10 * time.Second
	if err := set.Reload([]Target{pathTarget(slow)}); err != nil {
		t.Fatal(err)
	}
	rec.wait(t, monitor.Up)
	d.delay[0].Store(int64(80 * time.Millisecond))
	set.Suspect("ips1", "nothing returned for 100ms")
	rec.wait(t, monitor.Up, monitor.Suspect, monitor.Up)
	d.delay[0].Store(0)
	time.Sleep(slow.Verify) // another suspicion is taken up after that
	d.lose[0].Store(true)
	at := time.Now()
	set.Suspect("ips1", "nothing returned for 100ms")
	rec.wait(t, monitor.Up, monitor.Suspect, monitor.Up, monitor.Suspect, monitor.Down)
	down := rec.list[len(rec.list)-1]
	t.Logf("down after %v: %s", down.At.Sub(at), down.Why)
	if d := down.At.Sub(at); d > 400*time.Millisecond { // 150ms, and a busy machine
		t.Errorf("down after %v", d)
	}
}

// A link that is pulled and a NIC that is replaced: down, then up by itself.
func TestRunnerSurvivesANICThatIsReplaced(t *testing.T) {
	d := newBridgeDevice(t)
	rec := &recorder{}
	set := NewSet(rec.logger(), rec.report)
	defer set.Close()
	if err := set.Reload([]Target{pathTarget(fast)}); err != nil {
		t.Fatal(err)
	}
	rec.wait(t, monitor.Up)
	run(t, "ip link del a2")
	rec.wait(t, monitor.Up, monitor.Down)
	d.plug("a2", "d2")
	rec.wait(t, monitor.Up, monitor.Down, monitor.Up)
}

// A chain that starts with a device that is absent says so at once, and never uses it.
func TestRunnerStartsWithAnAbsentDevice(t *testing.T) {
	d := newBridgeDevice(t)
	d.inside("ip link set br0 down")
	rec := &recorder{}
	set := NewSet(rec.logger(), rec.report)
	defer set.Close()
	if err := set.Reload([]Target{pathTarget(fast)}); err != nil {
		t.Fatal(err)
	}
	rec.wait(t, monitor.Down)
	d.inside("ip link set br0 up")
	rec.wait(t, monitor.Down, monitor.Up)
	t.Log(rec.log())
}
