package proxy

import (
	"errors"
	"fmt"

	"sslo/chain"
	"sslo/policy"
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

// decide asks the rules and the script until something is named that works.
func (p *Proxy) decide(v *virtual, in policy.Input, script policy.Verdict) route {
	own := policy.Defaults{Chain: v.cfg.Chain, ServerPool: v.cfg.ServerPool}
	r := policy.Find(v.cfg.Rules, in, script, own, world{p, v}, nil)
	out := route{action: r.Action, rule: ruleName(r.Decision), chain: r.Chain, collapsed: r.Skipped, why: r.Why,
		raw: r.Action == policy.Bypass, pool: v.pools[r.ServerPool]}
	switch r.Refusal {
	case policy.ByPolicy:
		if out.reason, out.err = ReasonPolicyReject, errByPolicy; r.Action == policy.Drop {
			out.reason = ReasonPolicyDrop
		}
	case policy.ChainDown:
		out.reason, out.err = ReasonChainDown, fmt.Errorf("chain %s (%s): %w", r.Chain, r.Outlook.Reason, errChainDown)
	case policy.NoServer:
		out.reason, out.err = ReasonNoServer, fmt.Errorf("server pool %s: %w", r.ServerPool, errNoMember)
	default:
		p.marked(&out)
	}
	return out
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

// ruleName says who decided.
func ruleName(d policy.Decision) string {
	switch {
	case !d.Script:
		return d.Rule
	case d.Rule == "":
		return "script"
	}
	return d.Rule + ", script"
}

func input(f *flow, h *hello.Hello) policy.Input {
	return policy.Input{Source: f.client, Destination: f.listen, Link: f.link, SNI: h.ServerName, ALPN: h.ALPN, TLSVersions: h.Versions}
}
