package monitor

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func throughJSON(t interface{ Fatal(...any) }, s Snapshot) Snapshot {
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back Snapshot
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

// history is what an observer may conclude from the inputs alone.
type history struct {
	m       *Machine
	now     time.Time
	target  Target
	goods   []int // in a row since the last fall
	bads    []int
	ever    []bool
	links   map[string]bool
	enabled bool // since the last fall
	state   State
	health  State
	fellAt  time.Time
}

func drawTarget(t *rapid.T) Target {
	target := Target{Name: "x", Links: []string{"a1", "a2"}, ReturnNever: rapid.Bool().Draw(t, "never")}
	for i := range rapid.IntRange(1, 3).Draw(t, "monitors") {
		target.Monitors = append(target.Monitors, Monitor{Name: fmt.Sprint("m", i), Config: Config{
			Interval: time.Duration(rapid.IntRange(1, 20).Draw(t, "interval")) * 100 * time.Millisecond,
			Timeout:  time.Duration(rapid.IntRange(1, 30).Draw(t, "timeout")) * 100 * time.Millisecond,
			Fall:     rapid.IntRange(1, 4).Draw(t, "fall"), Rise: rapid.IntRange(1, 4).Draw(t, "rise"),
			HoldDown:   time.Duration(rapid.IntRange(0, 5).Draw(t, "hold")) * time.Second,
			FlapWindow: 20 * time.Second, FlapMax: rapid.IntRange(0, 3).Draw(t, "flaps"), FlapHold: time.Minute,
			Verify: 150 * time.Millisecond,
		}})
	}
	n := len(target.Monitors)
	target.Require = rapid.IntRange(0, n).Draw(t, "require")
	if n > 1 && rapid.Bool().Draw(t, "degrades") {
		target.Monitors[n-1].Degrades = true
	}
	return target
}

// required is the specification of Target.Require.
func (h *history) required() (vital []int, need int) {
	for i, m := range h.target.Monitors {
		if !m.Degrades {
			vital = append(vital, i)
		}
	}
	if need = h.target.Require; need == 0 || need > len(vital) {
		need = len(vital)
	}
	return vital, need
}

func TestMachineProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		target := drawTarget(t)
		n := len(target.Monitors)
		h := &history{m: New(target, start), now: start, target: target, links: map[string]bool{},
			goods: make([]int, n), bads: make([]int, n), ever: make([]bool, n)}
		t.Repeat(map[string]func(*rapid.T){
			"probe": h.probe, "link": h.link, "operator": h.operator, "restore": h.restore,
			"suspect": func(t *rapid.T) { h.take(t, "suspect")(h.m.Suspect(h.now, "evidence")) },
			"time": func(t *rapid.T) {
				h.now = h.now.Add(time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond)
				h.take(t, "tick")(h.m.Tick(h.now))
			},
			"": h.check,
		})
	})
}

func (h *history) probe(t *rapid.T) {
	h.now = h.now.Add(time.Duration(rapid.IntRange(1, 500).Draw(t, "gap")) * time.Millisecond)
	sent := h.now
	for _, p := range h.m.Start(h.now) {
		ok := rapid.Bool().Draw(t, "ok")
		h.now = h.now.Add(time.Millisecond)
		switch {
		case !ok:
			h.goods[p.Monitor], h.bads[p.Monitor] = 0, h.bads[p.Monitor]+1
		case h.health != Down || !sent.Before(h.fellAt): // sent before a fall by another of this round: stale
			h.goods[p.Monitor], h.bads[p.Monitor], h.ever[p.Monitor] = h.goods[p.Monitor]+1, 0, true
		}
		h.take(t, "probe")(h.m.Probe(h.now, p.Monitor, Result{OK: ok, Reason: "r", Started: sent}))
	}
}

func (h *history) link(t *rapid.T) {
	l, up := rapid.SampledFrom(h.target.Links).Draw(t, "link"), rapid.Bool().Draw(t, "up")
	if was, known := h.links[l]; known && was != up {
		clear(h.goods)
	}
	h.links[l] = up
	h.take(t, "link")(h.m.Link(h.now, l, up))
}

func (h *history) operator(t *rapid.T) {
	c := Command(rapid.IntRange(0, 2).Draw(t, "command"))
	h.enabled = h.enabled || c == Enable
	h.take(t, "operator")(h.m.Operator(h.now, c, "op"))
}

func (h *history) restore(t *rapid.T) {
	state, health := h.m.State(), h.m.health
	if state == Suspect {
		state = Up
		if h.m.degraded != "" {
			state = Degraded
		}
		h.state = state
	}
	since := h.m.Status().Since
	fresh := New(h.target, h.now)
	fresh.Restore(h.now, throughJSON(t, h.m.Snapshot()))
	if st := fresh.Status(); st.State != state || st.Health != health || !st.Since.Equal(since) {
		t.Fatalf("restored %v/%v as %+v", state, health, st)
	}
	h.m = fresh
	clear(h.goods)
	clear(h.bads)
	for l, up := range h.links {
		h.take(t, "restore")(h.m.Link(h.now, l, up))
	}
}

// take checks one transition against the history.
func (h *history) take(t *rapid.T, input string) func(Transition, bool) {
	return func(tr Transition, ok bool) {
		if !ok {
			if h.m.State() != h.state || h.m.health != h.health {
				t.Fatalf("%s: silently from %v/%v to %v/%v", input, h.state, h.health, h.m.State(), h.m.health)
			}
			return
		}
		if tr.From != h.state || tr.To != h.m.State() || tr.Why == "" || tr.At != h.now {
			t.Fatalf("%s: %+v after %v", input, tr, h.state)
		}
		h.state = tr.To
		if tr.Health != h.health {
			h.moved(t, input, h.health, tr)
		}
		h.health = tr.Health
	}
}

func (h *history) moved(t *rapid.T, input string, from State, tr Transition) {
	switch tr.Health {
	case Unknown:
		t.Fatalf("%s: back to unknown", input)
	case Down:
		if !h.linkDown() && !h.failing() {
			t.Fatalf("%s: down without cause: %v", input, h.bads)
		}
		h.fellAt, h.enabled = h.now, false
		clear(h.goods)
	case Up:
		h.mayRise(t, input, from)
	}
}

func (h *history) mayRise(t *rapid.T, input string, from State) {
	if h.linkDown() {
		t.Fatalf("%s: up with a link down", input)
	}
	vital, need := h.required()
	good := 0
	for _, i := range vital {
		m := h.target.Monitors[i]
		if h.ever[i] && (from != Down || h.goods[i] >= m.Rise) {
			good++
		}
		if from == Down && !h.enabled && h.now.Before(h.fellAt.Add(m.HoldDown)) {
			t.Fatalf("%s: up in the hold", input)
		}
	}
	if good < need {
		t.Fatalf("%s: up after %v good probes, %d monitors must be good", input, h.goods, need)
	}
	if from == Down && h.target.ReturnNever && !h.enabled {
		t.Fatalf("%s: returned by itself", input)
	}
}

func (h *history) linkDown() bool {
	for _, up := range h.links {
		if !up {
			return true
		}
	}
	return false
}

func (h *history) failing() bool {
	vital, need := h.required()
	failed := 0
	for _, i := range vital {
		if h.bads[i] >= h.target.Monitors[i].Fall {
			failed++
		}
	}
	return failed > len(vital)-need
}

// check holds after every step.
func (h *history) check(t *rapid.T) {
	if h.linkDown() && h.health != Down {
		t.Fatalf("%v with a link down", h.health)
	}
	if h.failing() && h.health == Up {
		t.Fatalf("up though failing: %v", h.bads)
	}
	if last := len(h.target.Monitors) - 1; h.target.Monitors[last].Degrades && h.health == Up &&
		h.bads[last] >= h.target.Monitors[last].Fall && h.m.degraded == "" {
		t.Fatalf("not degraded though the monitor that degrades fails: %v", h.bads)
	}
	if next := h.m.Next(); next.IsZero() {
		t.Fatal("nothing to do, ever")
	}
}
