// Command sslo is the whole product in one binary: the daemon (run), the offline tools
// (check, lab) and thin clients of the daemon's admin API (show, device, session, reload).
// It owns flags, exit codes and how things are printed, and refuses to know how any of it works.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"sslo/admin/api"
	"sslo/admin/client"
)

// Exit codes, documented in `sslo --help`.
const (
	exitOK         = 0
	exitFailed     = 1
	exitUsage      = 2
	exitNotRunning = 3
	exitNotFound   = 4
)

// errSilent ends a command with exit code 1 when it has already said why.
var errSilent = errors.New("failed")

// commands are the constructors of the root command's children; files of other nouns add theirs in init.
var commands []func() *cobra.Command

func register(newCmd func() *cobra.Command) { commands = append(commands, newCmd) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(execute(ctx, newRootCmd(), os.Args[1:]))
}

func execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, errSilent) {
		printError(root, err)
	}
	return exitCode(err)
}

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:   "sslo",
		Short: "SSL orchestrator: plaintext through inline security devices, TLS on both sides",
		Long: `sslo terminates TLS, sends the plaintext through pools of inline security devices,
and encrypts it again to the servers. When a device fails, traffic flows around it.

Exit codes:
  0  done
  1  it failed, or the configuration is wrong
  2  the command line is wrong
  3  the daemon is not running, or does not answer
  4  there is no such session, device or other object`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{cmd, err} })
	for _, newCmd := range commands {
		root.AddCommand(newCmd())
	}
	checkArgs(root)
	return root
}

// usageError is a wrong command line; the help that belongs to it is named in the message.
type usageError struct {
	cmd *cobra.Command
	err error
}

func (e usageError) Error() string {
	return fmt.Sprintf("%v\nRun '%s --help' for how to use it.", e.err, e.cmd.CommandPath())
}

func (e usageError) Unwrap() error { return e.err }

// checkArgs makes wrong arguments of every command usage errors, as wrong flags are.
func checkArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError{cmd, err}
			}
			return nil
		}
	}
	for _, child := range cmd.Commands() {
		checkArgs(child)
	}
}

func exitCode(err error) int {
	var usage usageError
	var problem *api.Problem
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage), strings.HasPrefix(err.Error(), "unknown command"):
		return exitUsage
	case errors.Is(err, client.ErrNotRunning):
		return exitNotRunning
	case errors.As(err, &problem) && problem.Status == 404:
		return exitNotFound
	}
	return exitFailed
}

func printError(root *cobra.Command, err error) {
	var problem *api.Problem
	if errors.As(err, &problem) && len(problem.Errors) > 0 {
		for _, e := range problem.Errors {
			fmt.Fprintln(root.ErrOrStderr(), e)
		}
	}
	fmt.Fprintf(root.ErrOrStderr(), "sslo: %v\n", err)
}
