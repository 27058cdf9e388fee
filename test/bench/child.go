package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"sslo/test/bench/topo"
)

// child is this program again, in a namespace, between its "ready" and its result.
type child struct {
	cmd   *exec.Cmd
	stdin *os.File
	lines *bufio.Scanner
}

func start(t *topo.Topology, ns string, core int, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := t.Command(ns, core, self, args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	cmd.Stdin = read
	if err := cmd.Start(); err != nil {
		write.Close()
		return nil, err
	}
	c := &child{cmd, write, bufio.NewScanner(stdout)}
	if !c.lines.Scan() || c.lines.Text() != "ready" {
		c.end()
		return nil, fmt.Errorf("%s ended before it was ready", strings.Join(args, " "))
	}
	return c, nil
}

// finish lets the child do its work and reads the result. What it holds (idle connections) stays until end.
func (c *child) finish(result any) error {
	if _, err := c.stdin.WriteString("go\n"); err != nil {
		return err
	}
	if !c.lines.Scan() {
		return fmt.Errorf("%s gave no result", strings.Join(c.cmd.Args, " "))
	}
	return json.Unmarshal(c.lines.Bytes(), result)
}

func (c *child) end() {
	_ = c.stdin.Close()
	_ = c.cmd.Wait()
}
