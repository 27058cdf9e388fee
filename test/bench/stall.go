package main

import (
	"context"
	"fmt"
	"time"

	"sslo/test/bench/load"
	"sslo/test/bench/topo"
)

const stallBytes = 4 << 30

// stalls fails the first of two devices in the middle of a download, each time in fresh namespaces, and
// notes the longest time without a byte. A fixed sandwich has no answer to that, so only sslo is asked.
func (b *bench) stalls(ctx context.Context) {
	ways := []struct {
		how  string
		fail func(*topo.Topology) error
	}{
		{"nothing", func(*topo.Topology) error { return nil }},
		{"link down", func(t *topo.Topology) error { return t.LinkDown(1) }},
		{"blackhole", func(t *topo.Topology) error { return t.Blackhole(1) }},
	}
	for _, w := range ways {
		for range b.repeat {
			if err := b.stall(ctx, w.how, w.fail); err != nil {
				b.fail(fmt.Errorf("stall, %s: %w", w.how, err))
			}
		}
	}
}

func (b *bench) stall(ctx context.Context, how string, fail func(*topo.Topology) error) error {
	s, err := open(ctx, b.options, "sslo", 2)
	if err != nil {
		return err
	}
	defer s.close()
	l, err := s.load(load.Options{Test: "down", Connections: 1, Bytes: stallBytes})
	if err != nil {
		return err
	}
	defer l.end()
	failing := make(chan error, 1)
	time.AfterFunc(time.Second, func() { failing <- fail(s.topo) })
	var result load.Result
	if err := l.finish(&result); err != nil {
		return err
	}
	if result.Errors > 0 {
		return fmt.Errorf("the download did not survive: %s", result.Error)
	}
	b.add("longest stall of a download, what fails: "+how, "ms", 2, "sslo", result.Stall)
	return <-failing
}
