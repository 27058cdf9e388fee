package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sslo/admin/api"
	"sslo/config"
	"sslo/internal/explain"
	"sslo/policy"
	"sslo/session"
	"sslo/test/lab/pki"
)

// everyNIC is a machine that has every interface.
type everyNIC struct{}

func (everyNIC) NIC(string) (config.NIC, bool) { return config.NIC{MTU: 1500}, true }

func explained(t *testing.T) *config.Config {
	t.Helper()
	ca, err := pki.New("explain")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue(pki.ECDSA, "shop.test")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := leaf.Write(dir, "www"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"explain.yml", "explain.lua"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := config.Loader{Host: everyNIC{}, Now: time.Now, ReadFile: os.ReadFile}
	c, err := l.Load(filepath.Join(dir, "explain.yml"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func question(t *testing.T, words string) (api.Question, []string) {
	t.Helper()
	given, down := map[string]string{}, []string{}
	for _, w := range strings.Fields(words) {
		key, value, _ := strings.Cut(w, "=")
		if key == "down" {
			down = append(down, value)
		}
		given[key] = value
	}
	q, err := api.ParseQuestion(func(key string) string { return given[key] })
	if err != nil {
		t.Fatal(err)
	}
	return q, down
}

func TestExplain(t *testing.T) {
	c := explained(t)
	var out bytes.Buffer
	p := &printer{w: &out}
	for _, words := range []string{
		"src=203.0.113.9 dst=192.0.2.10",
		"src=203.0.113.9 dst=192.0.2.10:80",
		"src=203.0.113.9 dst=192.0.2.10 link=dmz",
		"src=203.0.113.9 dst=192.0.2.10 sni=www.bank.test",
		"src=10.1.2.3 dst=192.0.2.10 sni=a.test alpn=h2",
		"src=10.1.2.3 dst=192.0.2.10 down=10.0.0.2:443",
		"src=198.51.100.4 dst=192.0.2.10",
		"src=203.0.113.9 dst=192.0.2.10 sni=tenant.test",
		"src=203.0.113.9 dst=192.0.2.10 sni=early.test tls-version=1.2",
		"src=203.0.113.9 dst=192.0.2.10 sni=broken.test",
		"src=203.0.113.9 dst=192.0.2.10 down=ips1",
		"src=203.0.113.9 dst=192.0.2.10 down=ips1 down=ips2",
		"src=203.0.113.9 dst=192.0.2.10 down=waf1",
		"src=203.0.113.9 dst=192.0.2.10 tls-family=tlcp",
	} {
		q, down := question(t, words)
		x, err := explain.Offline(c, down).Answer(q)
		if err != nil {
			t.Fatal(err)
		}
		p.line("# %s", words)
		showExplanation(p, x)
		p.line("")
	}
	golden(t, "explain", out.String())
}

// TestExplainIsTheRouting: for any connection it says what routing says.
func TestExplainIsTheRouting(t *testing.T) {
	c := explained(t)
	pick := func(words ...string) string { return words[rand.IntN(len(words))] }
	for range 500 {
		words := fmt.Sprintf("src=%s dst=192.0.2.10 sni=%s alpn=%s tls-version=%s", pick("10.1.2.3", "198.51.100.4", "203.0.113.9"),
			pick("www.bank.test", "a.test", "", "other.test"), pick("", "h2", "http/1.1"), pick("1.2", "1.3"))
		for _, d := range []string{"ips1", "ips2", "waf1", "10.0.0.1:443", "10.0.0.2:443"} {
			words += pick("", "", " down="+d)
		}
		q, down := question(t, words)
		w := explain.Offline(c, down)
		x, err := w.Answer(q)
		if err != nil {
			t.Fatal(err)
		}
		s, moment, _ := w.Scheduling("shop")
		in := policy.Input{Source: q.Source, Destination: netip.MustParseAddrPort("192.0.2.10:443"), Protocol: session.TCP, Link: "ext",
			SNI: q.SNI, ALPN: q.ALPN, TLSVersions: []uint16{map[string]uint16{"1.2": 0x0303, "1.3": 0x0304}[q.TLSVersion]}, TLSFamily: "tls"}
		r := policy.Find(s.Rules, in, policy.Verdict{}, s.Own, moment, nil)
		if x.Action != r.Action.String() || x.By != r.By() || x.Chain != r.Chain || x.ServerPool != r.ServerPool ||
			(x.Refusal == "") != (r.Refusal == policy.Accepted) || r.Refusal == policy.Accepted && x.Inspected == r.Skipped {
			t.Fatalf("%s: explained %+v, routed %+v", words, x, r)
		}
	}
}
