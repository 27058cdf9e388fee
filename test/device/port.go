package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	batchFrames = 64
	vnetHeader  = 10                       // struct virtio_net_hdr
	frameMax    = vnetHeader + 18 + 64<<10 // the largest unsegmented frame
	plainMax    = 9216                     // without offload: a jumbo frame
	socketBytes = 16 << 20                 // a burst while the other side is slow
	pollEvery   = 100 * time.Millisecond   // how soon a receiver notices Close
)

// port is a packet socket on one NIC.
type port struct {
	nic     string
	fd      int
	offload bool
}

func openPort(nic string, offload bool) (*port, error) {
	iface, err := net.InterfaceByName(nic)
	if err != nil {
		return nil, fmt.Errorf("device NIC %s: %w", nic, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // no protocol: nothing yet
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	p := &port{nic, fd, offload}
	if err := p.setup(iface.Index); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("packet socket on %s: %w", nic, err)
	}
	return p, nil
}

func (p *port) setup(ifindex int) error {
	tv := unix.NsecToTimeval(pollEvery.Nanoseconds())
	vnet := 0
	if p.offload {
		vnet = 1
	}
	return errors.Join(
		unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, vnet),
		unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1),
		unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBytes),
		unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBytes),
		unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
		unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: ifindex}),
	)
}

func (p *port) close() { unix.Close(p.fd) }

// headroom is the length of what precedes the Ethernet header in a buffer.
func (p *port) headroom() int {
	if p.offload {
		return vnetHeader
	}
	return 0
}

// overflows returns the frames that found the socket's queue full since the last call.
func (p *port) overflows() uint64 {
	s, err := unix.GetsockoptTpacketStats(p.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return uint64(s.Drops)
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// frame is a received frame: raw has the offload header in front, if the port has one.
type frame struct {
	raw, eth []byte
	oversize bool // longer than a device without offload can take
}

// partial says that the checksum is left to the hardware.
func (f frame) partial() bool { return len(f.raw) != len(f.eth) && f.raw[0]&1 != 0 } // VIRTIO_NET_HDR_F_NEEDS_CSUM

type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

// receiver reads many frames with one system call.
type receiver struct {
	port   *port
	msgs   [batchFrames]mmsghdr
	iov    [batchFrames]unix.Iovec
	bufs   [batchFrames][]byte
	frames [batchFrames]frame
}

func newReceiver(p *port) *receiver {
	r, size := &receiver{port: p}, plainMax
	if p.offload {
		size = frameMax
	}
	for i := range r.msgs {
		r.bufs[i] = make([]byte, size)
		r.iov[i].Base, r.iov[i].Len = &r.bufs[i][0], uint64(size)
		r.msgs[i].hdr.Iov, r.msgs[i].hdr.Iovlen = &r.iov[i], 1
	}
	return r
}

// receive waits for frames; none after pollEvery. They are valid until the next call.
func (r *receiver) receive() ([]frame, error) {
	flags := uintptr(unix.MSG_WAITFORONE | unix.MSG_TRUNC)
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(r.port.fd), uintptr(unsafe.Pointer(&r.msgs[0])), batchFrames, flags, 0, 0)
	switch errno {
	case 0:
	case unix.EAGAIN, unix.EINTR:
		return nil, nil
	default:
		return nil, errno
	}
	head, frames := r.port.headroom(), r.frames[:0]
	for i := range int(n) {
		size := int(r.msgs[i].len)
		if size < head+14 {
			continue
		}
		got := min(size, len(r.bufs[i]))
		frames = append(frames, frame{raw: r.bufs[i][:got], eth: r.bufs[i][head:got], oversize: size > got})
	}
	return frames, nil
}

// batch sends many frames with one system call. The buffers must live until flush.
type batch struct {
	port *port
	n    int
	msgs *[batchFrames]mmsghdr
	iov  *[batchFrames]unix.Iovec
	lost uint64
}

func newBatch(p *port) batch {
	b := batch{port: p, msgs: new([batchFrames]mmsghdr), iov: new([batchFrames]unix.Iovec)}
	for i := range b.msgs {
		b.msgs[i].hdr.Iov, b.msgs[i].hdr.Iovlen = &b.iov[i], 1
	}
	return b
}

func (b *batch) add(raw []byte) {
	if b.n == batchFrames {
		b.flush()
	}
	b.iov[b.n].Base, b.iov[b.n].Len = &raw[0], uint64(len(raw))
	b.n++
}

// flush sends what was added. A frame that the NIC refuses (too long, link down) is lost, as on a wire.
func (b *batch) flush() {
	for sent := 0; sent < b.n; {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(b.port.fd), uintptr(unsafe.Pointer(&b.msgs[sent])), uintptr(b.n-sent), 0, 0, 0)
		switch errno {
		case 0:
			sent += int(n)
		case unix.EINTR:
		default:
			b.lost++
			sent++
		}
	}
	b.n = 0
}

// crafted puts the offload header, if any, in front of a frame made here.
func (p *port) crafted(eth []byte) []byte {
	return append(make([]byte, p.headroom(), p.headroom()+len(eth)), eth...)
}

func be16(b []byte) uint16 { return binary.BigEndian.Uint16(b) }
func be32(b []byte) uint32 { return binary.BigEndian.Uint32(b) }
