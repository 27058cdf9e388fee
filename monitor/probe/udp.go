package probe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"syscall"
	"time"

	"sslo/monitor"
)

// UDPSpec: a datagram, by the NIC if one is named, and what its answer must match.
type UDPSpec struct {
	Address netip.AddrPort
	NIC     string
	Send    string
	Expect  string // regular expression; "": any answer
}

// UDP probes by a datagram, which must be answered.
type UDP struct {
	spec   UDPSpec
	expect *regexp.Regexp
}

// Open is part of Spec.
func (s UDPSpec) Open() (Prober, error) {
	expect, err := regexp.Compile(s.Expect)
	return UDP{s, expect}, err
}

func (s UDPSpec) String() string { return "udp " + s.Address.String() + by(s.NIC) }

// Close is part of Prober.
func (UDP) Close() error { return nil }

// Probe is part of Prober.
func (p UDP) Probe(ctx context.Context) monitor.Result {
	return timed(ctx, func() (string, error) {
		return "", datagram(ctx, p.spec.Address, p.spec.NIC, []byte(p.spec.Send), func(answer []byte) error {
			if !p.expect.Match(answer) {
				return fmt.Errorf("the answer does not match %q", p.spec.Expect)
			}
			return nil
		})
	})
}

// errNotOurs says that an answer is to another question.
var errNotOurs = fmt.Errorf("not an answer to this question")

// datagram sends one and judges the answers until one is ours.
func datagram(ctx context.Context, to netip.AddrPort, nic string, data []byte, judge func(answer []byte) error) error {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { return bindToNIC(c, nic) }}
	conn, err := d.DialContext(ctx, "udp", to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(data); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return err
		}
		if err := judge(buf[:n]); err != errNotOurs {
			return err
		}
	}
}
