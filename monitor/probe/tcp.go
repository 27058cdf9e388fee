package probe

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sslo/monitor"
)

// TCP probes by connecting and closing.
type TCP struct{ spec TCPSpec }

// Open is part of Spec.
func (s TCPSpec) Open() (Prober, error) { return TCP{s}, nil }

func (s TCPSpec) String() string { return "tcp " + s.Address.String() + by(s.NIC) }

func by(nic string) string {
	if nic == "" {
		return ""
	}
	return " by " + nic
}

// Probe is part of Prober.
func (p TCP) Probe(ctx context.Context) monitor.Result {
	r := monitor.Result{Started: time.Now()}
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { return bindToNIC(c, p.spec.NIC) }}
	conn, err := d.DialContext(ctx, "tcp", p.spec.Address.String())
	r.Latency = time.Since(r.Started)
	if err != nil {
		r.Reason = reason(ctx, err)
		return r
	}
	conn.Close()
	r.OK = true
	return r
}

// Close is part of Prober.
func (TCP) Close() error { return nil }

func bindToNIC(c syscall.RawConn, nic string) error {
	if nic == "" {
		return nil
	}
	var err error
	if cerr := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), nic) }); cerr != nil {
		return cerr
	}
	if err != nil {
		return linkError{nic, err}
	}
	return nil
}

// explained is an error that says everything already.
type explained string

func (e explained) Error() string { return string(e) }

// reason is an error in an operator's words: what the kernel said, without Go's call path.
func reason(ctx context.Context, err error) string {
	var errno syscall.Errno
	var timeout net.Error
	var link linkError
	var said explained
	switch {
	case errors.As(err, &said):
		return said.Error()
	case errors.As(err, &link):
		return link.Error()
	case ctx.Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	case errors.As(err, &errno):
		return errno.Error()
	}
	return err.Error()
}
