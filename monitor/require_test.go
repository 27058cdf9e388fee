package monitor

import (
	"strings"
	"testing"
	"time"

	"sslo/chain"
)

func required(n int, names ...string) Target {
	t := Target{Name: "x", Require: n}
	for _, name := range names {
		t.Monitors = append(t.Monitors, Monitor{Name: name, Config: DeviceDefaults})
	}
	return t
}

func TestRequire(t *testing.T) {
	tests := []struct {
		name    string
		require int
		bad     []bool
		want    State
		why     string
	}{
		{"all, one fails", 0, []bool{false, true, false}, Down, "b: "},
		{"two of three, one fails", 2, []bool{false, true, false}, Up, ""},
		{"two of three, two fail", 2, []bool{true, true, false}, Down, "2 of 3 monitors fail, 2 must pass: a: "},
		{"any, two fail", 1, []bool{true, true, false}, Up, ""},
		{"any, all fail", 1, []bool{true, true, true}, Down, "3 of 3 monitors fail, 1 must pass: "},
		{"more than there are is all", 9, []bool{true, false, false}, Down, "a: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSim(t, required(tt.require, "a", "b", "c"))
			s.run(3 * time.Second)
			s.answer = func(m int, _ time.Time) (bool, time.Duration) { return !tt.bad[m], time.Millisecond }
			s.run(5 * time.Second)
			if st := s.m.Status(); st.State != tt.want || tt.why != "" && !strings.HasPrefix(st.Why, tt.why) {
				t.Errorf("%s: %s", st.State, st.Why)
			}
			s.good()
			if s.run(30 * time.Second); s.m.State() != Up {
				t.Errorf("%s after everything was good again", s.m.State())
			}
		})
	}
}

// One of several that must be good is enough to begin with, as it is to go on.
func TestRequireAtStart(t *testing.T) {
	s := newSim(t, required(1, "a", "b"))
	s.answer = func(m int, _ time.Time) (bool, time.Duration) { return m == 1, time.Millisecond }
	if s.run(100 * time.Millisecond); s.m.State() != Up {
		t.Errorf("%s", s.m.State())
	}
}

func TestDegraded(t *testing.T) {
	target := required(0, "path", "blocks")
	target.Monitors[1].Degrades = true
	s := newSim(t, target)
	s.run(2 * time.Second)
	s.answer = func(m int, _ time.Time) (bool, time.Duration) { return m == 0, time.Millisecond }
	s.run(4 * time.Second)
	st := s.m.Status()
	if st.State != Degraded || st.Health != Up || !strings.HasPrefix(st.Why, "blocks: ") {
		t.Fatalf("%s/%s: %s", st.State, st.Health, st.Why)
	}
	if got := st.DeviceStatus(); got.Service != chain.Full {
		t.Errorf("a degraded device gets %v", got)
	}
	fresh := New(target, s.now)
	if fresh.Restore(s.now, throughJSON(t, s.m.Snapshot())); fresh.State() != Degraded {
		t.Errorf("restored as %s", fresh.State())
	}
	s.good()
	s.run(10 * time.Second)
	if st := s.m.Status(); st.State != Up || st.Why != "no longer degraded" {
		t.Errorf("%s: %s", st.State, st.Why)
	}
	s.silent()
	if s.run(10 * time.Second); s.m.State() != Down {
		t.Errorf("%s", s.m.State())
	}
}
