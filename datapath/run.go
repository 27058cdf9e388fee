package datapath

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	heartbeatEvery = time.Second
	gcEvery        = time.Second
	gcShare        = 20 // collecting takes at most one part of this many of the time
)

// Run collects garbage, writes the heartbeat, delivers events and link changes, resets sessions
// that the programs ask to be reset and wakes streams that a device let down, until ctx is done. It needs a kernel side: call it
// after Apply.
func (d *Datapath) Run(ctx context.Context) error {
	k, err := d.loaded()
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.readEvents(ctx, k) })
	g.Go(func() error { d.watchLinks(ctx); return nil })
	g.Go(func() error { return d.beat(ctx) })
	g.Go(func() error { d.collect(ctx); return nil })
	g.Go(func() error { d.attendTo(ctx, k); return nil })
	return g.Wait()
}

// beat tells the programs that somebody probes.
func (d *Datapath) beat(ctx context.Context) error {
	t := time.NewTicker(heartbeatEvery)
	defer t.Stop()
	for {
		if err := d.heartbeat(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

func (d *Datapath) heartbeat() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.settings.Layout == 0 {
		return nil // adopted, no plan yet: the settings are not ours to write
	}
	d.settings.HeartbeatNs = uint64(Now())
	if err := d.kernel.Settings.Put(uint32(0), d.settings); err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	return nil
}

// collect collects every second, less often when a huge table makes it slow.
func (d *Datapath) collect(ctx context.Context) {
	for ctx.Err() == nil {
		st, err := d.CollectGarbage(Now())
		if err != nil {
			d.log.Warn("garbage collection failed", "err", err)
		}
		if st.Removed > 0 {
			d.log.Debug("sessions collected", "removed", st.Removed, "sessions", st.Sessions, "took", st.Took)
		}
		sleep(ctx, st.pause())
	}
}

// pause is the time until the next collection. What that one takes is guessed from what it will find.
func (st *GCStats) pause() time.Duration {
	left := 1.0
	if st.Sessions > 0 {
		left = float64(st.Sessions-st.Removed) / float64(st.Sessions)
	}
	return max(gcEvery, time.Duration(gcShare*left*float64(st.Took)))
}
