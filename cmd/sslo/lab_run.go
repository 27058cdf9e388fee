package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"sslo/test/device"
	"sslo/test/lab"
)

// newDeviceRunCmd is the program of an inspecting device; the lab starts it on the device's host.
func newDeviceRunCmd() *cobra.Command {
	var (
		o       device.Options
		mode    string
		control string
	)
	cmd := &cobra.Command{
		Use: "device-run", Short: "Be an inspecting device between two NICs", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Mode = device.Mode(mode)
			o.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			d, err := device.Open(o)
			if err != nil {
				return err
			}
			return errors.Join(d.ServeControl(cmd.Context(), control), d.Close())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.In, "in", lab.DeviceIn, "`NIC` towards the client")
	flags.StringVar(&o.Out, "out", lab.DeviceOut, "`NIC` towards the server")
	flags.StringVar(&mode, "mode", string(device.InspectMode), fmt.Sprint(device.Modes))
	flags.StringVar(&control, "control", "device.sock", "unix `socket` that switches the mode and tells the counters")
	flags.StringVar(&o.Signature, "signature", device.DefaultSignature, "`text` that is an attack")
	flags.BoolVar(&o.Offload, "offload", false, "understand frames whose segmentation and checksum are left to the hardware")
	flags.BoolVar(&o.Strict, "strict", false, "drop connections whose beginning was not seen")
	return cmd
}

// newOriginRunCmd is the lab's TLS origin.
func newOriginRunCmd() *cobra.Command {
	var name, dir string
	cmd := &cobra.Command{
		Use: "origin-run", Short: "Be the TLS origin of a lab", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			origin, err := lab.ServeOrigin(name, dir)
			if err != nil {
				return err
			}
			<-cmd.Context().Done()
			return origin.Close()
		},
	}
	cmd.Flags().StringVar(&name, "name", "origin", "that it calls itself")
	cmd.Flags().StringVar(&dir, "dir", ".", "with origin.pem and origin.key")
	return cmd
}
