package policy

import "sslo/chain"

// Verdict is what a script says of a connection. What it leaves open stays as the rules decided.
type Verdict struct {
	HasAction  bool
	Action     Action
	Chain      string // "": open; NoChain: none
	ServerPool string // "": open
}

// Empty says that the script left everything open.
func (v Verdict) Empty() bool { return v == Verdict{} }

// Refuses says that the script ends the connection.
func (v Verdict) Refuses() bool { return v.HasAction && (v.Action == Reject || v.Action == Drop) }

// With is the decision after the script's word. A connection that the rules refuse stays refused.
func (d Decision) With(v Verdict) Decision {
	if v.Empty() || d.Refuses() {
		return d
	}
	d.Script = true
	if v.HasAction {
		d.Action = v.Action
	}
	if v.Chain != "" {
		d.Chain = v.Chain
	}
	if v.ServerPool != "" {
		d.ServerPool = v.ServerPool
	}
	return d
}

// Refuses says that the connection is not to be carried.
func (d Decision) Refuses() bool { return d.Action == Reject || d.Action == Drop }

// Refusal says why a connection is not carried.
type Refusal uint8

const (
	Accepted      Refusal = iota
	ByPolicy              // a rule or a script refuses it
	ChainDown             // its chain is down and may not be bypassed
	NoServer              // no member of its server pool is in service
	ByScriptError         // its script failed, which is not forgiven
)

var refusalNames = [...]string{"accepted", "policy", "chain-down", "no-server", "script-error"}

func (r Refusal) String() string { return name(refusalNames[:], uint8(r)) }

// World is what routing asks about the moment. It is asked once a connection and must be fast.
type World interface {
	Outlook(chain string) chain.Outlook
	Available(serverPool string) bool // a member of it would be tried
}

// Defaults are the virtual server's own chain and server pool.
type Defaults struct{ Chain, ServerPool string }

// Route is what becomes of a connection: a decision with the virtual server's chain and server pool
// filled in, and whether it can be carried out now.
type Route struct {
	Decision
	Refusal Refusal
	Outlook chain.Outlook // of Chain
	Skipped bool          // no device would see it: it stays inside the process
	Why     string        // it is skipped, for the ledger
}

// Find asks the rules and then the script's verdict until something can be carried out: the scheduling
// order. A server pool is kept whoever names it first, and applied after the chain. Each attempt is told
// to visit, unless that is nil.
func Find(rules []Rule, in Input, v Verdict, own Defaults, w World, visit func(Route)) Route {
	d := Decide(rules, in).With(v)
	for {
		r := carry(d, own, w)
		if visit != nil {
			visit(r)
		}
		if r.Refusal == Accepted || r.Refusal == ByPolicy || !d.Script && d.Index >= len(rules) {
			return r
		}
		next := d.Failed(rules, in)
		if next.Failure {
			if !d.Script {
				r.Action = next.Action
			}
			return r
		}
		d = next
	}
}

// carry finds out whether a decision can be carried out.
func carry(d Decision, own Defaults, w World) Route {
	r := Route{Decision: d.Or(own.Chain, own.ServerPool)}
	if r.Refuses() {
		r.Refusal = ByPolicy
		return r
	}
	if r.throughChain(own, w); r.Refusal == Accepted && !w.Available(r.ServerPool) {
		r.refuse(NoServer, Reject)
	}
	return r
}

func (r *Route) throughChain(own Defaults, w World) {
	if r.Chain == "" {
		if r.Skipped, r.Why = true, "no-chain"; own.Chain != "" {
			r.Why = "policy"
		}
		return
	}
	switch r.Outlook = w.Outlook(r.Chain); {
	case r.Outlook.InService:
	case r.Outlook.OnDown == chain.Bypass:
		r.Skipped, r.Why = true, r.Outlook.Reason.String()
	case r.Outlook.OnDown == chain.Drop:
		r.refuse(ChainDown, Drop)
	default:
		r.refuse(ChainDown, Reject)
	}
}

func (r *Route) refuse(why Refusal, a Action) { r.Refusal, r.Action = why, a }
