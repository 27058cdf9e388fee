package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"sslo/monitor"
)

// maxJitter spreads the first probes of many targets.
const maxJitter = 100 * time.Millisecond

// Runner probes one target. Its inputs may be called from any goroutine, before and during Run;
// the callback has returned when they return. The callback may ask for the Status but must not
// call an input of the same runner.
type Runner struct {
	target  Target
	logger  *slog.Logger
	report  func(monitor.Transition)
	probers []Prober
	wake    chan struct{}
	probes  sync.WaitGroup

	order   sync.Mutex // transitions are reported in the order in which they happened
	mu      sync.Mutex // guards what is below
	machine *monitor.Machine
	probed  []bool // monitors whose first result was logged
}

// NewRunner opens the target's probers in the calling thread's network namespace.
func NewRunner(t Target, logger *slog.Logger, report func(monitor.Transition)) (*Runner, error) {
	now := time.Now()
	r := &Runner{
		target: t, logger: logger.With(t.Kind, t.Name), report: report, wake: make(chan struct{}, 1),
		machine: monitor.New(t.machine(), now.Add(rand.N(maxJitter))), probed: make([]bool, len(t.Monitors)),
	}
	for _, m := range t.Monitors {
		p, err := m.Probe.Open()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s %s: monitor %s (%s): %w", t.Kind, t.Name, m.Name, m.Probe, err), r.close())
		}
		r.probers = append(r.probers, p)
	}
	return r, nil
}

// Restore begins with the state of an earlier runner. To be called before everything else.
func (r *Runner) Restore(from monitor.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.machine.Restore(time.Now(), from)
}

// Run probes until the context ends, then waits for the probes in flight and closes the probers.
func (r *Runner) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(r.step(ctx))
		select {
		case <-ctx.Done():
			r.probes.Wait()
			return r.close()
		case <-timer.C:
			r.input(func(m *monitor.Machine, now time.Time) (monitor.Transition, bool) { return m.Tick(now) })
		case <-r.wake:
		}
	}
}

// step starts what is due and tells how long there is nothing to do.
func (r *Runner) step(ctx context.Context) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, s := range r.machine.Start(now) {
		r.probes.Go(func() { r.probe(ctx, s) })
	}
	if next := r.machine.Next(); !next.IsZero() {
		return max(next.Sub(now), 0)
	}
	return time.Hour // an input or a result wakes us
}

func (r *Runner) probe(ctx context.Context, s monitor.ProbeStart) {
	limited, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	started := time.Now()
	result := r.probers[s.Monitor].Probe(limited)
	if result.Started.IsZero() {
		result.Started = started
	}
	if ctx.Err() != nil {
		return // stopped: says nothing of the target
	}
	r.logProbe(s.Monitor, result)
	r.input(func(m *monitor.Machine, now time.Time) (monitor.Transition, bool) {
		return m.Probe(now, s.Monitor, result)
	})
}

// logProbe tells the first result of each monitor, so that a device that is not there is seen at start.
func (r *Runner) logProbe(i int, result monitor.Result) {
	r.mu.Lock()
	first := !r.probed[i]
	r.probed[i] = true
	r.mu.Unlock()
	level, msg := slog.LevelDebug, "probe"
	if first {
		level, msg = slog.LevelInfo, "first probe"
	}
	m := r.target.Monitors[i]
	r.logger.Log(context.Background(), level, msg, "monitor", m.Name, "probe", m.Probe.String(),
		"ok", result.OK, "reason", result.Reason, "latency", result.Latency)
}

// Suspect starts a verification because of passive evidence.
func (r *Runner) Suspect(why string) {
	r.input(func(m *monitor.Machine, now time.Time) (monitor.Transition, bool) { return m.Suspect(now, why) })
}

// Link takes the carrier of a link.
func (r *Runner) Link(name string, up bool) {
	r.input(func(m *monitor.Machine, now time.Time) (monitor.Transition, bool) { return m.Link(now, name, up) })
}

// Operator takes an operator's command.
func (r *Runner) Operator(c monitor.Command, who string) {
	r.input(func(m *monitor.Machine, now time.Time) (monitor.Transition, bool) { return m.Operator(now, c, who) })
}

// Status of the target.
func (r *Runner) Status() monitor.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.Status()
}

// Snapshot of the target's state.
func (r *Runner) Snapshot() monitor.Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.Snapshot()
}

func (r *Runner) input(f func(*monitor.Machine, time.Time) (monitor.Transition, bool)) {
	r.order.Lock()
	defer r.order.Unlock()
	r.mu.Lock()
	t, ok := f(r.machine, time.Now())
	r.mu.Unlock()
	if ok {
		r.log(t)
		r.report(t)
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *Runner) log(t monitor.Transition) {
	args := []any{"from", t.From, "to", t.To, "health", t.Health, "reason", t.Why}
	if t.Hold > 0 {
		args = append(args, "hold", t.Hold)
	}
	switch {
	case t.Damped:
		r.logger.Warn("state flaps, damped", args...)
	case t.Changed():
		r.logger.Info("state changed", args...)
	default:
		r.logger.Info("state noted", args...)
	}
}

func (r *Runner) close() error {
	var errs []error
	for _, p := range r.probers {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
