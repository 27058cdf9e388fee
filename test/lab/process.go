package lab

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"sslo/test/device"
)

// spawn starts the sslo binary in a namespace, with a log of its own in the lab's directory.
func (l *Lab) spawn(ns *Namespace, name string, args ...string) error {
	_, err := l.start(ns, name, l.opts.Program, args...)
	return err
}

func (l *Lab) start(ns *Namespace, name, program string, args ...string) (*Process, error) {
	if program == "" {
		return nil, fmt.Errorf("start %s: no program given", name)
	}
	log, err := os.OpenFile(l.Path(name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := ns.Do(cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{Name: name, Log: log.Name(), cmd: cmd, done: make(chan struct{})}
	go p.reap()
	l.mu.Lock()
	l.state.Processes[name] = processOf(cmd.Process.Pid)
	l.mu.Unlock()
	return p, l.saveState()
}

func (l *Lab) forget(process string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.state.Processes, process)
	l.state.save() // Down copes with a process that is gone
}

// Process is a program that the lab runs.
type Process struct {
	Name string
	Log  string // path
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func (p *Process) reap() {
	p.err = p.cmd.Wait()
	close(p.done)
}

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait for its end; the error is that of exec.Cmd.Wait.
func (p *Process) Wait(limit time.Duration) error {
	select {
	case <-p.done:
		return p.err
	case <-time.After(limit):
		return fmt.Errorf("%s: still running after %s", p.Name, limit)
	}
}

// Stop asks it to end, and after ten seconds makes it.
func (p *Process) Stop() error {
	p.Signal(syscall.SIGTERM)
	err := p.Wait(10 * time.Second)
	select {
	case <-p.done:
		return err
	default:
		p.cmd.Process.Kill()
		<-p.done
		return err
	}
}

// Kill ends it without a chance to clean up, as kill -9 does.
func (p *Process) Kill() error {
	err := p.cmd.Process.Kill()
	<-p.done
	return err
}

// Output is all that it has logged.
func (p *Process) Output() string {
	b, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// StartDaemon runs `sslo run --config CONFIG` in the box and waits until it answers on its admin socket.
// It may be called again after Kill or Stop.
func (l *Lab) StartDaemon(ctx context.Context, config string) (*Process, error) {
	p, err := l.start(l.Box, "daemon", l.opts.Program, "run", "--config", config, "--drain", "2s")
	if err != nil {
		return nil, err
	}
	err = poll(20*time.Second, func() error {
		select {
		case <-p.done:
			return nil
		case <-ctx.Done():
			return nil
		default:
		}
		c, err := net.Dial("unix", l.AdminSocket())
		if err == nil {
			c.Close()
		}
		return err
	})
	select {
	case <-p.done:
		return nil, fmt.Errorf("daemon ended at once (%v): %s", p.err, tail(p.Output()))
	default:
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, fmt.Errorf("daemon does not answer: %w: %s", err, tail(p.Output()))
	}
	return p, nil
}

func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// Start runs any program in a namespace as part of the lab; it ends with the lab.
func (l *Lab) Start(ns *Namespace, name, program string, args ...string) (*Process, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, err
	}
	return l.start(ns, name, path, args...)
}

// Attach finds a lab that another process has built with Detached.
func Attach(id string, opts Options) (*Lab, error) {
	s, err := loadState(id)
	if err != nil {
		return nil, err
	}
	if !s.Detached {
		return nil, fmt.Errorf("%w: %s belongs to process %d", ErrNoLab, id, s.Owner.PID)
	}
	opts.ID, opts.Dir, opts.Processes, opts.Detached = id, s.Dir, true, true
	l := &Lab{ID: id, Dir: s.Dir, Topology: s.Topology, opts: opts, log: opts.Logger, devices: make(map[string]*deviceHost), state: s}
	l.Box, _ = l.Namespace("box")
	for _, spec := range s.Topology.Devices {
		ns, _ := l.Namespace(spec.Name)
		d := &deviceHost{Device: spec, ns: ns, lab: l}
		if p, ok := s.Processes[d.process()]; ok {
			d.runner = &device.Remote{Socket: d.socket(), PID: p.PID}
		}
		l.devices[spec.Name] = d
	}
	return l, nil
}

// Running says whether a process of the lab is alive: daemon, device-NAME, origin-NAME.
func (l *Lab) Running(name string) (pid int, ok bool) {
	p, ok := l.state.Processes[name]
	return p.PID, ok && p.alive()
}

func loadLeaf(dir, name string) (tls.Certificate, error) {
	return tls.LoadX509KeyPair(dir+"/"+name+".pem", dir+"/"+name+".key")
}
