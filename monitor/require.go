package monitor

import (
	"fmt"
	"strings"
)

// vitals is the number of monitors that decide about up and down.
func (m *Machine) vitals() int { return m.count(func(*check) bool { return true }) }

// count gives how many of the vital monitors are as asked.
func (m *Machine) count(is func(*check) bool) int {
	n := 0
	for i := range m.checks {
		if c := &m.checks[i]; !c.Degrades && is(c) {
			n++
		}
	}
	return n
}

// required is how many monitors must be good.
func (m *Machine) required() int {
	if n := m.vitals(); m.target.Require <= 0 || m.target.Require > n {
		return n
	}
	return m.target.Require
}

func (c *check) failed() bool { return c.bads >= max(c.Fall, 1) }

func (c *check) complaint() string {
	return fmt.Sprintf("%s: %s (%d in a row)", c.Name, c.last.Reason, c.bads)
}

// failing says which monitors have failed, when so many have that the others are not enough.
func (m *Machine) failing() string {
	var complaints []string
	for i := range m.checks {
		if c := &m.checks[i]; !c.Degrades && c.failed() {
			complaints = append(complaints, c.complaint())
		}
	}
	n, required := m.vitals(), m.required()
	switch {
	case len(complaints) <= n-required:
		return ""
	case required == n:
		return complaints[0]
	}
	return fmt.Sprintf("%d of %d monitors fail, %d must pass: %s", len(complaints), n, required, strings.Join(complaints, "; "))
}

// passed: so many monitors as are required have had as many good probes in a row as they need;
// without monitors, every link was reported up.
func (m *Machine) passed(needs func(*check) int) bool {
	if m.vitals() > 0 {
		return m.count(func(c *check) bool { return c.goods >= needs(c) }) >= m.required()
	}
	for _, l := range m.target.Links {
		if !m.links[l] {
			return false
		}
	}
	return len(m.target.Links) > 0
}

// verified: probes that began after the suspicion refute it.
func (m *Machine) verified() bool {
	return m.count(func(c *check) bool { return c.verified }) >= m.required()
}

// degrade takes the word of the monitors that only degrade. As with health, it needs Fall bad
// probes to begin and Rise good ones to end.
func (m *Machine) degrade() {
	now := m.degraded
	for i := range m.checks {
		c := &m.checks[i]
		switch {
		case !c.Degrades:
		case c.failed():
			now = c.complaint()
		case strings.HasPrefix(m.degraded, c.Name+": ") && c.goods >= max(c.Rise, 1):
			now = ""
		}
	}
	if (now == "") == (m.degraded == "") {
		return // the same complaint with another count is no news
	}
	if m.degraded = now; m.operator != Unknown || m.health != Up || m.suspicion.shown() {
		return
	}
	if m.why = now; now == "" {
		m.why = "no longer degraded"
	}
}
