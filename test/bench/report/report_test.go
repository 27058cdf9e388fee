package report

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func sample() *Report {
	r := &Report{Subject: "a", Peers: []string{"a", "b", "c"}, Rivals: []string{"b", "c"}, Machine: []string{"a machine"}}
	for peer, values := range map[string][]float64{"a": {9, 1, 2}, "b": {4}, "c": {8, 6}} {
		for _, v := range values {
			r.Samples = append(r.Samples, Sample{"cpu", "s/GB", 2, peer, v})
		}
	}
	return r
}

func TestRatioIsToTheBestRivalByMedians(t *testing.T) {
	r := sample()
	if got, ok := r.Ratio("cpu", 2); !ok || got != 0.5 {
		t.Errorf("ratio %v %v, want 0.5", got, ok)
	}
	if got, _ := r.Median("cpu", 2, "c"); got != 7 {
		t.Errorf("median %v, want 7", got)
	}
	if _, ok := r.Ratio("cpu", 1); ok {
		t.Error("a ratio without samples")
	}
}

func TestDeriveSubtractsTheBase(t *testing.T) {
	r := sample()
	r.Derive("added", "cpu", "b")
	if got := r.values(row{metric: "added", devices: 2}, "a"); !slices.Equal(got, []float64{-3, -2, 5}) {
		t.Errorf("got %v", got)
	}
	if _, ok := r.Median("added", 2, "b"); ok {
		t.Error("the base was subtracted from itself")
	}
}

func TestWriteKeepsTheTextAround(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.md")
	if err := os.WriteFile(path, []byte("before\n"+begin+"\nold\n"+end+"\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := sample().Write(path); err != nil {
			t.Fatal(err)
		}
	}
	text, _ := os.ReadFile(path)
	got := string(text)
	if !strings.HasPrefix(got, "before\n"+begin) || !strings.HasSuffix(got, end+"\nafter\n") || strings.Contains(got, "old") {
		t.Errorf("got\n%s", got)
	}
	if want := "| cpu | s/GB | 2 | 2.00 (1.00–9.00) | 4.00 | 7.00 (6.00–8.00) | **0.50** |"; strings.Count(got, want) != 1 {
		t.Errorf("want once %s in\n%s", want, got)
	}
}

func TestWriteRefusesADocumentWithoutMarkers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.md")
	if err := os.WriteFile(path, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := sample().Write(path); err == nil {
		t.Error("no error")
	}
}
