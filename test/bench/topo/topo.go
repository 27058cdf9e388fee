// Package topo owns the network namespaces of a benchmark run: client, box (one namespace, or two
// halves for a proxy sandwich), bridge devices and server. It knows addresses and cables, and
// nothing of the programs that run there.
package topo

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Addresses, the same for every peer.
const (
	Client = "10.99.1.2"
	VIP    = "10.99.1.1" // the box towards the client
	Inner  = "10.99.2.2" // a sandwich's back half towards its front half
	Origin = "10.99.3.2"
)

// Topology is a set of namespaces whose names begin with Prefix.
type Topology struct {
	Prefix     string
	Congestion string // control: cubic
	Devices    int    // bridge devices in the chain
	Split      bool   // two box namespaces, as a sandwich needs; else one with links to each side of each device
	Routed     bool   // no proxy: the halves route
	Joined     bool   // no proxy: an unsplit box joins client, devices and server by bridges, one subnet
}

// NS is the full name of a namespace: cli, box (or front, back), dev1.., srv.
func (t *Topology) NS(name string) string { return t.Prefix + name }

// Front is the box's namespace on the client's side.
func (t *Topology) Front() string {
	if t.Split {
		return "front"
	}
	return "box"
}

// Back is the box's namespace on the server's side.
func (t *Topology) Back() string {
	if t.Split {
		return "back"
	}
	return "box"
}

// DeviceLinks names the box's links to device n (from 1) of an unsplit box.
func DeviceLinks(n int) (in, out string) {
	return fmt.Sprintf("d%din", n), fmt.Sprintf("d%dout", n)
}

func device(n int) string { return "dev" + strconv.Itoa(n) }

// Up makes everything; after an error the caller still calls Down.
func (t *Topology) Up() error {
	steps := []func() error{t.namespaces, t.cables, t.addresses}
	switch {
	case t.Split:
		steps = append(steps, t.halves)
	case t.Joined:
		steps = append(steps, t.join)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Down removes the namespaces, and with them their links.
func (t *Topology) Down() {
	out, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		return
	}
	for line := range strings.Lines(string(out)) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(name, t.Prefix) {
			_ = exec.Command("ip", "netns", "del", name).Run()
		}
	}
}

func (t *Topology) namespaces() error {
	names := []string{"cli", "srv", t.Front()}
	if t.Split {
		names = append(names, t.Back())
	}
	for n := 1; n <= t.Devices; n++ {
		names = append(names, device(n))
	}
	for _, name := range names {
		if err := ip("netns", "add", t.NS(name)); err != nil {
			return err
		}
		if err := t.tune(name); err != nil {
			return err
		}
	}
	return nil
}

// tune gives every party the same expert settings.
func (t *Topology) tune(name string) error {
	settings := []string{
		"net.ipv4.tcp_congestion_control=" + t.Congestion, "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0",
		"net.ipv4.ip_local_port_range=1024 65000", "net.ipv4.tcp_tw_reuse=1", "net.ipv4.tcp_max_syn_backlog=8192",
		"net.core.somaxconn=8192", "net.ipv4.ip_forward=1",
	}
	if err := t.Run(name, "ip", "link", "set", "lo", "up"); err != nil {
		return err
	}
	return t.Run(name, "sysctl", append([]string{"-qw"}, settings...)...)
}

func (t *Topology) cables() error {
	cables := [][4]string{{"cli", "c0", t.Front(), "c1"}, {t.Back(), "s0", "srv", "s1"}}
	left, port := t.Front(), "f1"
	for n := 1; n <= t.Devices; n++ {
		if !t.Split {
			in, out := DeviceLinks(n)
			cables = append(cables, [4]string{"box", in, device(n), "in"}, [4]string{"box", out, device(n), "out"})
			continue
		}
		cables = append(cables, [4]string{left, port, device(n), "in"})
		left, port = device(n), "out"
	}
	if t.Split {
		cables = append(cables, [4]string{left, port, t.Back(), "b1"})
	}
	for _, c := range cables {
		if err := t.cable(c[0], c[1], c[2], c[3]); err != nil {
			return err
		}
	}
	for n := 1; n <= t.Devices; n++ {
		if err := t.bridge(device(n), "br0", "in", "out"); err != nil {
			return err
		}
	}
	return nil
}

func (t *Topology) cable(ns1, if1, ns2, if2 string) error {
	return all(
		ip("link", "add", if1, "netns", t.NS(ns1), "type", "veth", "peer", "name", if2, "netns", t.NS(ns2)),
		ip("-n", t.NS(ns1), "link", "set", if1, "up"),
		ip("-n", t.NS(ns2), "link", "set", if2, "up"))
}

func (t *Topology) bridge(ns, name string, ports ...string) error {
	ns = t.NS(ns)
	errs := []error{ip("-n", ns, "link", "add", name, "type", "bridge", "mcast_snooping", "0")}
	for _, port := range ports {
		errs = append(errs, ip("-n", ns, "link", "set", port, "master", name))
	}
	return all(append(errs, ip("-n", ns, "link", "set", name, "up"))...)
}

func (t *Topology) addresses() error {
	add := func(ns, dev, addr string) error {
		return ip("-n", t.NS(ns), "addr", "add", addr, "dev", dev)
	}
	if t.Joined {
		return all(add("cli", "c0", Client+"/24"), add("srv", "s1", VIP+"/24"))
	}
	return all(
		add("cli", "c0", Client+"/24"), add(t.Front(), "c1", VIP+"/24"),
		add(t.Back(), "s0", "10.99.3.1/24"), add("srv", "s1", Origin+"/24"),
		ip("-n", t.NS("cli"), "route", "add", "default", "via", VIP),
		ip("-n", t.NS("srv"), "route", "add", "default", "via", "10.99.3.1"))
}

// join makes the chain of plain Linux bridges: client link, devices in a row, server link.
func (t *Topology) join() error {
	left := "c1"
	for n := 1; n <= t.Devices+1; n++ {
		right, next := "s0", ""
		if n <= t.Devices {
			right, next = DeviceLinks(n)
		}
		if err := t.bridge("box", fmt.Sprintf("join%d", n), left, right); err != nil {
			return err
		}
		left = next
	}
	return nil
}

// halves joins the two namespaces of a sandwich.
func (t *Topology) halves() error {
	front, back := t.NS(t.Front()), t.NS(t.Back())
	err := all(
		ip("-n", front, "addr", "add", "10.99.2.1/24", "dev", "f1"),
		ip("-n", back, "addr", "add", Inner+"/24", "dev", "b1"),
		ip("-n", front, "route", "add", "10.99.3.0/24", "via", Inner),
		ip("-n", back, "route", "add", "10.99.1.0/24", "via", "10.99.2.1"))
	if err != nil || t.Routed {
		return err
	}
	// Answers to the front half's transparent sockets (the client's address) come in on f1: they are ours.
	return all(
		ip("-n", front, "rule", "add", "iif", "f1", "lookup", "100", "pref", "5"),
		ip("-n", front, "route", "add", "local", "0.0.0.0/0", "dev", "lo", "table", "100"))
}

// Command is a command inside a namespace, on one core. Without a core it is not pinned.
func (t *Topology) Command(ns string, core int, name string, args ...string) *exec.Cmd {
	full := []string{"netns", "exec", t.NS(ns)}
	if core >= 0 {
		full = append(full, "taskset", "-c", strconv.Itoa(core))
	}
	return exec.Command("ip", append(append(full, name), args...)...)
}

// Run runs a command inside a namespace to its end.
func (t *Topology) Run(ns, name string, args ...string) error {
	return run(t.Command(ns, -1, name, args...))
}

// DeviceBytes counts what device n has received on its in port (down: on its out port).
func (t *Topology) DeviceBytes(n int, down bool) (int64, error) {
	port := "in"
	if down {
		port = "out"
	}
	cmd := t.Command(device(n), -1, "cat", "/sys/class/net/"+port+"/statistics/rx_bytes")
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("device %d: %w", n, err)
	}
	return strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
}

// LinkDown pulls both cables of device n.
func (t *Topology) LinkDown(n int) error {
	ns := t.NS(device(n))
	return all(ip("-n", ns, "link", "set", "in", "down"), ip("-n", ns, "link", "set", "out", "down"))
}

// Blackhole makes device n swallow every frame while its links stay up.
func (t *Topology) Blackhole(n int) error {
	return ip("-n", t.NS(device(n)), "link", "set", "out", "nomaster")
}

func ip(args ...string) error { return run(exec.Command("ip", args...)) }

func run(cmd *exec.Cmd) error {
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func all(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
