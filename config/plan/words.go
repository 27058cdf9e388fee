package plan

import (
	"fmt"
	"strings"
	"time"

	"sslo/chain"
	"sslo/config"
	"sslo/policy"
)

func onDown(a chain.Action) string {
	switch a {
	case chain.Reset:
		return "connections are reset, new and established"
	case chain.Drop:
		return "connections are dropped in silence, new and established"
	}
	return "bypassed: connections go on to the next hop, uninspected, and are counted in the ledger"
}

// poolDown knows that established sessions follow `established` even then, unless on_down is stricter.
func poolDown(p *config.DevicePool) string {
	if p.OnDown == chain.Bypass && p.Established == chain.Reset {
		return "bypassed by new connections, uninspected and counted in the ledger; established ones are reset"
	}
	return onDown(p.OnDown)
}

func deviceDown(p *config.DevicePool) string {
	switch {
	case len(p.Devices)-1 < p.MinActive:
		return "the pool is down"
	case p.Established == chain.Reset:
		return "new connections take another device, established ones are reset"
	}
	return "new connections take another device, established ones skip this pool, uninspected"
}

func deviceBack(r chain.Return) string {
	switch r {
	case chain.ReturnNever:
		return "waits for sslo device enable"
	case chain.ReturnImmediate:
		return "gets new connections, and those that bypassed it back"
	}
	return "gets new connections; those that bypassed it go on without it"
}

// monitorNames are the monitors, with how many must be good when that is not all of them.
func monitorNames(set *config.MonitorSet, monitors []config.Monitor) []string {
	vital, names := []string{}, []string{}
	for i := range monitors {
		if m := &monitors[i]; m.Negative {
			names = append(names, m.Name+" (degrades)")
		} else {
			vital = append(vital, m.Name)
		}
	}
	if n := int(set.Require); n > 0 && n < len(vital) {
		vital = []string{fmt.Sprintf("%d of (%s)", n, strings.Join(vital, ", "))}
	}
	return append(vital, names...)
}

// probed is what a monitor sends, and where.
func probed(m *config.Monitor) string {
	where := m.Address
	if m.Through {
		where = fmt.Sprintf("through the device, %s → %s", m.Client, m.Server)
	}
	switch m.Type {
	case config.MonitorHTTP, config.MonitorHTTPS:
		where += " " + m.Method + " " + m.Path
	case config.MonitorDNS:
		where += " " + m.Query + " " + config.Word(m.Record)
	case config.MonitorExec:
		where += " " + strings.Join(m.Command, " ")
	}
	if m.Negative {
		where += " must be blocked, else degraded"
	}
	return strings.TrimSpace(where)
}

func timing(m *config.Monitor) string {
	return fmt.Sprintf("every %v, timeout %v, down after %d, up after %d, held down %v",
		m.Interval, m.Timeout, m.Fall, m.Rise, m.HoldDown)
}

// detected is when a target that fell silent is down at the latest, with no help from anything
// but this monitor: it fell silent just after a probe.
func detected(m *config.Monitor, device bool) string {
	period := max(m.Interval, m.Timeout)
	text := "at the latest " + (m.Interval + time.Duration(m.Fall-1)*period + m.Timeout).String()
	if device && m.Type == config.MonitorPath {
		text += ", sooner with traffic (suspicion)"
	}
	return text
}

func newRule(r *config.Rule, v *config.VirtualServer) Rule {
	out := Rule{Name: r.Name, When: when(r), Then: r.Action.String()}
	if r.Action == policy.Reject || r.Action == policy.Drop {
		return out
	}
	out.OnFailure = r.OnFailure.String()
	d := (policy.Decision{Action: r.Action, Chain: r.Chain, ServerPool: r.ServerPool}).Or(v.Chain, v.ServerPool)
	if out.Then += ", chain " + d.Chain; d.Chain == "" {
		out.Then = r.Action.String() + ", no chain"
	}
	out.Then += ", server pool " + d.ServerPool
	return out
}

func when(r *config.Rule) string {
	var parts []string
	add(&parts, "source", r.When.Source)
	add(&parts, "destination", r.When.Destination)
	var ports []string
	for _, p := range r.When.Port {
		text := fmt.Sprint(p.From)
		if p.To != p.From {
			text = fmt.Sprintf("%d-%d", p.From, p.To)
		}
		ports = append(ports, text)
	}
	add(&parts, "port", ports)
	add(&parts, "protocol", r.When.Protocol)
	add(&parts, "link", r.When.Link)
	var names []string
	for _, s := range r.When.SNI {
		if s == "" {
			s = "(none)"
		}
		names = append(names, s)
	}
	add(&parts, "sni", names)
	add(&parts, "alpn", r.When.ALPN)
	var versions []string
	for _, v := range r.When.TLSVersion {
		versions = append(versions, config.Word(v))
	}
	add(&parts, "tls_version", versions)
	var families []string
	for _, f := range r.When.TLSFamily {
		families = append(families, config.Word(f))
	}
	add(&parts, "tls_family", families)
	if len(parts) == 0 {
		return "always"
	}
	if r.Match == policy.Any {
		return strings.Join(parts, " or ")
	}
	return strings.Join(parts, " and ")
}

func add[T any](parts *[]string, key string, values []T) {
	if len(values) == 0 {
		return
	}
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = fmt.Sprint(v)
	}
	*parts = append(*parts, key+" "+strings.Join(words, ", "))
}
