package lab

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"sslo/test/device"
)

// Failure is a way for a device to fail.
type Failure string

const (
	LinkDown        Failure = "link-down" // both cables lose their carrier
	Blackhole       Failure = "blackhole" // silently drops everything, probes too
	BlackholeData   Failure = "blackhole-data"
	BlackholeOrig   Failure = "blackhole-orig"  // towards the server only
	BlackholeReply  Failure = "blackhole-reply" // towards the client only
	Hang            Failure = "hang"            // process stopped, bridge stopped; links stay up
	Reset           Failure = "reset"           // resets every connection
	Reflect         Failure = "reflect"
	Flood           Failure = "flood"
	Answer          Failure = "answer"
	SwallowSYN      Failure = "swallow-syn"
	Delay           Failure = "delay"
	RewriteSequence Failure = "rewrite-sequence"
)

// Failures lists them all.
var Failures = []Failure{LinkDown, Blackhole, BlackholeData, BlackholeOrig, BlackholeReply, Hang, Reset, Reflect,
	Flood, Answer, SwallowSYN, Delay, RewriteSequence}

// runner is an inspecting device: in this process, or one of its own.
type runner interface {
	SetMode(device.Mode) error
	Stats() (device.Stats, error)
	Close() error
}

// deviceHost is the host that a device runs on.
type deviceHost struct {
	Device
	ns     *Namespace
	lab    *Lab
	runner runner // nil while a bridge is a bridge
}

// NICs of a device's host, towards the client and towards the server.
const (
	DeviceIn  = "eth0"
	DeviceOut = "eth1"
)

// quiet keeps the device's own stack off its cables.
var quiet = map[string]string{"ipv6/conf/all/disable_ipv6": "1", "ipv6/conf/default/disable_ipv6": "1"}

func (l *Lab) buildDevices() error {
	for _, spec := range l.Topology.Devices {
		if err := l.buildDevice(spec); err != nil {
			return fmt.Errorf("device %s: %w", spec.Name, err)
		}
	}
	return nil
}

func (l *Lab) buildDevice(spec Device) error {
	ns, err := l.hostOf(spec)
	if err != nil {
		return err
	}
	d := &deviceHost{Device: spec, ns: ns, lab: l}
	l.devices[spec.Name] = d
	if build, ok := builders[spec.Kind]; ok {
		return build(d)
	}
	mtu := l.Topology.MTU
	err = errors.Join(
		ns.sysctl(quiet),
		cable(end{l.Box, InNIC(spec.Name)}, end{ns, DeviceIn}, mtu),
		cable(end{l.Box, OutNIC(spec.Name)}, end{ns, DeviceOut}, cmp.Or(spec.OutMTU, mtu)),
		ns.noARP(DeviceIn), ns.noARP(DeviceOut),
	)
	if err != nil {
		return err
	}
	if spec.Kind == Inspect {
		return d.run(device.InspectMode)
	}
	return errors.Join(ns.bridge(), d.attach())
}

func (n *Namespace) noARP(nic string) error {
	return n.onLink(nic, func(h *netlink.Handle, link netlink.Link) error { return h.LinkSetARPOff(link) })
}

func (d *deviceHost) attach() error {
	return errors.Join(d.ns.enslave(DeviceIn), d.ns.enslave(DeviceOut))
}
func (d *deviceHost) detach() error { return errors.Join(d.ns.free(DeviceIn), d.ns.free(DeviceOut)) }

// options of the device program in a mode.
func (d *deviceHost) options(mode device.Mode) device.Options {
	o := d.Options
	o.In, o.Out, o.Mode = DeviceIn, DeviceOut, mode
	o.Offload = d.Offload || d.Kind == Bridge // a bridge's stand-in takes what the bridge took
	if o.Logger == nil {
		o.Logger = d.lab.log
	}
	return o
}

// run starts the device program on the host.
func (d *deviceHost) run(mode device.Mode) error {
	if d.lab.opts.Processes {
		return d.runProcess(mode)
	}
	return d.ns.Do(func() error {
		dev, err := device.Open(d.options(mode))
		if err != nil {
			return err
		}
		d.runner = dev
		return nil
	})
}

// runProcess starts it as a process and waits until it answers.
func (d *deviceHost) runProcess(mode device.Mode) error {
	o, socket := d.options(mode), d.socket()
	args := []string{"lab", "device-run", "--in", o.In, "--out", o.Out, "--mode", string(mode), "--control", socket,
		fmt.Sprintf("--offload=%t", o.Offload), fmt.Sprintf("--strict=%t", o.Strict)}
	if o.Signature != "" {
		args = append(args, "--signature", o.Signature)
	}
	if err := d.lab.spawn(d.ns, d.process(), args...); err != nil {
		return err
	}
	d.runner = d.remote()
	return poll(5*time.Second, func() error {
		_, err := d.runner.Stats()
		return err
	})
}

func (d *deviceHost) process() string { return "device-" + d.Name }
func (d *deviceHost) socket() string  { return d.lab.Path(d.process() + ".sock") }

func (d *deviceHost) remote() runner {
	return &device.Remote{Socket: d.socket(), PID: d.lab.state.Processes[d.process()].PID}
}

func (d *deviceHost) close() error {
	if d.runner == nil {
		return nil
	}
	r := d.runner
	d.runner = nil
	return r.Close()
}

// DeviceNames in the order of their names.
func (l *Lab) DeviceNames() []string { return slices.Sorted(maps.Keys(l.devices)) }

func (l *Lab) device(name string) (*deviceHost, error) {
	d, ok := l.devices[name]
	if !ok {
		return nil, fmt.Errorf("no device %q in the lab; there are %v", name, l.DeviceNames())
	}
	return d, nil
}

// DeviceHost is the namespace of a device, with NICs DeviceIn and DeviceOut.
func (l *Lab) DeviceHost(name string) (*Namespace, error) {
	d, err := l.device(name)
	if err != nil {
		return nil, err
	}
	return d.ns, nil
}

// Fail makes a device fail. A second failure takes the place of the first but for LinkDown, which adds up.
func (l *Lab) Fail(name string, how Failure) error {
	d, err := l.device(name)
	if err != nil {
		return err
	}
	if !slices.Contains(Failures, how) {
		return fmt.Errorf("no failure %q; there are %v", how, Failures)
	}
	if err := d.fail(how); err != nil {
		return fmt.Errorf("fail %s (%s): %w", name, how, err)
	}
	d.lab.record(name, how)
	return nil
}

func (d *deviceHost) fail(how Failure) error {
	switch {
	case how == LinkDown:
		return d.cables(false)
	case builders[d.Kind] != nil:
		return d.block(how)
	case d.runner != nil:
		return d.runner.SetMode(device.Mode(how))
	case how == Hang: // a bridge that is down forwards nothing, its ports stay up
		return d.ns.setUp("br0", false)
	case how == Blackhole: // isolated ports take frames and talk to nobody
		return d.isolate(true)
	}
	if err := d.detach(); err != nil {
		return err
	}
	return d.run(device.Mode(how))
}

func (d *deviceHost) cables(up bool) error {
	if d.Kind == OneArm || d.Kind == Tap {
		return d.ns.setUp(DeviceIn, up)
	}
	return errors.Join(d.ns.setUp(DeviceIn, up), d.ns.setUp(DeviceOut, up))
}

// FailCable takes the carrier from one of a device's two cables; Restore gives it back.
func (l *Lab) FailCable(name, nic string) error {
	d, err := l.device(name)
	if err != nil {
		return err
	}
	l.record(name, LinkDown)
	return d.ns.setUp(nic, false)
}

func (d *deviceHost) isolate(on bool) error {
	for _, nic := range []string{DeviceIn, DeviceOut} {
		err := d.ns.onLink(nic, func(h *netlink.Handle, link netlink.Link) error { return h.LinkSetIsolated(link, on) })
		if err != nil {
			return err
		}
	}
	return nil
}

// Restore makes a device whole again.
func (l *Lab) Restore(name string) error {
	d, err := l.device(name)
	if err != nil {
		return err
	}
	if err := d.restore(); err != nil {
		return fmt.Errorf("restore %s: %w", name, err)
	}
	l.record(name, "")
	return nil
}

func (d *deviceHost) restore() error {
	if builders[d.Kind] != nil {
		return errors.Join(d.unblock(), d.cables(true), d.routes())
	}
	if d.Kind == Inspect {
		mode := d.Options.Mode
		if mode == "" {
			mode = device.InspectMode
		}
		return errors.Join(d.runner.SetMode(mode), d.cables(true))
	}
	if d.runner != nil {
		if err := errors.Join(d.stopRunner(), d.attach()); err != nil {
			return err
		}
	}
	return errors.Join(d.isolate(false), d.ns.setUp("br0", true), d.cables(true))
}

// stopRunner ends a bridge's stand-in.
func (d *deviceHost) stopRunner() error {
	err := d.close()
	d.lab.forget(d.process())
	return err
}

// SetDeviceMode switches an inspecting device without calling it a failure.
func (l *Lab) SetDeviceMode(name string, mode device.Mode) error {
	d, err := l.device(name)
	if err != nil {
		return err
	}
	if d.runner == nil {
		return fmt.Errorf("device %s is a bridge and has no modes", name)
	}
	return d.runner.SetMode(mode)
}

// DeviceStats are those of an inspecting device, or of a bridge's stand-in.
func (l *Lab) DeviceStats(name string) (device.Stats, error) {
	d, err := l.device(name)
	if err != nil {
		return device.Stats{}, err
	}
	if d.runner == nil {
		return device.Stats{}, fmt.Errorf("device %s is a bridge and counts nothing", name)
	}
	return d.runner.Stats()
}
