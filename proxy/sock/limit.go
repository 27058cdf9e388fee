package sock

import (
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// RaiseDescriptors raises the soft descriptor limit to the hard one, or to want when that is less, and
// returns what the process may open.
func RaiseDescriptors(want int) (int, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	if l.Cur < l.Max {
		l.Cur = l.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
			return 0, err
		}
	}
	limit := int(min(l.Cur, 1<<30))
	if want > 0 {
		limit = min(limit, want)
	}
	return limit, nil
}

// Spare is a descriptor kept for the moment when there are no others: it is given up so that a connection
// can be accepted and refused, instead of waiting in the backlog for a service that will not come.
type Spare struct {
	mu sync.Mutex
	f  *os.File
}

// NewSpare takes the descriptor.
func NewSpare() *Spare {
	s := &Spare{}
	s.take()
	return s
}

// Refuse accepts one connection and resets it; false when even that failed.
func (s *Spare) Refuse(l *net.TCPListener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	defer s.take()
	c, err := l.AcceptTCP()
	if err != nil {
		return false
	}
	Reset(c)
	return true
}

// Close gives it back.
func (s *Spare) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
}

func (s *Spare) take() { s.f, _ = os.Open("/dev/null") }

func (s *Spare) drop() {
	if s.f != nil {
		s.f.Close()
		s.f = nil
	}
}
