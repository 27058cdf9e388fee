package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sslo/admin/api"
	"sslo/chain"
	"sslo/config"
	"sslo/datapath"
	"sslo/monitor"
)

// How often news is looked for that nobody sends.
const (
	floodEvery   = 200 * time.Millisecond
	minSuspicion = 5 * time.Millisecond
	maxSuspicion = 50 * time.Millisecond
	retryAfter   = time.Second
)

// startLoops carries news between the planes until end.
func (a *App) startLoops() {
	ctx, cancel := context.WithCancel(context.Background())
	a.stop = cancel
	for _, loop := range []func(context.Context){a.runDatapath, a.watchSessions, a.watchLinks, a.watchSuspicions, a.watchLingering, a.watchSlowStarts} {
		a.loops.Go(func() { loop(ctx) })
	}
}

// runDatapath keeps the heartbeat, the garbage collection and the events going, whatever happens to them.
func (a *App) runDatapath(ctx context.Context) {
	for {
		err := a.dp.Run(ctx)
		if ctx.Err() != nil {
			return
		}
		a.log.Error("session plane: running it again", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

func (a *App) watchSessions(ctx context.Context) {
	f := newFlood(a.log, a.events)
	tick := time.NewTicker(floodEvery)
	defer tick.Stop()
	defer f.flush()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-a.dp.Events():
			f.add(e)
			a.traces.event(&e)
		case <-tick.C:
			f.flush()
		}
	}
}

// watchLinks hears of each link once, and then of changes.
func (a *App) watchLinks(ctx context.Context) {
	known := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-a.dp.LinkChanges():
			if was, ok := known[c.Link]; !ok && !c.Up || ok && was != c.Up {
				a.linkChanged(c)
			}
			known[c.Link] = c.Up
			a.devices.Link(c.Link, c.Up)
		}
	}
}

func (a *App) linkChanged(c datapath.LinkChange) {
	a.log.Info("link changed", "link", c.Link, "up", c.Up, "carrier", c.Carrier)
	a.events.add(api.Event{Time: c.At, Kind: kindLink, Link: c.Link, Message: fmt.Sprintf("link %s is %s", c.Link, upDown(c.Up)), To: upDown(c.Up)})
}

func upDown(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

// watchSuspicions has devices probed at once that keep what they are sent.
func (a *App) watchSuspicions(ctx context.Context) {
	for {
		after := a.current.Load().config.System.SuspectAfter
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(max(after/4, minSuspicion), maxSuspicion)):
		}
		suspicions, err := a.dp.Suspicions(after)
		if err != nil {
			a.log.Debug("suspicions", "err", err)
		}
		for _, s := range suspicions {
			why := fmt.Sprintf("returned nothing for %s (%s)", s.Waiting.Round(time.Millisecond), s.Direction)
			a.devices.Suspect(s.Device, why) // a device that a reload just removed is no loss
		}
	}
}

// deviceChanged is called by the monitors, in order for each device.
func (a *App) deviceChanged(t monitor.Transition) {
	if err := a.setDevice(t.Target, t.DeviceStatus()); err != nil {
		a.log.Error("device status", "device", t.Target, "err", err)
	}
	a.events.transition(kindDevice, t)
	a.events.count("device-"+t.To.String(), 1)
	if err := a.store.save(a.devices.Snapshot()); err != nil {
		a.log.Warn("device state was not saved", "err", err)
	}
}

func (a *App) setDevice(name string, st chain.DeviceStatus) error {
	if err := a.dp.SetDevice(name, st); err != nil {
		return fmt.Errorf("device %s: %w", name, err)
	}
	a.routes.setDevice(name, st)
	return nil
}

func (a *App) serverChanged(t monitor.Transition) {
	a.events.transition(kindServer, t)
	a.refreshServers(a.current.Load().config)
}

// refreshServers makes the proxies take only members that are up, or that nobody monitors.
func (a *App) refreshServers(cfg *config.Config) {
	sick := map[string]bool{}
	for _, t := range serverTargets(cfg) {
		if st, ok := a.servers.Get(t.Name); !ok || st.State != monitor.Up && st.State != monitor.Suspect {
			sick[t.Name] = true
		}
	}
	a.routes.setServers(sick)
}

// awaitProbes waits until everything was probed once, so that the first connections find devices and servers.
func (a *App) awaitProbes(ctx context.Context) {
	deadline := time.After(firstProbes)
	for {
		waiting := unprobed(a.devices.Status()) + unprobed(a.servers.Status())
		if waiting == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-deadline:
			a.log.Warn("starting before the first probes were answered", "targets", waiting)
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func unprobed(targets []monitor.Status) int {
	n := 0
	for _, t := range targets {
		if len(t.Checks) == 0 && t.Health == monitor.Unknown || slices.ContainsFunc(t.Checks, never) {
			n++
		}
	}
	return n
}

func never(c monitor.CheckStatus) bool { return c.Probed.IsZero() }
