// Package policy owns pre-policies: ordered rules that look at a connection's addresses and at
// its ClientHello and decide what becomes of it: which chain, which server pool, whether TLS is
// intercepted. It is pure: it knows no socket, no configuration file, and not whether a chain or
// a server pool works at the moment; the caller says so with Decision.Failed.
package policy

import (
	"net/netip"

	"sslo/session"
)

// Action is what a rule does with a connection.
type Action uint8

const (
	Intercept Action = iota // terminate TLS, plaintext through the chain; also what no rule means
	Bypass                  // relay the ciphertext, through the chain if the rule names one
	Reject                  // reset the connection
	Drop                    // let it end in silence
)

var actionNames = [...]string{"intercept", "bypass", "reject", "drop"}

func (a Action) String() string { return name(actionNames[:], uint8(a)) }

// Match says how the conditions of one rule combine. The values inside one condition are
// always alternatives.
type Match uint8

const (
	All Match = iota // every condition that is given
	Any              // at least one
)

var matchNames = [...]string{"all", "any"}

func (m Match) String() string { return name(matchNames[:], uint8(m)) }

// OnFailure says what happens when a rule was chosen but what it names can not be used.
type OnFailure uint8

const (
	FailReset OnFailure = iota // the client gets a reset
	FailDrop                   // the connection ends in silence
	FailNext                   // the next rule that matches decides
)

var onFailureNames = [...]string{"reset", "drop", "next-rule"}

func (f OnFailure) String() string { return name(onFailureNames[:], uint8(f)) }

// NoChain as a rule's chain means none, where an empty one means the virtual server's.
const NoChain = "none"

// PortRange is a range of ports, both ends included.
type PortRange struct{ From, To uint16 }

// Conditions of a rule. An empty list is no condition.
type Conditions struct {
	Source      []netip.Prefix // the client's address
	Destination []netip.Prefix // the address it connected to
	Port        []PortRange    // the port it connected to
	Protocol    []session.Protocol
	Link        []string // the client link
	SNI         []string // lower case: a name, "*.suffix" (any depth, not the suffix itself), or "" for no SNI
	ALPN        []string // one of them is offered
	TLSVersion  []uint16 // the highest version offered
	TLSFamily   []string // the protocol family that would be spoken
}

// Rule is a pre-policy: the first whose conditions hold decides.
type Rule struct {
	Name       string
	Match      Match
	When       Conditions // none: always
	Action     Action
	Chain      string // "": the virtual server's (with Bypass: none); NoChain: none
	ServerPool string // "": the virtual server's
	OnFailure  OnFailure
}

// Input is what is known of a connection once its ClientHello is read.
type Input struct {
	Source, Destination netip.AddrPort
	Protocol            session.Protocol // 0 counts as TCP
	Link                string
	SNI                 string
	ALPN                []string
	TLSVersions         []uint16 // as offered; unknown values are ignored
	TLSFamily           string   // that the virtual server would speak with the client
}

// Decision is what becomes of a connection, and which rule says so.
type Decision struct {
	Rule       string // "": no rule matched, the virtual server's own settings
	Index      int    // of Rule; len(rules) when none matched
	Action     Action
	Chain      string // as in Rule; see Or
	ServerPool string
	Script     bool // the virtual server's script had a word in it
	Failure    bool // Action is Rule's on_failure, not its own
}

// Decide returns the decision of the first rule that matches.
func Decide(rules []Rule, in Input) Decision { return decideFrom(rules, in, 0) }

// Failed returns the decision after d, made by the same rules for the same input, turned out to
// be unusable (no member of its server pool is in service, say).
func (d Decision) Failed(rules []Rule, in Input) Decision {
	if d.Script || d.Index >= len(rules) { // a script knows no next rule
		return Decision{Rule: d.Rule, Index: d.Index, Script: d.Script, Action: Reject, Failure: true}
	}
	r := &rules[d.Index]
	switch r.OnFailure {
	case FailNext:
		return decideFrom(rules, in, d.Index+1)
	case FailDrop:
		return Decision{Rule: r.Name, Index: d.Index, Action: Drop, Failure: true}
	}
	return Decision{Rule: r.Name, Index: d.Index, Action: Reject, Failure: true}
}

// Or fills what the rule left open with the virtual server's chain and server pool and turns
// NoChain into "". A bypass goes through a chain only when its rule names one: what a device
// would see is ciphertext.
func (d Decision) Or(chain, serverPool string) Decision {
	switch {
	case d.Chain == NoChain:
		d.Chain = ""
	case d.Chain == "" && d.Action == Intercept:
		d.Chain = chain
	}
	if d.ServerPool == "" && (d.Action == Intercept || d.Action == Bypass) {
		d.ServerPool = serverPool
	}
	return d
}

func decideFrom(rules []Rule, in Input, from int) Decision {
	in.SNI = canonical(in.SNI)
	if in.Protocol == 0 {
		in.Protocol = session.TCP
	}
	for i := from; i < len(rules); i++ {
		if r := &rules[i]; r.matches(&in) {
			return Decision{Rule: r.Name, Index: i, Action: r.Action, Chain: r.Chain, ServerPool: r.ServerPool}
		}
	}
	return Decision{Index: len(rules)}
}

// By says who decided: a rule, the script, or both; "" for the virtual server itself.
func (d Decision) By() string {
	switch {
	case !d.Script:
		return d.Rule
	case d.Rule == "":
		return "script"
	}
	return d.Rule + ", script"
}

func name(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return "unknown"
}
