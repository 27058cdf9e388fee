package probe

import (
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sslo/internal/testutil"
)

// relay is an inline device in userspace between the far ends of a1 and a2, with faults that a
// bridge does not have.
type relay struct {
	t       *testing.T
	delay   [2]atomic.Int64 // ns, by direction
	lose    [2]atomic.Bool
	reflect atomic.Bool
	ends    [2]*os.File
}

func newRelay(t *testing.T) *relay {
	testutil.RequireRoot(t)
	r := &relay{t: t}
	for i, nic := range []string{"a1", "a2"} {
		port := "d" + nic[1:]
		run(t, "ip link add "+nic+" type veth peer name "+port)
		t.Cleanup(func() { exec.Command("ip", "link", "del", nic).Run() })
		run(t, "ip link set "+nic+" up")
		run(t, "ip link set "+port+" up")
		r.ends[i] = packetFile(t, port)
	}
	for i := range r.ends {
		go r.forward(i)
	}
	return r
}

func packetFile(t *testing.T, nic string) *os.File {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(htons(uint16(EtherType))))
	if err != nil {
		t.Fatal(err)
	}
	index, err := ifIndex(fd, nic)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(uint16(EtherType)), Ifindex: index}); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), nic)
	t.Cleanup(func() { f.Close() })
	return f
}

// forward takes frames from one end, which are of the direction with the same number.
func (r *relay) forward(from int) {
	buf := make([]byte, 2048)
	for {
		n, err := r.ends[from].Read(buf)
		if err != nil {
			return
		}
		to := r.ends[1-from]
		if r.reflect.Load() {
			to = r.ends[from]
		}
		if r.lose[from].Load() {
			continue
		}
		frame := append([]byte(nil), buf[:n]...)
		time.AfterFunc(time.Duration(r.delay[from].Load()), func() { to.Write(frame) })
	}
}

func (r *relay) open() *Path {
	r.t.Helper()
	p, err := OpenPath("a1", "a2")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { p.Close() })
	eventually(r.t, "path", func() bool { return probeFor(p, 50*time.Millisecond).OK }) // carrier comes up
	return p
}
