// Package peer owns the programs that are compared: it writes their configuration (tuned as an expert
// would, byte pipe, transparent client source), starts and ends them. Origin is the nginx TLS server
// behind all of them. It measures nothing.
package peer

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"

	"sslo/test/bench/topo"
)

//go:embed conf
var conf embed.FS

var templates = template.Must(template.ParseFS(conf, "conf/*"))

// Peer is one program, or sandwich of programs.
type Peer struct {
	Name   string
	Split  bool // needs a namespace for each half
	Direct bool // no proxy at all: the floor for latency
	start  func(*Run) error
}

// Peers by name.
var Peers = map[string]Peer{
	"sslo":     {Name: "sslo", start: startSSLO},
	"nginx":    {Name: "nginx", Split: true, start: startNginx},
	"haproxy":  {Name: "haproxy", Split: true, start: startHAProxy},
	"haproxy1": {Name: "haproxy1", Split: true, start: startHAProxyOne},
	"direct":   {Name: "direct", Split: true, Direct: true, start: func(*Run) error { return nil }},
}

// Run is a peer's life in a topology.
type Run struct {
	Topology *topo.Topology
	Dir      string // configuration, logs, the origin's files
	Core     int    // the peer's
	Binary   string // of sslo
	peer     []*process
	origin   *process
}

// Target is what clients connect to.
func (p Peer) Target() string {
	if p.Direct {
		return topo.Origin + ":443"
	}
	return topo.VIP + ":443"
}

// Prepare writes certificates and the origin's files; once for a directory.
func Prepare(dir string, sizes ...int64) error {
	for _, sub := range []string{"www/up", "tmp", "bpf"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	for name, size := range map[string]int64{"64": 64, "1k": 1024} {
		if err := os.WriteFile(filepath.Join(dir, "www", name), []byte(strings.Repeat("x", int(size))), 0o644); err != nil {
			return err
		}
	}
	for _, size := range sizes {
		path := filepath.Join(dir, "www", fmt.Sprintf("zero%d", size))
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			return err
		}
		if err := os.Truncate(path, size); err != nil {
			return err
		}
	}
	return writeCerts(dir, topo.VIP, topo.Origin)
}

// Start starts the origin on originCore and then the peer.
func (r *Run) Start(p Peer, originCore int) (err error) {
	if err := r.config("origin.conf", "nginx.head", "nginx-origin.conf"); err != nil {
		return err
	}
	r.origin, err = r.spawn("origin", "srv", originCore, nginx(r.Dir, "origin")...)
	if err != nil {
		return err
	}
	return p.start(r)
}

// Roots are the process ids to measure; their children count too.
func (r *Run) Roots() []int {
	var pids []int
	for _, p := range r.peer {
		pids = append(pids, p.Process.Pid)
	}
	return pids
}

// Stop ends peer and origin.
func (r *Run) Stop() {
	for _, p := range append(r.peer, r.origin) {
		p.stop()
	}
	uploads, _ := filepath.Glob(filepath.Join(r.Dir, "www/up/*"))
	for _, path := range uploads {
		_ = os.Remove(path)
	}
}

// Logs is the end of what the programs have said, for error messages.
func (r *Run) Logs() string {
	var b strings.Builder
	paths, _ := filepath.Glob(filepath.Join(r.Dir, "*.log"))
	errs, _ := filepath.Glob(filepath.Join(r.Dir, "*.err"))
	for _, path := range append(paths, errs...) {
		if text, _ := os.ReadFile(path); len(text) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", filepath.Base(path), text[max(0, len(text)-1000):])
		}
	}
	return b.String()
}

type device struct{ Name, In, Out string }

// view is what the templates see.
type view struct {
	Dir, Role, VIP, Inner, Origin string
	FrontNS, BackNS               string // HAProxy's namespace keyword, when one process holds both halves
	Devices                       []device
}

func (r *Run) view(role string) view {
	v := view{Dir: r.Dir, Role: role, VIP: topo.VIP, Inner: topo.Inner, Origin: topo.Origin}
	for n := 1; n <= r.Topology.Devices && !r.Topology.Split; n++ {
		in, out := topo.DeviceLinks(n)
		v.Devices = append(v.Devices, device{fmt.Sprintf("dev%d", n), in, out})
	}
	return v
}

// config writes a file from templates.
func (r *Run) config(file string, names ...string) error {
	role, _, _ := strings.Cut(file, ".")
	return r.write(file, r.view(role), names...)
}

func (r *Run) write(file string, v view, names ...string) error {
	f, err := os.Create(filepath.Join(r.Dir, file))
	if err != nil {
		return err
	}
	defer f.Close()
	for _, name := range names {
		if err := templates.ExecuteTemplate(f, name, v); err != nil {
			return err
		}
	}
	return f.Close()
}

func (r *Run) add(name, ns string, args ...string) error {
	p, err := r.spawn(name, ns, r.Core, args...)
	if err == nil {
		r.peer = append(r.peer, p)
	}
	return err
}

// process is a child with its log; ip, taskset and the program are one process, by exec.
type process struct {
	*exec.Cmd
	done chan struct{}
}

func (r *Run) spawn(name, ns string, core int, args ...string) (*process, error) {
	log, err := os.Create(filepath.Join(r.Dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{r.Topology.Command(ns, core, args[0], args[1:]...), make(chan struct{})}
	p.Stdout, p.Stderr = log, log
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { _ = p.Wait(); close(p.done) }()
	return p, nil
}

func (p *process) stop() {
	if p == nil {
		return
	}
	_ = p.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(3 * time.Second):
		_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
}
