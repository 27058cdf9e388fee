package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sslo/admin/api"
	"sslo/admin/client"
	"sslo/test/lab"
)

const quick = 10 * time.Second

// throughMonitors are a request through the device and a bad one that it must block.
func throughMonitors(c lab.Config) {
	hasty := func(m map[string]any) map[string]any {
		for k, v := range map[string]any{"interval": "200ms", "timeout": "180ms", "fall": 2, "rise": 2, "hold_down": "500ms", "flap_max": 0} {
			m[k] = v
		}
		return m
	}
	c.Set("monitors.request", hasty(map[string]any{"type": "http", "through": true, "body": "sslo responder"}))
	c.Set("monitors.request6", hasty(map[string]any{"type": "http", "through": true, "client": "2001:2::1", "server": "[2001:2::2]:80"}))
	c.Set("monitors.datagram", hasty(map[string]any{"type": "udp", "through": true}))
	c.Set("monitors.attack", hasty(map[string]any{"type": "http", "through": true, "negative": true}))
	monitors := []string{"path-fast", "request", "request6", "datagram", "attack"}
	c.Set("devices.a.monitor", monitors)
	c.Set("devices.b.monitor", map[string]any{"of": monitors, "require": 3})
}

// TestThroughMonitors: device a inspects, b is a bridge that blocks nothing. Real requests through them find
// what frames do not, and leave no trace in the session plane.
func TestThroughMonitors(t *testing.T) {
	b := build(t, pair())
	throughMonitors(b.config)
	b.start()
	b.awaitDevice("a", "up")
	b.awaitDevice("b", "degraded")
	d := b.device("b")
	if d.Service != "full" || !strings.Contains(d.Reason, "attack: the device let a bad request pass") {
		t.Errorf("b: service %s, %s", d.Service, d.Reason)
	}
	if n := b.counters().Events["device-degraded"]; n != 1 {
		t.Errorf("counted %d times", n)
	}
	b.fetch("/", lab.ClientOptions{})
	c := b.dial(b.Client(), lab.ClientOptions{})
	if way := b.way(c); way != "a b" {
		t.Errorf("way %q: a degraded device is in service", way)
	}
	for _, reserved := range []string{"198.18.0.0/15", "2001:2::/48"} {
		if legs := b.sessions(client.SessionQuery{Client: reserved}); len(legs) > 0 {
			t.Errorf("sessions of monitors: %+v", legs)
		}
	}
	if n := b.dropped("", "no-session"); n > 0 {
		t.Errorf("%d frames of monitors were dropped", n)
	}
	b.sub("a device that forwards frames but no data", func(b *bed) {
		b.must(b.Lab.Fail("a", lab.BlackholeData))
		b.awaitService("a", "none")
		if d := b.device("a"); !slices.ContainsFunc(d.Monitors, ofData) {
			b.t.Errorf("a: %s: %+v", d.Reason, d.Monitors)
		}
		b.fetch("/", lab.ClientOptions{})
		b.restore("a")
	})
	b.sub("three of four are enough", func(b *bed) {
		host, err := b.DeviceHost("b")
		b.must(err)
		for _, command := range []string{"nft add table bridge f", "nft add chain bridge f c {type filter hook forward priority 0;}",
			"nft add rule bridge f c ip protocol udp udp dport 80 drop"} {
			words := strings.SplitN(command, " ", 5)
			_, err := host.Exec(b.context(quick), words[0], words[1:]...)
			b.must(err)
		}
		b.eventually(quick, func() error {
			for _, m := range b.device("b").Monitors {
				if m.Name == "datagram" && m.State == "down" {
					return nil
				}
			}
			return fmt.Errorf("%+v", b.device("b").Monitors)
		})
		if d := b.device("b"); d.State != "degraded" || d.Service != "full" {
			b.t.Errorf("b is %s: %s", d.State, d.Reason)
		}
	})
}

// ofData is a monitor that sends data through the device and has noticed that it does not come out. Which of them made the
// device go down is a matter of their timing, on a busy machine even one that sends frames.
func ofData(m api.Monitor) bool {
	return m.State == "down" && slices.Contains([]string{"request", "request6", "datagram", "attack"}, m.Name)
}

// TestServerMonitors: the answer of a server is looked at, and one of several monitors is enough where that is asked for.
func TestServerMonitors(t *testing.T) {
	b := build(t, lab.Line(1, lab.Bridge))
	hasty := func(m map[string]any) map[string]any { m["interval"] = "200ms"; m["timeout"] = "1s"; return m }
	b.config.Set("monitors.hello", hasty(map[string]any{"type": "https", "path": "/any", "body": "^hello from server"}))
	b.config.Set("monitors.farewell", hasty(map[string]any{"type": "https", "body": "^good bye"}))
	b.config.Set("monitors.command", hasty(map[string]any{"type": "exec", "command": []string{"/bin/sh", "-c", "test $SSLO_PORT = 443 && echo seen"}}))
	b.config.Set("server_pools.web.monitor", []string{"hello", "command"})
	b.start()
	b.eventually(quick, func() error { return b.memberIs("web", "up") })
	b.awaitDevice("a", "up")
	b.fetch("/", lab.ClientOptions{})
	b.reload(set("server_pools.web.monitor", []string{"hello", "command", "farewell"}))
	b.eventually(quick, func() error { return b.memberIs("web", "down") })
	b.reload(set("server_pools.web.monitor", map[string]any{"of": []string{"hello", "command", "farewell"}, "require": 2}))
	b.eventually(quick, func() error { return b.memberIs("web", "up") })
}
