package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine says where this was measured.
func machine() []string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	cpu := "unknown CPU"
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			cpu = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
			break
		}
	}
	first := func(name string, args ...string) string {
		out, _ := exec.Command(name, args...).CombinedOutput()
		line, _, _ := strings.Cut(string(out), "\n")
		return line
	}
	return []string{
		fmt.Sprintf("Measured %s: %s, %d cores, Linux %s, %s.", time.Now().Format(time.DateOnly), cpu, runtime.NumCPU(),
			unix.ByteSliceToString(u.Release[:]), runtime.Version()),
		fmt.Sprintf("%s. %s.", first("nginx", "-v"), first("haproxy", "-v")),
	}
}
