package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"sslo/admin/api"
	"sslo/admin/client"
	"sslo/test/lab"
)

func init() { register(newLabCmd) }

const defaultLab = "lab"

func newLabCmd() *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "A laboratory on this machine: a client, a server, four devices, and the daemon between them",
		Long: `The lab is a set of network namespaces, each a host of its own: box (where the daemon runs), client,
server1, the inspecting devices ips1 and ips2, and the bridges waf1 and waf2, joined by virtual cables.
The chain is [ips, waf]. Nothing outside these namespaces is touched.`,
		Args: noSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&id, "name", defaultLab, "of the lab; several can be up at once")
	cmd.AddCommand(newLabUpCmd(&id), newLabStatusCmd(&id), newLabFailCmd(&id), newLabRestoreCmd(&id),
		newLabExecCmd(&id), newLabDownCmd(&id), newLabDemoCmd(), newDeviceRunCmd(), newOriginRunCmd())
	return cmd
}

func newLabUpCmd(id *string) *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Build the lab and start the daemon in it",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return labUp(cmd, *id) },
	}
}

func labUp(cmd *cobra.Command, id string) error {
	program, err := labProgram()
	if err != nil {
		return err
	}
	l, err := lab.New(cmd.Context(), lab.Standard(), lab.Options{ID: id, Program: program, Detached: true})
	if err != nil {
		return err
	}
	if err := startLab(cmd.Context(), l, nil); err != nil {
		return errors.Join(err, l.Close())
	}
	if err := l.Detach(); err != nil {
		return errors.Join(err, l.Close())
	}
	p := newPrinter(cmd.OutOrStdout())
	p.line("The lab is up. Try:")
	exec := "sslo lab exec"
	if id != defaultLab {
		exec = "sslo lab --name " + id + " exec"
	}
	resolve := fmt.Sprintf("--cacert %s --resolve shop.test:443:%s", l.Path("ca.pem"), lab.VIP4)
	p.line("  %s client -- curl %s https://shop.test/", exec, resolve)
	p.line("  %s client -- curl %s 'https://shop.test/?file=../../etc/passwd'   # blocked by ips1 or ips2", exec, resolve)
	p.line("  sslo lab fail ips1 --how blackhole; sslo lab status; sslo lab restore ips1")
	p.line("  sslo show sessions --tree --socket %s", l.AdminSocket())
	p.line("  sslo lab down")
	return nil
}

// labProgram is this binary, after a look whether it may build a lab.
func labProgram() (string, error) {
	if unix.Geteuid() != 0 {
		return "", errors.New("a lab needs root: it makes network namespaces")
	}
	return os.Executable()
}

// startLab runs the daemon and waits until every device is up.
func startLab(ctx context.Context, l *lab.Lab, edit func(lab.Config)) error {
	config := l.Config()
	if edit != nil {
		edit(config)
	}
	path, err := l.WriteConfig(config)
	if err != nil {
		return err
	}
	if _, err := l.StartDaemon(ctx, path); err != nil {
		return err
	}
	return waitDevices(ctx, client.New(l.AdminSocket()), 10*time.Second, func(d api.Device) bool { return d.State == "up" })
}

// waitDevices waits until all devices are as wanted.
func waitDevices(ctx context.Context, admin *client.Client, limit time.Duration, wanted func(api.Device) bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		var devices []api.Device
		if err := admin.Get(ctx, "/v1/devices", &devices); err != nil {
			return err
		}
		var waiting []string
		for _, d := range devices {
			if !wanted(d) {
				waiting = append(waiting, fmt.Sprintf("%s is %s (%s)", d.Name, d.State, d.Reason))
			}
		}
		if len(waiting) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %s", limit, strings.Join(waiting, ", "))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func attachLab(id string) (*lab.Lab, error) {
	program, err := labProgram()
	if err != nil {
		return nil, err
	}
	l, err := lab.Attach(id, lab.Options{Program: program})
	if errors.Is(err, lab.ErrNoLab) {
		return nil, fmt.Errorf("%w; `sslo lab up` builds one", err)
	}
	return l, err
}

func newLabStatusCmd(id *string) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Hosts of the lab, and its devices as the lab made them and as the daemon sees them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := attachLab(*id)
			if err != nil {
				return err
			}
			return labStatus(cmd, l)
		},
	}
}

func labStatus(cmd *cobra.Command, l *lab.Lab) error {
	p := newPrinter(cmd.OutOrStdout())
	var devices []api.Device
	adminErr := client.New(l.AdminSocket()).Get(cmd.Context(), "/v1/devices", &devices)
	seen := map[string]api.Device{}
	for _, d := range devices {
		seen[d.Name] = d
	}
	t := newTable("DEVICE", "KIND", "IN THE LAB", "FOR THE DAEMON", ">SINCE", "WHY")
	for _, spec := range l.Topology.Devices {
		failing := cell{"works", good}
		if how, ok := l.Failures()[spec.Name]; ok {
			failing = cell{string(how), bad}
		}
		d := seen[spec.Name]
		t.add(text(spec.Name), text(string(spec.Kind)), failing, stateCell(dash(d.State)), text(p.since(d.Since)), text(dash(d.Reason)))
	}
	p.table(t)
	p.line("")
	if pid, ok := l.Running("daemon"); ok {
		p.line("daemon    running, pid %d, log %s", pid, l.Path("daemon.log"))
	} else {
		p.line("daemon    %s, log %s", p.paint(bad, "not running"), l.Path("daemon.log"))
	}
	p.line("socket    %s", l.AdminSocket())
	p.line("address   https://%s/ as %s, trusted by %s", lab.VIP4, lab.ShopName, l.Path("ca.pem"))
	return adminErr
}

func newLabFailCmd(id *string) *cobra.Command {
	var how string
	names := make([]string, len(lab.Failures))
	for i, f := range lab.Failures {
		names[i] = string(f)
	}
	cmd := &cobra.Command{
		Use:   "fail DEVICE",
		Short: "Make a device fail",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := attachLab(*id)
			if err != nil {
				return err
			}
			return l.Fail(args[0], lab.Failure(how))
		},
	}
	cmd.Flags().StringVar(&how, "how", string(lab.LinkDown), strings.Join(names, ", "))
	return cmd
}

func newLabRestoreCmd(id *string) *cobra.Command {
	return &cobra.Command{
		Use:   "restore DEVICE",
		Short: "Make a device work again",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := attachLab(*id)
			if err != nil {
				return err
			}
			return l.Restore(args[0])
		},
	}
}

func newLabExecCmd(id *string) *cobra.Command {
	return &cobra.Command{
		Use:   "exec HOST -- COMMAND [ARGUMENT...]",
		Short: "Run a command on a host of the lab: box, client, server1, ips1, waf1, ...",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := attachLab(*id)
			if err != nil {
				return err
			}
			ns, ok := l.Namespace(args[0])
			if !ok {
				return fmt.Errorf("no host %q in the lab", args[0])
			}
			return labExec(cmd, ns, args[1:])
		},
	}
}

func labExec(cmd *cobra.Command, ns *lab.Namespace, args []string) error {
	c := ns.Command(cmd.Context(), args[0], args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 5 * time.Second
	err := c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) { // it has said why
		os.Exit(max(exit.ExitCode(), exitFailed))
	}
	return err
}

func newLabDownCmd(id *string) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Take down the lab, whatever is left of it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := labProgram(); err != nil {
				return err
			}
			if !all {
				return lab.Down(*id)
			}
			return labsDown(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every lab on this machine, those of tests that were killed included")
	return cmd
}

func labsDown(out io.Writer) error {
	var errs []error
	for _, id := range lab.IDs() {
		fmt.Fprintf(out, "taking down %s\n", id)
		errs = append(errs, lab.Down(id))
	}
	return errors.Join(errs...)
}
