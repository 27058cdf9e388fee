package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sslo/admin/api"
	"sslo/chain"
	"sslo/datapath"
	"sslo/monitor"
	"sslo/session"
)

var (
	up   = chain.DeviceStatus{Service: chain.Full}
	down = chain.DeviceStatus{Service: chain.Out, Reason: session.DeviceDown}
)

func TestOutlook(t *testing.T) {
	tests := []struct {
		name             string
		first, second    chain.Action // on_down
		ips1, ips2, waf1 chain.DeviceStatus
		want             chain.Outlook
	}{
		{"all up", chain.Bypass, chain.Bypass, up, up, up, chain.Outlook{InService: true}},
		{"one of two", chain.Reset, chain.Reset, down, up, up, chain.Outlook{InService: true}},
		{"first pool down", chain.Bypass, chain.Bypass, down, down, up, chain.Outlook{InService: true}},
		{"first pool down, reset", chain.Reset, chain.Bypass, down, down, up, chain.Outlook{OnDown: chain.Reset, Reason: session.DeviceDown}},
		{"second pool down", chain.Reset, chain.Bypass, up, up, down, chain.Outlook{InService: true}},
		{"second pool down, drop", chain.Reset, chain.Drop, up, up, down, chain.Outlook{OnDown: chain.Drop, Reason: session.DeviceDown}},
		{"second pool down, reset", chain.Bypass, chain.Reset, up, down, down, chain.Outlook{OnDown: chain.Reset, Reason: session.DeviceDown}},
		{"second pool decides", chain.Bypass, chain.Drop, down, down, down, chain.Outlook{OnDown: chain.Drop, Reason: session.DeviceDown}},
		{"all down", chain.Bypass, chain.Bypass, down, down, down, chain.Outlook{Reason: session.DeviceDown}},
		{"forced", chain.Bypass, chain.Bypass, chain.DeviceStatus{Reason: session.Forced}, down, down, chain.Outlook{Reason: session.Forced}},
		{"not probed", chain.Bypass, chain.Bypass, chain.DeviceStatus{Reason: session.NotProbed}, down, down, chain.Outlook{Reason: session.NotProbed}},
	}
	for _, test := range tests {
		r := newRoutes(func(string) (uint32, bool) { return 7 << 16, true })
		r.setPlan(datapath.Plan{Chains: []chain.Chain{{Name: "inspect", Pools: []string{"ips", "waf"}}, {Name: "empty"}}, Pools: []chain.Pool{
			{Name: "ips", OnDown: test.first, Devices: []chain.PoolMember{{Device: "ips1"}, {Device: "ips2"}}},
			{Name: "waf", OnDown: test.second, Devices: []chain.PoolMember{{Device: "waf1"}}}}})
		r.setDevice("ips1", test.ips1)
		r.setDevice("ips2", test.ips2)
		r.setDevice("waf1", test.waf1)
		if got := r.Outlook("inspect"); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
		if got := r.Outlook("empty"); got != (chain.Outlook{}) {
			t.Errorf("empty chain: %+v", got)
		}
		if mark, ok := r.Mark("inspect"); !ok || mark != 7<<16 {
			t.Errorf("mark %x, %v", mark, ok)
		}
		if _, ok := r.Mark("nothing"); ok {
			t.Error("a chain that is not has a mark")
		}
	}
}

func TestEventLogKeepsTheNewest(t *testing.T) {
	l := newEventLog()
	for range eventsKept + 10 {
		l.add(api.Event{Kind: kindLink})
	}
	if got := l.list(0, 3); len(got) != 3 || got[2].Seq != eventsKept+10 {
		t.Errorf("newest %+v", got)
	}
	if got := l.list(1, eventsKept*2); len(got) != eventsKept || got[0].Seq != 11 {
		t.Errorf("%d events from %d", len(got), got[0].Seq)
	}
	if got := l.list(eventsKept+8, 100); len(got) != 2 {
		t.Errorf("after: %+v", got)
	}
	if got := l.list(eventsKept+10, 100); got == nil || len(got) != 0 {
		t.Errorf("nothing new: %v", got)
	}
}

func TestFloodTellsOnce(t *testing.T) {
	var out strings.Builder
	l := newEventLog()
	f := newFlood(slog.New(slog.NewTextHandler(&out, nil)), l)
	for i := range session.ID(5000) {
		f.add(datapath.Event{Type: datapath.EventBypass, Device: "ips1", Chain: "inspect", Session: i + 1, Reason: session.DeviceDown})
		f.add(datapath.Event{Type: datapath.EventOpen, Chain: "inspect"})
	}
	f.flush()
	f.flush()
	if got := l.list(0, 10); len(got) != 1 || !strings.Contains(got[0].Message, "5000 sessions") || got[0].Device != "ips1" {
		t.Errorf("events %+v", got)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("%d lines logged", n)
	}
	if c := l.counters(); c["open"] != 5000 || c["bypass"] != 5000 {
		t.Errorf("counters %v", c)
	}
}

// TestStoreOverRestarts: decisions hold always, health only if the session plane says the same.
func TestStoreOverRestarts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lib")
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	long, now := time.Now().Add(-time.Hour).UTC().Truncate(time.Second), time.Now()
	save := []monitor.Snapshot{{Name: "ips1", Health: monitor.Down, Since: long, Why: "path: timeout"}, {Name: "ips2", Health: monitor.Up, Since: long}}
	if err := s.save(save); err != nil {
		t.Fatal(err)
	}
	if err := s.decide("waf1", api.Decision{Action: actionBypass, By: "alice", At: long}); err != nil {
		t.Fatal(err)
	}
	if s, err = openStore(dir); err != nil {
		t.Fatal(err)
	}
	adopt := func(name string, st chain.DeviceStatus) monitor.Snapshot {
		return s.snapshot(name, monitor.Adopt(now, name, st))
	}
	if got := adopt("ips1", down); got.Health != monitor.Down || !got.Since.Equal(long) || got.Why != "path: timeout" {
		t.Errorf("same in the kernel: %+v", got)
	}
	notProbed := chain.DeviceStatus{Service: chain.Out, Reason: session.NotProbed}
	if got := adopt("ips2", notProbed); got.Health != monitor.Unknown || statusOf(got) != notProbed {
		t.Errorf("up before a reboot: %+v", got)
	}
	got := adopt("waf1", notProbed)
	if forced := (chain.DeviceStatus{Service: chain.Out, Reason: session.Forced}); statusOf(got) != forced || got.Why != "forced-bypass by alice" {
		t.Errorf("bypassed by an operator: %+v", got)
	}
	if err := s.decide("waf1", api.Decision{Action: actionEnable}); err != nil || s.decision("waf1") != nil {
		t.Errorf("enabled again: %v", err)
	}
	if got := adopt("waf1", chain.DeviceStatus{Service: chain.Out, Reason: session.Forced}); got.Operator != monitor.Unknown || got.Health != monitor.Unknown {
		t.Errorf("a decision that was taken back while the kernel still has it: %+v", got)
	}
}

func TestStoreRefusesGarbage(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openStore(dir); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("got %v", err)
	}
}
