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

// route is what becomes of a connection: the pre-policy's decision, made usable.
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

// decide asks the rules until one names something that works.
func (p *Proxy) decide(v *virtual, in policy.Input) route {
	for d := policy.Decide(v.cfg.Rules, in); ; {
		r := p.resolve(v, d)
		if r.err == nil || r.reason == ReasonPolicyReject || r.reason == ReasonPolicyDrop || d.Index >= len(v.cfg.Rules) {
			return r
		}
		next := d.Failed(v.cfg.Rules, in)
		if next.Failure {
			r.action = next.Action
			return r
		}
		d = next
	}
}

func (p *Proxy) resolve(v *virtual, d policy.Decision) route {
	d = d.Or(v.cfg.Chain, v.cfg.ServerPool)
	r := route{action: d.Action, rule: d.Rule, chain: d.Chain, raw: d.Action == policy.Bypass}
	switch d.Action {
	case policy.Reject:
		r.reason, r.err = ReasonPolicyReject, errByPolicy
		return r
	case policy.Drop:
		r.reason, r.err = ReasonPolicyDrop, errByPolicy
		return r
	}
	p.throughChain(v, &r)
	if r.err == nil {
		p.toPool(v, &r, d.ServerPool)
	}
	return r
}

func (p *Proxy) throughChain(v *virtual, r *route) {
	if r.chain == "" {
		if r.collapsed, r.why = true, "no-chain"; v.cfg.Chain != "" {
			r.why = "policy"
		}
		return
	}
	out := p.deps.Chains.Outlook(r.chain)
	switch {
	case out.InService:
		ok := false
		if r.mark, ok = p.deps.Chains.Mark(r.chain); !ok {
			r.refuse(policy.Reject, ReasonChainDown, fmt.Errorf("chain %s: %w", r.chain, errNoChainMark))
		}
	case out.OnDown == chain.Bypass:
		r.collapsed, r.why = true, out.Reason.String()
	default:
		act := policy.Reject
		if out.OnDown == chain.Drop {
			act = policy.Drop
		}
		r.refuse(act, ReasonChainDown, fmt.Errorf("chain %s (%s): %w", r.chain, out.Reason, errChainDown))
	}
}

func (p *Proxy) toPool(v *virtual, r *route, name string) {
	r.pool = v.pools[name]
	if r.pool == nil || !r.pool.Available(p.healthy(name)) {
		r.refuse(policy.Reject, ReasonNoServer, fmt.Errorf("server pool %s: %w", name, errNoMember))
	}
}

func (r *route) refuse(a policy.Action, why Reason, err error) {
	r.action, r.reason, r.err = a, why, err
}

func input(f *flow, h *hello.Hello) policy.Input {
	return policy.Input{Source: f.client, Destination: f.listen, Link: f.link, SNI: h.ServerName, ALPN: h.ALPN, TLSVersions: h.Versions}
}
