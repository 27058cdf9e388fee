package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"sslo/test/bench/load"
	"sslo/test/bench/report"
)

// metric is what one number of a test is called in the table.
type metric struct {
	name, unit string
	value      func(*outcome) float64
}

// test is one load and what is read off it.
type test struct {
	name    string
	load    func(*options) load.Options
	metrics []metric
	direct  bool // makes sense without a proxy
}

func perGB(o *outcome) float64 { return o.cost.Total().Seconds() / (float64(o.Bytes) / 1e9) }
func perRequest(o *outcome) float64 {
	return float64(o.cost.Total().Microseconds()) / float64(o.Requests-o.Errors)
}

func bulk(name, title, direction string, connections int) test {
	return test{name: name, metrics: []metric{{title, "CPU s/GB", perGB}}, load: func(o *options) load.Options {
		return load.Options{Test: direction, Connections: connections, Bytes: o.size / int64(connections)}
	}}
}

// Memory comes first: a process does not give back what other tests made it take.
var tests = []test{
	{
		name: "idle", metrics: []metric{{"memory of an idle connection", "kB", func(o *outcome) float64 {
			return float64(o.resident) / 1024 / float64(o.Requests)
		}}},
		load: func(o *options) load.Options {
			return load.Options{Test: "idle", Connections: o.idle, Duration: 5 * time.Second}
		},
	},
	bulk("down1", "download, 1 connection", "down", 1),
	bulk("down8", "download, 8 connections", "down", 8),
	bulk("up1", "upload, 1 connection", "up", 1),
	bulk("up8", "upload, 8 connections", "up", 8),
	{
		name: "handshake", metrics: []metric{{"new connection + request", "CPU µs", perRequest}},
		load: func(o *options) load.Options {
			return load.Options{Test: "handshake", Connections: 32, Duration: time.Duration(o.seconds) * time.Second}
		},
	},
	{
		name: "requests", metrics: []metric{{"1 kB request on a kept connection", "CPU µs", perRequest}},
		load: func(o *options) load.Options {
			return load.Options{Test: "requests", Connections: 64, Duration: time.Duration(o.seconds) * time.Second}
		},
	},
	{
		name: "latency", direct: true, metrics: []metric{
			{p50, "µs", func(o *outcome) float64 { return o.P50 }},
			{p99, "µs", func(o *outcome) float64 { return o.P99 }},
		},
		load: func(o *options) load.Options {
			return load.Options{Test: "latency", Connections: 4, Rate: 1000, Duration: time.Duration(o.seconds) * time.Second}
		},
	},
}

const (
	p50 = "p50 at 1000 requests/s"
	p99 = "p99 at 1000 requests/s"
)

func names() []string {
	var all []string
	for _, t := range tests {
		all = append(all, t.name)
	}
	return append(all, "forward", "stall", "sm")
}

type bench struct {
	*options
	out    *report.Report
	failed int
}

// fail tells of what could not be measured; the rest goes on.
func (b *bench) fail(err error) {
	if err != nil {
		b.failed++
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

// all runs everything that was asked for.
func (b *bench) all(ctx context.Context) {
	for range b.repeat {
		for _, devices := range b.devices {
			b.round(ctx, devices)
		}
	}
	b.out.Derive("added "+p50, p50, "direct")
	b.out.Derive("added "+p99, p99, "direct")
	if b.wants("forward") && b.has("sslo") {
		b.forwards(ctx)
	}
	if b.wants("stall") && b.has("sslo") {
		b.stalls(ctx)
	}
}

// round brings all peers up side by side, fresh, and alternates between them test by test.
func (b *bench) round(ctx context.Context, devices int) {
	if !slices.ContainsFunc(tests, func(t test) bool { return b.wants(t.name) }) {
		return
	}
	var up []*stand
	defer func() {
		for _, s := range up {
			s.close()
		}
	}()
	for _, name := range b.peers {
		s, err := open(ctx, b.options, name, devices)
		if err != nil {
			b.fail(err)
			continue
		}
		up = append(up, s)
	}
	for _, t := range tests {
		for _, s := range up {
			if b.wants(t.name) && (t.direct || !s.peer.Direct) && ctx.Err() == nil {
				b.one(s, t)
			}
		}
	}
}

func (b *bench) one(s *stand, t test) {
	out, err := s.measure(t.load(b.options))
	if err != nil {
		b.fail(fmt.Errorf("%s, %d devices, %s: %w", s.peer.Name, s.topo.Devices, t.name, err))
		return
	}
	for _, m := range t.metrics {
		if s.peer.Direct && strings.HasPrefix(m.unit, "CPU") {
			continue
		}
		b.add(m.name, m.unit, s.topo.Devices, s.peer.Name, m.value(out))
	}
}

func (b *bench) add(name, unit string, devices int, peer string, value float64) {
	fmt.Printf("%s  %-9s %d devices  %-30s %8.3g %s\n", time.Now().Format("15:04:05"), peer, devices, name, value, unit)
	b.out.Samples = append(b.out.Samples, report.Sample{Metric: name, Unit: unit, Devices: devices, Peer: peer, Value: value})
}
