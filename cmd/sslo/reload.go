package main

import (
	"github.com/spf13/cobra"

	"sslo/admin/client"
)

func init() { register(newReloadCmd) }

func newReloadCmd() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Read the configuration again; a wrong one changes nothing",
		Long: `Reload makes the daemon read its configuration file again. Every mistake in it is printed as
file:line:col: path: message, nothing changes then and the exit code is 1. A good one keeps
sessions and the state of monitors, and what changed is printed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			result, err := client.New(socket).Reload(cmd.Context())
			if err != nil {
				return err
			}
			p := newPrinter(cmd.OutOrStdout())
			if len(result.Changes) == 0 {
				p.line("reloaded, nothing changed")
			}
			for _, change := range result.Changes {
				p.line("%s", change)
			}
			return nil
		},
	}
	addSocketFlag(cmd, &socket)
	return cmd
}
