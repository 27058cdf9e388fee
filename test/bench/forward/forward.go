// Package forward owns the measurement of forwarding alone: plain TCP, without TLS and proxies, through
// the chain. One process is sender and receiver, so that its CPU time is the whole cost. In one mode the
// session plane steers the packets, in the other plain Linux bridges join the same chain.
package forward

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sslo/chain"
	"sslo/datapath"
	"sslo/test/bench/load"
	"sslo/test/bench/topo"
)

const (
	port   = 80
	buffer = 2 << 20 // fixed: what the kernel tunes by itself differs from run to run, and acknowledgements with it
)

// Options of the child process.
type Options struct {
	Devices int
	Bytes   int64
	Dir     string // with a bpffs at bpf/: steer by the session plane
	Server  string // network namespace of the receiver: joined by bridges
}

// Args are the command line of Main.
func (o Options) Args() []string {
	return []string{"-devices", fmt.Sprint(o.Devices), "-bytes", fmt.Sprint(o.Bytes), "-dir", o.Dir, "-server", o.Server}
}

// Main is the child: "ready", a line from the parent, the transfer, a load.Result as JSON.
func Main(args []string) error {
	var o Options
	flags := flag.NewFlagSet("forward", flag.ContinueOnError)
	flags.IntVar(&o.Devices, "devices", 2, "")
	flags.Int64Var(&o.Bytes, "bytes", 1<<30, "")
	flags.StringVar(&o.Dir, "dir", "", "")
	flags.StringVar(&o.Server, "server", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ends, end, err := o.open()
	if err != nil {
		return err
	}
	defer end()
	return ends.serve(o.Bytes)
}

// ends are the two ends of the chain.
type ends struct {
	listener *net.TCPListener
	dialer   net.Dialer
	target   string
}

func (o Options) open() (*ends, func(), error) {
	if o.Server != "" {
		e, err := joined(o.Server)
		return e, func() {}, err
	}
	return o.steered()
}

// joined: the sender here, the receiver in another namespace.
func joined(server string) (*ends, error) {
	target := fmt.Sprintf("%s:%d", topo.VIP, port)
	e := &ends{target: target, dialer: net.Dialer{Control: control(false, "", 0)}}
	err := inNamespace(server, func() (err error) {
		e.listener, err = listen(target, control(false, "", 0))
		return err
	})
	return e, err
}

// steered: both ends on the virtual links of the session plane, as front and back use them.
func (o Options) steered() (*ends, func(), error) {
	d, err := datapath.Open(datapath.Options{
		PinPath: filepath.Join(o.Dir, "bpf", "forward"), StateDir: o.Dir, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return nil, nil, err
	}
	end := func() { _ = d.Teardown() }
	e, err := o.steer(d)
	if err != nil {
		end()
		return nil, nil, err
	}
	return e, end, nil
}

func (o Options) steer(d *datapath.Datapath) (*ends, error) {
	plan := o.plan()
	if err := d.Apply(context.Background(), plan); err != nil {
		return nil, err
	}
	for _, device := range plan.Devices {
		if err := d.SetDevice(device.Name, chain.DeviceStatus{Service: chain.Full}); err != nil {
			return nil, err
		}
	}
	l, err := listen("0.0.0.0:0", control(true, d.BackLink(), 0))
	if err != nil {
		return nil, err
	}
	if err := d.RegisterBackListener(l); err != nil {
		return nil, err
	}
	mark, ok := d.ChainMark("bench")
	if !ok {
		return nil, errors.New("the chain has no mark")
	}
	return &ends{
		listener: l, target: fmt.Sprintf("%s:%d", topo.VIP, port),
		dialer: net.Dialer{
			LocalAddr: &net.TCPAddr{IP: net.ParseIP(topo.Client)},
			Control:   control(true, d.FrontLink(), mark),
		},
	}, nil
}

func (o Options) plan() datapath.Plan {
	day := 24 * time.Hour
	p := datapath.Plan{
		Chains:      []chain.Chain{{Name: "bench"}},
		Timeouts:    datapath.Timeouts{Syn: time.Minute, Established: day, HalfClosed: day, Closing: time.Minute, Closed: time.Minute, UDP: time.Minute},
		MaxSessions: 1 << 16, TablesFrom: 100, RulePriority: 100, ChainShift: 16,
	}
	for n := 1; n <= o.Devices; n++ {
		in, out := topo.DeviceLinks(n)
		name := fmt.Sprintf("dev%d", n)
		p.Links = append(p.Links,
			datapath.Link{Name: in, NIC: in, Role: datapath.RoleDevice}, datapath.Link{Name: out, NIC: out, Role: datapath.RoleDevice})
		p.Devices = append(p.Devices, chain.Device{Name: name, In: in, Out: out, Offload: true})
		p.Pools = append(p.Pools, chain.Pool{Name: name, Devices: []chain.PoolMember{{Device: name}}})
		p.Chains[0].Pools = append(p.Chains[0].Pools, name)
	}
	return p
}

// serve transfers n bytes when the parent says so.
func (e *ends) serve(n int64) error {
	received := make(chan error, 1)
	go func() { received <- e.receive(n) }()
	conn, err := e.dialer.Dial("tcp4", e.target)
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Println("ready")
	stdin := bufio.NewReader(os.Stdin)
	_, _ = stdin.ReadString('\n')
	start := time.Now()
	if err := send(conn, n); err != nil {
		return err
	}
	if err := <-received; err != nil {
		return err
	}
	result := load.Result{Requests: 1, Bytes: n, Seconds: time.Since(start).Seconds()}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, stdin)
	return nil
}

func send(conn net.Conn, n int64) error {
	block := make([]byte, 256<<10)
	for n > 0 {
		k, err := conn.Write(block[:min(n, int64(len(block)))])
		if err != nil {
			return err
		}
		n -= int64(k)
	}
	return nil
}

func (e *ends) receive(n int64) error {
	conn, err := e.listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	got, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{io.LimitReader(conn, n)}, make([]byte, 256<<10))
	if err == nil && got != n {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func listen(address string, control func(string, string, syscall.RawConn) error) (*net.TCPListener, error) {
	lc := net.ListenConfig{Control: control}
	lc.SetMultipathTCP(false) // Go's default; an MPTCP listener can not be put into a map of sockets
	l, err := lc.Listen(context.Background(), "tcp4", address)
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// control sets what front and back set on their sockets; the bridges' ends get what is not about steering.
func control(transparent bool, link string, mark uint32) func(string, string, syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) (err error) {
		set := func(fd int) error {
			err := errors.Join(
				unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic"),
				unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer),
				unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, buffer))
			if err != nil || !transparent {
				return err
			}
			return errors.Join(
				unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
				unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1),
				unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark)),
				unix.BindToDevice(fd, link))
		}
		return errors.Join(raw.Control(func(fd uintptr) { err = set(int(fd)) }), err)
	}
}

// inNamespace runs f on a thread of its own in another network namespace; the thread is thrown away.
func inNamespace(name string, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		fd, err := unix.Open("/run/netns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			_ = unix.Close(fd)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}
