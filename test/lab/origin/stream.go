// Package origin owns the lab's built-in TLS origin: deterministic bodies whose hash is known,
// uploads that are hashed and timed, and answers that say what the server saw. It knows nothing
// of namespaces or devices.
package origin

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"math/rand/v2"
	"time"
)

const blockSize = 64 << 10

var block = makeBlock()

// makeBlock is noise, so that nothing on the way can compress or guess it.
func makeBlock() []byte {
	b := make([]byte, blockSize)
	r := rand.NewChaCha8([32]byte{'s', 's', 'l', 'o'})
	r.Read(b)
	return b
}

// Stream returns the n bytes that /bytes/N answers and that uploads send: 64 kB blocks of noise,
// each beginning with its number, so that no two parts can be exchanged unseen.
func Stream(n int64) io.Reader { return &stream{left: n} }

type stream struct {
	left, pos int64
}

func (s *stream) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	off := int(s.pos % blockSize)
	n := min(len(p), blockSize-off, int(min(s.left, blockSize)))
	copy(p[:n], block[off:off+n])
	if off < 8 {
		var number [8]byte
		binary.BigEndian.PutUint64(number[:], uint64(s.pos/blockSize))
		copy(p[:n], number[off:])
	}
	s.pos += int64(n)
	s.left -= int64(n)
	return n, nil
}

// Sum is the SHA-256 of Stream(n), in hex.
func Sum(n int64) string {
	h := sha256.New()
	io.CopyBuffer(struct{ io.Writer }{h}, Stream(n), make([]byte, blockSize)) // hashes do not fail
	return hex.EncodeToString(h.Sum(nil))
}

// Paced reads no faster than rate bytes a second, in slices of 5 ms, so that a stall of the
// path is not hidden in buffers that a faster sender has filled.
func Paced(r io.Reader, rate int64) io.Reader {
	if rate <= 0 {
		return r
	}
	return &paced{r: r, rate: rate, start: time.Now()}
}

type paced struct {
	r     io.Reader
	rate  int64
	sent  int64
	start time.Time
}

func (p *paced) Read(b []byte) (int, error) {
	due := p.start.Add(time.Duration(float64(p.sent) / float64(p.rate) * float64(time.Second)))
	if wait := time.Until(due); wait > 0 {
		time.Sleep(wait)
	} else if wait < -100*time.Millisecond { // held up by the path: do not catch up in one burst
		p.start = p.start.Add(-wait)
	}
	n, err := p.r.Read(b[:min(len(b), max(1460, int(p.rate/200)))])
	p.sent += int64(n)
	return n, err
}

// Meter hashes what passes and keeps the longest time without a byte.
type Meter struct {
	Bytes   int64
	Stall   time.Duration
	StallAt time.Time // when the longest stall began
	Gaps    []Gap     // all that are worth noting, up to gapsMax
	last    time.Time
	sum     hash.Hash
}

// Gap is a time without a byte.
type Gap struct {
	At  time.Time     `json:"at"`
	For time.Duration `json:"for"`
}

const (
	gapMin  = 50 * time.Millisecond
	gapsMax = 1000
)

// NewMeter starts counting now.
func NewMeter() *Meter { return &Meter{sum: sha256.New(), last: time.Now()} }

// Write never fails.
func (m *Meter) Write(p []byte) (int, error) {
	now := time.Now()
	if gap := now.Sub(m.last); gap > m.Stall {
		m.Stall, m.StallAt = gap, m.last
	}
	if gap := now.Sub(m.last); gap >= gapMin && len(m.Gaps) < gapsMax {
		m.Gaps = append(m.Gaps, Gap{m.last, gap})
	}
	m.last = now
	m.Bytes += int64(len(p))
	return m.sum.Write(p)
}

// Sum is the SHA-256 so far, in hex.
func (m *Meter) Sum() string { return hex.EncodeToString(m.sum.Sum(nil)) }
