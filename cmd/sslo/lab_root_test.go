package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sslo/internal/testutil"
	"sslo/test/lab"
)

func sslo(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	testutil.RequireRoot(t)
	program, err := lab.Program()
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(program, args...)
}

func runSSLO(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := sslo(t, args...).CombinedOutput()
	return string(out), err
}

// The demo checks itself; all that is left to check is that it says so.
func TestDemo(t *testing.T) {
	start := time.Now()
	out, err := runSSLO(t, "lab", "demo")
	if err != nil || strings.Contains(out, "FAIL") {
		t.Fatalf("%v\n%s", err, out)
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("the demo took %s", took)
	}
	if strings.Contains(out, "\x1b") {
		t.Error("colours in a pipe")
	}
}

func TestInterruptedDemoLeavesNothing(t *testing.T) {
	cmd := sslo(t, "lab", "demo")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * time.Second)
	cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted demo says that all is well")
	}
	id := fmt.Sprintf("demo-%d", cmd.Process.Pid)
	if slices.Contains(lab.IDs(), id) {
		t.Errorf("lab %s is left", id)
	}
	if left, _ := filepath.Glob("/run/netns/sslo-" + id + "-*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestLabCommands(t *testing.T) {
	const name = "commands"
	lab.Down(name) // of a test that was killed
	if out, err := runSSLO(t, "lab", "--name", name, "up"); err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	t.Cleanup(func() { lab.Down(name) })
	if out, err := runSSLO(t, "lab", "--name", name, "fail", "waf1", "--how", "hang"); err != nil {
		t.Fatalf("fail: %v\n%s", err, out)
	}
	waitStatus(t, name, "waf1 bridge hang down")
	if out, err := runSSLO(t, "lab", "--name", name, "restore", "waf1"); err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	waitStatus(t, name, "waf1 bridge works up")
	if out, err := runSSLO(t, "lab", "--name", name, "exec", "client", "--", "ip", "-br", "address"); err != nil || !strings.Contains(out, "10.1.0.10/24") {
		t.Errorf("exec: %v\n%s", err, out)
	}
	if out, err := runSSLO(t, "lab", "--name", name, "up"); err == nil {
		t.Errorf("a second lab of one name: %s", out)
	}
	if out, err := runSSLO(t, "lab", "--name", name, "down"); err != nil {
		t.Fatalf("down: %v\n%s", err, out)
	}
	if left, _ := filepath.Glob("/run/netns/sslo-" + name + "-*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat("/sys/fs/bpf/sslo-" + name); err == nil {
		t.Error("pins are left")
	}
}

func waitStatus(t *testing.T, name, want string) {
	t.Helper()
	var out string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if out, _ = runSSLO(t, "lab", "--name", name, "status"); strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			return
		}
	}
	t.Errorf("status never said %q:\n%s", want, out)
}
