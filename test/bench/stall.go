package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"sslo/test/bench/load"
)

const stallBytes = 4 << 30

// stalls fails the first of two devices in the middle of a download, each time in fresh namespaces, and
// notes the longest time without a byte. A fixed sandwich has no answer to that, so only sslo is asked.
func (b *bench) stalls(ctx context.Context) (failed error) {
	for how, fail := range map[string]func(*stand) error{
		"link down":  func(s *stand) error { return s.topo.LinkDown(1) },
		"blackhole":  func(s *stand) error { return s.topo.Blackhole(1) },
		"no failure": func(*stand) error { return nil },
	} {
		for range b.repeat {
			if err := b.stall(ctx, how, fail); err != nil {
				fmt.Fprintln(os.Stderr, "bench: stall:", how+":", err)
				failed = errors.Join(failed, err)
			}
		}
	}
	return failed
}

func (b *bench) stall(ctx context.Context, how string, fail func(*stand) error) error {
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
	time.AfterFunc(time.Second, func() { failing <- fail(s) })
	var result load.Result
	if err := l.finish(&result); err != nil {
		return err
	}
	if result.Errors > 0 {
		return fmt.Errorf("the download did not survive: %s", result.Error)
	}
	b.add("longest stall of a download, first device: "+how, "ms", 2, "sslo", result.Stall)
	return <-failing
}
