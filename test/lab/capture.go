package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"
)

// Capture listens to a NIC of a namespace, as tcpdump does, until ctx ends. fn gets every frame
// in both directions and must not keep it.
func (n *Namespace) Capture(ctx context.Context, nic string, fn func(gopacket.Packet)) error {
	fd, err := n.packetSocket(nic, unix.ETH_P_ALL)
	if err != nil {
		return fmt.Errorf("capture on %s: %w", nic, err)
	}
	tv := unix.NsecToTimeval((50 * time.Millisecond).Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		unix.Close(fd)
		return err
	}
	go func() {
		defer unix.Close(fd)
		buf := make([]byte, 1<<17)
		for ctx.Err() == nil {
			size, _, err := unix.Recvfrom(fd, buf, 0)
			if err == nil {
				fn(gopacket.NewPacket(buf[:size], layers.LayerTypeEthernet, gopacket.DecodeOptions{Lazy: true, NoCopy: true}))
			} else if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENETDOWN) {
				return
			}
		}
	}()
	return nil
}

// Inject sends a frame out of a NIC of the namespace, whatever it says.
func (n *Namespace) Inject(nic string, frame []byte) error {
	fd, err := n.packetSocket(nic, 0)
	if err != nil {
		return fmt.Errorf("inject on %s: %w", nic, err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, frame)
	return err
}

func (n *Namespace) packetSocket(nic string, protocol uint16) (fd int, err error) {
	err = n.Do(func() error {
		iface, err := net.InterfaceByName(nic)
		if err != nil {
			return err
		}
		protocol = protocol<<8 | protocol>>8
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(protocol)); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: iface.Index})
	})
	return fd, err
}
