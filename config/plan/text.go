package plan

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteText writes the plan for people.
func (p Plan) WriteText(w io.Writer) error {
	t := &text{tabs: new(tabwriter.Writer)}
	t.tabs.Init(&t.buf, 0, 4, 2, ' ', 0)
	t.section("Links")
	for _, l := range p.Links {
		t.line("  %s\t%s\t%s", l.Name, l.NIC, l.Role)
	}
	t.section("Listeners")
	for _, v := range p.VirtualServers {
		t.virtualServer(v)
	}
	t.section("Chains")
	for _, c := range p.Chains {
		t.chain(c)
	}
	t.section("Monitors")
	for _, m := range p.Monitors {
		t.monitor(m)
	}
	t.section("Server pools")
	for _, s := range p.ServerPools {
		t.line("  %s\t%s", s.Name, strings.Join(s.Members, ", "))
		t.line("  \tmethod: %s", s.Method)
		t.line("  \tmonitors: %s", orNone(s.Monitors))
		t.line("  \tTLS: %s", s.TLS)
	}
	t.tabs.Flush()
	_, err := w.Write(bytes.TrimLeft(t.buf.Bytes(), "\n"))
	return err
}

// text aligns the columns of one section at a time.
type text struct {
	buf  bytes.Buffer
	tabs *tabwriter.Writer
}

func (t *text) line(format string, args ...any) { fmt.Fprintf(t.tabs, format+"\n", args...) }

func (t *text) section(title string) {
	t.tabs.Flush()
	fmt.Fprintf(&t.buf, "\n%s\n", title)
}

func (t *text) virtualServer(v VirtualServer) {
	t.line("  %s (%s) on %s", v.Name, v.Type, strings.Join(v.Links, ", "))
	for _, l := range v.Listeners {
		note := "announced"
		switch {
		case l.Address.Addr().IsUnspecified():
			note = "every address of the box there"
		case !v.Announce:
			note = "not announced"
		}
		t.line("    listens\t%s\tinside %s\t%s", l.Address, l.Inner, note)
	}
	for _, c := range v.Certificates {
		name := c.Name
		if c.Default {
			name += " (default)"
		}
		t.line("    certificate\t%s\t%s, until %s\t%s", name, c.Algorithm, c.NotAfter.UTC().Format(time.DateOnly), strings.Join(c.DNSNames, ", "))
	}
	t.line("    speaks\t%s", v.TLS)
	if v.Clients != "" {
		t.line("    clients\t%s", v.Clients)
	}
	if len(v.ALPN) > 0 {
		t.line("    ALPN\t%s", strings.Join(v.ALPN, ", "))
	}
	for i, r := range v.Rules {
		t.line("    rule %d\t%s\tif %s", i+1, r.Name, r.When)
		then := r.Then
		if r.OnFailure != "" {
			then += "; on failure " + r.OnFailure
		}
		t.line("    \t\t→ %s", then)
	}
	if v.Script != "" {
		t.line("    script\t%s", v.Script)
	}
	chain := "chain " + v.Chain
	if v.Chain == "" {
		chain = "no chain (nothing is inspected)"
	}
	t.line("    otherwise\tintercept, %s, server pool %s", chain, v.ServerPool)
	t.tabs.Flush()
}

func (t *text) chain(c Chain) {
	t.line("  %s", c.Name)
	t.line("    %s", c.Path)
	for i, h := range c.Hops {
		t.line("    hop %d: pool %s (%s, at least %d in service)", i+1, h.Pool, h.Method, h.MinActive)
		for _, d := range h.Devices {
			note := ""
			if h.Method == "weighted" {
				note = fmt.Sprintf(", weight %d", d.Weight)
			}
			if !d.Offload {
				note += ", offload off"
			}
			t.line("      %s\t%s (%s) → %s (%s)\tmonitors: %s%s", d.Name, d.In, d.InNIC, d.Out, d.OutNIC, strings.Join(d.Monitors, ", "), note)
		}
		t.tabs.Flush()
		t.line("      pool down:\t%s", h.PoolDown)
		t.line("      device down:\t%s", h.DeviceDown)
		t.line("      device back:\t%s", h.DeviceBack)
		t.tabs.Flush()
	}
	t.line("    all pools down: %s", c.AllDown)
	t.tabs.Flush()
}

func (t *text) monitor(m Monitor) {
	targets := "devices " + strings.Join(m.Devices, ", ")
	if m.Devices == nil {
		targets = "server pools " + strings.Join(m.Servers, ", ")
	}
	if m.Timing == "" {
		t.line("  %s\talways on\t%s", m.Name, targets)
		return
	}
	kind := m.Type
	if m.Address != "" {
		kind += " " + m.Address
	}
	t.line("  %s\t%s\t%s", m.Name, kind, targets)
	t.line("  \t\t%s", m.Timing)
	t.line("  \t\tsilence is noticed %s", m.Detected)
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none (always up)"
	}
	return strings.Join(list, ", ")
}
