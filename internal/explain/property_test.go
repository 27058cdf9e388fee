package explain

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"sslo/admin/api"
	"sslo/chain"
	"sslo/config"
	"sslo/policy"
	"sslo/policy/schedule"
	"sslo/session"
)

// one is one of the values.
func one[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// some is one of the values, or none most of the time.
func some[T any](r *rand.Rand, values ...T) []T {
	if r.IntN(3) > 0 {
		return nil
	}
	return []T{one(r, values...)}
}

func randomRule(r *rand.Rand, i int) policy.Rule {
	return policy.Rule{Name: fmt.Sprintf("r%d", i), Match: one(r, policy.All, policy.Any),
		When: policy.Conditions{Source: some(r, netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.0.0/16")),
			Destination: some(r, netip.MustParsePrefix("192.0.2.10/32"), netip.MustParsePrefix("192.0.2.128/25")),
			Port:        some(r, policy.PortRange{From: 443, To: 443}, policy.PortRange{From: 8000, To: 9000}),
			Protocol:    some(r, session.TCP, session.UDP),
			Link:        some(r, "ext", "dmz"), SNI: some(r, "a.test", "*.test", "b.test", ""),
			ALPN: some(r, "h2", "http/1.1"), TLSVersion: some[uint16](r, 0x0303, 0x0304), TLSFamily: some(r, "tls", "tlcp")},
		Action:     one(r, policy.Intercept, policy.Intercept, policy.Bypass, policy.Reject, policy.Drop),
		Chain:      one(r, "", "", policy.NoChain, "good", "bypassed", "resets", "drops"),
		ServerPool: one(r, "", "web", "dead"),
		OnFailure:  one(r, policy.FailNext, policy.FailNext, policy.FailDrop, policy.FailReset)}
}

// states is the moment: chains that are down in each way, and a server pool without a server.
type states struct{}

func (states) Outlook(name string) chain.Outlook {
	return map[string]chain.Outlook{"good": {InService: true}, "bypassed": {OnDown: chain.Bypass, Reason: session.DeviceDown},
		"resets": {OnDown: chain.Reset, Reason: session.DeviceDown}, "drops": {OnDown: chain.Drop, Reason: session.Forced}}[name]
}

func (states) Available(pool string) bool { return pool != "dead" }

// expected is the scheduling in its plainest form, from what explain says of each rule: the first rule that
// matches and can be carried out, or whose failure is final; the chain is looked at before the server pool.
func expected(rules []policy.Rule, x api.Explanation, own policy.Defaults) (by, action, chainName, pool, refusal string) {
	for i := range append(rules, policy.Rule{}) {
		rule, onFailure := policy.Rule{OnFailure: policy.FailReset}, policy.FailReset
		if i < len(rules) {
			if rule = rules[i]; !x.Rules[i].Matches {
				continue
			}
			onFailure = rule.OnFailure
		}
		by, action, chainName, pool = rule.Name, rule.Action.String(), rule.Chain, rule.ServerPool
		if rule.Action == policy.Reject || rule.Action == policy.Drop {
			return by, action, "", "", "policy"
		}
		if chainName == "" && rule.Action == policy.Intercept {
			chainName = own.Chain
		}
		if chainName == policy.NoChain {
			chainName = ""
		}
		if pool == "" {
			pool = own.ServerPool
		}
		ends := ""
		switch {
		case chainName == "resets":
			refusal, ends = "chain-down", "reject"
		case chainName == "drops":
			refusal, ends = "chain-down", "drop"
		case pool == "dead":
			refusal, ends = "no-server", "reject"
		default:
			return by, action, chainName, pool, "accepted"
		}
		switch {
		case i == len(rules):
			return by, ends, chainName, pool, refusal
		case onFailure == policy.FailDrop:
			return by, "drop", chainName, pool, refusal
		case onFailure == policy.FailReset:
			return by, "reject", chainName, pool, refusal
		}
	}
	return
}

// TestExplainIsTheDecision: for random rules and connections, what is explained is what policy.Find decides, and
// both are the plain reading of the rules; each rule's verdict follows from its conditions.
func TestExplainIsTheDecision(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var rules []policy.Rule
		for i := range r.IntN(6) {
			rules = append(rules, randomRule(r, i))
		}
		own := policy.Defaults{Chain: one(r, "", "good", "bypassed", "resets"), ServerPool: one(r, "web", "web", "dead")}
		v := &config.VirtualServer{Name: "shop", Links: []string{"ext", "dmz"}, Listen: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:443"), netip.MustParseAddrPort("0.0.0.0:8443")}}
		w := World{Config: &config.Config{VirtualServers: []*config.VirtualServer{v}}, Healthy: func(string, string) bool { return true },
			Hops: func(string) []chain.Hop { return nil },
			Scheduling: func(string) (*schedule.Server, policy.World, bool) {
				return &schedule.Server{Name: "shop", Rules: rules, Own: own}, states{}, true
			}}
		q := api.Question{Source: netip.MustParseAddrPort(one(r, "10.1.2.3:5000", "192.168.1.1:5000", "203.0.113.1:5000")),
			Destination: netip.MustParseAddrPort(one(r, "192.0.2.10:443", "192.0.2.200:8443")), Protocol: "tcp",
			Link: one(r, "ext", "dmz"), SNI: one(r, "a.test", "b.test", "x.y.test", "other.example", ""), TLSVersion: one(r, "1.2", "1.3"), TLSFamily: one(r, "tls", "tlcp")}
		if r.IntN(2) == 0 {
			q.ALPN = []string{"h2", "http/1.1"}
		}
		x, err := w.Answer(q)
		if err != nil {
			t.Fatal(err)
		}
		in := policy.Input{Source: q.Source, Destination: q.Destination, Protocol: session.TCP, Link: q.Link, SNI: q.SNI, ALPN: q.ALPN, TLSFamily: q.TLSFamily}
		in.TLSVersions = map[string][]uint16{"1.2": {0x0303, 0x0302, 0x0301}, "1.3": {0x0304, 0x0303, 0x0302, 0x0301}}[q.TLSVersion]
		if q.TLSFamily == "tlcp" {
			in.TLSVersions = []uint16{0x0101}
		}
		route := policy.Find(rules, in, policy.Verdict{}, own, states{}, nil)
		refusal := x.Refusal
		if refusal == "" {
			refusal = "accepted"
		}
		got := fmt.Sprint(x.By, " ", x.Action, " ", x.Chain, " ", x.ServerPool, " ", refusal)
		if decided := fmt.Sprint(route.By(), " ", route.Action, " ", route.Chain, " ", route.ServerPool, " ", route.Refusal); got != decided {
			t.Fatalf("seed %d: explained %q, decided %q", seed, got, decided)
		}
		by, action, chainName, pool, why := expected(rules, x, own)
		if route.Refusal == policy.ByPolicy {
			chainName, pool = x.Chain, x.ServerPool // nobody asks
		}
		if plain := fmt.Sprint(by, " ", action, " ", chainName, " ", pool, " ", why); got != plain {
			t.Fatalf("seed %d: explained %q, the rules say %q\n%+v", seed, got, plain, rules)
		}
		for i, verdict := range x.Rules {
			checkVerdict(t, seed, &rules[i], verdict, policy.Decide(rules[i:i+1], in).Rule != "")
			seen[verdict.Verdict]++
		}
		seen[refusal+" "+x.Action]++
	}
	for _, want := range []string{"decides", "failed", "no match", "not reached", "accepted intercept", "accepted bypass", "policy drop",
		"policy reject", "chain-down reject", "chain-down drop", "no-server reject", "no-server drop"} {
		if seen[want] < 20 {
			t.Errorf("%q came up %d times only: %v", want, seen[want], seen)
		}
	}
}

// checkVerdict: a rule matches as its conditions and its way of combining them say, and as the decision has it.
func checkVerdict(t *testing.T, seed uint64, rule *policy.Rule, v api.RuleVerdict, decided bool) {
	t.Helper()
	n := 0
	for _, c := range v.Conditions {
		if c.Holds {
			n++
		}
	}
	combined := n == len(v.Conditions)
	if rule.Match == policy.Any && len(v.Conditions) > 0 {
		combined = n > 0
	}
	if v.Matches != decided || v.Matches != combined {
		t.Fatalf("seed %d, rule %+v: explained as %+v, matches: %v", seed, *rule, v, decided)
	}
}
