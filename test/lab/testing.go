package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// TB is what Test needs of a testing.TB.
type TB interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(func())
	Context() context.Context
	Failed() bool
}

// Test builds a lab that is taken down with the test, also on Ctrl-C. Devices run in this process.
func Test(t TB, topology Topology) *Lab {
	t.Helper()
	l, err := New(t.Context(), topology, Options{})
	if err != nil {
		t.Fatal(err)
	}
	live.add(l)
	t.Cleanup(func() {
		live.remove(l)
		if err := l.Close(); err != nil {
			t.Errorf("%v", err)
		}
	})
	return l
}

// TestDaemon builds a lab, and in its box runs the daemon with the lab's configuration as changed by edits.
func TestDaemon(t TB, topology Topology, edits ...func(Config)) (*Lab, *Process) {
	t.Helper()
	l := Test(t, topology)
	c := l.Config()
	for _, edit := range edits {
		edit(c)
	}
	return l, l.RunDaemon(t, c)
}

// RunDaemon writes the configuration, starts the daemon and stops it before the lab goes. The
// daemon's log is shown if the test has failed.
func (l *Lab) RunDaemon(t TB, c Config) *Process {
	t.Helper()
	program, err := Program()
	if err != nil {
		t.Fatal(err)
	}
	l.opts.Program = program
	path, err := l.WriteConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.StartDaemon(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop() // may be stopped already, on purpose
		if t.Failed() {
			t.Logf("daemon's log:\n%s", p.Output())
		}
	})
	return p
}

var (
	programOnce sync.Once
	programPath string
	programErr  error
)

// Program is the sslo binary for tests: SSLO_BINARY, or built once a process from this module.
func Program() (string, error) {
	programOnce.Do(func() {
		if programPath = os.Getenv("SSLO_BINARY"); programPath == "" {
			programPath, programErr = buildProgram()
		}
	})
	return programPath, programErr
}

// buildProgram builds into a folder named after this process, and removes those of processes that have ended.
func buildProgram() (string, error) {
	base := filepath.Join(os.TempDir(), "sslo-test-")
	old, _ := filepath.Glob(base + "[0-9]*") // the pattern is fine
	for _, dir := range old {
		if pid, err := strconv.Atoi(strings.TrimPrefix(dir, base)); err == nil && startTime(pid) == "" {
			os.RemoveAll(dir)
		}
	}
	path := filepath.Join(base+strconv.Itoa(os.Getpid()), "sslo")
	cmd := exec.Command("go", "build", "-o", path, "sslo/cmd/sslo")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build sslo: %w: %s", err, out)
	}
	return path, nil
}

// live are the labs to take down when the process is told to end.
var live liveLabs

type liveLabs struct {
	mu   sync.Mutex
	labs map[*Lab]bool
	once sync.Once
}

func (v *liveLabs) add(l *Lab) {
	v.once.Do(v.watch)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.labs == nil {
		v.labs = make(map[*Lab]bool)
	}
	v.labs[l] = true
}

func (v *liveLabs) remove(l *Lab) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.labs, l)
}

// watch takes down all labs on a signal, then lets the signal do what it does.
func (v *liveLabs) watch() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		s := (<-signals).(syscall.Signal)
		signal.Reset(s)
		v.mu.Lock()
		for l := range v.labs {
			l.Close()
		}
		syscall.Kill(os.Getpid(), s)
	}()
}

// Eventually waits until fn succeeds.
func Eventually(t TB, limit time.Duration, fn func() error) {
	t.Helper()
	if err := poll(limit, fn); err != nil {
		t.Fatalf("not within %s: %v", limit, err)
	}
}
