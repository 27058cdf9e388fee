package sock

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

const (
	sockDestroy = 21 // SOCK_DESTROY of sock_diag.h
	diagReqLen  = 56 // struct inet_diag_req_v2
)

// destroy removes the kernel's socket with that local and remote address on a link, whatever state it is in.
func destroy(local, remote netip.AddrPort, device string) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	index := 0
	if device != "" {
		i, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		index = i.Index
	}
	if err := unix.Sendto(fd, destroyRequest(local, remote, uint32(index)), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	return ack(fd)
}

func destroyRequest(local, remote netip.AddrPort, index uint32) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN+diagReqLen)
	ne := binary.NativeEndian
	ne.PutUint32(b, uint32(len(b)))
	ne.PutUint16(b[4:], sockDestroy)
	ne.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	r := b[unix.NLMSG_HDRLEN:]
	src, dst := local.Addr().Unmap(), remote.Addr().Unmap()
	r[0] = unix.AF_INET6
	if src.Is4() {
		r[0] = unix.AF_INET
	}
	r[1] = unix.IPPROTO_TCP
	ne.PutUint32(r[4:], ^uint32(0)) // any state
	binary.BigEndian.PutUint16(r[8:], local.Port())
	binary.BigEndian.PutUint16(r[10:], remote.Port())
	copy(r[12:28], src.AsSlice())
	copy(r[28:44], dst.AsSlice())
	ne.PutUint32(r[44:], index)
	for i := 48; i < 56; i++ {
		r[i] = 0xff // no cookie
	}
	return b
}

func ack(fd int) error {
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	b := make([]byte, 512)
	n, _, err := unix.Recvfrom(fd, b, 0)
	if err != nil {
		return err
	}
	if n < unix.NLMSG_HDRLEN+4 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
		return errors.New("sock_diag: unexpected answer")
	}
	if code := int32(binary.NativeEndian.Uint32(b[unix.NLMSG_HDRLEN:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
