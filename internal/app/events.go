package app

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sslo/admin/api"
	"sslo/datapath"
	"sslo/monitor"
)

// eventsKept is how many events can be asked for afterwards.
const eventsKept = 4096

// Kinds of events.
const (
	kindDevice  = "device"
	kindServer  = "server"
	kindLink    = "link"
	kindSession = "session"
	kindConfig  = "config"
	kindDaemon  = "daemon"
)

// eventLog remembers what happened, for operators who come later.
type eventLog struct {
	mu     sync.Mutex
	ring   [eventsKept]api.Event
	last   uint64 // sequence number of the newest
	counts map[string]uint64
}

func newEventLog() *eventLog { return &eventLog{counts: map[string]uint64{}} }

func (l *eventLog) add(e api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	e.Seq = l.last
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	l.ring[l.last%eventsKept] = e
}

func (l *eventLog) count(what string, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[what] += n
}

func (l *eventLog) counters() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := make(map[string]uint64, len(l.counts))
	for what, n := range l.counts {
		counts[what] = n
	}
	return counts
}

// list gives events in order: those after one, the oldest of them first; without one, the newest.
func (l *eventLog) list(after uint64, limit int) []api.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := uint64(1)
	if l.last > eventsKept {
		first = l.last - eventsKept + 1
	}
	switch {
	case after > 0:
		first = max(first, after+1)
	case l.last > uint64(limit):
		first = max(first, l.last-uint64(limit)+1)
	}
	events := []api.Event{}
	for seq := first; seq <= l.last && len(events) < limit; seq++ {
		events = append(events, l.ring[seq%eventsKept])
	}
	return events
}

func (l *eventLog) transition(kind string, t monitor.Transition) {
	message := fmt.Sprintf("%s %s: %s → %s: %s", kind, t.Target, t.From, t.To, t.Why)
	if !t.Changed() {
		message = fmt.Sprintf("%s %s: %s: %s", kind, t.Target, t.To, t.Why)
	}
	e := api.Event{Time: t.At, Kind: kind, Message: message, From: t.From.String(), To: t.To.String(), Reason: t.Why}
	if kind == kindDevice {
		e.Device = t.Target
	}
	l.add(e)
}

// flood gathers the session plane's events of one kind: a device that goes down bypasses thousands of
// sessions at once, and that is one thing to tell, not thousands.
type flood struct {
	log    *slog.Logger
	events *eventLog
	open   map[floodKey]*floodEntry
}

type floodKey struct {
	kind          datapath.EventType
	chain, device string
	reason        string
}

type floodEntry struct {
	first datapath.Event
	n     int
}

func newFlood(log *slog.Logger, events *eventLog) *flood {
	return &flood{log: log, events: events, open: map[floodKey]*floodEntry{}}
}

func (f *flood) add(e datapath.Event) {
	f.events.count(e.Type.String(), 1)
	if e.Type == datapath.EventOpen || e.Type == datapath.EventClosed {
		return // counted only
	}
	k := floodKey{e.Type, e.Chain, e.Device, e.Reason.String()}
	if f.open[k] == nil {
		f.open[k] = &floodEntry{first: e}
	}
	f.open[k].n++
}

var floodTexts = map[datapath.EventType]string{
	datapath.EventBypass:       "established sessions go past the device",
	datapath.EventReset:        "sessions reset",
	datapath.EventReplaced:     "sessions replaced by a new one with the same addresses and ports",
	datapath.EventSeqRewritten: "device rewrites sequence numbers: it can not be bypassed in mid-stream",
	datapath.EventTripped:      "device tripped by the session plane while no daemon ran",
	datapath.EventReturned:     "sessions given back to the device",
}

func (f *flood) flush() {
	for k, entry := range f.open {
		e := entry.first
		f.log.Info(floodTexts[k.kind], "sessions", entry.n, "chain", k.chain, "device", k.device,
			"session", api.ID(e.Session).String(), "reason", k.reason)
		message := fmt.Sprintf("%s: %s: %s (%d sessions)", nameOr(k.device, k.chain), floodTexts[k.kind], k.reason, entry.n)
		f.events.add(api.Event{Kind: kindSession, Message: message, Device: k.device, Chain: k.chain,
			Link: e.Link, Session: api.ID(e.Session), Reason: k.reason})
	}
	clear(f.open)
}

func nameOr(name, other string) string {
	if name == "" {
		return other
	}
	return name
}
