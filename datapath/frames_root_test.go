package datapath

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sslo/bpf"
	"sslo/chain"
	"sslo/session"
)

// tap listens to what arrives on an interface.
func tap(t *testing.T, nic string) func() []byte {
	t.Helper()
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(all))
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	i, err := net.InterfaceByName(nic)
	must(t, err)
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}))
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}))
	return func() []byte {
		buf := make([]byte, 2048)
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil
		}
		return buf[:n]
	}
}

// awaitFrame reads until a frame matches, for at most two seconds.
func awaitFrame(t *testing.T, what string, next func() []byte, match func(f []byte) bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		if f := next(); len(f) > 42 && match(f) {
			return
		}
	}
	t.Errorf("no %s seen", what)
}

func TestAddressesAreAnnounced(t *testing.T) {
	b := newBox(t, "a")
	arp, nd := tap(t, "extp"), tap(t, "extp")
	d := b.open()
	b.apply(d, plan("a"))
	awaitFrame(t, "gratuitous ARP", arp, func(f []byte) bool {
		return f[12] == 8 && f[13] == 6 && bytes.Equal(f[28:32], f[38:42]) && bytes.Equal(f[28:32], server4.Addr().AsSlice())
	})
	awaitFrame(t, "unsolicited neighbour advertisement", nd, func(f []byte) bool {
		return len(f) >= 86 && f[12] == 0x86 && f[54] == 136 && bytes.Equal(f[62:78], server6.Addr().AsSlice())
	})
}

// A client link's RST goes to the next hop's MAC.
func TestResetTowardsAClientLink(t *testing.T) {
	b := newBox(t, "a")
	b.run("ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:99 dev ext; ip route add 203.0.113.0/24 via 192.0.2.9")
	d := b.open()
	b.apply(d, plan("a"))
	next := tap(t, "extp")
	must(t, d.sendRST(d.st.IDs.Links.Live["ext"], rst{tuple: session.Tuple{Proto: session.TCP, Src: server4, Dst: client4}, ack: 8}))
	awaitFrame(t, "RST", next, func(f []byte) bool {
		return f[5] == 0x99 && f[23] == 6 && bytes.Equal(f[30:34], client4.Addr().AsSlice()) && f[47] == 0x14
	})
}

func TestOffloadIsOffWhereAsked(t *testing.T) {
	b := newBox(t, "a", "b")
	d := b.open()
	p := plan("a", "b")
	p.Devices[1].Offload = false
	b.apply(d, p)
	if out := b.run("ethtool -k b1"); !bytes.Contains([]byte(out), []byte("tcp-segmentation-offload: off")) ||
		!bytes.Contains([]byte(out), []byte("tx-checksumming: off")) {
		t.Errorf("b1: %s", out)
	}
	if out := b.run("ethtool -k a1"); !bytes.Contains([]byte(out), []byte("tcp-segmentation-offload: on")) {
		t.Errorf("a1: %s", out)
	}
}

// Maps of another version can not be read: they go, and the box works on with new ones.
func TestAnotherLayoutStartsAfresh(t *testing.T) {
	b, d, e := ready(t, "a")
	front, back := e.connect(client4, server4)
	exchange(t, front, back, 100)
	var s bpf.SsloSettings
	must(t, d.kernel.Settings.Lookup(uint32(0), &s))
	s.Layout = 99
	must(t, d.kernel.Settings.Put(uint32(0), s))
	must(t, d.Close())

	d = b.open()
	b.apply(d, plan("a"))
	if st, _ := d.DeviceStatus("a"); st != (chain.DeviceStatus{Service: chain.Out, Reason: session.NotProbed}) {
		t.Errorf("device status %+v", st)
	}
	if list, err := d.Sessions(Filter{}, 0); err != nil || list.Total != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	up(t, d, "a")
	newEnds(b, d).connect(client6, server6)
}

func TestHeartbeat(t *testing.T) {
	_, d, _ := ready(t, "a")
	began := Now()
	runDatapath(t, d)
	time.Sleep(1200 * time.Millisecond)
	var s bpf.SsloSettings
	must(t, d.kernel.Settings.Lookup(uint32(0), &s))
	if beat := ns(s.HeartbeatNs); beat < began+time.Second || s.Layout != layoutVersion || s.Front != frontID || s.Back != backID {
		t.Errorf("settings %+v, began at %v", s, began)
	}
}
