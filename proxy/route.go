package proxy

import (
	"errors"
	"fmt"

	"sslo/chain"
	"sslo/policy"
	"sslo/policy/schedule"
	"sslo/proxy/pool"
	"sslo/tls/hello"
)

var (
	errChainDown   = errors.New("chain is down and may not be bypassed")
	errNoMember    = errors.New("no member in service")
	errByPolicy    = errors.New("refused by policy")
	errNoChainMark = errors.New("chain is not known to the session plane")
)

// route is what becomes of a connection: the decision of rules and script, with what carries it out.
type route struct {
	action    policy.Action
	rule      string
	chain     string
	mark      uint32
	collapsed bool   // no device would see it: client and server are joined inside the process
	why       string // it is collapsed, for the ledger
	raw       bool   // TLS bypass
	pool      *pool.Pool
	reason    Reason // of a rejection
	err       error
}

// world is what routing asks about the moment, for one virtual server.
type world struct {
	p *Proxy
	v *virtual
}

// Outlook implements policy.World.
func (w world) Outlook(name string) chain.Outlook { return w.p.deps.Chains.Outlook(name) }

// Available implements policy.World.
func (w world) Available(name string) bool {
	pool := w.v.pools[name]
	return pool != nil && pool.Available(w.p.healthy(name))
}

// carryOut finds what a route needs.
func (p *Proxy) carryOut(v *virtual, r policy.Route, scriptErr error) route {
	out := route{action: r.Action, rule: r.By(), chain: r.Chain, collapsed: r.Skipped, why: r.Why,
		raw: r.Action == policy.Bypass, pool: v.pools[r.ServerPool]}
	switch r.Refusal {
	case policy.ByPolicy:
		if out.reason, out.err = ReasonPolicyReject, errByPolicy; r.Action == policy.Drop {
			out.reason = ReasonPolicyDrop
		}
	case policy.ByScriptError:
		out.reason, out.err = ReasonScriptError, scriptErr
	case policy.ChainDown:
		out.reason, out.err = ReasonChainDown, fmt.Errorf("chain %s (%s): %w", r.Chain, r.Outlook.Reason, errChainDown)
	case policy.NoServer:
		out.reason, out.err = ReasonNoServer, fmt.Errorf("server pool %s: %w", r.ServerPool, errNoMember)
	default:
		p.marked(&out)
	}
	return out
}

// Scheduling is a virtual server's, and what it would ask now.
func (p *Proxy) Scheduling(name string) (*schedule.Server, policy.World, bool) {
	for _, v := range p.state.Load().virtuals {
		if v.cfg.Name == name {
			return &v.order, world{p, v}, true
		}
	}
	return nil, nil, false
}

// marked finds the mark by which the session plane knows the chain.
func (p *Proxy) marked(r *route) {
	if r.collapsed {
		return
	}
	ok := false
	if r.mark, ok = p.deps.Chains.Mark(r.chain); !ok {
		r.action, r.reason, r.err = policy.Reject, ReasonChainDown, fmt.Errorf("chain %s: %w", r.chain, errNoChainMark)
	}
}

func input(f *flow, h *hello.Hello) policy.Input {
	family := ""
	if f.vs.tls != nil {
		family = f.vs.tls.Family(h).String()
	}
	return policy.Input{TLSFamily: family, Source: f.client, Destination: f.listen, Link: f.link, SNI: h.ServerName, ALPN: h.ALPN, TLSVersions: h.Versions}
}
