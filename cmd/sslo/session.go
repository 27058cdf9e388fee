package main

import (
	"github.com/spf13/cobra"

	"sslo/admin/api"
	"sslo/admin/client"
)

func init() { register(newSessionCmd) }

func newSessionCmd() *cobra.Command {
	var socket string
	session := &cobra.Command{
		Use:   "session",
		Short: "Act on a session",
		Args:  noSubcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	addSocketFlag(session, &socket)
	session.AddCommand(&cobra.Command{
		Use:   "kill ID",
		Short: "Reset the whole connection that the session belongs to, at both ends",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := api.ParseID(args[0])
			if err != nil {
				return usageError{cmd, err}
			}
			if err := client.New(socket).KillSession(cmd.Context(), id); err != nil {
				return err
			}
			newPrinter(cmd.OutOrStdout()).line("session %s: reset", id)
			return nil
		},
	})
	return session
}
