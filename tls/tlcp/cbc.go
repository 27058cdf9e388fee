package tlcp

import (
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/subtle"
	"encoding"
	"encoding/binary"
	"hash"

	"github.com/emmansun/gmsm/sm3"

	"sslo/tls/sm"
)

const (
	blockSize = 16
	macSize   = sm3.Size
	hashBlock = sm3.BlockSize
	headSize  = 13 // what the MAC covers before the content
)

// cbc protects one direction: MAC, then pad, then encrypt, with an IV of its own for each record.
//
// A receiver that lets the length of the padding show in its timing can be made to decrypt (Lucky 13). Here
// the padding, the place of the MAC and the blocks that are hashed are all handled without a branch or an
// address that depends on it.
type cbc struct {
	block cipher.Block
	mac   hash.Hash // for what is sent
	inner []byte    // state of SM3 after the inner key
	outer []byte    // the same for the outer key
	h     hash.Hash
	seq   uint64
	head  [headSize]byte
}

func newCBC(key, macKey []byte) (*cbc, error) {
	b, err := newSM4(key)
	if err != nil {
		return nil, err
	}
	return &cbc{block: b, mac: hmac.New(sm3.New, macKey), h: sm3.New(), inner: padState(macKey, 0x36), outer: padState(macKey, 0x5c)}, nil
}

func padState(key []byte, pad byte) []byte {
	var b [hashBlock]byte
	copy(b[:], key)
	for i := range b {
		b[i] ^= pad
	}
	h := sm3.New()
	h.Write(b[:])
	return state(h, nil)
}

func state(h hash.Hash, b []byte) []byte {
	b, err := h.(encoding.BinaryAppender).AppendBinary(b)
	if err != nil {
		panic("tlcp: SM3 state: " + err.Error())
	}
	return b
}

func restore(h hash.Hash, b []byte) {
	if err := h.(encoding.BinaryUnmarshaler).UnmarshalBinary(b); err != nil {
		panic("tlcp: SM3 state: " + err.Error())
	}
}

// Overhead implements sm.Protection.
func (c *cbc) Overhead() int { return sm.HeaderSize + blockSize + macSize + blockSize }

// Seal implements sm.Protection.
func (c *cbc) Seal(dst []byte, typ sm.RecordType, plain []byte) []byte {
	pad := blockSize - (len(plain)+macSize)%blockSize
	dst = sm.AppendHeader(dst, typ, VersionTLCP11, blockSize+len(plain)+macSize+pad)
	iv := len(dst)
	dst = append(dst, make([]byte, blockSize)...)
	rand.Read(dst[iv:])
	dst = append(dst, plain...)
	dst = c.sum(dst, typ, plain)
	for range pad {
		dst = append(dst, byte(pad-1))
	}
	body := dst[iv+blockSize:]
	cipher.NewCBCEncrypter(c.block, dst[iv:iv+blockSize]).CryptBlocks(body, body)
	return dst
}

func (c *cbc) sum(dst []byte, typ sm.RecordType, plain []byte) []byte {
	putMACHeader(c.head[:], c.seq, typ, VersionTLCP11, len(plain))
	c.seq++
	c.mac.Reset()
	c.mac.Write(c.head[:])
	c.mac.Write(plain)
	return c.mac.Sum(dst)
}

// Open implements sm.Protection.
func (c *cbc) Open(_ []byte, typ sm.RecordType, version uint16, body []byte) (sm.RecordType, []byte, error) {
	// Room for the IV, and for a MAC with one byte of padding.
	if len(body)%blockSize != 0 || len(body) < blockSize+(macSize/blockSize+1)*blockSize {
		return 0, nil, sm.Fail(sm.AlertBadRecordMAC, sm.ErrMAC)
	}
	iv, b := body[:blockSize], body[blockSize:]
	cipher.NewCBCDecrypter(c.block, iv).CryptBlocks(b, b)
	n, good := unpad(b)
	putMACHeader(c.head[:], c.seq, typ, version, n)
	c.seq++
	var want, got [macSize]byte
	c.constantMAC(&want, b, n)
	extractMAC(&got, b, n)
	if good&subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		return 0, nil, sm.Fail(sm.AlertBadRecordMAC, sm.ErrMAC)
	}
	return typ, b[:n], nil
}

// unpad gives the length of the content and 1, or that of unpadded content and 0, in the same time.
func unpad(b []byte) (n, good int) {
	last := len(b) - 1
	pad := int(b[last])
	good = subtle.ConstantTimeLessOrEq(pad+1+macSize, len(b))
	for i := 1; i <= min(255, last); i++ {
		inside := subtle.ConstantTimeLessOrEq(i, pad)
		good &= subtle.ConstantTimeSelect(inside, subtle.ConstantTimeByteEq(b[last-i], byte(pad)), 1)
	}
	pad = subtle.ConstantTimeSelect(good, pad, 0)
	return last - pad - macSize, good
}

// bounds are the least and the most that n can be, which the peer knows already.
func bounds(b []byte) (least, most int) {
	return max(0, len(b)-256-macSize), len(b) - 1 - macSize
}

// extractMAC copies the MAC from behind n bytes of content, reading every place where it could be.
func extractMAC(mac *[macSize]byte, b []byte, n int) {
	least, _ := bounds(b)
	var turned [macSize]byte
	turn, at := 0, 0
	for i := least; i < len(b); i++ {
		started := subtle.ConstantTimeLessOrEq(n, i)
		ended := subtle.ConstantTimeLessOrEq(n+macSize, i)
		turn = subtle.ConstantTimeSelect(subtle.ConstantTimeEq(int32(i), int32(n)), at, turn)
		turned[at] |= b[i] & byte(subtle.ConstantTimeSelect(started&^ended, 0xff, 0))
		at = (at + 1) % macSize
	}
	for i := range mac {
		from := turn + i // modulo macSize, a power of two
		for j := range turned {
			mac[i] |= turned[j] & byte(subtle.ConstantTimeSelect(subtle.ConstantTimeEq(int32(j), int32(from%macSize)), 0xff, 0))
		}
	}
}

// constantMAC is HMAC-SM3 over c.head and n bytes of b. What is hashed, and how much, depends on len(b) only.
func (c *cbc) constantMAC(mac *[macSize]byte, b []byte, n int) {
	least, most := bounds(b)
	first := (headSize + least) / hashBlock // blocks before it are whole, whatever n is
	final := (headSize + most + 8) / hashBlock
	restore(c.h, c.inner)
	if first > 0 {
		c.h.Write(c.head[:])
		c.h.Write(b[:first*hashBlock-headSize])
	}
	t := tail{head: c.head[:], b: b, length: headSize + n, last: (headSize + n + 8) / hashBlock}
	binary.BigEndian.PutUint64(t.bits[:], uint64(hashBlock+headSize+n)*8)
	var digest [macSize]byte
	var block [hashBlock]byte
	buf := make([]byte, 0, 128)
	for k := first; k <= final; k++ {
		t.fill(&block, k)
		c.h.Write(block[:])
		s := state(c.h, buf)[4:]
		mask := byte(subtle.ConstantTimeSelect(subtle.ConstantTimeEq(int32(k), int32(t.last)), 0xff, 0))
		for i := range digest {
			digest[i] |= s[i] & mask
		}
	}
	restore(c.h, c.outer)
	c.h.Write(digest[:])
	c.h.Sum(mac[:0])
}

// tail makes the last blocks of a padded message whose length is secret.
type tail struct {
	head, b []byte
	length  int // of head and content
	last    int // the block that ends with the length in bits
	bits    [8]byte
}

func (t *tail) fill(block *[hashBlock]byte, k int) {
	isLast := byte(subtle.ConstantTimeSelect(subtle.ConstantTimeEq(int32(k), int32(t.last)), 0xff, 0))
	for i := range block {
		p := k*hashBlock + i
		inside := byte(subtle.ConstantTimeSelect(subtle.ConstantTimeLessOrEq(p+1, t.length), 0xff, 0))
		end := byte(subtle.ConstantTimeSelect(subtle.ConstantTimeEq(int32(p), int32(t.length)), 0x80, 0))
		block[i] = t.at(p)&inside | end
		if i >= hashBlock-8 {
			block[i] |= t.bits[i-(hashBlock-8)] & isLast
		}
	}
}

func (t *tail) at(p int) byte {
	switch {
	case p < headSize:
		return t.head[p]
	case p-headSize < len(t.b):
		return t.b[p-headSize]
	}
	return 0
}
