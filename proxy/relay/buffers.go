// Package relay owns the byte pipe: streams that read as much as there is in one system call and hold no
// buffer while idle, over plain TCP and over TLS, and the pump that carries one direction of a connection
// from one stream to another. It knows no policy, no chain and no server.
package relay

import (
	"sync"
	"sync/atomic"
)

// Sizes of buffers. A large one holds eight whole TLS records; a small one holds one. Clear text is read in
// bursts that make eight full records: more would make a ninth, tiny one, and a system call for it.
const (
	largeSize  = 132 << 10
	smallSize  = 20 << 10
	maxPlain   = 16 << 10
	plainBurst = 8 * maxPlain
)

// DefaultMemory bounds large buffers when nothing else is said.
const DefaultMemory = 256 << 20

// Buffers hands out buffers. Large ones make bulk cheap; when too many bytes are in large ones, because
// many receivers are slow, connections get small ones instead: slower, and bounded.
type Buffers struct {
	limit, inUse atomic.Int64
	large, small sync.Pool
}

// Buffer is a pooled buffer; its content is B[:N].
type Buffer struct {
	B []byte
	N int
}

// NewBuffers makes a source of buffers; 0 means DefaultMemory.
func NewBuffers(limit int64) *Buffers {
	b := &Buffers{}
	b.SetLimit(limit)
	b.large.New = func() any { return &Buffer{B: make([]byte, largeSize)} }
	b.small.New = func() any { return &Buffer{B: make([]byte, smallSize)} }
	return b
}

// SetLimit changes the bound for buffers that are taken from now on.
func (b *Buffers) SetLimit(limit int64) {
	if limit <= 0 {
		limit = DefaultMemory
	}
	b.limit.Store(limit)
}

// InUse is the number of bytes in large buffers now.
func (b *Buffers) InUse() int64 { return b.inUse.Load() }

func (b *Buffers) get() *Buffer {
	if b.inUse.Add(largeSize) <= b.limit.Load() {
		return b.large.Get().(*Buffer)
	}
	b.inUse.Add(-largeSize)
	return b.small.Get().(*Buffer)
}

// Release gives a buffer back; nil is fine.
func (b *Buffers) Release(x *Buffer) {
	if x == nil {
		return
	}
	x.N = 0
	switch len(x.B) {
	case largeSize:
		b.inUse.Add(-largeSize)
		b.large.Put(x)
	case smallSize:
		b.small.Put(x)
	}
}
