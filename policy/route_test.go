package policy

import (
	"testing"

	"pgregory.net/rapid"

	"sslo/chain"
	"sslo/session"
)

// moment is a World by tables.
type moment struct {
	chains map[string]chain.Outlook
	empty  map[string]bool // server pools without a member in service
}

func (m moment) Outlook(name string) chain.Outlook { return m.chains[name] }
func (m moment) Available(serverPool string) bool  { return !m.empty[serverPool] }

var (
	inService = chain.Outlook{InService: true}
	resets    = chain.Outlook{OnDown: chain.Reset, Reason: session.DeviceDown}
	drops     = chain.Outlook{OnDown: chain.Drop, Reason: session.DeviceDown}
	bypasses  = chain.Outlook{Reason: session.Forced}
)

func TestFind(t *testing.T) {
	m := moment{map[string]chain.Outlook{"inspect": inService, "strict": resets, "silent": drops, "gone": bypasses}, map[string]bool{"dead": true}}
	own := Defaults{"inspect", "web"}
	toDead := Rule{Name: "dead", ServerPool: "dead", OnFailure: FailNext}
	tests := []struct {
		name    string
		rules   []Rule
		verdict Verdict
		own     Defaults
		want    Route
	}{
		{"the virtual server's own", nil, Verdict{}, own, Route{Decision: Decision{Chain: "inspect", ServerPool: "web"}, Outlook: inService}},
		{"a rule's server pool is kept for after the chain", []Rule{{Name: "r", ServerPool: "second"}}, Verdict{}, own,
			Route{Decision: Decision{Rule: "r", Chain: "inspect", ServerPool: "second"}, Outlook: inService}},
		{"a script's too", nil, Verdict{ServerPool: "second"}, own,
			Route{Decision: Decision{Script: true, Chain: "inspect", ServerPool: "second"}, Outlook: inService}},
		{"rule and script each name a part", []Rule{{Name: "r", ServerPool: "second"}}, Verdict{Chain: "gone"}, own,
			Route{Decision: Decision{Rule: "r", Script: true, Chain: "gone", ServerPool: "second"}, Outlook: bypasses, Skipped: true, Why: "forced"}},
		{"the script after the rule", []Rule{{Name: "r", Chain: "strict"}}, Verdict{Chain: "inspect"}, own,
			Route{Decision: Decision{Rule: "r", Script: true, Chain: "inspect", ServerPool: "web"}, Outlook: inService}},
		{"a script intercepts what a rule bypasses", []Rule{{Name: "r", Action: Bypass}}, Verdict{HasAction: true, Action: Intercept}, own,
			Route{Decision: Decision{Rule: "r", Script: true, Chain: "inspect", ServerPool: "web"}, Outlook: inService}},
		{"what a rule refuses stays refused", []Rule{{Name: "r", Action: Drop}}, Verdict{HasAction: true, Action: Intercept, Chain: "inspect"}, own,
			Route{Decision: Decision{Rule: "r", Action: Drop}, Refusal: ByPolicy}},
		{"a script refuses", nil, Verdict{HasAction: true, Action: Reject}, own,
			Route{Decision: Decision{Script: true, Action: Reject}, Refusal: ByPolicy}},
		{"next rule", []Rule{toDead, {Name: "n", Chain: NoChain}}, Verdict{}, own,
			Route{Decision: Decision{Rule: "n", Index: 1, ServerPool: "web"}, Skipped: true, Why: "policy"}},
		{"but none after a script", []Rule{toDead, {Name: "n"}}, Verdict{Chain: "inspect"}, own,
			Route{Decision: Decision{Rule: "dead", Script: true, Action: Reject, Chain: "inspect", ServerPool: "dead"}, Refusal: NoServer, Outlook: inService}},
		{"chain down", nil, Verdict{}, Defaults{"strict", "web"},
			Route{Decision: Decision{Action: Reject, Chain: "strict", ServerPool: "web"}, Refusal: ChainDown, Outlook: resets}},
		{"chain down in silence", nil, Verdict{Chain: "silent"}, own,
			Route{Decision: Decision{Script: true, Action: Drop, Chain: "silent", ServerPool: "web"}, Refusal: ChainDown, Outlook: drops}},
		{"no chain at all", nil, Verdict{}, Defaults{"", "web"},
			Route{Decision: Decision{ServerPool: "web"}, Skipped: true, Why: "no-chain"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want.Rule == "" {
				tt.want.Index = len(tt.rules)
			}
			if got := Find(tt.rules, sample(), tt.verdict, tt.own, m, nil); got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// In whatever order rules and script name chain and server pool, the chain is decided on its own, and
// the server pool that was named is the one that is used.
func TestSchedulingOrder(t *testing.T) {
	names := rapid.SampledFrom([]string{"", "x", "y"})
	m := moment{map[string]chain.Outlook{"x": inService, "y": inService, "own": inService}, nil}
	rapid.Check(t, func(t *rapid.T) {
		r := Rule{Name: "r", Chain: names.Draw(t, "rule's chain"), ServerPool: names.Draw(t, "rule's pool")}
		v := Verdict{Chain: names.Draw(t, "script's chain"), ServerPool: names.Draw(t, "script's pool")}
		got := Find([]Rule{r}, sample(), v, Defaults{"own", "own"}, m, nil)
		last := func(named ...string) string {
			for _, n := range named {
				if n != "" {
					return n
				}
			}
			return "own"
		}
		if got.Chain != last(v.Chain, r.Chain) || got.ServerPool != last(v.ServerPool, r.ServerPool) {
			t.Fatalf("rule %+v, script %+v: %+v", r, v, got)
		}
	})
}

func BenchmarkFind(b *testing.B) {
	m := moment{map[string]chain.Outlook{"inspect": inService}, nil}
	in := sample()
	b.ReportAllocs()
	for b.Loop() {
		Find(nil, in, Verdict{}, Defaults{"inspect", "web"}, m, nil)
	}
}
