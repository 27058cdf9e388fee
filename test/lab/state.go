package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stateDir has one folder a lab, so that a later process can take down what a killed one left.
const stateDir = "/run/sslo-lab"

// ErrNoLab means that no lab of that name is recorded.
var ErrNoLab = errors.New("no such lab")

// state is what is needed to find a lab again, written before each thing is made.
type state struct {
	ID         string
	Dir        string
	Owner      process // whose end is the lab's end, unless it is detached
	Detached   bool
	Namespaces []string
	Processes  map[string]process
	Topology   Topology
	Failures   map[string]Failure // by device
}

// process is a pid that can not be mistaken for a later process with the same number.
type process struct {
	PID   int
	Start string // start time in clock ticks since boot
}

func (s *state) folder() string { return filepath.Join(stateDir, s.ID) }

func (l *Lab) openState() error {
	l.state = state{ID: l.ID, Dir: l.opts.Dir, Owner: processOf(os.Getpid()), Detached: l.opts.Detached,
		Topology: l.Topology, Processes: make(map[string]process), Failures: make(map[string]Failure)}
	folder := l.state.folder()
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		l.state = state{} // another's: nothing of it is ours to remove
		return fmt.Errorf("lab %s is up already, or was not taken down: %w", l.ID, err)
	}
	if l.Dir = l.opts.Dir; l.Dir == "" {
		l.Dir = folder
		l.state.Dir = folder
	}
	return l.saveState()
}

func (l *Lab) saveState() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.save()
}

func (s *state) save() error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(s.folder(), "state.json")
	if err := os.WriteFile(path+".new", b, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func loadState(id string) (state, error) {
	var s state
	b, err := os.ReadFile(filepath.Join(stateDir, id, "state.json"))
	if errors.Is(err, os.ErrNotExist) {
		return s, fmt.Errorf("%w: %s", ErrNoLab, id)
	}
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// record keeps how a device fails, for `lab status`.
func (l *Lab) record(device string, how Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if how == "" {
		delete(l.state.Failures, device)
	} else {
		l.state.Failures[device] = how
	}
	l.state.save() // informative only
}

// Failures of devices, as made by Fail.
func (l *Lab) Failures() map[string]Failure { return l.state.Failures }

// remove ends every process and namespace of the lab, then its record.
func (s *state) remove() error {
	if s.ID == "" {
		return nil
	}
	s.killAll()
	var errs []error
	for _, name := range s.Namespaces {
		errs = append(errs, (&Namespace{name}).remove())
	}
	errs = append(errs, os.RemoveAll("/sys/fs/bpf/sslo-"+s.ID))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take down lab %s: %w", s.ID, err)
	}
	return os.RemoveAll(s.folder())
}

// killAll ends the recorded processes and whatever else still runs in the lab's namespaces.
func (s *state) killAll() {
	var pids []process
	for _, p := range s.Processes {
		pids = append(pids, p)
	}
	for _, pid := range s.inside() {
		pids = append(pids, processOf(pid))
	}
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		for _, p := range pids {
			p.signal(signal)
			p.signal(unix.SIGCONT)
		}
		if poll(2*time.Second, func() error { return noneAlive(pids) }) == nil {
			return
		}
	}
}

func noneAlive(pids []process) error {
	for _, p := range pids {
		if p.alive() {
			return fmt.Errorf("process %d still runs", p.PID)
		}
	}
	return nil
}

// inside lists the processes in the lab's namespaces; this one may have threads there.
func (s *state) inside() []int {
	mine := make(map[string]bool)
	for _, name := range s.Namespaces {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(netnsDir, name), &st) == nil && !onDisk(netnsDir, st) {
			mine[fmt.Sprintf("net:[%d]", st.Ino)] = true
		}
	}
	var pids []int
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net") // the pattern is fine
	for _, link := range links {
		ns, err := os.Readlink(link)
		pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
		if err == nil && mine[ns] && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// onDisk says that a name in dir is a plain file, not a mounted namespace: its inode means nothing.
func onDisk(dir string, st unix.Stat_t) bool {
	var parent unix.Stat_t
	return unix.Stat(dir, &parent) == nil && parent.Dev == st.Dev
}

func processOf(pid int) process { return process{pid, startTime(pid)} }

// startTime is field 22 of /proc/PID/stat; empty for a process that is gone or a zombie.
func startTime(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the name may have blanks
	fields := strings.Fields(rest)
	if len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

func (p process) alive() bool { return p.Start != "" && startTime(p.PID) == p.Start }

func (p process) signal(s unix.Signal) {
	if p.alive() {
		unix.Kill(p.PID, s)
	}
}

// Sweep takes down the labs whose owner has died without doing it.
func Sweep() {
	for _, id := range IDs() {
		if s, err := loadState(id); err == nil && !s.Detached && !s.Owner.alive() {
			s.remove()
		}
	}
}

// IDs of the recorded labs.
func IDs() []string {
	entries, _ := os.ReadDir(stateDir) // no folder: no labs
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids
}

// Down takes down a lab by its record, whoever has built it.
func Down(id string) error {
	s, err := loadState(id)
	if err != nil {
		return err
	}
	return s.remove()
}

// poll calls fn until it succeeds; after the deadline its last error is returned.
func poll(limit time.Duration, fn func() error) error {
	end := time.Now().Add(limit)
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := fn()
		if err == nil || time.Now().After(end) {
			return err
		}
		time.Sleep(wait)
	}
}
