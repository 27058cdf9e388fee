package chain

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"sslo/session"
)

func up(id session.DeviceID) Candidate {
	return Candidate{Device: id, Status: DeviceStatus{Service: Full}}
}

func down(id session.DeviceID) Candidate {
	return Candidate{Device: id, Status: DeviceStatus{Service: Out, Reason: session.Forced}}
}

func draining(id session.DeviceID) Candidate {
	return Candidate{Device: id, Status: DeviceStatus{Service: EstablishedOnly, Reason: session.Disabled}}
}

func (c Candidate) weighing(w int) Candidate { c.Weight = w; return c }

func (c Candidate) having(n uint64) Candidate { c.Active = n; return c }

func TestChoose(t *testing.T) {
	tests := []struct {
		name       string
		method     Method
		candidates []Candidate
		want       []session.DeviceID // successive choices
	}{
		{"round robin takes turns", RoundRobin, []Candidate{up(1), up(2), up(3)}, []session.DeviceID{1, 2, 3, 1}},
		{"round robin steps over a dead device", RoundRobin, []Candidate{up(1), down(2), up(3)}, []session.DeviceID{1, 3, 1, 3}},
		{"round robin ignores weights", RoundRobin, []Candidate{up(1).weighing(9), up(2)}, []session.DeviceID{1, 2, 1, 2}},
		{"a draining device gets nothing new", RoundRobin, []Candidate{draining(1), up(2)}, []session.DeviceID{2, 2}},
		{"weight 0 counts as 1", Weighted, []Candidate{up(1), up(2)}, []session.DeviceID{1, 2, 1, 2}},
		{"least sessions", LeastSessions, []Candidate{up(1).having(5), up(2).having(4), up(3).having(6)}, []session.DeviceID{2}},
		{"least sessions: ties go to the first", LeastSessions, []Candidate{up(1).having(5), up(2).having(5)}, []session.DeviceID{1}},
		{"least sessions skips the dead", LeastSessions, []Candidate{down(1), up(2).having(5)}, []session.DeviceID{2}},
		{"standby waits", ActiveStandby, []Candidate{up(1), up(2)}, []session.DeviceID{1, 1}},
		{"standby steps in", ActiveStandby, []Candidate{down(1), up(2)}, []session.DeviceID{2, 2}},
		{"nothing usable", ActiveStandby, []Candidate{down(1)}, []session.DeviceID{0}},
		{"nothing usable by rotation", Weighted, []Candidate{down(1)}, []session.DeviceID{0}},
		{"empty pool", SourceHash, nil, []session.DeviceID{0}},
	}
	src := netip.MustParseAddr("192.0.2.1")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var cursor uint32
			for i, want := range tt.want {
				if got := Choose(tt.method, tt.candidates, src, &cursor); got != want {
					t.Fatalf("choice %d: device %d, want %d", i, got, want)
				}
			}
		})
	}
}

func TestWeightedSharesExactly(t *testing.T) {
	var cursor uint32
	got := map[session.DeviceID]int{}
	for range 600 {
		got[Choose(Weighted, []Candidate{up(1).weighing(3), up(2).weighing(2), up(3)}, netip.Addr{}, &cursor)]++
	}
	if got[1] != 300 || got[2] != 200 || got[3] != 100 {
		t.Errorf("shares %v, want 300, 200, 100", got)
	}
}

func TestInService(t *testing.T) {
	tests := []struct {
		name       string
		candidates []Candidate
		min        int
		want       bool
	}{
		{"one is enough", []Candidate{down(1), up(2)}, 0, true},
		{"none", []Candidate{down(1), draining(2)}, 0, false},
		{"fewer than asked", []Candidate{up(1), down(2)}, 2, false},
		{"as many as asked", []Candidate{up(1), up(2)}, 2, true},
		{"empty", nil, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := InService(tt.candidates, tt.min); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestSkipReason(t *testing.T) {
	unexplained := Candidate{Device: 1}
	if got := SkipReason([]Candidate{draining(1), down(2)}); got != session.Disabled {
		t.Errorf("got %v, want the first device's reason", got)
	}
	if got := SkipReason([]Candidate{unexplained}); got != session.DeviceDown {
		t.Errorf("got %v for a device without a reason", got)
	}
}

// Vectors computed apart from this code (FNV-1a, then fmix32), for whoever writes it again in C.
func TestHashSource(t *testing.T) {
	tests := []struct {
		src    string
		device session.DeviceID
		want   uint32
	}{
		{"192.0.2.1", 1, 0x17e75980},
		{"192.0.2.1", 2, 0x978b6eef},
		{"192.0.2.2", 258, 0xddd822c1},
		{"2001:db8::1", 3, 0x1ee92373},
	}
	for _, tt := range tests {
		if got := HashSource(netip.MustParseAddr(tt.src), tt.device); got != tt.want {
			t.Errorf("%s on %d: %#x, want %#x", tt.src, tt.device, got, tt.want)
		}
	}
}

// A device that dies moves its own clients and nobody else's.
func TestSourceHashMovesOnlyTheClientsOfTheDead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "src")))
		n := rapid.IntRange(2, MaxDevices).Draw(t, "devices")
		var all []Candidate
		for i := range n {
			all = append(all, up(session.DeviceID(i+1)))
		}
		before := Choose(SourceHash, all, src, nil)
		dead := rapid.IntRange(0, n-1).Draw(t, "dead")
		all[dead].Status = DeviceStatus{}
		after := Choose(SourceHash, all, src, nil)
		if before != all[dead].Device && after != before {
			t.Fatalf("client of %d moved to %d when %d died", before, after, all[dead].Device)
		}
		if after == all[dead].Device {
			t.Fatalf("a dead device was chosen")
		}
	})
}

func TestChoiceIsAlwaysInService(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []Candidate
		for i := range rapid.IntRange(0, MaxDevices).Draw(t, "devices") {
			c := up(session.DeviceID(i + 1)).weighing(rapid.IntRange(0, 9).Draw(t, "weight"))
			c.Status.Service = Service(rapid.IntRange(0, 2).Draw(t, "service"))
			c.Active = rapid.Uint64().Draw(t, "active")
			all = append(all, c)
		}
		cursor := rapid.Uint32().Draw(t, "cursor")
		m := Method(rapid.IntRange(0, 4).Draw(t, "method"))
		got := Choose(m, all, netip.MustParseAddr("2001:db8::1"), &cursor)
		if (got != 0) != InService(all, 0) {
			t.Fatalf("device %d chosen, in service %v", got, InService(all, 0))
		}
		if got != 0 && !all[got-1].usable() {
			t.Fatalf("device %d is not in service", got)
		}
	})
}

func BenchmarkChoose(b *testing.B) {
	all := make([]Candidate, MaxDevices)
	for i := range all {
		all[i] = up(session.DeviceID(i + 1))
	}
	src := netip.MustParseAddr("192.0.2.1")
	var cursor uint32
	for b.Loop() {
		Choose(SourceHash, all, src, &cursor)
	}
}
