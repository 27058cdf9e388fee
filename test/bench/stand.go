package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"sslo/test/bench/load"
	"sslo/test/bench/measure"
	"sslo/test/bench/peer"
	"sslo/test/bench/topo"
)

// stand is one peer, running in namespaces of its own.
type stand struct {
	peer peer.Peer
	topo *topo.Topology
	run  *peer.Run
	opts *options
}

var stands int // makes the namespaces' names unique

// open builds the namespaces, starts origin and peer, and waits until traffic crosses every device.
func open(ctx context.Context, o *options, name string, devices int) (s *stand, err error) {
	p, ok := peer.Peers[name]
	if !ok {
		return nil, fmt.Errorf("no peer %q", name)
	}
	dir, err := os.MkdirTemp("/dev/shm", "sslo-bench-")
	if err != nil {
		return nil, err
	}
	stands++
	t := &topo.Topology{Prefix: fmt.Sprintf("sb%d-%d-", os.Getpid(), stands), Devices: devices, Congestion: o.congestion, Split: p.Split, Routed: p.Direct}
	s = &stand{peer: p, topo: t, opts: o, run: &peer.Run{Topology: t, Dir: dir, Core: o.peerCore, Binary: o.sslo}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s with %d devices: %w\n%s", name, devices, err, s.run.Logs())
			s.close()
		}
	}()
	if err := t.Up(); err != nil {
		return s, err
	}
	if err := peer.Prepare(dir, 1<<20, o.size, o.size/8, stallBytes); err != nil {
		return s, err
	}
	if err := syscall.Mount("bpf", filepath.Join(dir, "bpf"), "bpf", 0, ""); err != nil {
		return s, fmt.Errorf("mount bpffs: %w", err)
	}
	originCore := o.clientCore
	if p.Direct {
		originCore = o.peerCore
	}
	if err := s.run.Start(p, originCore); err != nil {
		return s, err
	}
	return s, s.await(ctx)
}

func (s *stand) close() {
	s.run.Stop()
	s.topo.Down()
	_ = syscall.Unmount(filepath.Join(s.run.Dir, "bpf"), syscall.MNT_DETACH)
	_ = os.RemoveAll(s.run.Dir)
}

// await makes small downloads until one of them has crossed every device.
func (s *stand) await(ctx context.Context) error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, err := s.measure(load.Options{Test: "down", Connections: 1, Bytes: 1 << 20})
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no answer: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// outcome is a load's result and what the peer spent on it.
type outcome struct {
	load.Result
	cost     measure.Cost
	resident int64 // growth
}

// measure runs one load from the client's namespace.
func (s *stand) measure(o load.Options) (*outcome, error) {
	crossed, err := s.crossings(o.Test)
	if err != nil {
		return nil, err
	}
	l, err := s.load(o)
	if err != nil {
		return nil, err
	}
	defer l.end()
	before, memory := measure.Read(s.run.Roots()...), measure.Resident(s.run.Roots()...)
	var out outcome
	if err := l.finish(&out.Result); err != nil {
		return nil, err
	}
	out.cost = measure.Read(s.run.Roots()...).Sub(before)
	out.resident = measure.Resident(s.run.Roots()...) - memory
	if out.Errors > out.Requests/1000 {
		return nil, fmt.Errorf("%s: %d of %d failed: %s", o.Test, out.Errors, out.Requests, out.Error)
	}
	return &out, s.crossedBy(o.Test, crossed, out.Bytes)
}

// crossings reads what each device has received so far in the load's direction.
func (s *stand) crossings(test string) ([]int64, error) {
	var sum []int64
	for n := 1; n <= s.topo.Devices; n++ {
		bytes, err := s.topo.DeviceBytes(n, test == "down")
		if err != nil {
			return nil, err
		}
		sum = append(sum, bytes)
	}
	return sum, nil
}

// crossedBy proves that the load went through every device: nothing is compared that took a short cut.
func (s *stand) crossedBy(test string, before []int64, bytes int64) error {
	after, err := s.crossings(test)
	if err != nil {
		return err
	}
	for i := range after {
		if got := after[i] - before[i]; got < bytes {
			return fmt.Errorf("%s: only %d of %d bytes crossed device %d", test, got, bytes, i+1)
		}
	}
	return nil
}

// load starts a load process in the client's namespace.
func (s *stand) load(o load.Options) (*child, error) {
	o.Target = s.peer.Target()
	return start(s.topo, "cli", s.opts.clientCore, append([]string{"load"}, o.Args()...)...)
}
