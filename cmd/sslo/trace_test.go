package main

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"sslo/admin/api"
)

// TestTraceGroupsConnections: a title whenever another connection has news, what is lost is told, and the
// count ends it.
func TestTraceGroupsConnections(t *testing.T) {
	var in strings.Builder
	for _, e := range []api.TraceEvent{
		{Kind: api.TraceBegin},
		{Connection: 1, Kind: api.TraceOpen, VirtualServer: "shop", Client: netip.MustParseAddrPort("10.1.0.2:4711"), Server: netip.MustParseAddrPort("192.0.2.10:443"), Link: "ext"},
		{Connection: 2, Kind: api.TraceOpen, VirtualServer: "shop"},
		{Connection: 1, Offset: .25, Kind: api.TraceSkip, Pool: "waf", Reason: "device-down"},
		{Kind: api.TraceLost, Lost: 7},
		{Connection: 1, Offset: 1.5, Kind: api.TraceClose, Reason: "ok", Bytes: &[2]uint64{10, 2048}, SkippedBytes: 10},
		{Connection: 1, Kind: api.TraceBypass, Device: "too late"},
	} {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	var out strings.Builder
	o := traceOptions{output: "text", count: 1}
	if err := o.follow(strings.NewReader(in.String()), &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"#1  10.1.0.2:4711 → 192.0.2.10:443  shop\n", "+0.2500s  skip      past pool waf: device-down\n",
		"7 events lost", "+1.5000s  close     ok, ↑ 10 B ↓ 2.0 kB, 10 B went past a device\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "#2") || strings.Contains(text, "too late") {
		t.Errorf("more than the first connection:\n%s", text)
	}
	if err := (&traceOptions{output: "text"}).follow(strings.NewReader(in.String()), &out); err == nil {
		t.Error("a daemon that ended the trace is no error")
	}
}
