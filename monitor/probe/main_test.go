package probe

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

const inNamespace = "SSLO_PROBE_TEST_NETNS"

// TestMain runs the whole test binary again in a network namespace of its own, which ends with
// it however it ends. Without root only the tests that need none run.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(inNamespace) != "":
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "no loopback: %v: %s\n", err, out)
			os.Exit(1)
		}
		os.Exit(m.Run())
	case os.Geteuid() != 0:
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "no network namespace:", err)
		os.Exit(1)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}
