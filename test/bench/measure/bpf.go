package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const statsPath = "/proc/sys/kernel/bpf_stats_enabled"

// Programs is what the eBPF programs that a process holds have run so far.
type Programs struct {
	Runs        int64
	Nanoseconds int64
}

// Sub is what ran between two readings.
func (p Programs) Sub(before Programs) Programs {
	return Programs{p.Runs - before.Runs, p.Nanoseconds - before.Nanoseconds}
}

// EnableProgramStats makes the kernel count program run time (which costs time itself); the returned
// function restores what was set.
func EnableProgramStats() (restore func(), err error) {
	old, err := os.ReadFile(statsPath)
	if err != nil {
		return nil, err
	}
	return func() { _ = os.WriteFile(statsPath, old, 0o644) }, os.WriteFile(statsPath, []byte("1"), 0o644)
}

// ReadPrograms reads the eBPF programs of a process from its file descriptors, each program once.
func ReadPrograms(pid int) (Programs, error) {
	var sum Programs
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	seen := map[string]bool{}
	for _, path := range paths {
		info := fields(path)
		id := info["prog_id"]
		if info["run_cnt"] == "" || seen[id] {
			continue // no program, or a link to one that is counted
		}
		seen[id] = true
		runs, _ := strconv.ParseInt(info["run_cnt"], 10, 64)
		ns, _ := strconv.ParseInt(info["run_time_ns"], 10, 64)
		sum.Runs += runs
		sum.Nanoseconds += ns
	}
	if len(seen) == 0 {
		return sum, fmt.Errorf("process %d holds no eBPF program", pid)
	}
	return sum, nil
}

func fields(path string) map[string]string {
	text, _ := os.ReadFile(path)
	info := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			info[name] = strings.TrimSpace(value)
		}
	}
	return info
}
