package app

import (
	"errors"
	"fmt"
	"reflect"

	"sslo/config"
)

// difference says in words what a new configuration changes.
func difference(old, next *config.Config) []string {
	var changes []string
	add := func(what string, before, after map[string]any, order []string) {
		changes = append(changes, compare(what, before, after, order)...)
	}
	o, n := sections(old), sections(next)
	for i := range n {
		add(n[i].what, o[i].byName, n[i].byName, append(o[i].names, n[i].names...))
	}
	return changes
}

// section is a named list of the configuration, its entries in a form that can be compared.
type section struct {
	what   string
	names  []string
	byName map[string]any
}

func sections(c *config.Config) []section {
	return []section{
		sectionOf("link", c.Links, func(l *config.Link) (string, any) { return l.Name, *l }),
		sectionOf("device", c.Devices, func(d *config.Device) (string, any) { return d.Name, plainDevice(*d) }),
		sectionOf("device pool", c.DevicePools, func(p *config.DevicePool) (string, any) { return p.Name, *p }),
		sectionOf("chain", c.Chains, func(ch *config.Chain) (string, any) { return ch.Name, *ch }),
		sectionOf("monitor", c.Monitors, func(m *config.Monitor) (string, any) { return m.Name, plainMonitor(*m) }),
		sectionOf("certificate", c.Certificates, func(p *config.Certificate) (string, any) { return p.Name, shown(p) }),
		sectionOf("server pool", c.ServerPools, func(p *config.ServerPool) (string, any) { return p.Name, plainPool(p) }),
		sectionOf("virtual server", c.VirtualServers, func(v *config.VirtualServer) (string, any) { return v.Name, plainVirtual(*v) }),
		sectionOf("table", c.Tables, func(t *config.Table) (string, any) { return t.Name, *t }),
		{"system", []string{""}, map[string]any{"": c.System}},
		{"log", []string{""}, map[string]any{"": c.Log}},
	}
}

func sectionOf[T any](what string, entries []*T, named func(*T) (string, any)) section {
	s := section{what: what, byName: map[string]any{}}
	for _, e := range entries {
		name, value := named(e)
		s.names = append(s.names, name)
		s.byName[name] = value
	}
	return s
}

// plainDevice leaves out its monitors: a change of those is told once, not for each device.
func plainDevice(d config.Device) any {
	d.Monitors = nil
	return d
}

// plainVirtual leaves out what its script was compiled to; the text is compared.
func plainVirtual(v config.VirtualServer) any {
	v.Script.Program = nil
	v.TLS.Trust = plainTrust(v.TLS.Trust)
	return v
}

// plainMonitor leaves out the pool of CAs.
func plainMonitor(m config.Monitor) any {
	m.TLS.Trust = plainTrust(m.TLS.Trust)
	return m
}

// plainTrust leaves out the pools, which have functions in them, in favour of the files.
func plainTrust(t *config.Trust) *config.Trust {
	if t == nil {
		return nil
	}
	return &config.Trust{PEM: t.PEM, CRL: t.CRL}
}

// shown is what of a certificate is shown to clients, and not the key that goes with it.
func shown(c *config.Certificate) [][]byte {
	list := c.TLS.Certificate
	if c.SM.Certificate == nil {
		return list
	}
	for _, one := range c.SM.List() {
		if one != nil {
			list = append(list, one.Raw)
		}
	}
	return list
}

// plainPool leaves out the monitors: a change of those is told once.
func plainPool(p *config.ServerPool) any {
	pool := *p
	pool.Monitors = nil
	pool.TLS.Trust = plainTrust(pool.TLS.Trust)
	return pool
}

func compare(what string, before, after map[string]any, order []string) []string {
	var changes []string
	seen := map[string]bool{}
	for _, name := range order {
		if seen[name] {
			continue
		}
		seen[name] = true
		a, was := before[name]
		b, is := after[name]
		label := what
		if name != "" {
			label += " " + name
		}
		switch {
		case !was:
			changes = append(changes, label+": added")
		case !is:
			changes = append(changes, label+": removed")
		case !reflect.DeepEqual(a, b):
			changes = append(changes, label+": changed")
		}
	}
	return changes
}

// errRestart refuses a reload.
var errRestart = errors.New("can not change while the daemon runs: restart it")

// unchangeable finds what a reload can not do.
func unchangeable(old, next *config.Config) error {
	var errs []error
	check := func(key string, a, b any) {
		if a != b {
			errs = append(errs, fmt.Errorf("%s: %w (%v → %v)", key, errRestart, a, b))
		}
	}
	check("system.pin_path", old.System.PinPath, next.System.PinPath)
	check("system.state_dir", old.System.StateDir, next.System.StateDir)
	check("system.run_dir", old.System.RunDir, next.System.RunDir)
	check("system.mark_shift", old.System.MarkShift, next.System.MarkShift)
	check("system.sessions", old.System.Sessions, next.System.Sessions)
	check("admin.socket", old.Admin.Socket, next.Admin.Socket)
	return errors.Join(errs...)
}
