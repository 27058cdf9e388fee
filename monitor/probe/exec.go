package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"sslo/monitor"
)

// ExecSpec: a command, which is told the target by environment variables.
type ExecSpec struct {
	Command string
	Args    string         // the arguments, each ended by a zero byte
	Target  string         // SSLO_TARGET
	Address netip.AddrPort // SSLO_ADDRESS and SSLO_PORT, when valid
}

// NewExecSpec takes a command with its arguments.
func NewExecSpec(command []string, target string, address netip.AddrPort) ExecSpec {
	s := ExecSpec{Command: command[0], Target: target, Address: address}
	for _, a := range command[1:] {
		s.Args += a + "\x00"
	}
	return s
}

// Exec probes by a command: exit status 0 is good.
type Exec struct{ spec ExecSpec }

// Open is part of Spec.
func (s ExecSpec) Open() (Prober, error) { return Exec{s}, nil }

func (s ExecSpec) String() string {
	return strings.TrimSpace("exec " + s.Command + " " + strings.ReplaceAll(s.Args, "\x00", " "))
}

// Close is part of Prober.
func (Exec) Close() error { return nil }

// maxOutput is how much of a command's output is kept; the rest is thrown away.
const maxOutput = 4 << 10

// Probe is part of Prober. When the time is over, the command and what it started are killed.
func (p Exec) Probe(ctx context.Context) monitor.Result {
	return timed(ctx, func() (string, error) {
		var args []string
		if p.spec.Args != "" {
			args = strings.Split(strings.TrimSuffix(p.spec.Args, "\x00"), "\x00")
		}
		cmd := exec.CommandContext(ctx, p.spec.Command, args...)
		out := &head{}
		cmd.Stdout, cmd.Stderr, cmd.Env, cmd.Dir = out, out, p.environment(), "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = 100 * time.Millisecond
		err := said(cmd.Run(), out)
		return out.line(), err
	})
}

func (p Exec) environment() []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "LANG=C", "SSLO_TARGET=" + p.spec.Target}
	if a := p.spec.Address; a.IsValid() {
		env = append(env, "SSLO_ADDRESS="+a.Addr().String())
		if a.Port() != 0 {
			env = append(env, fmt.Sprintf("SSLO_PORT=%d", a.Port()))
		}
	}
	return env
}

// said adds the first line of the output to how the command ended.
func said(err error, out *head) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) || out.line() == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, out.line())
}

// head keeps the first bytes that are written to it.
type head struct{ bytes.Buffer }

func (h *head) Write(b []byte) (int, error) {
	h.Buffer.Write(b[:min(len(b), maxOutput-h.Len())])
	return len(b), nil
}

func (h *head) line() string {
	line, _, _ := strings.Cut(strings.TrimSpace(h.String()), "\n")
	return strings.ToValidUTF8(line, "?")
}
