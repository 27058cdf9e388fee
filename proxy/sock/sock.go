// Package sock owns the socket options of the proxy plane: listeners and dialled sockets that are bound to
// a link, transparent, marked with a chain, and use cubic. It knows what the kernel wants, not why.
package sock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Options of a socket.
type Options struct {
	Device      string // interface to bind to; "": none
	Transparent bool   // foreign local addresses
	Mark        uint32 // SO_MARK; 0: none
	anyPort     bool   // the kernel chooses address and port
}

// Congestion is the congestion control of all sockets here. This kernel's default may be BBR, which costs
// 1.7 times the CPU a byte.
const Congestion = "cubic"

func (o Options) control(network, _ string, c syscall.RawConn) error {
	var err error
	if cerr := c.Control(func(fd uintptr) { err = o.apply(int(fd), network[len(network)-1] == '6') }); cerr != nil {
		return cerr
	}
	return err
}

func (o Options) apply(fd int, v6 bool) error {
	if !o.anyPort {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return fmt.Errorf("SO_REUSEADDR: %w", err)
		}
	}
	if o.Transparent {
		level, opt := unix.SOL_IP, unix.IP_TRANSPARENT
		if v6 {
			level, opt = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
		}
		if err := unix.SetsockoptInt(fd, level, opt, 1); err != nil {
			return fmt.Errorf("IP_TRANSPARENT: %w", err)
		}
	}
	if o.Device != "" {
		if err := unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, o.Device); err != nil {
			return fmt.Errorf("bind to %s: %w", o.Device, err)
		}
	}
	if o.Mark != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(o.Mark)); err != nil {
			return fmt.Errorf("SO_MARK: %w", err)
		}
	}
	// A kernel without cubic keeps its own: slower, not wrong.
	_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, Congestion)
	return nil
}

// Listen opens a listener; what it accepts inherits its options. The backlog is net.core.somaxconn.
func Listen(addr netip.AddrPort, o Options) (*net.TCPListener, error) {
	lc := net.ListenConfig{Control: o.control, KeepAlive: -1}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), network(addr.Addr()), addr.String())
	if err != nil {
		return nil, fmt.Errorf("listen on %s%s: %w", addr, on(o.Device), err)
	}
	return l.(*net.TCPListener), nil
}

// Dial connects; an invalid local address leaves the choice to the kernel.
func Dial(local, remote netip.AddrPort, timeout time.Duration, o Options) (*net.TCPConn, error) {
	c, err := dial(local, remote, timeout, o)
	if local.IsValid() && errors.Is(err, unix.EADDRNOTAVAIL) && destroy(local, remote, o.Device) == nil {
		// The same client port was used just before and the kernel still waits for the end of that.
		c, err = dial(local, remote, timeout, o)
	}
	return c, err
}

func dial(local, remote netip.AddrPort, timeout time.Duration, o Options) (*net.TCPConn, error) {
	o.anyPort = !local.IsValid()
	d := net.Dialer{Timeout: timeout, KeepAlive: -1, Control: o.control}
	d.SetMultipathTCP(false)
	if local.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(local)
	}
	c, err := d.Dial(network(remote.Addr()), remote.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// Reset closes with a RST.
func Reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

func network(a netip.Addr) string {
	if a.Unmap().Is4() {
		return "tcp4"
	}
	return "tcp6"
}

func on(device string) string {
	if device == "" {
		return ""
	}
	return " on " + device
}
