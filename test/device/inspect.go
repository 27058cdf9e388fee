package device

import (
	"bytes"
	"net/netip"
	"sync"
	"time"
)

const (
	maxConnections = 200_000
	maxHeld        = 256 // out-of-order segments kept a direction
	idleAfter      = 2 * time.Minute
)

// inspector follows TCP connections and looks for the signature in the order of the stream,
// whatever the segments are.
type inspector struct {
	signature []byte
	strict    bool

	mu    sync.Mutex
	conns map[connection]*conn
	swept time.Time
}

type conn struct {
	streams [2]stream // by the side the data comes from
	blocked bool
	fins    int
	seen    time.Time
}

// stream is one direction of a connection.
type stream struct {
	started bool
	next    uint32 // sequence number of the next byte in order
	tail    []byte // last bytes seen, one fewer than the signature
	held    []segment
}

type segment struct {
	seq  uint32
	data []byte
}

// finding is what the inspector says about a packet.
type finding struct {
	unknown bool // strict, and the connection's SYN was not seen
	blocked bool // the connection carries the signature
	match   bool // found just now
	onward  uint32
	back    uint32 // the sequence numbers that the receiver and the sender expect next
}

func newInspector(signature []byte, strict bool) *inspector {
	return &inspector{signature: signature, strict: strict, conns: make(map[connection]*conn)}
}

// look takes a packet in; the caller acts on the finding.
func (i *inspector) look(p *packet, from side, now time.Time) finding {
	i.mu.Lock()
	defer i.mu.Unlock()
	key := p.connection(from)
	c, known := i.conns[key]
	if !known || p.has(tcpSYN) && !p.has(tcpACK) {
		if i.strict && !known && !p.has(tcpSYN) {
			return finding{unknown: true}
		}
		c = &conn{}
		i.insert(key, c, now)
	}
	c.seen = now
	f := i.follow(c, p, from)
	if p.has(tcpRST) || c.fins == 2 && !p.has(tcpFIN) {
		delete(i.conns, key)
	}
	return f
}

func (i *inspector) follow(c *conn, p *packet, from side) finding {
	s, other := &c.streams[from], &c.streams[from.other()]
	f := finding{onward: p.seq(), back: p.ack()}
	if other.started {
		f.back = other.next
	}
	if !s.started {
		s.started, s.next = true, p.seq()
	}
	f.onward = s.next
	if c.blocked {
		f.blocked = true
		return f
	}
	if p.has(tcpSYN) {
		s.next = p.seq() + 1
	} else if len(p.payload()) > 0 {
		f.match = i.feed(s, p.seq(), p.payload())
	}
	if p.has(tcpFIN) {
		c.fins++
	}
	c.blocked, f.blocked = f.match, f.match
	return f
}

// feed scans what has become contiguous and reports whether the signature is in it.
func (i *inspector) feed(s *stream, seq uint32, data []byte) bool {
	if after := int32(seq - s.next); after > 0 {
		s.hold(seq, data)
		return false
	} else if after < 0 {
		if int(-after) >= len(data) {
			return false // seen before
		}
		data = data[-after:]
	}
	if i.scan(s, data) {
		return true
	}
	for held, ok := s.release(); ok; held, ok = s.release() {
		if i.scan(s, held) {
			return true
		}
	}
	return false
}

func (i *inspector) scan(s *stream, data []byte) bool {
	s.next += uint32(len(data))
	keep := len(i.signature) - 1
	if s.tail == nil {
		s.tail = make([]byte, 0, 2*keep) // room for the join below
	}
	if len(s.tail) > 0 && bytes.Contains(append(s.tail, data[:min(keep, len(data))]...), i.signature) {
		return true
	}
	if len(data) >= keep {
		s.tail = append(s.tail[:0], data[len(data)-keep:]...)
	} else {
		s.tail = append(s.tail, data...)
		s.tail = append(s.tail[:0], s.tail[max(0, len(s.tail)-keep):]...)
	}
	return bytes.Contains(data, i.signature)
}

// hold keeps a segment that came too early. When there is no room the gap is given up.
func (s *stream) hold(seq uint32, data []byte) {
	if len(s.held) == maxHeld {
		s.held, s.tail, s.next = nil, s.tail[:0], seq
	}
	s.held = append(s.held, segment{seq, bytes.Clone(data)})
}

// release returns held data that is now in order.
func (s *stream) release() ([]byte, bool) {
	for n, h := range s.held {
		if int32(h.seq-s.next) > 0 {
			continue
		}
		s.held = append(s.held[:n], s.held[n+1:]...)
		if skip := int(s.next - h.seq); skip < len(h.data) {
			return h.data[skip:], true
		}
		return s.release()
	}
	return nil, false
}

// insert adds a connection and now and then forgets the idle ones.
func (i *inspector) insert(key connection, c *conn, now time.Time) {
	if now.Sub(i.swept) > 10*time.Second || len(i.conns) >= maxConnections {
		i.swept = now
		for k, old := range i.conns {
			if now.Sub(old.seen) > idleAfter || len(i.conns) >= maxConnections {
				delete(i.conns, k)
			}
		}
	}
	i.conns[key] = c
}

func (i *inspector) connections() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.conns)
}

// requestLine returns the first line of a plaintext HTTP request.
func requestLine(data []byte) (string, bool) {
	if len(data) < 16 || data[0] < 'A' || data[0] > 'Z' {
		return "", false
	}
	line, _, found := bytes.Cut(data[:min(len(data), 512)], []byte("\r\n"))
	if !found || !bytes.Contains(line, []byte(" HTTP/1.")) {
		return "", false
	}
	return string(line), true
}

// Observation is a plaintext request that the device read.
type Observation struct {
	Time    time.Time      `json:"time"`
	Client  netip.AddrPort `json:"client"`
	Server  netip.AddrPort `json:"server"`
	Request string         `json:"request"`
	Blocked bool           `json:"blocked,omitempty"`
}
