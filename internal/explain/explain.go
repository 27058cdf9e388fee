// Package explain answers what would become of a connection, from the same scheduling that the proxies run: from
// the running daemon's state, or from a configuration alone. It decides nothing itself.
package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sslo/admin/api"
	"sslo/chain"
	"sslo/config"
	"sslo/policy"
	"sslo/policy/schedule"
	"sslo/policy/script"
	"sslo/session"
)

// World is what there is to be asked about.
type World struct {
	Config *config.Config
	// Scheduling of a virtual server, and what it would ask at the moment.
	Scheduling func(virtualServer string) (*schedule.Server, policy.World, bool)
	// Hops that a new connection through a chain would meet.
	Hops    func(chain string) []chain.Hop
	Healthy func(serverPool, member string) bool
	Running bool
}

// Answer explains a connection.
func (w World) Answer(q api.Question) (api.Explanation, error) {
	x := api.Explanation{Question: q, Running: w.Running, Rules: []api.RuleVerdict{}, Attempts: []api.Attempt{}}
	v, link := w.find(&x)
	if v == nil {
		return x, nil
	}
	server, moment, ok := w.Scheduling(v.Name)
	if !ok {
		return x, fmt.Errorf("virtual server %s is not in service", v.Name)
	}
	order := *server
	if order.Script != nil { // one of its own: questions are not counted
		var err error
		if order.Script, err = order.Script.Fresh(); err != nil {
			return x, err
		}
	}
	x.VirtualServer, x.Question.Link = v.Name, link
	c := schedule.New(&order, policy.Input{Source: q.Source, Destination: q.Destination, Protocol: protocol(q), Link: link})
	e := &explainer{World: w, x: &x, v: v, course: c}
	e.run(moment)
	return x, nil
}

func protocol(q api.Question) session.Protocol {
	if q.Protocol == "udp" {
		return session.UDP
	}
	return session.TCP
}

// find is the virtual server that the kernel would give the connection to: an address of its own goes before any address.
func (w World) find(x *api.Explanation) (*config.VirtualServer, string) {
	q := x.Question
	for _, exact := range []bool{true, false} {
		for _, v := range w.Config.VirtualServers {
			if q.Link != "" && !slices.Contains(v.Links, q.Link) || !slices.ContainsFunc(v.Listen, func(l netip.AddrPort) bool { return listens(l, q.Destination, exact) }) {
				continue
			}
			link := q.Link
			if link == "" {
				if link = v.Links[0]; len(v.Links) > 1 {
					x.Notes = append(x.Notes, fmt.Sprintf("no link was given: %s of %s is taken", link, strings.Join(v.Links, ", ")))
				}
			}
			return v, link
		}
	}
	x.Action = "none"
	x.Why = fmt.Sprintf("no virtual server listens on %s", q.Destination)
	if q.Link != "" {
		x.Why += " on link " + q.Link
	}
	return nil, ""
}

func listens(l, to netip.AddrPort, exact bool) bool {
	if l.Port() != to.Port() {
		return false
	}
	if exact {
		return l.Addr().Unmap() == to.Addr()
	}
	return l.Addr().IsUnspecified() && (l.Addr().Is4() == to.Addr().Is4())
}

// explainer writes down one course.
type explainer struct {
	World
	x      *api.Explanation
	v      *config.VirtualServer
	course *schedule.Course
	tried  []policy.Route
}

func (e *explainer) run(moment policy.World) {
	e.course.Told = e.told
	e.course.Visit = func(r policy.Route) { e.tried = append(e.tried, r) }
	r, ok := e.course.Connect()
	if ok {
		e.hello()
		r = e.course.Hello(moment)
	}
	e.rules(r)
	e.attempts()
	e.outcome(r)
	e.way(r)
}

// hello is what the client would send.
func (e *explainer) hello() {
	in, q := &e.course.Event.Input, e.x.Question
	in.SNI, in.ALPN, in.TLSFamily = q.SNI, q.ALPN, q.TLSFamily
	if q.TLSFamily == "tlcp" {
		in.TLSVersions = []uint16{0x0101}
		return
	}
	minor := q.TLSVersion[len(q.TLSVersion)-1] - '0'
	for v := uint16(0x0301) + uint16(minor); v >= 0x0301; v-- {
		in.TLSVersions = append(in.TLSVersions, v)
	}
}

func (e *explainer) told(h script.Hook, ev *script.Event, err error) {
	v := api.HookVerdict{Hook: h.String(), Chain: ev.Verdict.Chain, ServerPool: ev.Verdict.ServerPool, Lines: ev.Lines}
	if ev.Verdict.HasAction {
		v.Action = ev.Verdict.Action.String()
	}
	if err != nil {
		v.Error = err.Error()
	}
	e.x.Script = append(e.x.Script, v)
}

// rules tells of each rule whether it matches, and what part it had.
func (e *explainer) rules(end policy.Route) {
	tried := map[int]bool{}
	for _, r := range e.tried {
		tried[r.Index] = true
	}
	for i := range e.course.Rules {
		r := &e.course.Rules[i]
		v := api.RuleVerdict{Name: r.Name}
		var held []policy.Held
		held, v.Matches = r.Check(e.course.Event.Input)
		for _, h := range held {
			v.Conditions = append(v.Conditions, api.Condition{Name: h.Condition, Holds: h.Holds})
		}
		switch {
		case i > end.Index || len(e.tried) == 0:
			v.Verdict = "not reached"
		case !tried[i]:
			v.Verdict = "no match"
		case i == end.Index:
			v.Verdict = "decides"
		default:
			v.Verdict = "failed"
		}
		e.x.Rules = append(e.x.Rules, v)
	}
}

func (e *explainer) attempts() {
	for _, r := range e.tried {
		a := api.Attempt{By: r.By(), Action: r.Action.String(), Chain: r.Chain, ServerPool: r.ServerPool}
		if r.Refusal != policy.Accepted {
			a.Refusal = r.Refusal.String()
		}
		e.x.Attempts = append(e.x.Attempts, a)
	}
}

func (e *explainer) outcome(r policy.Route) {
	x := e.x
	x.Action, x.By, x.Chain, x.ServerPool = r.Action.String(), r.By(), r.Chain, r.ServerPool
	if r.Refusal != policy.Accepted {
		x.Refusal = r.Refusal.String()
	}
	switch r.Refusal {
	case policy.ChainDown:
		x.Why = fmt.Sprintf("chain %s is down (%s) and may not be bypassed", r.Chain, r.Outlook.Reason)
	case policy.NoServer:
		x.Why = fmt.Sprintf("no member of server pool %s is in service", r.ServerPool)
	case policy.ByScriptError:
		x.Why = e.course.Err.Error()
	case policy.Accepted:
		x.Inspected, x.Uninspected = !r.Skipped, r.Why
		x.ChainBy, x.ServerPoolBy = e.namedBy(r)
		if r.Action == policy.Intercept && !e.speaks(x.Question.TLSFamily) {
			x.Notes = append(x.Notes, fmt.Sprintf("the handshake fails: %s is not spoken here", x.Question.TLSFamily))
		}
	}
}

func (e *explainer) speaks(family string) bool {
	return slices.ContainsFunc(e.v.TLS.Protocols, func(p config.Protocol) bool { return config.Word(p) == family })
}

// namedBy says who named the chain and the server pool.
func (e *explainer) namedBy(r policy.Route) (chain, pool string) {
	chain, pool = "virtual server", "virtual server"
	if r.Index < len(e.course.Rules) {
		rule := &e.course.Rules[r.Index]
		if rule.Chain != "" {
			chain = "rule " + rule.Name
		}
		if rule.ServerPool != "" {
			pool = "rule " + rule.Name
		}
	}
	if v := e.course.Event.Verdict; r.Script {
		if v.Chain != "" {
			chain = "script"
		}
		if v.ServerPool != "" {
			pool = "script"
		}
	}
	if r.Chain == "" && chain == "virtual server" && r.Action == policy.Bypass {
		chain = "TLS bypass takes a chain only when one is named"
	}
	return chain, pool
}

// way is the chain hop by hop, and the servers.
func (e *explainer) way(r policy.Route) {
	if r.Chain != "" && r.Refusal != policy.ByPolicy && r.Refusal != policy.ByScriptError {
		for _, h := range e.Hops(r.Chain) {
			e.x.Hops = append(e.x.Hops, e.hop(h))
		}
	}
	p := e.Config.ServerPool(r.ServerPool)
	if p == nil || r.Refusal == policy.ByPolicy || r.Refusal == policy.ByScriptError {
		return
	}
	for _, m := range p.Members {
		c := api.Candidate{Name: m.Address.String(), Usable: e.Healthy(p.Name, m.Address.String())}
		if p.Method != chain.RoundRobin {
			c.Weight = m.Weight
		}
		if !c.Usable {
			c.Why = "out of service"
		}
		e.x.Members = append(e.x.Members, c)
	}
	if to := e.x.Question.Destination; r.Action == policy.Intercept {
		e.x.Inner = netip.AddrPortFrom(to.Addr(), e.v.PortOf(to))
	} else {
		e.x.Inner = to
	}
}

func (e *explainer) hop(h chain.Hop) api.ChainHop {
	out := api.ChainHop{Pool: h.Pool.Name, Method: config.Word(h.Pool.Method), Verdict: "inspects"}
	if !h.InService {
		out.Why = h.Skip.String()
		out.Verdict = map[chain.Action]string{chain.Bypass: "skipped", chain.Reset: "resets", chain.Drop: "drops"}[h.Pool.OnDown]
	}
	var usable []string
	for i, c := range h.Candidates {
		d := api.Candidate{Name: h.Pool.Devices[i].Device, Usable: c.Status.Service == chain.Full}
		if h.Pool.Method == chain.Weighted {
			d.Weight = max(c.Weight, 1)
		}
		if d.Usable {
			usable = append(usable, d.Name)
		} else {
			d.Why = c.Status.Why().String()
		}
		if device := e.Config.Device(d.Name); device != nil && device.Type == chain.Tap {
			out.Tap = true
		}
		out.Devices = append(out.Devices, d)
	}
	if h.InService && len(usable) > 0 && (len(usable) == 1 || h.Pool.Method == chain.ActiveStandby) {
		out.Takes = usable[0]
	}
	return out
}
