package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"sslo/monitor"
)

// ErrNoTarget: the set has no target of that name.
var ErrNoTarget = errors.New("no such target")

// Set runs targets by name and keeps their state across reloads.
type Set struct {
	logger *slog.Logger
	report func(monitor.Transition)

	serial sync.Mutex // one reload or input at a time; never held by Status
	kept   map[string]monitor.Snapshot
	links  map[string]bool // last carrier of each link, for targets yet to come

	mu      sync.Mutex // guards running; held for a moment only
	running map[string]*running
}

type running struct {
	*Runner
	stop func() error
}

// NewSet is an empty set. The callback gets the transitions of all targets, those of one target
// in order; it must not call back into the set except for Status and Snapshot.
func NewSet(logger *slog.Logger, report func(monitor.Transition)) *Set {
	return &Set{logger: logger, report: report, running: map[string]*running{},
		kept: map[string]monitor.Snapshot{}, links: map[string]bool{}}
}

// Restore keeps states for the targets of the next Reload: those of a daemon that ran before.
func (s *Set) Restore(snapshots []monitor.Snapshot) {
	s.serial.Lock()
	defer s.serial.Unlock()
	for _, snap := range snapshots {
		s.kept[snap.Name] = snap
	}
}

// Reload makes the set run these targets. One that did not change is left alone, one that
// changed begins with the state it had. On error nothing has changed.
func (s *Set) Reload(targets []Target) error {
	s.serial.Lock()
	defer s.serial.Unlock()
	fresh, err := s.open(targets)
	if err != nil {
		return err
	}
	err = s.stopAll(func(name string) bool {
		return fresh[name] != nil || !slices.ContainsFunc(targets, func(t Target) bool { return t.Name == name })
	})
	for name, r := range fresh {
		s.start(name, r)
	}
	clear(s.kept)
	return err
}

// open makes runners of the targets that are new or changed.
func (s *Set) open(targets []Target) (map[string]*Runner, error) {
	fresh := map[string]*Runner{}
	fail := func(err error) (map[string]*Runner, error) {
		for _, r := range fresh {
			err = errors.Join(err, r.close())
		}
		return nil, err
	}
	seen := map[string]bool{}
	for _, t := range targets {
		if seen[t.Name] {
			return fail(fmt.Errorf("two targets named %s", t.Name))
		}
		seen[t.Name] = true
		if old := s.get(t.Name); old != nil && old.target.same(t) {
			continue
		}
		r, err := NewRunner(t, s.logger, s.report)
		if err != nil {
			return fail(err)
		}
		fresh[t.Name] = r
	}
	return fresh, nil
}

// stopAll stops the targets that match and keeps their state.
func (s *Set) stopAll(match func(name string) bool) error {
	s.mu.Lock()
	stop := maps.Clone(s.running)
	maps.DeleteFunc(stop, func(name string, _ *running) bool { return !match(name) })
	maps.DeleteFunc(s.running, func(name string, _ *running) bool { return match(name) })
	s.mu.Unlock()
	var errs []error
	for name, r := range stop {
		errs = append(errs, r.stop())
		s.kept[name] = r.Snapshot()
	}
	return errors.Join(errs...)
}

func (s *Set) start(name string, r *Runner) {
	if snap, ok := s.kept[name]; ok {
		r.Restore(snap)
	}
	for link, up := range s.links {
		r.Link(link, up)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[name] = &running{Runner: r, stop: func() error { cancel(); return <-done }}
}

func (s *Set) get(name string) *running {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[name]
}

// all gives the running targets by name.
func (s *Set) all() []*running {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.running))
	list := make([]*running, len(names))
	for i, name := range names {
		list[i] = s.running[name]
	}
	return list
}

// Suspect starts a verification of a target because of passive evidence.
func (s *Set) Suspect(name, why string) error {
	return s.one(name, func(r *running) { r.Suspect(why) })
}

// Operator gives a target an operator's command.
func (s *Set) Operator(name string, c monitor.Command, who string) error {
	return s.one(name, func(r *running) { r.Operator(c, who) })
}

func (s *Set) one(name string, f func(*running)) error {
	s.serial.Lock()
	defer s.serial.Unlock()
	r := s.get(name)
	if r == nil {
		return fmt.Errorf("%w: %s", ErrNoTarget, name)
	}
	f(r)
	return nil
}

// Link tells every target that has the link its carrier.
func (s *Set) Link(link string, up bool) {
	s.serial.Lock()
	defer s.serial.Unlock()
	s.links[link] = up
	for _, r := range s.all() {
		r.Link(link, up)
	}
}

// Status of all targets, by name.
func (s *Set) Status() []monitor.Status {
	var list []monitor.Status
	for _, r := range s.all() {
		list = append(list, r.Status())
	}
	return list
}

// Get is the status of one target.
func (s *Set) Get(name string) (monitor.Status, bool) {
	if r := s.get(name); r != nil {
		return r.Status(), true
	}
	return monitor.Status{}, false
}

// Snapshot of all targets, by name, for Restore in the next daemon.
func (s *Set) Snapshot() []monitor.Snapshot {
	var list []monitor.Snapshot
	for _, r := range s.all() {
		list = append(list, r.Snapshot())
	}
	return list
}

// Close stops everything.
func (s *Set) Close() error {
	s.serial.Lock()
	defer s.serial.Unlock()
	return s.stopAll(func(string) bool { return true })
}
