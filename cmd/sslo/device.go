package main

import (
	"github.com/spf13/cobra"

	"sslo/admin/client"
)

func init() { register(newDeviceCmd) }

func newDeviceCmd() *cobra.Command {
	var socket string
	device := &cobra.Command{
		Use:   "device",
		Short: "Take a device out of service and back",
		Args:  noSubcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	addSocketFlag(device, &socket)
	for _, action := range []struct{ name, short, done string }{
		{"disable", "Drain: it keeps its sessions and gets no new ones", "disabled"},
		{"bypass", "Bypass: its sessions go past it at once, and it gets no new ones", "bypassed"},
		{"enable", "Back to what its monitors say", "enabled"},
	} {
		device.AddCommand(&cobra.Command{
			Use:   action.name + " DEVICE",
			Short: action.short,
			Long:  action.short + ".\nThe decision survives reloads and restarts of the daemon.",
			Args:  cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				d, err := client.New(socket).SetDevice(cmd.Context(), args[0], action.name)
				if err != nil {
					return err
				}
				p := newPrinter(cmd.OutOrStdout())
				p.line("%s %s: %s, service %s, %d sessions", d.Name, action.done, p.state(d.State), d.Service, d.Sessions)
				return nil
			},
		})
	}
	return device
}
