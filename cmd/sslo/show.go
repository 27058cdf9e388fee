package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sslo/admin/api"
	"sslo/admin/client"
)

func init() { register(newShowCmd) }

// view shows one resource of the admin API.
type view struct {
	use, short string
	path       string
	render     func(p *printer, body io.Reader) error
}

var views = []view{
	{"devices", "Devices: state, since when and why, sessions, traffic", "/v1/devices", rendered(showDevices)},
	{"chains", "Chains: pools and devices hop by hop", "/v1/chains", rendered(showChains)},
	{"links", "Links: NIC, role, carrier, traffic, drops", "/v1/links", rendered(showLinks)},
	{"counters", "Counters: drops by reason, events, proxy", "/v1/counters", rendered(showCounters)},
	{"ledger", "Ledger: traffic that was not inspected, and why", "/v1/ledger", rendered(showLedger)},
	{"servers", "Server pools and the state of their members", "/v1/servers", rendered(showServers)},
	{"virtual-servers", "Virtual servers: listeners, chain, counters", "/v1/virtual-servers", rendered(showVirtualServers)},
	{"status", "The daemon: version, configuration, since when", "/v1/status", rendered(showStatus)},
}

func rendered[T any](render func(*printer, T)) func(*printer, io.Reader) error {
	return func(p *printer, body io.Reader) error {
		var v T
		if err := json.NewDecoder(body).Decode(&v); err != nil {
			return fmt.Errorf("answer of the daemon: %w", err)
		}
		render(p, v)
		return nil
	}
}

func newShowCmd() *cobra.Command {
	show := &cobra.Command{
		Use:   "show",
		Short: "Show the state of the running daemon",
		Args:  noSubcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	opts := addShowFlags(show)
	for _, v := range views {
		show.AddCommand(&cobra.Command{Use: v.use, Short: v.short, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return opts.show(cmd, v.path, v.render) }})
	}
	show.AddCommand(newShowSessionsCmd(opts), newShowSessionCmd(opts), newShowConnectionsCmd(opts), newShowEventsCmd(opts))
	return show
}

// noSubcommand refuses `show devcies`, which cobra would take for an argument.
func noSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("there is nothing called %q to %s", args[0], cmd.Name())
	}
	return nil
}

// showOptions are the flags that all views have.
type showOptions struct {
	socket string
	output string
	watch  time.Duration
}

func addShowFlags(cmd *cobra.Command) *showOptions {
	o := &showOptions{}
	addSocketFlag(cmd, &o.socket)
	flags := cmd.PersistentFlags()
	flags.StringVarP(&o.output, "output", "o", "table", "`format`: table, json")
	flags.DurationVarP(&o.watch, "watch", "w", 0, "show again every `interval`, 1s if none is given")
	flags.Lookup("watch").NoOptDefVal = "1s"
	return o
}

func addSocketFlag(cmd *cobra.Command, socket *string) {
	cmd.PersistentFlags().StringVar(socket, "socket", client.DefaultSocket, "the daemon's admin `socket`")
}

func (o *showOptions) client() *client.Client { return client.New(o.socket) }

// show fetches and prints once, or again and again.
func (o *showOptions) show(cmd *cobra.Command, path string, render func(*printer, io.Reader) error) error {
	if o.output != "table" && o.output != "json" {
		return usageError{cmd, fmt.Errorf("unknown output format %q: table or json", o.output)}
	}
	c, out := o.client(), cmd.OutOrStdout()
	once := func() error { return o.once(cmd.Context(), c, path, out, render) }
	if o.watch <= 0 {
		return once()
	}
	return repeat(cmd.Context(), o.watch, func() error {
		if isTerminal(out) {
			fmt.Fprint(out, "\x1b[H\x1b[2J")
		}
		return once()
	})
}

func (o *showOptions) once(ctx context.Context, c *client.Client, path string, out io.Writer, render func(*printer, io.Reader) error) error {
	body, err := c.Raw(ctx, path)
	if err != nil {
		return err
	}
	defer body.Close()
	if o.output == "json" {
		_, err := io.Copy(out, body)
		return err
	}
	return render(newPrinter(out), body)
}

// repeat ends without an error when the user interrupts it.
func repeat(ctx context.Context, every time.Duration, do func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := do(); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func newShowEventsCmd(o *showOptions) *cobra.Command {
	limit := 100
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Events: state changes of devices and links, bypasses, resets (--watch follows)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := fmt.Sprintf("/v1/events?limit=%d", limit)
			if o.watch <= 0 {
				return o.show(cmd, path, rendered(showEvents))
			}
			return o.follow(cmd, path)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "at most `n` events, the newest")
	return cmd
}

// follow prints events as they come, one a line.
func (o *showOptions) follow(cmd *cobra.Command, path string) error {
	c, p, last := o.client(), newPrinter(cmd.OutOrStdout()), uint64(0)
	return repeat(cmd.Context(), o.watch, func() error {
		var events []api.Event
		if err := c.Get(cmd.Context(), path, &events); err != nil {
			return err
		}
		for _, e := range events {
			last = e.Seq
			if o.output == "json" {
				json.NewEncoder(cmd.OutOrStdout()).Encode(e)
				continue
			}
			p.line("%s", eventLine(p, e))
		}
		path = fmt.Sprintf("/v1/events?after=%d", last)
		return nil
	})
}
