package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"sslo/config"
	"sslo/internal/app"
)

func init() { register(newRunCmd) }

const defaultConfig = "/etc/sslo/sslo.yml"

// defaultDrain leaves the rest of the end time before systemd kills (30 s in our unit).
const defaultDrain = 20 * time.Second

func newRunCmd() *cobra.Command {
	o := app.Options{Version: buildVersion()}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon",
		Long: `Run the daemon until SIGTERM or SIGINT. It then takes no more connections, gives those that are open
--drain to end (a second signal: none), and removes everything that it made on this box, unless --keep.
SIGHUP reads the configuration again, as 'sslo reload' does.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, o) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.File, "config", "c", defaultConfig, "the configuration `file`")
	flags.DurationVar(&o.Drain, "drain", defaultDrain, "how `long` open connections may take at the end")
	flags.BoolVar(&o.Keep, "keep", false, "leave programs, links and sessions in place at the end, for the next daemon")
	return cmd
}

func run(cmd *cobra.Command, o app.Options) error {
	hangup, abort := make(chan struct{}, 1), make(chan struct{})
	o.Hangup, o.Abort = hangup, abort
	forward(cmd.Context(), hangup, abort)
	err := app.Run(cmd.Context(), o)
	var errs config.Errors
	if errors.As(err, &errs) {
		for _, e := range errs {
			cmd.PrintErrln(e)
		}
		return errSilent
	}
	return err
}

// forward turns SIGHUP into hangup, and the second SIGTERM or SIGINT (the first ends ctx) into abort.
func forward(ctx context.Context, hangup, abort chan<- struct{}) {
	hup, term := make(chan os.Signal, 1), make(chan os.Signal, 2)
	signal.Notify(hup, syscall.SIGHUP)
	signal.Notify(term, os.Interrupt, syscall.SIGTERM)
	go func() {
		for range hup {
			select {
			case hangup <- struct{}{}:
			default: // one is waiting already
			}
		}
	}()
	go func() {
		<-ctx.Done()
		<-term // the first, which ended ctx
		<-term
		close(abort)
	}()
}
