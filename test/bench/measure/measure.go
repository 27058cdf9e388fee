// Package measure owns reading what processes have cost: CPU time and resident memory from /proc,
// the kernel's softirq threads, and the run time of eBPF programs. It starts nothing.
package measure

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on

// Cost is CPU time spent so far.
type Cost struct {
	User, System time.Duration
	Softirq      time.Duration // of the ksoftirqd threads, whoever caused it
}

// Sub is the cost between two readings.
func (c Cost) Sub(before Cost) Cost {
	return Cost{c.User - before.User, c.System - before.System, c.Softirq - before.Softirq}
}

// Total of a cost.
func (c Cost) Total() time.Duration { return c.User + c.System + c.Softirq }

// Read sums the cost of processes and all that they have started.
func Read(roots ...int) Cost {
	var c Cost
	processes := list()
	for _, pid := range tree(processes, roots) {
		p := processes[pid]
		c.User += p.user
		c.System += p.system
	}
	for _, p := range processes {
		if strings.HasPrefix(p.name, "ksoftirqd/") {
			c.Softirq += p.user + p.system
		}
	}
	return c
}

// Resident is the resident memory of processes and all that they have started, in bytes.
func Resident(roots ...int) int64 {
	var sum int64
	for _, pid := range tree(list(), roots) {
		sum += resident(pid)
	}
	return sum
}

type process struct {
	name         string
	parent       int
	user, system time.Duration
}

func list() map[int]process {
	processes := map[int]process{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		if pid, p, err := parse(string(text)); err == nil {
			processes[pid] = p
		}
	}
	return processes
}

// parse reads /proc/PID/stat (proc(5)); the name in parentheses may hold anything.
func parse(stat string) (pid int, p process, err error) {
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return 0, p, fmt.Errorf("stat without a name: %q", stat)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(stat[:open])); err != nil {
		return 0, p, err
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 13 {
		return 0, p, fmt.Errorf("stat of %d has %d fields", pid, len(fields))
	}
	p.name = stat[open+1 : end]
	p.parent, _ = strconv.Atoi(fields[1])
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	p.user, p.system = time.Duration(user)*tick, time.Duration(system)*tick
	return pid, p, nil
}

// tree is the roots and their descendants.
func tree(processes map[int]process, roots []int) []int {
	found := slices.Clone(roots)
	for i := 0; i < len(found); i++ {
		for pid, p := range processes {
			if p.parent == found[i] && !slices.Contains(found, pid) {
				found = append(found, pid)
			}
		}
	}
	return found
}

func resident(pid int) int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "Rss:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}
