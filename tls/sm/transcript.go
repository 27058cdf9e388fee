package sm

import (
	"hash"

	"github.com/emmansun/gmsm/sm3"
)

// Transcript is what was said in a handshake: its SM3, and the messages themselves while somebody may need them.
type Transcript struct {
	h    hash.Hash
	raw  []byte
	keep bool
}

// NewTranscript makes an empty transcript; keep keeps the messages.
func NewTranscript(keep bool) *Transcript { return &Transcript{h: sm3.New(), keep: keep} }

// Add adds a message with its header.
func (t *Transcript) Add(msg []byte) {
	t.h.Write(msg)
	if t.keep {
		t.raw = append(t.raw, msg...)
	}
}

// Sum is the hash of all messages so far.
func (t *Transcript) Sum() []byte { return t.h.Sum(make([]byte, 0, sm3.Size)) }

// Raw are all messages so far, if they were kept.
func (t *Transcript) Raw() []byte { return t.raw }

// Forget stops keeping the messages.
func (t *Transcript) Forget() { t.raw, t.keep = nil, false }

// Restart replaces all so far by the synthetic message_hash of RFC 8446, 4.4.1, as a HelloRetryRequest wants.
func (t *Transcript) Restart() {
	sum := t.Sum()
	t.h.Reset()
	t.raw = t.raw[:0]
	t.Add(append([]byte{254, 0, 0, sm3.Size}, sum...))
}
