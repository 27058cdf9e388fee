package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sslo/session"
	"sslo/session/model/rulebook"
)

// A test run can not make a frame that is cut in its IP header, nor one whose VLAN tag the NIC
// has taken off. These frames go over a wire: both ends of it are links of the lab.
func TestOnTheWire(t *testing.T) {
	l := newLab(t)
	l.attach(t, rulebook.A2, l.SteerFrame, ebpf.AttachTCXIngress)
	tests := []struct {
		name  string
		frame []byte
		want  session.DropReason
	}{
		{"no session", data4(), session.NoSession},
		{"cut in the ipv4 header", data4()[:ipAt+19], session.Truncated},
		{"cut in the ipv6 header", data6()[:ipAt+39], session.Truncated},
		{"ethernet header only", data4()[:ipAt+1], session.Truncated},
		{"vlan tag taken off", tag(data4(), 0x8100), session.NotIP},
		{"service tag taken off", tag(data4(), 0x88a8), session.NotIP},
		{"two tags", tag(tag(data4(), 0x8100), 0x88a8), session.NotIP},
	}
	for _, tt := range tests {
		t.Run(rowName(tt.name), func(t *testing.T) {
			before := l.dropped(rulebook.A2)
			l.transmit(t, rulebook.A1, tt.frame)
			if got := l.awaitDrop(rulebook.A2, tt.want, before[tt.want]+1); got != before[tt.want]+1 {
				t.Errorf("before %v, after %v, want one more %v", before, l.dropped(rulebook.A2), tt.want)
			}
		})
	}
}

// A frame that is forwarded arrives at the other device link, and answers take the way back.
func TestForwardsOnTheWire(t *testing.T) {
	d := newDuel(t, newLab(t))
	d.play(rulebook.Opened(), asIs)
	d.attach(t, rulebook.A2, d.SteerFrame, ebpf.AttachTCXIngress)
	sock := d.listen(t, rulebook.B2, unix.ETH_P_IP) // the other end of b1's wire
	d.transmit(t, rulebook.A1, data4())
	got := d.receive(t, sock, len(data4()))
	to, from := d.mac[rulebook.B2], d.mac[rulebook.B1]
	if want := append(append(to[:], from[:]...), data4()[12:]...); string(got) != string(want) {
		t.Errorf("on the wire\n%x\nwant\n%x", got, want)
	}
}

// A link is a VLAN of a NIC: its frames come with the tag and go with the tag of the link they leave by.
func TestTagsOnTheWire(t *testing.T) {
	d := newDuel(t, newLab(t))
	d.change(rulebook.Tag(rulebook.B1, rulebook.B1, 102))
	d.play(rulebook.Opened(), asIs)
	if err := d.LinkIds.Put(SsloLinkKey{Ifindex: uint32(d.ifindex[rulebook.A2]), Vlan: 101}, uint16(rulebook.A2)); err != nil {
		t.Fatal(err)
	}
	if err := d.LinkIds.Delete(SsloLinkKey{Ifindex: uint32(d.ifindex[rulebook.A2])}); err != nil {
		t.Fatal(err)
	}
	d.attach(t, rulebook.A2, d.SteerFrame, ebpf.AttachTCXIngress)
	sock := d.listen(t, rulebook.B2, unix.ETH_P_ALL) // the kernel hides the tag from others
	d.do(t, func() error { return unix.SetsockoptInt(sock, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1) })
	d.transmit(t, rulebook.A1, data4())                      // untagged: no link of ours
	d.transmit(t, rulebook.A1, vid(tag(data4(), 0x8100), 9)) // another VLAN: neither
	d.transmit(t, rulebook.A1, vid(tag(data4(), 0x88a8), 101))
	d.transmit(t, rulebook.A1, vid(tag(data4(), 0x8100), 101|5<<13)) // with a priority
	if got, want := d.receiveTagged(t, sock), 102; got != want {
		t.Errorf("VLAN %d on the wire, want %d", got, want)
	}
	if n := len(dump[uint64, SsloSession](t, d.Sessions)); n != 3 {
		t.Errorf("%d sessions", n)
	}
	if dropped := d.dropped(rulebook.A2); len(dropped) != 0 {
		t.Errorf("dropped %v", dropped)
	}
}

// vid sets the tag's id and priority.
func vid(b []byte, tci uint16) []byte { return set16(b, 14, tci) }

// receiveTagged is the VLAN of the next IPv4 frame, or -1.
func (l *lab) receiveTagged(t *testing.T, fd int) int {
	t.Helper()
	buf, oob, n := make([]byte, 2048), make([]byte, 128), 0
	for buf[12] != 0x08 || buf[13] != 0 { // the host talks IPv6 there
		var err error
		if _, n, _, _, err = unix.Recvmsg(fd, buf, oob, 0); err != nil {
			t.Fatalf("nothing came out: %v", err)
		}
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d control messages, %v", len(messages), err)
	}
	aux := messages[0].Data // struct tpacket_auxdata
	if status := binary.NativeEndian.Uint32(aux); status&unix.TP_STATUS_VLAN_VALID == 0 {
		return -1
	}
	return int(binary.NativeEndian.Uint16(aux[16:]))
}

// do runs a function on the thread that is in the lab's namespace.
func (l *lab) do(t fault, f func() error) {
	t.Helper()
	done := make(chan error)
	l.jobs <- func() { done <- f() }
	if err := <-done; err != nil {
		t.Fatalf("%v", err)
	}
}

func (l *lab) attach(t *testing.T, id session.LinkID, prog *ebpf.Program, at ebpf.AttachType) {
	t.Helper()
	l.do(t, l.linksUp)
	l.do(t, func() error {
		attached, err := link.AttachTCX(link.TCXOptions{Interface: l.ifindex[id], Program: prog, Attach: at})
		if err == nil {
			t.Cleanup(func() { attached.Close() })
		}
		return err
	})
}

func (l *lab) linksUp() (err error) {
	for _, ifindex := range l.ifindex {
		dev, findErr := netlink.LinkByIndex(ifindex)
		if findErr != nil {
			return findErr
		}
		err = errors.Join(err, netlink.LinkSetUp(dev))
	}
	return err
}

// transmit sends a raw frame out of a link's interface.
func (l *lab) transmit(t *testing.T, id session.LinkID, frame []byte) {
	t.Helper()
	l.do(t, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: l.ifindex[id]}); err != nil {
			return fmt.Errorf("send %d bytes: %w", len(frame), err)
		}
		return nil
	})
}

// awaitDrop gives the drops of a link for a reason when they are as many, or after a second.
func (l *lab) awaitDrop(id session.LinkID, reason session.DropReason, want uint64) (got uint64) {
	for range 100 {
		if got = l.dropped(id)[reason]; got >= want {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return got
}

func (l *lab) listen(t *testing.T, id session.LinkID, proto uint16) (fd int) {
	t.Helper()
	l.do(t, func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(swap(proto))); err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(fd) })
		timeout := unix.Timeval{Sec: 1}
		return errors.Join(
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
			unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: l.ifindex[id], Protocol: swap(proto)}))
	})
	return fd
}

func (l *lab) receive(t *testing.T, fd, size int) []byte {
	t.Helper()
	buf := make([]byte, size+64)
	n, _, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		t.Fatalf("nothing came out: %v", err)
	}
	return buf[:n]
}
