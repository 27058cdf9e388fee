package api

import (
	"fmt"
	"net/netip"
	"strings"
)

// Question is a connection that `sslo explain` is asked about.
type Question struct {
	Source      netip.AddrPort `json:"src"`
	Destination netip.AddrPort `json:"dst"`
	Protocol    string         `json:"proto"` // tcp, udp
	Link        string         `json:"link,omitempty"`
	SNI         string         `json:"sni,omitempty"`
	ALPN        []string       `json:"alpn,omitempty"`
	TLSVersion  string         `json:"tls_version"` // the highest offered
	TLSFamily   string         `json:"tls_family"`
}

// QuestionKeys are the parameters of GET /v1/explain, which are the flags of `sslo explain`.
var QuestionKeys = []string{"src", "dst", "proto", "link", "sni", "alpn", "tls-version", "tls-family"}

// ParseQuestion reads a question of its parameters.
func ParseQuestion(get func(key string) string) (Question, error) {
	q := Question{Protocol: get("proto"), Link: get("link"), SNI: get("sni"), TLSVersion: get("tls-version"), TLSFamily: get("tls-family")}
	var err error
	if q.Source, err = parseEnd("src", get("src"), 50000); err != nil {
		return q, err
	}
	if q.Destination, err = parseEnd("dst", get("dst"), 443); err != nil {
		return q, err
	}
	if get("alpn") != "" {
		q.ALPN = strings.Split(get("alpn"), ",")
	}
	for _, word := range []struct {
		key   string
		value *string
		words []string
	}{{"proto", &q.Protocol, []string{"tcp", "udp"}}, {"tls-version", &q.TLSVersion, []string{"1.3", "1.2", "1.1", "1.0"}},
		{"tls-family", &q.TLSFamily, []string{"tls", "tlcp", "tls13-sm"}}} {
		if err := oneOf(word.key, word.value, word.words); err != nil {
			return q, err
		}
	}
	return q, nil
}

// oneOf takes the first word when none is given.
func oneOf(key string, value *string, words []string) error {
	if *value == "" {
		*value = words[0]
	}
	for _, w := range words {
		if w == *value {
			return nil
		}
	}
	return fmt.Errorf("%s: %q is none of %s", key, *value, strings.Join(words, ", "))
}

func parseEnd(key, text string, port uint16) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(a.Unmap(), port), nil
	}
	ap, err := netip.ParseAddrPort(text)
	if err != nil {
		return ap, fmt.Errorf("%s: %q is neither an address nor address:port", key, text)
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), nil
}

// Explanation is what would happen to a connection, in the order of scheduling.
type Explanation struct {
	Question      Question      `json:"question"`
	Running       bool          `json:"running"`                  // states are those of the running daemon; else all is up, but what the question takes down
	VirtualServer string        `json:"virtual_server,omitempty"` // empty: nothing listens there
	Notes         []string      `json:"notes,omitempty"`
	Rules         []RuleVerdict `json:"rules"`
	Script        []HookVerdict `json:"script,omitempty"`
	Attempts      []Attempt     `json:"attempts"` // the last one is what happens

	Action       string         `json:"action"`
	By           string         `json:"by,omitempty"` // rule, script; empty: the virtual server's own settings
	Refusal      string         `json:"refusal,omitempty"`
	Why          string         `json:"why,omitempty"` // of the refusal
	Chain        string         `json:"chain,omitempty"`
	ChainBy      string         `json:"chain_by,omitempty"`
	ServerPool   string         `json:"server_pool,omitempty"`
	ServerPoolBy string         `json:"server_pool_by,omitempty"`
	Inspected    bool           `json:"inspected"`             // a device would see it
	Uninspected  string         `json:"uninspected,omitempty"` // why not, as the ledger counts it
	Inner        netip.AddrPort `json:"inner,omitzero"`        // destination as devices see it
	Hops         []ChainHop     `json:"hops,omitempty"`
	Members      []Candidate    `json:"members,omitempty"`
}

// RuleVerdict is one pre-policy and what it says.
type RuleVerdict struct {
	Name       string      `json:"name"`
	Matches    bool        `json:"matches"`
	Conditions []Condition `json:"conditions,omitempty"`
	Verdict    string      `json:"verdict"` // decides, failed, no match, not reached
}

// Condition is one of a rule.
type Condition struct {
	Name  string `json:"name"`
	Holds bool   `json:"holds"`
}

// HookVerdict is what a function of the script did.
type HookVerdict struct {
	Hook       string   `json:"hook"`
	Action     string   `json:"action,omitempty"`
	Chain      string   `json:"chain,omitempty"`
	ServerPool string   `json:"server_pool,omitempty"`
	Lines      []string `json:"lines,omitempty"`
	Error      string   `json:"error,omitempty"`
}

// Attempt is a decision, and what came of trying to carry it out.
type Attempt struct {
	By         string `json:"by,omitempty"`
	Action     string `json:"action"`
	Chain      string `json:"chain,omitempty"`
	ServerPool string `json:"server_pool,omitempty"`
	Refusal    string `json:"refusal,omitempty"`
}

// ChainHop is a device pool of the chain as the connection would meet it.
type ChainHop struct {
	Pool    string      `json:"pool"`
	Method  string      `json:"method"`
	Verdict string      `json:"verdict"`         // inspects, skipped, resets, drops
	Why     string      `json:"why,omitempty"`   // it does not inspect
	Tap     bool        `json:"tap,omitempty"`   // gets a copy
	Takes   string      `json:"takes,omitempty"` // the device, when the method leaves no choice
	Devices []Candidate `json:"devices"`
}

// Candidate is a device or a server that may be chosen.
type Candidate struct {
	Name   string `json:"name"`
	Usable bool   `json:"usable"`
	Why    string `json:"why,omitempty"` // not
	Weight int    `json:"weight,omitempty"`
}
