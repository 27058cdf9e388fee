package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"sslo/internal/testutil"
	"sslo/test/device"
	"sslo/test/lab/origin"
)

// wire builds one device between the box, as the client, and the server: the device's outer NIC of
// the box goes to the server, so that frames cross the device without any daemon.
func wire(t *testing.T, d Device, offload bool) *Lab {
	t.Helper()
	testutil.RequireRoot(t)
	l := Test(t, Topology{Devices: []Device{d}})
	in, out := InNIC(d.Name), OutNIC(d.Name)
	must(t, l.Server().netlinkNS(func(fd int) error {
		return l.Box.onLink(out, func(h *netlink.Handle, link netlink.Link) error { return h.LinkSetNsFd(link, fd) })
	}))
	must(t, l.Server().setUp(out, true))
	must(t, l.Box.address(in, prefix("10.50.0.1/24"), prefix("fd00:50::1/64")))
	must(t, l.Server().address(out, prefix("10.50.0.2/24"), prefix("fd00:50::2/64")))
	if !offload {
		noOffload(t, l.Box, in)
		noOffload(t, l.Server().Namespace, out)
	}
	return l
}

func noOffload(t *testing.T, n *Namespace, nic string) {
	t.Helper()
	must(t, n.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		return e.Change(nic, map[string]bool{"tx-checksum-ip-generic": false, "tx-tcp-segmentation": false,
			"tx-tcp6-segmentation": false, "tx-generic-segmentation": false})
	}))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var farEnds = []string{"10.50.0.2:443", "[fd00:50::2]:443"}

// fetch downloads n bytes through the device from the server's TLS origin, and uploads as many.
func fetch(t *testing.T, l *Lab, address string, n int64) error {
	t.Helper()
	o := ClientOptions{Address: netip.MustParseAddrPort(address)}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	from := &Host{Namespace: l.Box}
	for _, transfer := range []func(context.Context, *Host, int64, int64, ClientOptions) (Transfer, error){l.Download, l.Upload} {
		tr, err := transfer(ctx, from, n, 0, o)
		if err != nil {
			return err
		}
		if !tr.Right {
			return fmt.Errorf("%d bytes, wrong hash", tr.Bytes)
		}
	}
	return nil
}

func TestFramesCrossDevices(t *testing.T) {
	for name, tc := range map[string]struct {
		device  Device
		offload bool
	}{
		"bridge":               {Device{Name: "a", Kind: Bridge}, true},
		"inspect":              {Device{Name: "a", Kind: Inspect}, false},
		"inspect with offload": {Device{Name: "a", Kind: Inspect, Offload: true}, true},
		"rewrite":              {Device{Name: "a", Kind: Inspect, Options: device.Options{Mode: device.RewriteSequence}}, false},
		"delay":                {Device{Name: "a", Kind: Inspect, Options: device.Options{Mode: device.DelayMode, Delay: time.Millisecond}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := wire(t, tc.device, tc.offload)
			if tc.device.Options.Mode != "" {
				must(t, l.Restore("a"))
			}
			for _, address := range farEnds {
				must(t, fetch(t, l, address, 4<<20))
			}
		})
	}
}

// A device without offload can not use what the kernel leaves to the hardware; it must say so.
func TestOffloadLeftOnIsCounted(t *testing.T) {
	l := wire(t, Device{Name: "a", Kind: Inspect}, true)
	if reaches(t, l) {
		t.Fatal("a connection was made with unfilled checksums")
	}
	if s, err := l.DeviceStats("a"); err != nil || s.BadChecksum == 0 {
		t.Fatalf("bad checksums not counted: %+v %v", s, err)
	}
}

func TestFailuresAndRestore(t *testing.T) {
	for _, kind := range []Kind{Bridge, Inspect} {
		for _, how := range []Failure{LinkDown, Blackhole, BlackholeData, BlackholeOrig, BlackholeReply, Hang, Reset, Reflect, SwallowSYN} {
			t.Run(fmt.Sprintf("%s %s", kind, how), func(t *testing.T) {
				l := wire(t, Device{Name: "a", Kind: kind}, kind == Bridge)
				must(t, fetch(t, l, farEnds[0], 1<<16))
				must(t, l.Fail("a", how))
				if reaches(t, l) {
					t.Fatal("the device still works")
				}
				must(t, l.Restore("a"))
				Eventually(t, 5*time.Second, func() error { return fetch(t, l, farEnds[0], 1<<16) })
			})
		}
	}
}

// reaches says whether a connection through the device can be made.
func reaches(t *testing.T, l *Lab) bool {
	t.Helper()
	c, err := l.Box.Dial(t.Context(), &net.Dialer{Timeout: 300 * time.Millisecond}, "tcp", farEnds[0])
	if err == nil {
		c.Close()
	}
	return err == nil
}

// plain runs a server without TLS behind the device that collects what it reads.
func plain(t *testing.T, l *Lab) (address string, got chan string) {
	t.Helper()
	listener, err := l.Server().Listen("tcp", ":8080")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	got = make(chan string, 16)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b, err := io.ReadAll(c)
				got <- fmt.Sprint(string(b), " ", err)
			}()
		}
	}()
	return "10.50.0.2:8080", got
}

func TestSignatureAcrossSegmentsResetsBothSides(t *testing.T) {
	l := wire(t, Device{Name: "a", Kind: Inspect}, false)
	address, got := plain(t, l)
	c, err := l.Box.DialContext(t.Context(), "tcp", address)
	must(t, err)
	defer c.Close()
	for _, part := range []string{"GET /?f=../..", "/etc/pas", "swd HTTP/1.1\r\n\r\n"} {
		if _, err := io.WriteString(c, part); err != nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.SetReadDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("client: %v, want a reset", err)
	}
	select {
	case s := <-got:
		if strings.Contains(s, "passwd") || !strings.Contains(s, "reset") {
			t.Errorf("server got %q, want the beginning and a reset", s)
		}
	case <-time.After(2 * time.Second):
		t.Error("server was not reset")
	}
}

func TestInspectingDeviceReportsRequests(t *testing.T) {
	l := wire(t, Device{Name: "a", Kind: Inspect}, false)
	address, got := plain(t, l)
	c, err := l.Box.DialContext(t.Context(), "tcp", address)
	must(t, err)
	fmt.Fprint(c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
	client := c.LocalAddr().String()
	c.Close()
	<-got
	s, err := l.DeviceStats("a")
	must(t, err)
	if len(s.Seen) != 1 || s.Seen[0].Client.String() != client || s.Seen[0].Request != "GET /hello HTTP/1.1" {
		t.Errorf("seen %+v, want the request of %s", s.Seen, client)
	}
}

func TestDeviceAnswersByItself(t *testing.T) {
	l := wire(t, Device{Name: "a", Kind: Inspect}, false)
	must(t, l.Fail("a", Answer))
	c, err := l.Box.DialContext(t.Context(), "tcp", "10.50.0.2:8080") // nobody listens there
	must(t, err)
	defer c.Close()
	fmt.Fprint(c, "GET / HTTP/1.1\r\n\r\n")
	c.SetReadDeadline(time.Now().Add(2 * time.Second))
	b, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(b), "403 Forbidden") {
		t.Errorf("%q %v, want the device's block page", b, err)
	}
}

func TestFloodMultipliesFrames(t *testing.T) {
	l := wire(t, Device{Name: "a", Kind: Inspect}, false)
	must(t, fetch(t, l, farEnds[0], 1<<16)) // neighbours are known from here on
	must(t, l.Fail("a", Flood))
	before, err := l.DeviceStats("a")
	must(t, err)
	reaches(t, l)
	after, err := l.DeviceStats("a")
	must(t, err)
	in := after.Received[0].Frames - before.Received[0].Frames
	if out := after.Sent[1].Frames - before.Sent[1].Frames; in == 0 || out < 4*in {
		t.Errorf("%d frames in, %d out; want each four times", in, out)
	}
}

func TestCaptureAndInject(t *testing.T) {
	l := wire(t, Device{Name: "a", Kind: Bridge}, true)
	seen := make(chan string, 16)
	must(t, l.Server().Capture(t.Context(), OutNIC("a"), func(p gopacket.Packet) {
		if eth, ok := p.LinkLayer().(*layers.Ethernet); ok && eth.EthernetType == 0x88B6 {
			seen <- string(eth.Payload[:5])
		}
	}))
	frame := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xB6}, "hello, this is long enough for a frame ......."...)
	must(t, l.Box.Inject(InNIC("a"), frame))
	select {
	case s := <-seen:
		if s != "hello" {
			t.Errorf("captured %q", s)
		}
	case <-time.After(2 * time.Second):
		t.Error("the frame did not arrive")
	}
}

func TestHostsReachTheBox(t *testing.T) {
	testutil.RequireRoot(t)
	l := Test(t, Topology{ClientLinks: 2, Servers: 2})
	for _, c := range l.Clients {
		for _, s := range l.Servers { // the box routes in a lab without daemon
			for _, a := range []netip.Addr{s.Addr4, s.Addr6} {
				body, err := l.Get(t.Context(), c, "/", ClientOptions{Address: netip.AddrPortFrom(a, TLSPort)})
				if err != nil || !strings.HasPrefix(body, "hello from server") {
					t.Errorf("%s to %s: %q %v", c.Name, a, body, err)
				}
			}
		}
	}
}

func TestNginx(t *testing.T) {
	testutil.RequireRoot(t)
	if _, err := exec.LookPath("nginx"); err != nil {
		t.Skip(err)
	}
	l := Test(t, Topology{NoOrigin: true})
	_, err := l.StartNginx(l.Server())
	must(t, err)
	must(t, os.WriteFile(l.Path("www/hello"), []byte("from nginx"), 0o644))
	o := ClientOptions{Address: netip.AddrPortFrom(l.Server().Addr6, TLSPort)}
	Eventually(t, 3*time.Second, func() error {
		body, err := l.Get(t.Context(), l.Client(), "/hello", o)
		if err == nil && body != "from nginx" {
			err = fmt.Errorf("got %q", body)
		}
		return err
	})
}

func TestCloseLeavesNothing(t *testing.T) {
	testutil.RequireRoot(t)
	l, err := New(t.Context(), Standard(), Options{})
	must(t, err)
	sleeper, err := l.Start(l.Box, "sleeper", "sleep", "100")
	must(t, err)
	must(t, l.Close())
	if left, _ := filepath.Glob(netnsDir + "/sslo-" + l.ID + "-*"); len(left) > 0 {
		t.Errorf("namespaces left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(stateDir, l.ID)); !os.IsNotExist(err) {
		t.Errorf("state left: %v", err)
	}
	select {
	case <-sleeper.Done():
	default:
		t.Error("process left")
	}
}

// Devices and origins as processes of their own: a hang stops the process, a bridge gets a stand-in.
func TestDevicesAsProcesses(t *testing.T) {
	testutil.RequireRoot(t)
	program, err := Program()
	must(t, err)
	topology := Topology{Devices: []Device{{Name: "i", Kind: Inspect, Offload: true}, {Name: "b", Kind: Bridge}}}
	l, err := New(t.Context(), topology, Options{Program: program, Detached: true})
	must(t, err)
	defer l.Close()
	other, err := Attach(l.ID, Options{Program: program}) // as `sslo lab fail` does
	must(t, err)

	must(t, other.Fail("i", Hang))
	if _, err := l.DeviceStats("i"); err == nil {
		t.Error("a stopped process answers")
	}
	must(t, other.Restore("i"))
	if s, err := l.DeviceStats("i"); err != nil || s.Mode != device.InspectMode {
		t.Errorf("after restore: %v %v", s.Mode, err)
	}
	must(t, other.Fail("b", Reflect))
	if s, err := other.DeviceStats("b"); err != nil || s.Mode != device.Reflect {
		t.Errorf("stand-in: %v %v", s.Mode, err)
	}
	must(t, other.Restore("b"))
	if _, running := other.Running("device-b"); running {
		t.Error("the stand-in is still recorded")
	}
	must(t, Down(l.ID))
	if _, running := l.Running("device-i"); running {
		t.Error("the device's process outlived the lab")
	}
}

// A lab whose owner was killed is taken down by the next one, from its record alone.
func TestSweepRemovesTheLabsOfTheDead(t *testing.T) {
	testutil.RequireRoot(t)
	l, err := New(t.Context(), Line(1, Bridge), Options{})
	must(t, err)
	l.state.Owner = process{PID: os.Getpid(), Start: "1"} // a pid that was somebody else's
	must(t, l.Detach())
	Sweep()
	if _, err := os.Stat(l.Box.path()); !os.IsNotExist(err) {
		t.Errorf("the box is still there: %v", err)
	}
	must(t, l.Close())
}

func TestOneDeviceForwardsAGigabitPerSecond(t *testing.T) {
	l := wire(t, Device{Name: "a", Kind: Inspect}, false)
	start := time.Now()
	const n = 256 << 20
	tr, err := l.Download(t.Context(), &Host{Namespace: l.Box}, n, 0, ClientOptions{Address: netip.MustParseAddrPort(farEnds[0])})
	if err != nil || !tr.Right {
		t.Fatalf("%+v %v", tr, err)
	}
	rate := float64(n) * 8 / time.Since(start).Seconds() / 1e9
	t.Logf("%.2f Gbit/s through an inspecting device without offload, TLS and hash included", rate)
	if rate < 0.2 { // far below what an idle machine shows: this is to find a collapse
		t.Errorf("%.2f Gbit/s", rate)
	}
}

func TestStreamSumIsOfTheStream(t *testing.T) {
	m := origin.NewMeter()
	if n, err := io.Copy(m, origin.Stream(200_001)); n != 200_001 || err != nil || m.Sum() != origin.Sum(200_001) {
		t.Errorf("%d %v", n, err)
	}
}
