package device

import (
	"sync"
	"sync/atomic"
	"time"
)

// Count of frames.
type Count struct {
	Frames uint64 `json:"frames"`
	Bytes  uint64 `json:"bytes"`
}

// Stats is what the device has counted since it was opened.
type Stats struct {
	Mode        Mode          `json:"mode"`
	Since       time.Time     `json:"since"`    // of the mode
	Received    [2]Count      `json:"received"` // by NIC: in, out
	Sent        [2]Count      `json:"sent"`     // by NIC: in, out
	Dropped     uint64        `json:"dropped"`  // on purpose
	Lost        uint64        `json:"lost"`     // refused by the NIC
	Overflow    uint64        `json:"overflow"` // came in faster than the device reads
	Oversize    uint64        `json:"oversize"` // longer than it can take: offload was left on
	BadChecksum uint64        `json:"bad_checksum"`
	Matches     uint64        `json:"matches"` // signatures found
	Resets      uint64        `json:"resets"`
	Connections int           `json:"connections"` // followed now
	Seen        []Observation `json:"seen"`        // the last plaintext requests
}

type tally struct{ frames, bytes atomic.Uint64 }

func (t *tally) add(n int) {
	t.frames.Add(1)
	t.bytes.Add(uint64(n))
}

func (t *tally) count() Count { return Count{t.frames.Load(), t.bytes.Load()} }

const seenMax = 256

type counters struct {
	received, sent                                                  [2]tally
	dropped, lost, overflow, oversize, badChecksum, matches, resets atomic.Uint64

	mu   sync.Mutex
	seen []Observation
}

func (c *counters) observe(o Observation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.seen) == seenMax {
		c.seen = append(c.seen[:0], c.seen[1:]...)
	}
	c.seen = append(c.seen, o)
}

func (c *counters) observations() []Observation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Observation(nil), c.seen...)
}

// Stats is a snapshot.
func (d *Device) Stats() (Stats, error) {
	c := &d.counters
	for _, p := range d.ports {
		c.overflow.Add(p.overflows())
	}
	return Stats{
		Mode: d.Mode(), Since: time.Unix(0, d.since.Load()),
		Received: [2]Count{c.received[sideIn].count(), c.received[sideOut].count()},
		Sent:     [2]Count{c.sent[sideIn].count(), c.sent[sideOut].count()},
		Dropped:  c.dropped.Load(), Lost: c.lost.Load(), Overflow: c.overflow.Load(), Oversize: c.oversize.Load(),
		BadChecksum: c.badChecksum.Load(), Matches: c.matches.Load(), Resets: c.resets.Load(),
		Connections: d.inspect.connections(), Seen: c.observations(),
	}, nil
}
