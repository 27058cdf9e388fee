package e2e

import (
	"fmt"
	"testing"
	"time"

	"sslo/admin/api"
	"sslo/test/lab"
)

// TestMethodsOfServerPools: connections are shared by method and weight, a reload changes both at once, and a
// server that died gets nothing.
func TestMethodsOfServerPools(t *testing.T) {
	topology := lab.Line(1, lab.Bridge)
	topology.Servers = 2
	b := build(t, topology)
	address := func(i int) string { return fmt.Sprintf("%s:%d", b.Servers[i].Addr4, lab.TLSPort) }
	weighing := func(method string, weight any) func(lab.Config) {
		return func(c lab.Config) {
			c.Set("server_pools.web.method", method)
			c.Set("server_pools.web.members", []any{address(0), map[string]any{"address": address(1), "weight": weight}})
		}
	}
	weighing("weighted", 3)(b.config)
	b.start()
	b.awaitReady()
	shares := func(n int) (got [2]uint64) {
		t.Helper()
		counts := func() (c [2]uint64) {
			for i := range c {
				c[i] = get[api.Counters](b, "/v1/counters").ServerPools["web"][address(i)+"/connections"]
			}
			return c
		}
		before := counts()
		for range n {
			b.fetch("/", lab.ClientOptions{})
		}
		after := counts()
		return [2]uint64{after[0] - before[0], after[1] - before[1]}
	}
	if got := shares(40); got != [2]uint64{10, 30} {
		t.Errorf("weights 1 and 3 share 40 as %d", got)
	}
	b.reload(weighing("source-hash", 1))
	if got := shares(10); got != [2]uint64{10, 0} && got != [2]uint64{0, 10} {
		t.Errorf("one address went to both servers: %d", got)
	}
	b.reload(weighing("least-sessions", 2))
	for range 6 {
		b.mustRequest(b.dial(b.Client(), lab.ClientOptions{}))
	}
	var open [2]uint64
	b.eventually(5*time.Second, func() error {
		c := get[api.Counters](b, "/v1/counters").ServerPools["web"]
		open = [2]uint64{c[address(0)+"/open"], c[address(1)+"/open"]}
		if open != [2]uint64{2, 4} {
			return fmt.Errorf("weights 1 and 2 hold six connections as %d", open)
		}
		return nil
	})
}

// TestSlowStart: a server that comes back gets little at first, and its whole share in the end.
func TestSlowStart(t *testing.T) {
	topology := lab.Line(1, lab.Bridge)
	topology.Servers = 2
	b := up(t, topology, set("server_pools.web.slow_start", "10s"),
		set("monitors.tcp", map[string]any{"type": "tcp", "interval": "100ms", "timeout": "500ms", "fall": 2, "rise": 1, "hold_down": "0s"}))
	second := fmt.Sprintf("%s:%d", b.Servers[1].Addr4, lab.TLSPort)
	state := func(want string) {
		t.Helper()
		b.eventually(20*time.Second, func() error {
			for _, m := range get[[]api.ServerPool](b, "/v1/servers")[0].Members {
				if m.Address == second && m.State != want {
					return fmt.Errorf("%s is %s (%s), not %s", second, m.State, m.Reason, want)
				}
			}
			return nil
		})
	}
	carrier := func(to string) {
		t.Helper()
		_, err := b.Servers[1].Exec(t.Context(), "ip", "link", "set", b.Servers[1].NIC, to)
		b.must(err)
	}
	time.Sleep(10 * time.Second) // both have started by then
	carrier("down")
	state("down")
	carrier("up")
	state("up")
	took := func(n int) int {
		t.Helper()
		count := func() uint64 {
			return get[api.Counters](b, "/v1/counters").ServerPools["web"][second+"/connections"]
		}
		before := count()
		for range n {
			b.fetch("/", lab.ClientOptions{})
		}
		return int(count() - before)
	}
	if n := took(40); n > 16 {
		t.Errorf("a server that just came back got %d of 40", n)
	}
	b.eventually(30*time.Second, func() error {
		if n := took(40); n != 20 {
			return fmt.Errorf("it still gets %d of 40", n)
		}
		return nil
	})
}

// TestSlowStartOfDevices: the same with a device, by weights in the session plane; new sessions only are shared anew.
func TestSlowStartOfDevices(t *testing.T) {
	b := up(t, twoAndOne(), set("device_pools.first.slow_start", "10s"))
	took := func(n int) int {
		t.Helper()
		before := b.device("a1").Opened
		for range n {
			b.fetch("/", lab.ClientOptions{})
		}
		return int(b.device("a1").Opened - before)
	}
	whole := func() {
		t.Helper()
		b.eventually(40*time.Second, func() error {
			if n := took(20); n != 10 {
				return fmt.Errorf("a1 gets %d of 20", n)
			}
			return nil
		})
	}
	time.Sleep(10 * time.Second) // a2 has its whole share by then
	b.fail("a1", lab.Blackhole)
	if n := took(10); n != 0 {
		t.Errorf("a1 is down and got %d", n)
	}
	b.restore("a1")
	time.Sleep(500 * time.Millisecond) // weights are written four times a second
	if n := took(40); n > 16 {
		t.Errorf("a device that just came back got %d of 40", n)
	}
	whole()
	b.reload(set("device_pools.first.slow_start", "0s"))
	whole()
}
