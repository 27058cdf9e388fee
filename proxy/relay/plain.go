package relay

import (
	"io"
	"net"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Plain is a stream of clear text (or of ciphertext that is not ours) over TCP.
type Plain struct {
	socket
	prefix []byte
	shut   atomic.Bool // we sent a FIN

	try func(fd uintptr) bool // made once: a closure a read would be an allocation a read
	got *Buffer
	err error
}

// NewPlain makes a stream; prefix is what was received already.
func NewPlain(c *net.TCPConn, bufs *Buffers, prefix []byte) (*Plain, error) {
	p := &Plain{prefix: prefix}
	p.try = p.tryRead
	return p, p.init(c, bufs)
}

// Read implements Stream.
func (p *Plain) Read() (*Buffer, error) {
	if len(p.prefix) > 0 {
		return p.takePrefix(), nil
	}
	if err := p.raw.Read(p.try); err != nil {
		return nil, err
	}
	got, err := p.got, p.err
	p.got, p.err = nil, nil
	return got, err
}

func (p *Plain) takePrefix() *Buffer {
	b := p.bufs.get()
	b.N = copy(b.B, p.prefix)
	if p.prefix = p.prefix[b.N:]; len(p.prefix) == 0 {
		p.prefix = nil
	}
	return b
}

// tryRead takes a buffer only for the time of the call, unless there is data for it.
func (p *Plain) tryRead(fd uintptr) bool {
	b := p.bufs.get()
	n, err := readOnce(fd, b.B[:min(len(b.B), plainBurst)])
	if n > 0 {
		b.N, p.got = n, b
		return true
	}
	p.bufs.Release(b)
	switch {
	case err == unix.EAGAIN:
		return false
	case err != nil:
		p.err = p.wrap("read", err)
	default:
		p.err = io.EOF
	}
	if p.err == io.EOF && !p.shut.Load() && stateOf(fd) == unix.BPF_TCP_CLOSE {
		p.err = p.wrap("read", unix.ECONNRESET)
	}
	return true
}

// stateOf: at an end of file a closed state means a reset whose error somebody else got (a concurrent
// write), unless we had sent a FIN ourselves.
func stateOf(fd uintptr) int {
	v, _ := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) // its first byte is the state
	return v & 0xff
}

// StopReading implements Stream.
func (p *Plain) StopReading() { p.prefix = nil }

// Write implements Stream.
func (p *Plain) Write(b []byte) error {
	_, err := p.TCPConn.Write(b)
	return err
}

// CloseWrite implements Stream; clear text has no other end than FIN.
func (p *Plain) CloseWrite(bool) error {
	p.shut.Store(true)
	return p.TCPConn.CloseWrite()
}
