package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"sslo/admin/api"
	"sslo/admin/client"
	"sslo/test/lab"
)

func newLabDemoCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Build a lab, attack it, break its devices in the middle of transfers, and tell what happened",
		Long: `The demo builds a lab of its own and takes it down again, also on Ctrl-C. Every step is checked: the
exit code is 1 if any of it did not happen. It takes less than a minute.`,
		Args: cobra.NoArgs,
		RunE: runDemo,
	}
}

// demo tells a story and checks it.
type demo struct {
	*printer
	lab    *lab.Lab
	admin  *client.Client
	start  time.Time
	failed []string
}

func runDemo(cmd *cobra.Command, _ []string) (err error) {
	program, err := labProgram()
	if err != nil {
		return err
	}
	d := &demo{printer: newPrinter(cmd.OutOrStdout()), start: time.Now()}
	signal.Ignore(syscall.SIGPIPE) // a reader that goes away (`| head`) must not end us before the lab is down
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	defer func() { err = errors.Join(err, d.tearDown()) }()
	if err := d.build(ctx, program); err != nil {
		return d.explain(err)
	}
	for _, step := range []func(context.Context) error{d.plaintext, d.attack, d.failures, d.resets, d.operator, d.ledger} {
		if err := step(ctx); err != nil {
			return d.explain(err)
		}
	}
	return d.verdict()
}

// explain adds the end of the daemon's log, which says more than the error.
func (d *demo) explain(err error) error {
	if d.lab == nil {
		return err
	}
	if log, readErr := os.ReadFile(d.lab.Path("daemon.log")); readErr == nil {
		lines := strings.Split(strings.TrimSpace(string(log)), "\n")
		d.line("%s\n%s", d.paint(dim, "the daemon's last words:"), strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
	return err
}

// title begins a step.
func (d *demo) title(format string, args ...any) {
	d.line("\n%s %s", d.paint(dim, fmt.Sprintf("[%4.1fs]", time.Since(d.start).Seconds())), d.paint(bold, fmt.Sprintf(format, args...)))
}

// check notes whether something happened.
func (d *demo) check(ok bool, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if ok {
		d.line("  %s %s", d.paint(good, "ok  "), what)
		return
	}
	d.failed = append(d.failed, what)
	d.line("  %s %s", d.paint(bad, "FAIL"), what)
}

func (d *demo) say(format string, args ...any) { d.line("  "+format, args...) }

func (d *demo) verdict() error {
	if len(d.failed) > 0 {
		return d.explain(fmt.Errorf("%d steps did not happen as they should:\n  %s", len(d.failed), strings.Join(d.failed, "\n  ")))
	}
	return nil
}

const picture = `
              TLS           plaintext, as real packets            TLS
   client ═══════════> ┌──────────────────────────────┐ ═══════════════> server1
                       │             box              │
                       └──┬────────┬──────┬────────┬──┘
                          └─ ips1 ─┘      └─ waf1 ─┘
                          └─ ips2 ─┘      └─ waf2 ─┘
   chain [ips, waf]: each connection crosses one IPS (reads it, blocks attacks), then one WAF (a bridge)`

// build brings up the lab. ips1 and waf1 are active, ips2 and waf2 stand by, so that it is known
// beforehand which device a transfer crosses.
func (d *demo) build(ctx context.Context, program string) (err error) {
	d.title("Building a lab: seven hosts in network namespaces, and the daemon")
	topology := lab.Standard()
	for i := range topology.Pools {
		topology.Pools[i].Keys = map[string]any{"method": "active-standby"}
	}
	d.lab, err = lab.New(ctx, topology, lab.Options{ID: fmt.Sprintf("demo-%d", os.Getpid()), Program: program, Processes: true})
	if err != nil {
		return err
	}
	d.line("%s", picture)
	d.admin = client.New(d.lab.AdminSocket())
	if err := startLab(ctx, d.lab, nil); err != nil {
		return err
	}
	d.check(true, "the daemon runs, and its monitors have found all four devices up")
	return nil
}

// tearDown ends the lab and looks whether anything is left.
func (d *demo) tearDown() error {
	if d.lab == nil {
		return nil
	}
	d.title("Taking everything down")
	if err := d.lab.Close(); err != nil {
		return err
	}
	left, err := filepath.Glob("/run/netns/sslo-" + d.lab.ID + "-*")
	if err != nil || len(left) > 0 {
		return fmt.Errorf("left behind: %v %w", left, err)
	}
	if _, err := os.Stat(d.lab.PinPath()); err == nil {
		return fmt.Errorf("left behind: %s", d.lab.PinPath())
	}
	d.say("no namespace, process, pin or file is left (%.0f seconds in all)", time.Since(d.start).Seconds())
	return nil
}

// device asks for one device.
func (d *demo) device(ctx context.Context, name string) (api.Device, error) {
	var dev api.Device
	err := d.admin.Get(ctx, "/v1/devices/"+name, &dev)
	return dev, err
}

// tree asks for the sessions of a transfer's connection.
func (d *demo) tree(ctx context.Context, tr *transfer) (api.SessionList, error) {
	var list api.SessionList
	err := d.admin.Get(ctx, client.SessionQuery{Client: tr.client().String(), Trees: true}.Path(), &list)
	return list, err
}

// showTree prints it, indented as the rest.
func (d *demo) showTree(list api.SessionList) {
	indented := *d.printer
	indented.w = &indenter{to: d.w, indent: "       "}
	showSessionTrees(&indented, list)
}

// indenter begins every line with an indent; each write is one or more whole lines.
type indenter struct {
	to     interface{ Write([]byte) (int, error) }
	indent string
}

func (i *indenter) Write(p []byte) (int, error) {
	text := i.indent + strings.ReplaceAll(strings.TrimSuffix(string(p), "\n"), "\n", "\n"+i.indent) + "\n"
	_, err := i.to.Write([]byte(text))
	return len(p), err
}

// transfer is a download or an upload under way.
type transfer struct {
	name     string
	progress *lab.Progress
	done     chan struct{}
	result   lab.Transfer
	err      error
}

type startTransfer func(context.Context, *lab.Host, int64, int64, lab.ClientOptions) (lab.Transfer, error)

// begin starts a transfer and waits until it flows.
func (d *demo) begin(ctx context.Context, name string, start startTransfer, size, rate int64) (*transfer, error) {
	tr := &transfer{name: name, progress: &lab.Progress{}, done: make(chan struct{})}
	go func() {
		defer close(tr.done)
		tr.result, tr.err = start(ctx, d.lab.Client(), size, rate, lab.ClientOptions{Progress: tr.progress})
	}()
	for !tr.client().IsValid() {
		select {
		case <-tr.done:
			return nil, fmt.Errorf("%s did not start: %w", name, tr.err)
		case <-time.After(time.Millisecond):
		}
	}
	return tr, nil
}

// both starts a download and an upload at once.
func (d *demo) both(ctx context.Context, size, rate int64) ([]*transfer, error) {
	var (
		wait sync.WaitGroup
		trs  [2]*transfer
		errs [2]error
	)
	for i, start := range []startTransfer{d.lab.Download, d.lab.Upload} {
		wait.Go(func() { trs[i], errs[i] = d.begin(ctx, []string{"download", "upload"}[i], start, size, rate) })
	}
	wait.Wait()
	return trs[:], errors.Join(errs[:]...)
}
