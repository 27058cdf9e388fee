package main

import (
	"os"
	"testing"

	"sslo/internal/testutil"
	"sslo/test/bench/forward"
	"sslo/test/bench/report"
	"sslo/test/bench/topo"
)

// The children that a bench starts are this program; under test that is the test's binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "forward" {
		if err := forward.Main(os.Args[2:]); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Both ways of joining a chain carry the bytes across both devices, and the programs stay fast: the bound
// is for a machine that does other things meanwhile, the real figure is in docs/performance.md.
func TestForwardingCrossesTheDevices(t *testing.T) {
	testutil.RequireRoot(t)
	restore, err := topo.AllowCongestion("cubic")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(restore)
	b := &bench{options: &options{congestion: "cubic", peerCore: -1, clientCore: -1}, out: &report.Report{}}
	for _, run := range []struct{ joined, stats bool }{{true, false}, {false, false}, {false, true}} {
		if err := b.forward(t.Context(), 2, run.joined, run.stats); err != nil {
			t.Fatalf("%+v: %v", run, err)
		}
	}
	for _, s := range b.out.Samples {
		if s.Value <= 0 || s.Unit == "ns" && s.Value > 2000 {
			t.Errorf("%+v", s)
		}
	}
}
