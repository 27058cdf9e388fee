package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"sslo/config"
	"sslo/config/plan"
)

func init() { register(newCheckCmd) }

func newCheckCmd() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file and print what it means",
		Long: `Check a configuration file without starting anything.

Everything that is wrong is said at once, as file:line:column: path: message, on standard
error. Of a good file the plan is printed: listeners, chains hop by hop, monitors, and what
happens when a device or a pool is down. Warnings do not change the exit code.`,
		Example: "  sslo check /etc/sslo/sslo.yml\n  sslo check -o json sslo.yml | jq .chains",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return check(cmd, args[0], output) },
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "how to print the plan: text or json")
	return cmd
}

func check(cmd *cobra.Command, file, output string) error {
	if output != "text" && output != "json" {
		return usageError{cmd, fmt.Errorf("output is text or json, not %q", output)}
	}
	c, err := config.Load(file)
	var errs config.Errors
	if errors.As(err, &errs) {
		fmt.Fprintln(cmd.ErrOrStderr(), errs)
		return errSilent
	}
	if err != nil {
		return err
	}
	for _, w := range c.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %v\n", w)
	}
	if output == "json" {
		return plan.New(c).WriteJSON(cmd.OutOrStdout())
	}
	return plan.New(c).WriteText(cmd.OutOrStdout())
}
