package sm

import (
	"crypto/subtle"
	"encoding"
	"encoding/binary"
	"hash"
	"sync"

	"github.com/emmansun/gmsm/sm3"
)

// MAC is HMAC-SM3 under one key, whose two blocks are hashed once: a handshake makes some twenty MACs under five keys.
type MAC struct{ inner, outer macState }

// macState is the hash's own form of its state: a mark, eight words, a block that is not full, and the length.
type macState [macMark + sm3.Size + sm3.BlockSize + 8]byte

const macMark = 4

// macHash is a hash with what makes and pads its blocks. It pads itself because the hash copies itself for that.
type macHash struct {
	h interface {
		hash.Hash
		encoding.BinaryAppender
		encoding.BinaryUnmarshaler
	}
	buf   [macBuffer]byte
	from  macState // a copy, so that MACs can live on the stack
	state []byte
}

const (
	macBuffer  = 256
	macMessage = macBuffer - 9 // the longest, with its padding
)

var macHashes = sync.Pool{New: func() any {
	m := &macHash{state: make([]byte, 0, len(macState{}))}
	m.h = sm3.New().(interface { // as its documentation says
		hash.Hash
		encoding.BinaryAppender
		encoding.BinaryUnmarshaler
	})
	return m
}}

// NewMAC prepares a key.
func NewMAC(key []byte) (m MAC) {
	if len(key) > sm3.BlockSize {
		short := sm3.Sum(key)
		key = short[:]
	}
	h := macHashes.Get().(*macHash)
	h.absorb(&m.inner, key, 0x36)
	h.absorb(&m.outer, key, 0x5c)
	h.put()
	return m
}

// HMAC is that of one message under a key.
func HMAC(key []byte, parts ...[]byte) [sm3.Size]byte {
	m := NewMAC(key)
	return m.Sum(parts...)
}

// Sum is the MAC of a message in parts.
func (m *MAC) Sum(parts ...[]byte) (sum [sm3.Size]byte) {
	h := macHashes.Get().(*macHash)
	n := 0
	for _, p := range parts {
		if n+len(p) > macMessage {
			return m.long(h, parts)
		}
		n += copy(h.buf[n:], p)
	}
	h.finish(&m.inner, n, &sum)
	h.finish(&m.outer, copy(h.buf[:], sum[:]), &sum)
	h.put()
	return sum
}

func (h *macHash) put() {
	clear(h.buf[:])
	clear(h.from[:])
	clear(h.state)
	h.h.Reset()
	macHashes.Put(h)
}

// absorb hashes the key's block.
func (h *macHash) absorb(to *macState, key []byte, pad byte) {
	b := h.buf[:sm3.BlockSize]
	for i := range b {
		b[i] = pad
	}
	subtle.XORBytes(b, b, key)
	h.h.Reset()
	h.h.Write(b)
	h.state, _ = h.h.AppendBinary(h.state[:0]) // never fails
	copy(to[:], h.state)
}

// finish pads n bytes behind the key's block, as SM3 does, and hashes them.
func (h *macHash) finish(from *macState, n int, sum *[sm3.Size]byte) {
	total := (n + 9 + sm3.BlockSize - 1) / sm3.BlockSize * sm3.BlockSize
	h.buf[n] = 0x80
	clear(h.buf[n+1 : total])
	binary.BigEndian.PutUint64(h.buf[total-8:], uint64(sm3.BlockSize+n)*8)
	h.restore(from)
	h.h.Write(h.buf[:total])
	h.state, _ = h.h.AppendBinary(h.state[:0])
	copy(sum[:], h.state[macMark:])
}

func (h *macHash) restore(from *macState) {
	h.from = *from
	_ = h.h.UnmarshalBinary(h.from[:]) // it is one
}

// long is for messages that do not fit.
func (m *MAC) long(h *macHash, parts [][]byte) (sum [sm3.Size]byte) {
	h.restore(&m.inner)
	for _, p := range parts {
		h.h.Write(p)
	}
	h.h.Sum(sum[:0])
	h.finish(&m.outer, copy(h.buf[:], sum[:]), &sum)
	h.put()
	return sum
}
