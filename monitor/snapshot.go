package monitor

import (
	"time"

	"sslo/chain"
	"sslo/session"
)

// Status is a target as people see it.
type Status struct {
	Name     string        `json:"name"`
	State    State         `json:"state"`
	Health   State         `json:"health"` // below an operator's state
	Since    time.Time     `json:"since"`
	Why      string        `json:"why"`
	Hold     time.Time     `json:"hold,omitzero"` // stays down until then
	Flapping bool          `json:"flapping,omitempty"`
	Waiting  bool          `json:"waiting,omitempty"` // recovered, waiting for operator
	Checks   []CheckStatus `json:"checks,omitempty"`
}

// CheckStatus is one monitor of a target.
type CheckStatus struct {
	Monitor string        `json:"monitor"`
	Probed  time.Time     `json:"probed,omitzero"`
	OK      bool          `json:"ok"` // the last probe
	Reason  string        `json:"reason,omitempty"`
	Latency time.Duration `json:"latency,omitempty"`
	Goods   int           `json:"goods"` // in a row
	Bads    int           `json:"bads"`
}

// DeviceStatus is what the session plane is to be told.
func (s Status) DeviceStatus() chain.DeviceStatus { return DeviceStatus(s.State, s.Health) }

// Status of the target now.
func (m *Machine) Status() Status {
	s := Status{
		Name: m.target.Name, State: m.State(), Health: m.health, Since: m.since, Why: m.why,
		Flapping: m.flaps.level > 0, Waiting: m.waiting,
	}
	if m.health == Down {
		s.Hold = m.hold
	}
	for i := range m.checks {
		c := &m.checks[i]
		s.Checks = append(s.Checks, CheckStatus{
			Monitor: c.Name, Probed: c.lastAt, OK: c.last.OK, Reason: c.last.Reason,
			Latency: c.last.Latency, Goods: c.goods, Bads: c.bads,
		})
	}
	return s
}

// Snapshot is what survives a reload and a restart.
type Snapshot struct {
	Name      string      `json:"name"`
	Health    State       `json:"health"`
	Operator  State       `json:"operator"` // disabled, forced-bypass, or unknown for none
	Since     time.Time   `json:"since"`
	Changed   time.Time   `json:"changed"`
	Why       string      `json:"why"`
	Cause     string      `json:"cause"`
	Hold      time.Time   `json:"hold,omitzero"`
	Approved  bool        `json:"approved,omitempty"`
	Told      bool        `json:"told,omitempty"`
	Falls     []time.Time `json:"falls,omitempty"`
	FlapLevel int         `json:"flap_level,omitempty"`
	Degraded  string      `json:"degraded,omitempty"`
}

// Snapshot of the machine. A suspicion is not kept: evidence that is true comes again.
func (m *Machine) Snapshot() Snapshot {
	why := m.why
	if m.State() == Suspect {
		why = m.cause
	}
	return Snapshot{
		Name: m.target.Name, Health: m.health, Operator: m.operator, Since: m.since, Changed: m.changed,
		Why: why, Cause: m.cause, Hold: m.hold, Approved: m.approved, Told: m.told,
		Falls: m.flaps.falls, FlapLevel: m.flaps.level, Degraded: m.degraded,
	}
}

// Restore gives a new machine the state of an old one. That is no transition: the target is
// what it was until probes say otherwise, with the usual fall and rise.
func (m *Machine) Restore(now time.Time, s Snapshot) {
	m.health, m.operator, m.since, m.changed = s.Health, s.Operator, s.Since, s.Changed
	m.why, m.cause, m.approved, m.told = s.Why, s.Cause, s.Approved, s.Told
	m.flaps = flaps{falls: s.Falls, level: s.FlapLevel}
	m.hold, m.degraded = s.Hold, s.Degraded
	if limit := now.Add(max(m.limits.FlapHold, m.limits.HoldDown)); m.hold.After(limit) {
		m.hold = limit // the clock was set back meanwhile
	}
	m.shown, m.shownHealth = m.State(), m.health
}

// Adopt is the snapshot of a device of which only the session plane's word is left.
func Adopt(now time.Time, name string, st chain.DeviceStatus) Snapshot {
	const why = "taken over from the session plane"
	s := Snapshot{Name: name, Since: now, Changed: now, Why: why, Cause: why}
	switch {
	case st.Service == chain.Full:
		s.Health = Up
	case st.Reason == session.Disabled:
		s.Health, s.Operator = Up, Disabled
	case st.Reason == session.Forced:
		s.Operator = ForcedBypass
	case st.Reason == session.DeviceDown, st.Reason == session.Tripped:
		s.Health = Down
	}
	return s
}
