package policy

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sslo/session"
)

func prefixes(s ...string) (out []netip.Prefix) {
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func sample() Input {
	return Input{
		Source:      netip.MustParseAddrPort("10.1.2.3:50000"),
		Destination: netip.MustParseAddrPort("192.0.2.10:443"),
		Link:        "ext",
		SNI:         "www.bank.test",
		ALPN:        []string{"h2", "http/1.1"},
		TLSVersions: []uint16{0x0303, 0x2a2a, 0x0304},
	}
}

func TestMatches(t *testing.T) {
	with := func(change func(*Input)) Input { in := sample(); change(&in); return in }
	tests := []struct {
		name string
		rule Rule
		in   Input
		want bool
	}{
		{"no condition, all", Rule{}, sample(), true},
		{"no condition, any", Rule{Match: Any}, sample(), true},
		{"source", Rule{When: Conditions{Source: prefixes("172.16.0.0/12", "10.0.0.0/8")}}, sample(), true},
		{"source outside", Rule{When: Conditions{Source: prefixes("172.16.0.0/12")}}, sample(), false},
		{"source as mapped IPv6", Rule{When: Conditions{Source: prefixes("10.0.0.0/8")}},
			with(func(in *Input) { in.Source = netip.MustParseAddrPort("[::ffff:10.1.2.3]:1") }), true},
		{"source with a zone", Rule{When: Conditions{Source: prefixes("fe80::/10")}},
			with(func(in *Input) { in.Source = netip.MustParseAddrPort("[fe80::1%eth0]:1") }), true},
		{"destination", Rule{When: Conditions{Destination: prefixes("192.0.2.10/32")}}, sample(), true},
		{"port", Rule{When: Conditions{Port: []PortRange{{400, 443}}}}, sample(), true},
		{"port outside", Rule{When: Conditions{Port: []PortRange{{444, 500}, {1, 442}}}}, sample(), false},
		{"protocol", Rule{When: Conditions{Protocol: []session.Protocol{session.TCP}}}, sample(), true},
		{"other protocol", Rule{When: Conditions{Protocol: []session.Protocol{session.UDP}}}, sample(), false},
		{"link", Rule{When: Conditions{Link: []string{"dmz", "ext"}}}, sample(), true},
		{"other link", Rule{When: Conditions{Link: []string{"dmz"}}}, sample(), false},
		{"sni exact", Rule{When: Conditions{SNI: []string{"www.bank.test"}}}, sample(), true},
		{"sni suffix", Rule{When: Conditions{SNI: []string{"*.bank.test"}}}, sample(), true},
		{"sni suffix, deeper", Rule{When: Conditions{SNI: []string{"*.test"}}}, sample(), true},
		{"sni suffix is not the name itself", Rule{When: Conditions{SNI: []string{"*.www.bank.test"}}}, sample(), false},
		{"sni suffix ends at a label", Rule{When: Conditions{SNI: []string{"*.ank.test"}}}, sample(), false},
		{"sni case and final dot", Rule{When: Conditions{SNI: []string{"*.bank.test"}}},
			with(func(in *Input) { in.SNI = "WWW.Bank.TEST." }), true},
		{"no sni, name asked", Rule{When: Conditions{SNI: []string{"*.bank.test"}}},
			with(func(in *Input) { in.SNI = "" }), false},
		{"no sni, asked for", Rule{When: Conditions{SNI: []string{""}}},
			with(func(in *Input) { in.SNI = "" }), true},
		{"alpn", Rule{When: Conditions{ALPN: []string{"h2"}}}, sample(), true},
		{"alpn not offered", Rule{When: Conditions{ALPN: []string{"h3"}}}, sample(), false},
		{"version is the highest", Rule{When: Conditions{TLSVersion: []uint16{0x0304}}}, sample(), true},
		{"version is not a lower one", Rule{When: Conditions{TLSVersion: []uint16{0x0303}}}, sample(), false},
		{"all: one fails", Rule{When: Conditions{SNI: []string{"*.bank.test"}, Link: []string{"dmz"}}}, sample(), false},
		{"any: one holds", Rule{Match: Any, When: Conditions{SNI: []string{"*.bank.test"}, Link: []string{"dmz"}}}, sample(), true},
		{"any: none holds", Rule{Match: Any, When: Conditions{SNI: []string{"a.test"}, Link: []string{"dmz"}}}, sample(), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.rule.Matches(tt.in); got != tt.want {
				t.Errorf("Matches = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestDecideAndFailed(t *testing.T) {
	rules := []Rule{
		{Name: "other", When: Conditions{Link: []string{"dmz"}}, Action: Drop},
		{Name: "bank", When: Conditions{SNI: []string{"*.bank.test"}}, Action: Bypass, OnFailure: FailNext},
		{Name: "internal", When: Conditions{Source: prefixes("10.0.0.0/8")}, Chain: "light", ServerPool: "web2", OnFailure: FailDrop},
		{Name: "rest", Chain: NoChain},
	}
	d := Decide(rules, sample())
	if want := (Decision{Rule: "bank", Index: 1, Action: Bypass}); d != want {
		t.Fatalf("Decide = %+v, want %+v", d, want)
	}
	if got, want := d.Or("inspect", "web"), (Decision{Rule: "bank", Index: 1, Action: Bypass, ServerPool: "web"}); got != want {
		t.Errorf("a bypass takes no chain that it does not name: %+v, want %+v", got, want)
	}
	d = d.Failed(rules, sample())
	if want := (Decision{Rule: "internal", Index: 2, Chain: "light", ServerPool: "web2"}); d != want {
		t.Fatalf("after next-rule: %+v, want %+v", d, want)
	}
	d = d.Failed(rules, sample())
	if want := (Decision{Rule: "internal", Index: 2, Action: Drop, Failure: true}); d != want {
		t.Fatalf("after drop: %+v, want %+v", d, want)
	}
	rest := Decision{Rule: "rest", Index: 3, Chain: NoChain}
	if got := rest.Or("inspect", "web"); got.Chain != "" || got.ServerPool != "web" {
		t.Errorf("chain none: %+v", got)
	}
	if got := rest.Failed(rules, sample()); got.Action != Reject || got.Rule != "rest" || !got.Failure {
		t.Errorf("default on_failure is a reset by that rule: %+v", got)
	}
	none := Decide(nil, sample())
	if got := none.Or("inspect", "web"); got != (Decision{Chain: "inspect", ServerPool: "web"}) {
		t.Errorf("no rule: %+v", got)
	}
	if got := none.Failed(nil, sample()); got.Action != Reject || !got.Failure {
		t.Errorf("no rule, failed: %+v", got)
	}
}

var someRule = rapid.Custom(func(t *rapid.T) Rule {
	subset := func(label string, all []string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(all), 0, 2, rapid.ID[string]).Draw(t, label)
	}
	r := Rule{
		Name:      rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "name"),
		Match:     Match(rapid.IntRange(0, 1).Draw(t, "match")),
		Action:    Action(rapid.IntRange(0, 3).Draw(t, "action")),
		OnFailure: OnFailure(rapid.IntRange(0, 2).Draw(t, "on_failure")),
	}
	r.When.SNI = subset("sni", []string{"a.test", "b.test", "*.test", "*.a.test", ""})
	r.When.Link = subset("link", []string{"ext", "dmz"})
	r.When.ALPN = subset("alpn", []string{"h2", "http/1.1"})
	for _, s := range subset("source", []string{"10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"}) {
		r.When.Source = append(r.When.Source, netip.MustParsePrefix(s))
	}
	return r
})

var someInput = rapid.Custom(func(t *rapid.T) Input {
	addr := rapid.SampledFrom([]string{"10.1.2.3:1", "10.9.9.9:1", "[2001:db8::1]:1", "203.0.113.9:1"})
	return Input{
		Source:      netip.MustParseAddrPort(addr.Draw(t, "source")),
		Destination: netip.MustParseAddrPort("192.0.2.1:443"),
		Link:        rapid.SampledFrom([]string{"ext", "dmz"}).Draw(t, "link"),
		SNI:         rapid.SampledFrom([]string{"", "a.test", "x.a.test", "b.test", "c.other"}).Draw(t, "sni"),
		ALPN:        rapid.SampledFrom([][]string{nil, {"h2"}, {"http/1.1"}, {"h2", "http/1.1"}}).Draw(t, "alpn"),
	}
})

// The first rule that matches decides, whatever comes after it, and following next-rule to the
// end visits exactly the matching rules in order.
func TestFirstMatchDecides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules, in := rapid.SliceOfN(someRule, 0, 8).Draw(t, "rules"), someInput.Draw(t, "input")
		var matching []int
		for i := range rules {
			if rules[i].Matches(in) {
				matching = append(matching, i)
			}
		}
		d := Decide(rules, in)
		for len(matching) > 0 {
			if d.Index != matching[0] || d.Failure || d.Rule != rules[d.Index].Name || d.Action != rules[d.Index].Action {
				t.Fatalf("decision %+v, want rule %d", d, matching[0])
			}
			next := d.Failed(rules, in)
			if rules[d.Index].OnFailure != FailNext {
				if next.Index != d.Index || !next.Failure {
					t.Fatalf("%+v failed: %+v", d, next)
				}
				return
			}
			d, matching = next, matching[1:]
		}
		if d.Index != len(rules) || d.Rule != "" {
			t.Fatalf("no rule matches, but %+v", d)
		}
	})
}

// all implies any, and letter case of the server name never matters.
func TestMatchProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, in := someRule.Draw(t, "rule"), someInput.Draw(t, "input")
		all, anyOf := r, r
		all.Match, anyOf.Match = All, Any
		if all.Matches(in) && !anyOf.Matches(in) {
			t.Fatal("all holds but any does not")
		}
		upper := in
		upper.SNI = strings.ToUpper(in.SNI)
		if r.Matches(in) != r.Matches(upper) {
			t.Fatal("letter case of the SNI matters")
		}
		if r.Unconditional() && !r.Matches(in) {
			t.Fatal("an unconditional rule does not match")
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	rules := make([]Rule, 20)
	for i := range rules {
		rules[i] = Rule{Name: "r", When: Conditions{SNI: []string{"*.example.test", "shop.test"}, Source: prefixes("172.16.0.0/12")}}
	}
	in := sample()
	b.ReportAllocs()
	for b.Loop() {
		Decide(rules, in)
	}
}
