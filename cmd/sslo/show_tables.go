package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sslo/admin/api"
)

func showDevices(p *printer, devices []api.Device) {
	t := newTable("DEVICE", "STATE", ">SINCE", "SERVICE", "LINKS", "POOLS", ">SESSIONS", ">SENT", ">RETURNED", "WHY")
	for _, d := range devices {
		t.add(text(d.Name), stateCell(d.State), text(p.since(d.Since)), text(d.Service), text(d.In+" → "+d.Out),
			text(dash(strings.Join(d.Pools, ","))), text(fmt.Sprint(d.Sessions)), text(size(d.Sent[0].Bytes+d.Sent[1].Bytes)),
			text(size(d.Received[0].Bytes+d.Received[1].Bytes)), text(dash(d.Reason)))
		for _, m := range d.Monitors {
			t.add(cell{"  " + m.Name, dim}, stateCell(m.State), text(""), cell{m.Type, dim},
				text(""), text(""), text(""), text(""), text(""), cell{lastProbe(p, m), dim})
		}
	}
	p.table(t)
}

func lastProbe(p *printer, m api.Monitor) string {
	if m.Probed.IsZero() {
		return "not probed yet"
	}
	return fmt.Sprintf("%s, %s ago", m.Reason, p.since(m.Probed))
}

func showChains(p *printer, chains []api.Chain) {
	for _, c := range chains {
		top := &node{text: p.paint(bold, c.Name) + "  " + p.service(c.InService)}
		for _, pool := range c.Pools {
			n := top.add(fmt.Sprintf("%s  %s  when down: %s  %s", p.paint(bold, pool.Name), pool.Method, pool.OnDown, p.service(pool.InService)))
			for _, d := range pool.Devices {
				n.add(fmt.Sprintf("%s  %s%s", d.Name, p.state(d.State), weight(d.Weight)))
			}
		}
		p.tree(top)
	}
}

func (p *printer) service(in bool) string {
	if in {
		return p.paint(good, "in service")
	}
	return p.paint(bad, "no device in service")
}

func weight(w int) string {
	if w <= 1 {
		return ""
	}
	return fmt.Sprintf("  weight %d", w)
}

func showLinks(p *printer, links []api.Link) {
	t := newTable("LINK", "NIC", "ROLE", "STATE", ">MTU", "MAC", ">RX", ">TX", ">DROPPED")
	for _, l := range links {
		state := "down"
		if l.Up {
			state = "up"
		}
		t.add(text(l.Name), text(l.NIC), text(l.Role), stateCell(state), text(fmt.Sprint(l.MTU)), text(dash(l.MAC)),
			text(size(l.RX.Bytes)), text(size(l.TX.Bytes)), text(fmt.Sprint(l.Dropped.Packets)))
	}
	p.table(t)
}

func showCounters(p *printer, c api.Counters) {
	p.line("sessions  %d of %d", c.Sessions, c.MaxSessions)
	t := newTable("COUNTER", ">COUNT", ">BYTES")
	for _, d := range c.Drops {
		t.add(text("drop/"+d.Link+"/"+d.Reason), text(fmt.Sprint(d.Packets)), text(size(d.Bytes)))
	}
	addCounts(t, "event/", c.Events)
	addCounts(t, "proxy/", c.Proxy)
	for _, name := range slices.Sorted(maps.Keys(c.VirtualServers)) {
		addCounts(t, "virtual-server/"+name+"/", c.VirtualServers[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.ServerPools)) {
		addCounts(t, "server-pool/"+name+"/", c.ServerPools[name])
	}
	p.table(t)
}

func addCounts(t *table, prefix string, counts map[string]uint64) {
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		t.add(text(prefix+name), text(fmt.Sprint(counts[name])), text(""))
	}
}

func showLedger(p *printer, entries []api.LedgerEntry) {
	if len(entries) == 0 {
		p.line("Nothing went past a device.")
		return
	}
	t := newTable("CHAIN", "POOL", "DEVICE", "REASON", "WHERE", ">SESSIONS", ">PACKETS", ">BYTES")
	for _, e := range entries {
		pool, device := e.Pool, e.Device
		if pool == "" {
			pool = "(all)"
		}
		if device == "" {
			device = "(all)"
		}
		t.add(text(e.Chain), text(pool), text(device), cell{e.Reason, warn}, text(e.Source),
			text(fmt.Sprint(e.Sessions)), text(fmt.Sprint(e.Packets)), text(size(e.Bytes)))
	}
	p.table(t)
}

func showServers(p *printer, pools []api.ServerPool) {
	t := newTable("POOL", "SERVER", "STATE", ">SINCE", "WHY")
	for _, pool := range pools {
		for _, m := range pool.Members {
			t.add(text(pool.Name), text(m.Address), stateCell(m.State), text(p.since(m.Since)), text(dash(m.Reason)))
		}
	}
	p.table(t)
}

func showVirtualServers(p *printer, servers []api.VirtualServer) {
	t := newTable("VIRTUAL SERVER", "TYPE", "LISTEN", "LINKS", "CHAIN", "SERVER POOL", ">CONNECTIONS", ">OPEN")
	for _, v := range servers {
		for i, listen := range v.Listen {
			if i > 0 {
				t.add(text(""), text(""), text(listen), text(""), text(""), text(""), text(""), text(""))
				continue
			}
			t.add(text(v.Name), text(v.Type), text(listen), text(strings.Join(v.Links, ",")), text(dash(v.Chain)),
				text(dash(v.ServerPool)), text(fmt.Sprint(v.Counters["connections"])), text(fmt.Sprint(v.Counters["open"])))
		}
	}
	p.table(t)
}

func showStatus(p *printer, s api.Status) {
	t := newTable("DAEMON", "")
	t.add(text("version"), text(s.Version))
	t.add(text("pid"), text(fmt.Sprint(s.PID)))
	t.add(text("running for"), text(p.since(s.Started)))
	t.add(text("configuration"), text(s.Config))
	t.add(text("loaded"), text(s.Loaded.Local().Format(time.DateTime)))
	t.add(text("kernel state"), text(map[bool]string{true: "adopted from an earlier daemon", false: "made at start"}[s.Adopted]))
	p.table(t)
}

func showEvents(p *printer, events []api.Event) {
	for _, e := range events {
		p.line("%s", eventLine(p, e))
	}
}

func eventLine(p *printer, e api.Event) string {
	line := fmt.Sprintf("%s  %-8s  %s", p.paint(dim, e.Time.Local().Format("2006-01-02 15:04:05.000")), e.Kind, e.Message)
	if e.Session != 0 {
		line += "  " + p.paint(dim, "session "+e.Session.String())
	}
	return line
}
