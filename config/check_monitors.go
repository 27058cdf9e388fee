package config

import (
	"net/netip"
	"reflect"
	"slices"
	"time"

	"sslo/monitor"
)

// target is what a monitor is used for.
type target uint8

const (
	forDevice target = iota
	forServer
)

// builtin monitors need no definition; their names are those of the types.
var builtin = []*Monitor{
	{Name: "path", Type: MonitorPath},
	{Name: "icmp", Type: MonitorICMP},
	{Name: "tcp", Type: MonitorTCP},
}

func (c *checker) checkMonitors() {
	for _, m := range c.Monitors {
		path := join("monitors", m.Name)
		if m.Name == "link" {
			c.errorf(path, "the link monitor is always on; choose another name")
		}
		if c.ok(path) {
			c.checkMonitor(m, path)
		}
	}
	for _, m := range builtin {
		if c.monitor(m.Name) == nil {
			def := *m
			setDefaults(reflect.ValueOf(&def).Elem())
			c.defaults = append(c.defaults, &def)
		}
	}
}

func (c *checker) monitor(name string) *Monitor {
	if m := find(c.Monitors, name); m != nil {
		return m
	}
	return find(c.defaults, name)
}

// monitorsOf resolves the monitors that a device or a server pool names.
func (c *checker) monitorsOf(set *MonitorSet, path string, t target, own netip.Addr) []Monitor {
	var out []Monitor
	whole := path
	path = c.ofPath(path)
	c.duplicates(path, set.Of)
	count := 0
	for i, name := range set.Of {
		if m := c.monitorFor(name, index(path, i), t, own); m != nil {
			if out = append(out, *m); !m.Negative {
				count++
			}
		}
	}
	if n := int(set.Require); n > count && c.ok(path) {
		c.errorf(join(whole, "require"), "is %d, but there are %d monitors", n, count)
	}
	return out
}

// own is a routed device's own address.
// ofPath is where the names of a set are: it may be written as a list alone.
func (c *checker) ofPath(path string) string {
	if of := join(path, "of"); c.given(of) {
		return of
	}
	return path
}

func (c *checker) monitorFor(name, path string, t target, own netip.Addr) *Monitor {
	if name == "link" && t == forDevice {
		c.errorf(path, "the link monitor is always on and is not named")
		return nil
	}
	m := reference(c, "monitors", "monitor", name, path, slices.Concat(c.defaults, c.Monitors))
	if m == nil || !c.ok(join("monitors", name)) {
		return nil
	}
	switch {
	case t == forServer && m.Type == MonitorPath:
		c.errorf(path, "monitor %q is of type path, which is for devices; use tcp or icmp", name)
		return nil
	case t == forServer && m.Through:
		c.errorf(path, "monitor %q goes through a device; a server is not one", name)
		return nil
	case t == forDevice && m.Type == MonitorICMP && m.Address == "" && own.IsValid():
		at := *m
		at.Target = netip.AddrPortFrom(own, 0)
		m = &at
	case t == forDevice && m.needsAddress() && m.Address == "":
		c.errorf(path, "monitor %q is of type %s and has no address: a device has none of its own", name, Word(m.Type))
		return nil
	}
	return c.withDefaults(m, path, t)
}

func (m *Monitor) needsAddress() bool {
	return m.Type != MonitorPath && m.Type != MonitorExec && !m.Through
}

// withDefaults fills what the file leaves open by what the monitor is used for.
func (c *checker) withDefaults(m *Monitor, path string, t target) *Monitor {
	out := *m
	unset := func(key string) bool { return !c.given("monitors." + m.Name + "." + key) }
	d := monitor.DeviceDefaults
	if t == forServer {
		d = monitor.ServerDefaults
	}
	if unset("interval") {
		out.Interval = d.Interval
	}
	if unset("timeout") {
		out.Timeout = defaultTimeout(out.Interval, t)
	}
	if unset("fall") {
		out.Fall = d.Fall
	}
	if unset("rise") {
		out.Rise = d.Rise
	}
	if unset("hold_down") {
		out.HoldDown = d.HoldDown
	}
	if unset("verify") {
		out.Verify = d.Verify
	}
	if t == forDevice && out.Timeout > out.Interval {
		c.errorf(path, "monitor %q has a timeout of %v, longer than its interval of %v: detection would be late",
			m.Name, out.Timeout, out.Interval)
	}
	return &out
}

// defaultTimeout of a server lets TCP repeat its SYN a few times: one lost packet is no failure.
func defaultTimeout(interval time.Duration, t target) time.Duration {
	if t == forServer {
		return 3*interval + time.Second
	}
	return interval * 9 / 10
}

// Timing is the monitor's timing as its state machine takes it.
func (m *Monitor) Timing() monitor.Config {
	return monitor.Config{Interval: m.Interval, Timeout: m.Timeout, Fall: m.Fall, Rise: m.Rise, HoldDown: m.HoldDown,
		FlapWindow: m.FlapWindow, FlapMax: m.FlapMax, FlapHold: m.FlapHold, Verify: m.Verify}
}
