package relay

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrTruncated is the end of a TLS stream by FIN between two records, without close_notify: all that was
// sent may have arrived, or not.
var ErrTruncated = errors.New("closed without close_notify")

// Stream is one side of a relayed connection. One goroutine reads and one writes.
type Stream interface {
	// Read waits for data without holding a buffer and returns all that is there, as far as it fits one
	// buffer, which the caller releases. Data may come with an error; io.EOF is an orderly end.
	Read() (*Buffer, error)
	// StopReading frees what was received and not read. The reader calls it last.
	StopReading()
	Write(b []byte) error
	// CloseWrite ends the written direction: in order, or as one that was cut (TLS: no close_notify).
	CloseWrite(inOrder bool) error
	Close() error
	// Reset ends both directions with a RST.
	Reset()
	// Unsent is how many bytes the peer has not acknowledged.
	Unsent() int
}

// socket is what both kinds of streams share.
type socket struct {
	*net.TCPConn
	raw  syscall.RawConn
	bufs *Buffers
}

func (s *socket) init(c *net.TCPConn, bufs *Buffers) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	s.TCPConn, s.raw, s.bufs = c, raw, bufs
	return nil
}

// readOnce reads without waiting.
func readOnce(fd uintptr, into []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), into)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

func (s *socket) wrap(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: err}
}

// Reset implements Stream.
func (s *socket) Reset() {
	_ = s.SetLinger(0)
	_ = s.TCPConn.Close()
}

// Unsent implements Stream.
func (s *socket) Unsent() int {
	n := 0
	_ = s.raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n
}
