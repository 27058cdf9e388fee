package monitor

import (
	"fmt"
	"time"
)

// flaps counts how often a target went down, and lengthens the hold of one that does it too often.
type flaps struct {
	falls []time.Time // within the window
	level int         // times the hold was doubled; 0: not flapping
}

// fell gives how long the target stays down at least, after it was up (or unknown) since a time.
func (f *flaps) fell(now time.Time, c Config, since time.Time) time.Duration {
	if now.Sub(since) >= c.FlapWindow {
		*f = flaps{} // it was stable for long enough
	}
	f.falls = recent(append(f.falls, now), now.Add(-c.FlapWindow))
	if c.FlapMax <= 0 || f.level == 0 && len(f.falls) < c.FlapMax {
		return c.HoldDown
	}
	f.level = min(f.level+1, 30)
	return max(c.HoldDown, min(max(c.HoldDown, time.Second)<<f.level, c.FlapHold))
}

// recent drops the times that are not after the limit.
func recent(times []time.Time, limit time.Time) []time.Time {
	for len(times) > 0 && !times[0].After(limit) {
		times = times[1:]
	}
	return times
}

// suspicion is passive evidence against a target that is up, while probes verify it. Evidence
// that probes refute again and again (a firewall that drops on purpose looks like that) is still
// verified, but no longer announced.
type suspicion struct {
	active  bool
	at      time.Time // it began
	why     string
	heard   time.Time   // last evidence, also if ignored
	after   time.Time   // no new one before
	cleared []time.Time // within the flap window
	quiet   bool
	muted   bool // just became quiet: to be told once
}

func (s *suspicion) shown() bool { return s.active && !s.quiet }

// Suspect takes passive evidence against the target. It is verified at once by fast probes.
func (m *Machine) Suspect(now time.Time, why string) (Transition, bool) {
	s := &m.suspicion
	if !s.heard.IsZero() && now.Sub(s.heard) >= m.limits.FlapWindow {
		s.quiet, s.cleared = false, nil
	}
	s.heard = now
	if m.health != Up || m.operator == ForcedBypass || s.active || now.Before(s.after) || m.vitals() == 0 {
		return Transition{}, false
	}
	s.active, s.at, s.why = true, now, why
	if s.shown() && m.operator == Unknown {
		m.why = why
	}
	for i := range m.checks {
		c := &m.checks[i]
		c.verified, c.inflight, c.due = false, 0, now
	}
	return m.settle(now)
}

// clear ends a suspicion that probes refuted.
func (m *Machine) clear(now time.Time) {
	s, c := &m.suspicion, m.limits
	wasShown := s.shown()
	s.active = false
	s.cleared = recent(append(s.cleared, now), now.Add(-c.FlapWindow))
	s.after = now.Add(c.Verify)
	if c.FlapMax > 0 && len(s.cleared) >= c.FlapMax && !s.quiet {
		s.quiet, s.muted = true, true
	}
	if s.quiet {
		s.after = now.Add(c.Interval)
	}
	for i := range m.checks {
		m.checks[i].due = now.Add(m.checks[i].Interval)
	}
	if wasShown && m.operator == Unknown {
		if m.why = s.verdict(); m.degraded != "" {
			m.why = m.degraded
		}
	}
}

func (s *suspicion) verdict() string {
	if s.muted {
		return fmt.Sprintf("probes pass though %s; suspected %d times in vain, further times are kept quiet",
			s.why, len(s.cleared))
	}
	return fmt.Sprintf("suspicion cleared (%s): probes pass", s.why)
}
