package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"sslo/test/bench/forward"
	"sslo/test/bench/load"
	"sslo/test/bench/measure"
	"sslo/test/bench/topo"
)

const forwardBytes = 4 << 30

// forwards compares the session plane with plain Linux bridges that join the same chain.
func (b *bench) forwards(ctx context.Context) {
	for _, devices := range b.devices {
		if devices == 0 {
			continue
		}
		for range b.repeat {
			b.fail(b.forward(ctx, devices, false, false))
			b.fail(b.forward(ctx, devices, true, false))
		}
		b.fail(b.forward(ctx, devices, false, true))
	}
}

// forward moves plain TCP through the chain once. With stats it notes the programs' run time instead of
// the cost, because counting costs time.
func (b *bench) forward(ctx context.Context, devices int, joined, stats bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	dir, err := os.MkdirTemp("/dev/shm", "sslo-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fs := filepath.Join(dir, "bpf")
	if err := errors.Join(os.Mkdir(fs, 0o755), syscall.Mount("bpf", fs, "bpf", 0, "")); err != nil {
		return err
	}
	defer func() { _ = syscall.Unmount(fs, syscall.MNT_DETACH) }()
	stands++
	t := &topo.Topology{Prefix: fmt.Sprintf("sb%d-%d-", os.Getpid(), stands), Devices: devices, Congestion: b.congestion, Joined: joined}
	defer t.Down()
	if err := t.Up(); err != nil {
		return err
	}
	o, ns := forward.Options{Devices: devices, Bytes: forwardBytes, Dir: dir}, "box"
	if joined {
		o.Server, ns = t.NS("srv"), "cli"
	}
	c, err := start(t, ns, b.peerCore, append([]string{"forward"}, o.Args()...)...)
	if err != nil {
		return err
	}
	defer c.end()
	if stats {
		return b.programs(t, c)
	}
	return b.cost(t, c, joined)
}

func (b *bench) cost(t *topo.Topology, c *child, joined bool) error {
	pid := c.cmd.Process.Pid
	before := measure.Read(pid)
	if err := transfer(t, c); err != nil {
		return err
	}
	name := "sslo"
	if joined {
		name = "bridges"
	}
	spent := measure.Read(pid).Sub(before).Total()
	b.add("forwarding alone, plain TCP", "CPU s/GB", t.Devices, name, spent.Seconds()/(forwardBytes/1e9))
	return nil
}

func (b *bench) programs(t *topo.Topology, c *child) error {
	restore, err := measure.EnableProgramStats()
	if err != nil {
		return err
	}
	defer restore()
	before, err := measure.ReadPrograms(c.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := transfer(t, c); err != nil {
		return err
	}
	after, err := measure.ReadPrograms(c.cmd.Process.Pid)
	if err != nil {
		return err
	}
	ran := after.Sub(before)
	if ran.Runs == 0 {
		return errors.New("no eBPF program ran")
	}
	b.add("eBPF run time of one packet on one link", "ns", t.Devices, "sslo", float64(ran.Nanoseconds)/float64(ran.Runs))
	return nil
}

// transfer runs the child and proves that the bytes crossed every device.
func transfer(t *topo.Topology, c *child) error {
	var result load.Result
	if err := c.finish(&result); err != nil {
		return err
	}
	for n := 1; n <= t.Devices; n++ {
		got, err := t.DeviceBytes(n, false)
		if err != nil {
			return err
		}
		if got < result.Bytes {
			return fmt.Errorf("only %d of %d bytes crossed device %d", got, result.Bytes, n)
		}
	}
	return nil
}
