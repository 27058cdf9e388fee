package relay

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// TLS record framing, the same for TLS and TLCP.
const (
	recordHeader = 5
	maxRecord    = recordHeader + 16384 + 2048 // the most that any version allows
)

// errNotYet is what TLS stacks take as "call again": a net.Error that is Temporary.
var errNotYet net.Error = notYet{}

type notYet struct{}

func (notYet) Error() string   { return "no whole record yet" }
func (notYet) Timeout() bool   { return true }
func (notYet) Temporary() bool { return true }

// Wire is the net.Conn that a TLS stack is given. It reads from the socket as much as there is at once, and
// hands out never more than the rest of one record, so that nothing is ever read ahead inside the stack:
// when no whole record is here, waiting for the socket is right, and no buffer is needed for it.
//
// During the handshake Read waits. After Relay it gives whole records or errNotYet.
type Wire struct {
	socket
	buf    *Buffer // what was received and not consumed: buf.B[at:buf.N]
	at     int
	parked []byte // the same while waiting for more: no larger than needed
	left   int    // of the record that is being handed out
	err    error  // the socket's end, once seen
	told   bool   // the stack was told that the stream ended
	relay  bool

	try    func(fd uintptr) bool
	tryErr error
	out    sync.Mutex
	cork   *Buffer // writes are gathered here; nil: they go out at once

	gathered []byte // of the handshake, not sent yet
	pending  atomic.Bool
}

// NewWire makes a wire.
func NewWire(c *net.TCPConn, bufs *Buffers) (*Wire, error) {
	w := &Wire{}
	w.try = w.tryFill
	return w, w.init(c, bufs)
}

// Buffered implements hello.Source: what was received and not consumed.
func (w *Wire) Buffered() []byte {
	if w.buf == nil {
		return w.parked
	}
	return w.buf.B[w.at:w.buf.N]
}

// Fill implements hello.Source: it waits for more. The end of the stream stays for Read to tell.
func (w *Wire) Fill() error {
	if w.err != nil {
		return w.err
	}
	w.Flush()
	if err := w.raw.Read(w.try); err != nil {
		return err
	}
	err := w.tryErr
	w.tryErr = nil
	if err != nil {
		w.err = err
	}
	return err
}

func (w *Wire) tryFill(fd uintptr) bool {
	w.room()
	n, err := readOnce(fd, w.buf.B[w.buf.N:])
	switch {
	case n > 0:
		w.buf.N += n
	case err == unix.EAGAIN:
		w.park()
		return false
	case err != nil:
		w.tryErr = w.wrap("read", err)
	default:
		w.tryErr = io.EOF
	}
	return true
}

// room makes free space in the buffer, with what was parked at its beginning.
func (w *Wire) room() {
	if w.buf == nil {
		w.buf, w.at = w.bufs.get(), 0
		if len(w.parked) >= len(w.buf.B) {
			w.bufs.Release(w.buf)
			w.buf = &Buffer{B: make([]byte, 2*len(w.parked))}
		}
		w.buf.N = copy(w.buf.B, w.parked)
		w.parked = w.parked[:0]
		return
	}
	if w.buf.N < len(w.buf.B) {
		return
	}
	if w.at > 0 {
		w.buf.N, w.at = copy(w.buf.B, w.buf.B[w.at:w.buf.N]), 0
		return
	}
	bigger := &Buffer{B: make([]byte, 2*len(w.buf.B))}
	bigger.N = copy(bigger.B, w.buf.B)
	w.bufs.Release(w.buf)
	w.buf = bigger
}

// park gives the buffer back before a wait, keeping what is left in as little memory as it needs.
func (w *Wire) park() {
	rest := w.buf.B[w.at:w.buf.N]
	if len(rest) == 0 {
		w.parked = nil
	} else {
		w.parked = append(w.parked[:0], rest...)
	}
	w.bufs.Release(w.buf)
	w.buf = nil
}

// whole reports that Read can hand out a whole record, or the end.
func (w *Wire) whole() bool {
	b := w.Buffered()
	if w.err != nil {
		return true
	}
	if len(b) < recordHeader {
		return false
	}
	n := recordHeader + int(b[3])<<8 + int(b[4])
	return len(b) >= n || n > maxRecord // too long: for the stack to refuse
}

// await waits until Read can hand out a whole record or the end.
func (w *Wire) await() {
	for !w.whole() {
		if err := w.Fill(); err != nil && w.err == nil {
			w.err = err
		}
	}
}

// Relay ends the handshake phase.
func (w *Wire) Relay() {
	w.relay = true
	_ = w.TCPConn.SetDeadline(time.Time{})
}

// Read implements net.Conn.
func (w *Wire) Read(p []byte) (int, error) {
	if w.left == 0 {
		if w.relay && !w.whole() {
			return 0, errNotYet
		}
		if err := w.atLeast(recordHeader); err != nil && len(w.Buffered()) == 0 {
			w.told = w.told || errors.Is(err, io.EOF)
			return 0, err
		}
		b := w.Buffered()
		if w.left = len(b); len(b) >= recordHeader {
			w.left = recordHeader + int(b[3])<<8 + int(b[4])
		}
	}
	if err := w.atLeast(1); err != nil {
		w.told = w.told || errors.Is(err, io.EOF)
		return 0, err
	}
	b := w.Buffered()
	n := copy(p, b[:min(len(b), w.left)])
	w.consume(n)
	w.left -= n
	return n, nil
}

func (w *Wire) atLeast(n int) error {
	for len(w.Buffered()) < n {
		if err := w.Fill(); err != nil {
			return err
		}
	}
	return nil
}

func (w *Wire) consume(n int) {
	if w.buf == nil {
		if w.parked = w.parked[n:]; len(w.parked) == 0 {
			w.parked = nil
		}
		return
	}
	if w.at += n; w.at == w.buf.N {
		w.bufs.Release(w.buf)
		w.buf = nil
	}
}

// Take consumes all that is buffered and returns a copy.
func (w *Wire) Take() []byte {
	b := append([]byte(nil), w.Buffered()...)
	w.StopReading()
	return b
}

// StopReading implements Stream.
func (w *Wire) StopReading() {
	w.bufs.Release(w.buf)
	w.buf, w.parked = nil, nil
}

// SetDeadline, SetReadDeadline and SetWriteDeadline implement net.Conn for the handshake. In the relay
// phase they do nothing: crypto/tls gives its close_notify five seconds, which would turn the orderly end
// of a slow client's download into a cut one.
func (w *Wire) SetDeadline(t time.Time) error { return w.deadline(w.TCPConn.SetDeadline, t) }

// SetReadDeadline implements net.Conn.
func (w *Wire) SetReadDeadline(t time.Time) error { return w.deadline(w.TCPConn.SetReadDeadline, t) }

// SetWriteDeadline implements net.Conn.
func (w *Wire) SetWriteDeadline(t time.Time) error { return w.deadline(w.TCPConn.SetWriteDeadline, t) }

func (w *Wire) deadline(set func(time.Time) error, t time.Time) error {
	if w.relay {
		return nil
	}
	return set(t)
}
