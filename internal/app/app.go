// Package app owns the life of the daemon: it turns a configuration into the plans of the session
// plane, the proxies and the monitors, starts and stops them in order, carries news from one to the
// other, and replaces the configuration while all of them run. It steers no packet, probes nothing and
// reads no TLS itself.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sslo/admin"
	"sslo/admin/api"
	"sslo/config"
	"sslo/datapath"
	"sslo/monitor"
	"sslo/monitor/probe"
	"sslo/proxy"
)

// Options of Run.
type Options struct {
	File    string // the configuration
	Version string
	Keep    bool          // leave the session plane in place at the end, for the next daemon to adopt
	Drain   time.Duration // how long open connections may take at the end
	Logger  *slog.Logger  // nil: as the configuration says, to standard error
	Hangup  <-chan struct{}
	Abort   <-chan struct{} // do not wait for open connections any longer
}

// firstProbes bounds how long the start waits for the first results.
const firstProbes = 3 * time.Second

// App is the running daemon.
type App struct {
	opts    Options
	log     *slog.Logger
	started time.Time
	adopted bool
	dp      *datapath.Datapath
	proxy   *proxy.Proxy
	devices *probe.Set
	servers *probe.Set
	routes  *routes
	events  *eventLog
	traces  traces
	store   *store
	admin   *admin.Server

	reloading sync.Mutex
	stopping  bool               // no more reloads; guarded by reloading, as is linger
	linger    []datapath.Address // of virtual servers that are gone, until their connections are
	current   atomic.Pointer[generation]

	loops sync.WaitGroup
	stop  context.CancelFunc // ends the loops
}

// generation is a configuration in force.
type generation struct {
	config *config.Config
	plan   datapath.Plan
	loaded time.Time
}

// Run is the daemon, until ctx ends.
func Run(ctx context.Context, o Options) error {
	cfg, err := config.Load(o.File)
	if err != nil {
		return err
	}
	a := newApp(cfg, o)
	for _, w := range cfg.Warnings {
		a.log.Warn("configuration", "reason", w.Error())
	}
	if err := a.start(ctx, cfg); err != nil {
		return errors.Join(err, a.end(a.adopted)) // sessions of before are not this daemon's to end
	}
	a.log.Info("running", "version", o.Version, "config", o.File, "adopted", a.adopted, "took", time.Since(a.started).Round(time.Millisecond))
	a.events.add(api.Event{Kind: kindDaemon, Message: "daemon started" + map[bool]string{true: ", kernel state adopted"}[a.adopted]})
	a.wait(ctx)
	a.log.Info("stopping", "drain", o.Drain, "keep", o.Keep)
	a.drain()
	err = a.end(o.Keep)
	a.log.Info("stopped", "err", err)
	return err
}

func newApp(cfg *config.Config, o Options) *App {
	log := o.Logger
	if log == nil {
		log = newLogger(cfg.Log)
	}
	a := &App{opts: o, log: log, started: time.Now(), events: newEventLog()}
	a.devices = probe.NewSet(log, a.deviceChanged)
	a.servers = probe.NewSet(log, a.serverChanged)
	return a
}

// start brings everything up in the order of dependence: nothing takes connections before the session
// plane stands and the first probes have been answered.
func (a *App) start(ctx context.Context, cfg *config.Config) error {
	var err error
	if a.store, err = openStore(cfg.System.StateDir); err != nil {
		return err
	}
	if a.dp, err = datapath.Open(datapath.Options{PinPath: cfg.System.PinPath, StateDir: cfg.System.RunDir, Logger: a.log}); err != nil {
		return fmt.Errorf("session plane: %w", err)
	}
	a.adopted = a.dp.Adopted()
	g := &generation{config: cfg, plan: plan(cfg), loaded: time.Now()}
	if err := a.dp.Apply(ctx, g.plan); err != nil {
		return fmt.Errorf("session plane: %w", err)
	}
	a.routes = newRoutes(a.dp.ChainMark)
	a.current.Store(g)
	if err := a.adopt(cfg); err != nil {
		return err
	}
	a.routes.setPlan(g.plan)
	a.startLoops()
	if err := a.startMonitors(ctx, cfg); err != nil {
		return err
	}
	if err := a.startProxy(cfg); err != nil {
		return err
	}
	return a.serveAdmin(cfg.Admin.Socket) // last: who can connect finds everything running
}

// adopt gives each device the state it had: in the kernel, and by the operator's decision.
func (a *App) adopt(cfg *config.Config) error {
	var snapshots []monitor.Snapshot
	for _, d := range cfg.Devices {
		st, ok := a.dp.DeviceStatus(d.Name)
		adopted := monitor.Snapshot{Name: d.Name, Since: a.started, Changed: a.started}
		if ok {
			adopted = monitor.Adopt(a.started, d.Name, st)
		}
		snap := a.store.snapshot(d.Name, adopted)
		if err := a.setDevice(d.Name, statusOf(snap)); err != nil {
			return err
		}
		if snap.Health != monitor.Unknown || snap.Operator != monitor.Unknown {
			snapshots = append(snapshots, snap)
		}
	}
	a.devices.Restore(snapshots)
	return nil
}

func (a *App) startMonitors(ctx context.Context, cfg *config.Config) error {
	if err := a.devices.Reload(deviceTargets(cfg)); err != nil {
		return fmt.Errorf("monitors: %w", err)
	}
	a.refreshServers(cfg)
	if err := a.servers.Reload(serverTargets(cfg)); err != nil {
		return fmt.Errorf("monitors: %w", err)
	}
	a.awaitProbes(ctx)
	return nil
}

func (a *App) startProxy(cfg *config.Config) error {
	p, err := proxy.New(proxyConfig(cfg), proxy.Deps{Logger: a.log, Chains: a.routes, Health: a.routes, Hops: hops{a.dp},
		FrontLink: a.dp.FrontLink(), BackLink: a.dp.BackLink(), RegisterBack: a.dp.RegisterBackListener})
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	if err := p.Start(); err != nil {
		return errors.Join(fmt.Errorf("proxy: %w", err), p.Shutdown(expired()))
	}
	a.proxy = p
	return nil
}

func (a *App) serveAdmin(socket string) error {
	listener, err := admin.Listen(socket)
	if err != nil {
		return err
	}
	a.admin = admin.New(admin.Deps{Logger: a.log, Sessions: sessions{a}, State: state{a}, Control: a})
	a.loops.Go(func() {
		if err := a.admin.Serve(listener); err != nil {
			a.log.Error("admin API", "err", err)
		}
	})
	return nil
}

// wait returns when the daemon is to stop.
func (a *App) wait(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.opts.Hangup:
			a.hangup(ctx)
		}
	}
}

// drain gives open connections time to end; everything still runs meanwhile.
func (a *App) drain() {
	a.reloading.Lock() // one that is under way ends first
	a.stopping = true
	a.reloading.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), a.opts.Drain)
	defer cancel()
	go func() {
		select {
		case <-a.opts.Abort:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := a.proxy.Shutdown(ctx); err != nil {
		a.log.Warn("open connections were aborted", "err", err)
	}
}

// end takes down whatever start brought up, in the reverse order.
func (a *App) end(keep bool) error {
	var errs []error
	if a.proxy != nil {
		a.proxy.Shutdown(expired())
	}
	if a.store != nil && a.current.Load() != nil {
		errs = append(errs, a.store.save(a.devices.Snapshot()))
	}
	errs = append(errs, a.devices.Close(), a.servers.Close(), a.endAdmin())
	if a.stop != nil {
		a.stop()
	}
	a.loops.Wait()
	if a.dp != nil {
		errs = append(errs, a.endDatapath(keep))
	}
	return errors.Join(errs...)
}

func (a *App) endAdmin() error {
	if a.admin == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := a.admin.Shutdown(ctx); err != nil {
		return fmt.Errorf("admin API: %w", err)
	}
	return nil
}

func (a *App) endDatapath(keep bool) error {
	if keep {
		return a.dp.Close()
	}
	return a.dp.Teardown()
}

// expired is a context for ends that wait for nothing.
func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
