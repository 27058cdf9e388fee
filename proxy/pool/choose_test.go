package pool

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sslo/chain"
)

// servers is a pool with members a, b, c ... of these weights.
func servers(m chain.Method, weights ...int) *Pool {
	cfg := Config{Name: "web", Method: m}
	for i, w := range weights {
		cfg.Members = append(cfg.Members, Member{Name: string(rune('a' + i)), Weight: w})
	}
	return New(cfg)
}

// shares is how many of n connections each member would get first; each has a source of its own, and opened
// keeps them open.
func shares(p *Pool, n int, r Request, opened bool) map[string]int {
	got := map[string]int{}
	for i := range n {
		v := p.now.Load()
		source := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		m := v.choice(&r, time.Now()).order(v.cfg.Method, source, p.turn.Add(1)-1)[0]
		got[m.Name]++
		if opened {
			m.open.Add(1)
		}
	}
	return got
}

func TestMethodsShareByWeight(t *testing.T) {
	for _, tt := range []struct {
		method chain.Method
		opened bool
		want   map[string]int
		about  float64 // how far off it may be
	}{
		{chain.RoundRobin, false, map[string]int{"a": 200, "b": 200, "c": 200}, 0},
		{chain.Weighted, false, map[string]int{"a": 100, "b": 200, "c": 300}, 0},
		{chain.LeastSessions, true, map[string]int{"a": 100, "b": 200, "c": 300}, 2},
		{chain.SourceHash, false, map[string]int{"a": 100, "b": 200, "c": 300}, 60},
	} {
		got := shares(servers(tt.method, 1, 2, 3), 600, Request{Healthy: always}, tt.opened)
		for name, want := range tt.want {
			if math.Abs(float64(got[name]-want)) > tt.about {
				t.Errorf("method %d: %v, want about %v", tt.method, got, tt.want)
				break
			}
		}
	}
}

// TestSourceHashMovesOnlyItsOwn: a member that goes down moves the clients that it had, and no others.
func TestSourceHashMovesOnlyItsOwn(t *testing.T) {
	p := servers(chain.SourceHash, 1, 1, 1, 2)
	first := func(source netip.Addr, healthy func(string) bool) string {
		v := p.now.Load()
		return v.choice(&Request{Healthy: healthy}, time.Now()).order(v.cfg.Method, source, p.turn.Add(1))[0].Name
	}
	moved := 0
	for i := range 1000 {
		source := netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i))
		before := first(source, always)
		if again := first(source, always); again != before {
			t.Fatalf("%s got %s, then %s", source, before, again)
		}
		after := first(source, func(m string) bool { return m != "b" })
		if before != "b" && after != before || after == "b" {
			t.Fatalf("%s moved from %s to %s when b went", source, before, after)
		}
		if before == "b" {
			moved++
		}
	}
	if moved < 100 {
		t.Errorf("b had only %d of 1000", moved)
	}
}

// TestSlowStart: the share of a member that came back grows with time, with every method that shares.
func TestSlowStart(t *testing.T) {
	for _, m := range []chain.Method{chain.RoundRobin, chain.Weighted} {
		last := 0
		for _, tt := range []struct {
			age         time.Duration
			least, most int
		}{{0, 20, 80}, {30 * time.Second, 300, 360}, {time.Minute, 500, 500}, {time.Hour, 500, 500}} {
			p := servers(m, 1, 1)
			p.now.Load().cfg.SlowStart = time.Minute
			back := time.Now().Add(-tt.age)
			r := Request{Healthy: always, Since: func(name string) time.Time {
				if name == "b" {
					return back
				}
				return time.Time{}
			}}
			got := shares(p, 1000, r, false)["b"]
			if got < tt.least || got > tt.most || got < last {
				t.Errorf("method %d, %s after it came back: %d of 1000 (%d before)", m, tt.age, got, last)
			}
			last = got
		}
	}
}

// TestEveryMemberIsTried: whatever the method, the others follow the first, each once.
func TestEveryMemberIsTried(t *testing.T) {
	for _, m := range []chain.Method{chain.RoundRobin, chain.Weighted, chain.SourceHash, chain.LeastSessions} {
		p := servers(m, 5, 1, 3, 1)
		for i := range 20 {
			v := p.now.Load()
			r := Request{Healthy: func(name string) bool { return name != "c" }}
			var names []string
			for _, m := range v.choice(&r, time.Now()).order(m, netip.AddrFrom4([4]byte{byte(i)}), uint32(i)) {
				names = append(names, m.Name)
			}
			slices.Sort(names)
			if !slices.Equal(names, []string{"a", "b", "d"}) {
				t.Fatalf("method %d tries %q", m, names)
			}
		}
	}
}
