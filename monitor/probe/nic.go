package probe

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"
)

var (
	errSwitchedOff = errors.New("switched off")
	errNoCarrier   = errors.New("no carrier")
)

// linkError is something wrong with one of the box's own NICs.
type linkError struct {
	nic string
	err error
}

func (e linkError) Error() string { return "link NIC " + e.nic + ": " + e.err.Error() }
func (e linkError) Unwrap() error { return e.err }

// nic is a packet socket that follows a NIC by its name: when the NIC goes and another of that
// name comes, the socket is bound to the new one.
type nic struct {
	name  string
	proto uint16 // EtherType that is received
	file  *os.File
	conn  syscall.RawConn

	mu    sync.Mutex
	index int
	mac   net.HardwareAddr
}

func openNIC(name string, proto layers.EthernetType) (*nic, error) {
	// Protocol 0: nothing is received before bind.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket for %s: %w", name, err)
	}
	// Probes must not queue behind the traffic that they watch over; without the right to it, they do.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, 7)
	n := &nic{name: name, proto: uint16(proto), file: os.NewFile(uintptr(fd), "packet "+name)}
	if n.conn, err = n.file.SyscallConn(); err != nil {
		n.file.Close()
		return nil, err
	}
	return n, nil
}

// Close ends the receiver too.
func (n *nic) Close() error { return n.file.Close() }

// refresh binds the socket if the NIC is another one than before, and says what is wrong with it.
func (n *nic) refresh() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var err error
	if cerr := n.conn.Control(func(fd uintptr) { err = n.rebind(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

func (n *nic) rebind(fd int) error {
	index, err := ifIndex(fd, n.name)
	if err != nil {
		return err
	}
	bound, err := boundTo(fd)
	if err != nil {
		return linkError{n.name, err}
	}
	if bound.Ifindex != index {
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(n.proto), Ifindex: index}); err != nil {
			return linkError{n.name, err}
		}
		if bound, err = boundTo(fd); err != nil {
			return linkError{n.name, err}
		}
	}
	n.index, n.mac = index, bound.Addr[:6]
	return usable(fd, n.name)
}

// boundTo gives the NIC that the socket is bound to, with its address, which may change at any time.
func boundTo(fd int) (*unix.SockaddrLinklayer, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return nil, err
	}
	ll, ok := sa.(*unix.SockaddrLinklayer)
	if !ok {
		return nil, unix.EAFNOSUPPORT
	}
	return ll, nil
}

func usable(fd int, name string) error {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return linkError{name, err}
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return linkError{name, err}
	}
	switch flags := ifr.Uint16(); {
	case flags&unix.IFF_UP == 0:
		return linkError{name, errSwitchedOff}
	case flags&unix.IFF_RUNNING == 0:
		return linkError{name, errNoCarrier}
	}
	return nil
}

func (n *nic) hardwareAddr() net.HardwareAddr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mac
}

func (n *nic) send(frame []byte) error {
	n.mu.Lock()
	to := &unix.SockaddrLinklayer{Protocol: htons(n.proto), Ifindex: n.index}
	n.mu.Unlock()
	var err error
	if cerr := n.conn.Control(func(fd uintptr) { err = unix.Sendto(int(fd), frame, 0, to) }); cerr != nil {
		return cerr
	}
	if err != nil {
		return linkError{n.name, err}
	}
	return nil
}

// receive hands over frames until the socket is closed.
func (n *nic) receive(deliver func(frame []byte)) {
	buf := make([]byte, 2048)
	for {
		err := n.conn.Read(func(fd uintptr) bool {
			return !errors.Is(takeAll(int(fd), buf, deliver), unix.EAGAIN)
		})
		if err != nil {
			return
		}
	}
}

// drain hands over what is there.
func (n *nic) drain(deliver func(frame []byte)) {
	_ = n.conn.Control(func(fd uintptr) { _ = takeAll(int(fd), make([]byte, 2048), deliver) })
}

// takeAll reads until there is nothing more (EAGAIN) or an error, such as the NIC going away,
// which the read has cleared.
func takeAll(fd int, buf []byte, deliver func(frame []byte)) error {
	for {
		n, from, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		if err != nil {
			return err
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		deliver(buf[:n])
	}
}

func ifIndex(fd int, name string) (int, error) {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return 0, linkError{name, err}
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr); err != nil {
		return 0, linkError{name, err}
	}
	return int(ifr.Uint32()), nil
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }
