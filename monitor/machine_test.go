package monitor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sslo/chain"
	"sslo/session"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// sim runs a machine against simulated probes: answer says how a probe started at a time ends.
// A silent target lets probes run into their timeout.
type sim struct {
	t      *testing.T
	m      *Machine
	now    time.Time
	answer func(monitor int, at time.Time) (ok bool, after time.Duration)
	flying []flight
	log    []Transition
	probes int
}

type flight struct {
	monitor int
	lands   time.Time
	result  Result
}

const silent = time.Duration(1 << 60)

func newSim(t *testing.T, target Target) *sim {
	s := &sim{t: t, m: New(target, start), now: start}
	s.good()
	return s
}

func (s *sim) good() {
	s.answer = func(int, time.Time) (bool, time.Duration) { return true, time.Millisecond }
}
func (s *sim) silent() {
	s.answer = func(int, time.Time) (bool, time.Duration) { return false, silent }
}
func (s *sim) refuse() {
	s.answer = func(int, time.Time) (bool, time.Duration) { return false, time.Millisecond }
}

func (s *sim) take(t Transition, ok bool) {
	if ok {
		s.log = append(s.log, t)
	}
}

// run lets time pass.
func (s *sim) run(d time.Duration) {
	end := s.now.Add(d)
	for {
		s.launch()
		at := end
		if next := s.m.Next(); !next.IsZero() && next.Before(at) && next.After(s.now) {
			at = next
		}
		i := s.landing()
		if i >= 0 && !s.flying[i].lands.After(at) {
			f := s.flying[i]
			s.flying = slices.Delete(s.flying, i, i+1)
			s.now = f.lands
			s.take(s.m.Probe(s.now, f.monitor, f.result))
			continue
		}
		s.now = at
		s.take(s.m.Tick(s.now))
		if !at.Before(end) {
			return
		}
		s.launch()
		if next := s.m.Next(); !next.IsZero() && !next.After(s.now) {
			s.t.Fatal("a runner would spin: nothing started or changed, and still due")
		}
	}
}

func (s *sim) launch() {
	for _, p := range s.m.Start(s.now) {
		s.probes++
		ok, after := s.answer(p.Monitor, s.now)
		reason := "refused"
		if after >= p.Timeout {
			ok, after, reason = false, p.Timeout, "no answer in time"
		}
		r := Result{OK: ok, Started: s.now, Latency: after}
		if !ok {
			r.Reason = reason
		}
		s.flying = append(s.flying, flight{p.Monitor, s.now.Add(after), r})
	}
}

func (s *sim) landing() int {
	best := -1
	for i := range s.flying {
		if best < 0 || s.flying[i].lands.Before(s.flying[best].lands) {
			best = i
		}
	}
	return best
}

// want checks the states of the transitions since the last want.
func (s *sim) want(states ...State) {
	s.t.Helper()
	var got []State
	for _, t := range s.log {
		got = append(got, t.To)
	}
	if !slices.Equal(got, states) {
		s.t.Fatalf("transitions to %v, want %v; log %+v", got, states, s.log)
	}
	s.log = nil
}

func (s *sim) last() Transition { s.t.Helper(); return s.log[len(s.log)-1] }

func device(names ...string) Target {
	t := Target{Name: "ips1", Links: []string{"a1", "a2"}}
	for _, n := range names {
		t.Monitors = append(t.Monitors, Monitor{Name: n, Config: DeviceDefaults})
	}
	return t
}

func TestStartsUnknownAndFirstGoodProbeIsEnough(t *testing.T) {
	s := newSim(t, device("path"))
	if s.m.State() != Unknown {
		t.Fatal(s.m.State())
	}
	s.refuse()
	s.run(1500 * time.Millisecond) // two bad ones
	s.want()
	s.good()
	s.run(time.Second)
	s.want(Up)
}

func TestAllMonitorsMustBeGood(t *testing.T) {
	s := newSim(t, device("path", "icmp"))
	s.answer = func(m int, _ time.Time) (bool, time.Duration) { return m == 0, time.Millisecond }
	s.run(1500 * time.Millisecond)
	s.want()
	s.run(time.Second) // the third bad icmp probe
	if why := s.last().Why; !strings.Contains(why, "icmp: refused (3 in a row)") {
		t.Error(why)
	}
	s.want(Down)
}

func TestFallRiseHoldDown(t *testing.T) {
	s := newSim(t, device("path"))
	s.run(3 * time.Second)
	s.want(Up)
	s.silent()
	s.run(2800 * time.Millisecond) // probes at 3, 4, 5 s end at 3.9, 4.9, 5.9 s
	s.want()
	s.run(200 * time.Millisecond)
	if d := s.last(); d.Hold != 10*time.Second || d.At.Sub(start) != 5900*time.Millisecond {
		t.Errorf("%+v", d)
	}
	s.want(Down)
	s.good()
	s.run(9800 * time.Millisecond) // until 15.8 s: many good probes, but held
	s.want()
	s.run(200 * time.Millisecond)
	if at := s.last().At.Sub(start); at != 15900*time.Millisecond {
		t.Errorf("up at %v, not when the hold ended", at)
	}
	s.want(Up)
}

func TestRiseCountsGoodProbesInARow(t *testing.T) {
	target := device("path")
	target.Monitors[0].HoldDown = 0
	s := newSim(t, target)
	s.run(time.Second)
	s.refuse()
	s.run(4 * time.Second)
	s.want(Up, Down)
	s.good()
	s.run(4 * time.Second)
	s.refuse()
	s.run(time.Second)
	s.good()
	s.run(4 * time.Second) // 4 good, 1 bad, 4 good
	s.want()
	s.run(time.Second)
	s.want(Up)
}

func TestLinkDownIsDownAtOnceAndUpNeedsRise(t *testing.T) {
	s := newSim(t, device("path"))
	s.run(time.Second)
	s.take(s.m.Link(s.now, "a2", true))
	s.take(s.m.Link(s.now, "elsewhere", false))
	s.want(Up)
	s.take(s.m.Link(s.now, "a2", false))
	if why := s.last().Why; why != "link a2 down" {
		t.Error(why)
	}
	s.want(Down)
	s.run(11 * time.Second) // held long enough, and the probes even pass
	s.want()
	s.take(s.m.Link(s.now, "a2", true))
	s.want()
	s.run(3900 * time.Millisecond) // probes at once, then each second: the fifth comes at 4 s
	s.want()
	s.run(200 * time.Millisecond)
	s.want(Up)
}

func TestWithoutMonitorsCarrierDecides(t *testing.T) {
	s := newSim(t, device())
	s.run(time.Minute)
	s.take(s.m.Link(s.now, "a1", true))
	s.want()
	s.take(s.m.Link(s.now, "a2", true))
	s.want(Up)
	s.take(s.m.Link(s.now, "a1", false))
	s.take(s.m.Link(s.now, "a1", true))
	s.want(Down)
	s.run(9 * time.Second)
	s.want()
	s.run(2 * time.Second)
	s.want(Up)
}

func TestSuspicionConfirmedWithinVerify(t *testing.T) {
	s := newSim(t, device("path"))
	s.run(1500 * time.Millisecond)
	s.want(Up)
	s.silent()
	s.take(s.m.Suspect(s.now, "sent but nothing returned for 100ms"))
	s.want(Suspect)
	at := s.now
	s.run(time.Second)
	if d := s.last(); d.At.Sub(at) > 150*time.Millisecond || !strings.Contains(d.Why, "nothing returned") {
		t.Errorf("down after %v: %s", d.At.Sub(at), d.Why)
	}
	s.want(Down)
	probes := s.probes
	s.run(time.Second)
	if n := s.probes - probes; n > 1 {
		t.Errorf("%d probes in a second after the verdict", n)
	}
	s.good()
	s.run(time.Minute)
	s.take(s.m.Suspect(s.now, "again"))
	s.want(Up, Suspect)
}

// Results that were overtaken count for nothing.
func TestStaleResults(t *testing.T) {
	m := New(device("path"), start)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	m.Probe(at(10), 0, Result{OK: true, Started: at(5)})
	for i := range 5 { // probes from before the success run into their timeout
		m.Probe(at(20+i), 0, Result{Reason: "r", Started: at(4)})
	}
	if m.State() != Up {
		t.Error("old failures took it down")
	}
	m.Link(at(100), "a1", false)
	m.Link(at(200), "a1", true)
	m.Operator(at(300), Enable, "x") // no hold
	for i := range 5 {
		m.Probe(at(301+i), 0, Result{OK: true, Started: at(99)})
	}
	if m.State() != Down {
		t.Error("successes from before the fall brought it up")
	}
}

// A busy device that answers late, but before the verification ends, is no dead device.
func TestSuspicionClearedByASlowAnswer(t *testing.T) {
	s := newSim(t, device("path", "icmp"))
	s.run(1500 * time.Millisecond)
	s.answer = func(int, time.Time) (bool, time.Duration) { return true, 140 * time.Millisecond }
	s.take(s.m.Suspect(s.now, "x"))
	s.run(time.Second)
	s.want(Up, Suspect, Up)
}

// A success that began before the suspicion says nothing.
func TestSuspicionNotClearedByAnOlderProbe(t *testing.T) {
	s := newSim(t, device("path"))
	s.run(1500 * time.Millisecond)
	s.answer = func(int, time.Time) (bool, time.Duration) { return true, 50 * time.Millisecond }
	s.run(520 * time.Millisecond) // one in flight
	s.silent()
	s.take(s.m.Suspect(s.now, "x"))
	s.run(100 * time.Millisecond)
	s.want(Up, Suspect)
	s.run(100 * time.Millisecond)
	s.want(Down)
}

// The device answers probes but loses data, so passive evidence comes again and again.
func TestVainSuspicionsAreDampedOnce(t *testing.T) {
	s := newSim(t, device("path"))
	s.run(time.Second)
	damped := 0
	for range 3000 {
		s.take(s.m.Suspect(s.now, "nothing returned"))
		s.run(20 * time.Millisecond)
	}
	for _, l := range s.log {
		if l.Damped {
			damped++
		}
	}
	if damped != 1 || len(s.log) > 1+2*DeviceDefaults.FlapMax {
		t.Errorf("%d damped of %d transitions: %+v", damped, len(s.log), s.log)
	}
	if s.m.State() != Up || s.probes > 150 {
		t.Errorf("state %v, %d probes a minute", s.m.State(), s.probes)
	}
	s.log = nil
	s.silent() // still verified fast when it dies at last
	at := s.now
	for len(s.log) == 0 {
		s.take(s.m.Suspect(s.now, "nothing returned"))
		s.run(10 * time.Millisecond)
	}
	if d := s.now.Sub(at); d > DeviceDefaults.Interval+200*time.Millisecond {
		t.Errorf("death noticed after %v", d)
	}
	s.want(Down)
	s.good()
	s.run(2 * time.Minute)
	s.take(s.m.Suspect(s.now, "after a quiet time"))
	s.want(Up, Suspect) // told again
}

func TestFlappingIsHeldLongerAndLonger(t *testing.T) {
	s := newSim(t, device("path"))
	var holds []time.Duration
	up := true
	for range 3600 { // the device dies as soon as it is up and heals as soon as it is down
		if now := s.m.State() == Up; now != up {
			up = now
			if up {
				s.refuse()
			} else {
				s.good()
			}
		}
		s.run(time.Second)
	}
	for _, l := range s.log {
		if l.To == Down {
			holds = append(holds, l.Hold)
		}
	}
	want := []time.Duration{10, 10, 10, 20, 40, 80, 160, 300, 300}
	for i := range want {
		if i >= len(holds) || holds[i] != want[i]*time.Second {
			t.Fatalf("holds %v, want %v s...", holds, want)
		}
	}
	if len(holds) > 20 {
		t.Errorf("%d falls an hour", len(holds))
	}
	s.good()
	s.run(10 * time.Minute) // stable: forgiven
	s.log = nil
	s.take(s.m.Link(s.now, "a1", false))
	if l := s.last(); l.Damped || l.Hold != 10*time.Second {
		t.Errorf("not forgiven: %+v", l)
	}
}

func TestOperator(t *testing.T) {
	s := newSim(t, device("path"))
	s.run(time.Second)
	s.take(s.m.Operator(s.now, Disable, "alice"))
	s.want(Up, Disabled)
	s.take(s.m.Operator(s.now, Disable, "bob"))
	s.want()
	s.refuse()
	s.run(5 * time.Second)
	if l := s.last(); l.Changed() || l.DeviceStatus().Service != chain.Out || !strings.HasPrefix(l.Why, "down: path") {
		t.Errorf("a drained device that died: %+v", l)
	}
	s.want(Disabled)
	s.take(s.m.Operator(s.now, Bypass, "bob"))
	s.want(ForcedBypass)
	s.good()
	s.take(s.m.Operator(s.now, Enable, "bob"))
	s.want(Down)
	s.run(5 * time.Second) // an operator ends the hold, not the rise
	s.want(Up)
	s.take(s.m.Operator(s.now, Bypass, "bob"))
	if st := s.m.Status(); st.Why != "forced bypass by bob" || st.Since != s.now {
		t.Errorf("%+v", st)
	}
	s.take(s.m.Operator(s.now, Enable, "carol"))
	if st := s.m.Status(); st.Why != "enabled by carol" {
		t.Errorf("%+v", st)
	}
	s.want(ForcedBypass, Up)
}

func TestReturnNeverWaitsForOperator(t *testing.T) {
	target := device("path")
	target.ReturnNever = true
	s := newSim(t, target)
	s.run(time.Second)
	s.refuse()
	s.run(5 * time.Second)
	s.want(Up, Down)
	s.good()
	s.run(time.Hour)
	if l := s.last(); l.Changed() || l.Why != "recovered, waiting for operator" {
		t.Errorf("%+v", l)
	}
	s.want(Down)
	if st := s.m.Status(); !st.Waiting || st.Why != "recovered, waiting for operator" {
		t.Errorf("%+v", st)
	}
	s.take(s.m.Operator(s.now, Enable, "alice"))
	s.want(Up)
	s.take(s.m.Operator(s.now, Enable, "alice"))
	s.refuse() // the permission was for that one time, and one given while up is for nothing
	s.run(5 * time.Second)
	s.good()
	s.run(time.Hour)
	s.want(Down, Down)
	s.take(s.m.Operator(s.now, Enable, "alice"))
	s.refuse()
	s.run(5 * time.Second)
	s.take(s.m.Operator(s.now, Enable, "alice")) // in advance: it may return when it can
	s.good()
	s.run(6 * time.Second)
	s.want(Up, Down, Up)
}

// A reload or restart with the device down: no event, no traffic, and it comes back only by rise.
func TestRestoreIsNoTransition(t *testing.T) {
	s := newSim(t, device("path"))
	s.run(time.Second)
	s.refuse()
	s.run(5 * time.Second)
	before := s.m.Status()
	s.m = restored(t, s.m, s.now)
	s.flying, s.log = nil, nil
	if st := s.m.Status(); st.State != Down || st.Since != before.Since || st.Why != before.Why || st.Hold != before.Hold {
		t.Errorf("%+v became %+v", before, st)
	}
	s.take(s.m.Link(s.now, "a1", true))
	s.run(time.Minute)
	s.want()
	s.good()
	s.run(4 * time.Second)
	s.want()
	s.run(2 * time.Second)
	s.want(Up)
}

func restored(t *testing.T, m *Machine, now time.Time) *Machine {
	t.Helper()
	fresh := New(m.target, now)
	fresh.Restore(now, throughJSON(t, m.Snapshot()))
	return fresh
}

func TestAdoptKeepsTheKernelsWord(t *testing.T) {
	for _, st := range []chain.DeviceStatus{
		{Service: chain.Full},
		{Service: chain.EstablishedOnly, Reason: session.Disabled},
		{Service: chain.Out, Reason: session.DeviceDown},
		{Service: chain.Out, Reason: session.Forced},
		{Service: chain.Out, Reason: session.NotProbed},
	} {
		m := New(device("path"), start)
		m.Restore(start, Adopt(start, "ips1", st))
		if got := m.Status().DeviceStatus(); got != st {
			t.Errorf("%+v became %+v", st, got)
		}
	}
}

// Slow servers: the timeout is longer than the interval, probes overlap but never pile up.
func TestOverlappingProbesAreFew(t *testing.T) {
	s := newSim(t, Target{Name: "web", Monitors: []Monitor{{Name: "tcp", Config: ServerDefaults}}})
	s.run(6 * time.Second)
	s.silent()
	for range 60 {
		s.run(time.Second)
		if len(s.flying) > ServerDefaults.Fall {
			t.Fatalf("%d probes in flight", len(s.flying))
		}
	}
	if at := s.last().At.Sub(start); at > 36*time.Second {
		t.Errorf("down at %v", at)
	}
	s.want(Up, Down)
}

func BenchmarkProbe(b *testing.B) {
	m := New(device("path", "icmp"), start)
	now := start
	for b.Loop() {
		now = now.Add(time.Second)
		for _, p := range m.Start(now) {
			m.Probe(now, p.Monitor, Result{OK: true, Started: now})
		}
		m.Next()
	}
}
