package monitor

import (
	"fmt"
	"slices"
	"time"
)

// Machine is the state of one target. It is not safe for concurrent use.
type Machine struct {
	target Target
	limits Config // HoldDown, Flap* of all monitors together
	checks []check
	links  map[string]bool // as reported: true is up

	health   State     // Unknown, Up or Down
	changed  time.Time // when health last changed
	operator State     // Disabled, ForcedBypass, or Unknown for none

	hold     time.Time // stays down until then
	approved bool      // an operator let it return (Target.ReturnNever)
	waiting  bool      // recovered, and nobody let it return
	degraded string    // what a monitor that only degrades complains of
	told     bool      // of that, once for each time it went down

	suspicion suspicion
	flaps     flaps

	shown, shownHealth State // what the last transition said
	since              time.Time
	why                string // of the shown state
	cause              string // of the health
}

// check is one monitor's part.
type check struct {
	Monitor
	goods, bads int // in a row
	inflight    int
	due         time.Time
	goodStarted time.Time // latest start of a good probe
	verified    bool      // good since the suspicion
	last        Result
	lastAt      time.Time
}

// ProbeStart is a probe that must start now.
type ProbeStart struct {
	Monitor int // index in Target.Monitors
	Timeout time.Duration
}

// New gives a machine in state unknown whose first probes are due at start.
func New(t Target, start time.Time) *Machine {
	m := &Machine{target: t, limits: limits(vital(t.Monitors)), links: map[string]bool{}, since: start, changed: start}
	for _, mon := range t.Monitors {
		m.checks = append(m.checks, check{Monitor: mon, due: start})
	}
	m.why = "not probed yet"
	m.cause = m.why
	return m
}

// vital monitors decide about up and down; the others only degrade.
func vital(monitors []Monitor) []Monitor {
	return slices.DeleteFunc(slices.Clone(monitors), func(m Monitor) bool { return m.Degrades })
}

// limits joins what the monitors say about the target as a whole.
func limits(monitors []Monitor) Config {
	if len(monitors) == 0 {
		return DeviceDefaults
	}
	c := monitors[0].Config
	for _, m := range monitors[1:] {
		c.Interval = min(c.Interval, m.Interval)
		c.HoldDown = max(c.HoldDown, m.HoldDown)
		c.FlapWindow = max(c.FlapWindow, m.FlapWindow)
		c.FlapHold = max(c.FlapHold, m.FlapHold)
		c.Verify = max(c.Verify, m.Verify)
		if c.FlapMax == 0 || m.FlapMax > 0 && m.FlapMax < c.FlapMax {
			c.FlapMax = m.FlapMax
		}
	}
	return c
}

// State is what the target is now: the operator's word over the health.
func (m *Machine) State() State {
	switch {
	case m.operator != Unknown:
		return m.operator
	case m.health == Up && m.suspicion.shown():
		return Suspect
	case m.health == Up && m.degraded != "":
		return Degraded
	}
	return m.health
}

// Start gives the probes that are due and takes them as started.
func (m *Machine) Start(now time.Time) []ProbeStart {
	var starts []ProbeStart
	for i := range m.checks {
		c := &m.checks[i]
		if now.Before(c.due) || c.full() {
			continue
		}
		c.inflight++
		c.due = m.following(c, now)
		starts = append(starts, ProbeStart{Monitor: i, Timeout: m.timeout(c, now)})
	}
	return starts
}

// full: a monitor whose timeout is longer than its interval overlaps its probes, within reason.
func (c *check) full() bool { return c.inflight >= max(c.Fall, 1) }

// following is when the probe after this one is due. A verification keeps to its schedule when a
// probe starts late; elsewhere probes must not bunch.
func (m *Machine) following(c *check, now time.Time) time.Time {
	if due := c.due.Add(m.pace(c)); m.suspicion.active && due.After(now) {
		return due
	}
	return now.Add(m.pace(c))
}

func (m *Machine) pace(c *check) time.Duration {
	if m.suspicion.active && c.Verify > 0 {
		return min(c.Verify/time.Duration(max(c.Fall, 1)), c.Interval)
	}
	return c.Interval
}

// timeout: all probes of a verification end together, so that a slow answer to the first still counts.
func (m *Machine) timeout(c *check, now time.Time) time.Duration {
	if !m.suspicion.active || c.Verify <= 0 {
		return c.Timeout
	}
	left := m.suspicion.at.Add(c.Verify).Sub(now)
	return min(c.Timeout, max(left, m.pace(c)))
}

// Next is when Start or Tick have something to do if nothing happens before; zero if never.
func (m *Machine) Next() time.Time {
	var next time.Time
	for i := range m.checks {
		if c := &m.checks[i]; !c.full() {
			next = earlier(next, c.due)
		}
	}
	if m.health == Down && m.healthy() && !m.waiting {
		next = earlier(next, m.hold)
	}
	return next
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// Tick lets time pass: a hold may have ended.
func (m *Machine) Tick(now time.Time) (Transition, bool) {
	m.judge(now)
	return m.settle(now)
}

// Probe takes the result of a probe that Start gave.
func (m *Machine) Probe(now time.Time, monitor int, r Result) (Transition, bool) {
	c := &m.checks[monitor]
	c.inflight = max(c.inflight-1, 0)
	if r.Started.IsZero() {
		r.Started = now
	}
	if !m.stale(c, r) {
		c.count(now, r)
		c.verified = c.verified || r.OK && !r.Started.Before(m.suspicion.at)
		m.judge(now)
	}
	return m.settle(now)
}

// stale results were overtaken: a failure older than a success, a success from before the fall.
func (m *Machine) stale(c *check, r Result) bool {
	if r.OK {
		return m.health == Down && r.Started.Before(m.changed)
	}
	return r.Started.Before(c.goodStarted)
}

func (c *check) count(now time.Time, r Result) {
	c.last, c.lastAt = r, now
	if r.OK {
		c.goods, c.bads = c.goods+1, 0
		c.goodStarted = r.Started
		return
	}
	c.goods, c.bads = 0, c.bads+1
}

// Link takes the carrier of one of the target's links. Others are ignored.
func (m *Machine) Link(now time.Time, link string, up bool) (Transition, bool) {
	if !slices.Contains(m.target.Links, link) {
		return Transition{}, false
	}
	was, known := m.links[link]
	m.links[link] = up
	if known && was == up {
		return Transition{}, false
	}
	for i := range m.checks {
		if known {
			m.checks[i].goods = 0 // what passed before the change says nothing of now
			m.checks[i].due = now // and a recovery need not wait for an interval
		}
	}
	m.judge(now)
	return m.settle(now)
}

// Operator takes an operator's command.
func (m *Machine) Operator(now time.Time, c Command, who string) (Transition, bool) {
	switch c {
	case Disable:
		m.operator, m.why = Disabled, "disabled by "+who
	case Bypass:
		m.operator, m.why = ForcedBypass, "forced bypass by "+who
	case Enable:
		m.enable(now, who)
	}
	return m.settle(now)
}

func (m *Machine) enable(now time.Time, who string) {
	if m.operator != Unknown {
		m.operator, m.why = Unknown, m.cause
		if m.health == Up {
			m.why = "enabled by " + who
		}
	}
	m.approved, m.hold, m.flaps = true, time.Time{}, flaps{}
	m.judge(now)
}

// judge moves the health by what is known now.
func (m *Machine) judge(now time.Time) {
	bad := m.bad()
	switch {
	case m.health == Down:
		m.recover(now, bad)
	case bad != "":
		m.fall(now, bad)
	case m.health == Unknown && m.passed(func(c *check) int { return 1 }):
		m.rise(now, "first probe passed")
	case m.suspicion.active && m.verified():
		m.clear(now)
	}
	m.degrade()
}

// bad says what is wrong for certain, or nothing.
func (m *Machine) bad() string {
	for _, l := range m.target.Links {
		if up, known := m.links[l]; known && !up {
			return "link " + l + " down"
		}
	}
	return m.failing()
}

func (m *Machine) healthy() bool {
	return m.bad() == "" && m.passed(func(c *check) int { return max(c.Rise, 1) })
}

func (m *Machine) recover(now time.Time, bad string) {
	switch {
	case !m.healthy():
		if m.waiting && bad != "" {
			m.waiting, m.cause = false, bad
			m.explain()
		}
	case now.Before(m.hold):
	case m.target.ReturnNever && !m.approved:
		m.waiting, m.cause = true, "recovered, waiting for operator"
		m.explain()
	default:
		m.rise(now, "recovered")
	}
}

func (m *Machine) rise(now time.Time, why string) {
	if m.vitals() == 0 {
		why = "links up"
	}
	m.health, m.changed, m.cause = Up, now, why
	m.approved, m.waiting, m.told = false, false, false
	m.explain()
}

func (m *Machine) fall(now time.Time, why string) {
	if m.suspicion.active {
		why = fmt.Sprintf("%s; %s", m.suspicion.why, why)
	}
	hold := m.flaps.fell(now, m.limits, m.changed)
	m.health, m.changed, m.cause = Down, now, why
	m.approved, m.waiting, m.told = false, false, false
	m.hold = now.Add(hold)
	m.suspicion.active = false
	for i := range m.checks {
		m.checks[i].goods = 0
	}
	m.explain()
}

// explain makes the cause the reason shown, unless an operator's state covers the health.
func (m *Machine) explain() {
	if m.operator != Unknown {
		return
	}
	if m.why = m.cause; m.health == Up && m.degraded != "" {
		m.why = m.degraded
	}
}

// settle compares with what was shown last and tells the difference.
func (m *Machine) settle(now time.Time) (Transition, bool) {
	notice := m.waiting && !m.told || m.suspicion.muted
	state := m.State()
	if state == m.shown && m.health == m.shownHealth && !notice {
		return Transition{}, false
	}
	t := Transition{Target: m.target.Name, From: m.shown, To: state, Health: m.health, Why: m.why, At: now}
	if m.health != m.shownHealth && m.health == Down {
		t.Damped, t.Hold = m.flaps.level > 0, m.hold.Sub(now)
	}
	if state == m.shown && m.operator != Unknown {
		t.Why = fmt.Sprintf("%s: %s", m.health, m.cause)
	}
	t.Damped = t.Damped || m.suspicion.muted
	if state != m.shown {
		m.since = now
	}
	m.told, m.suspicion.muted = m.told || m.waiting, false
	m.shown, m.shownHealth = state, m.health
	return t, true
}
