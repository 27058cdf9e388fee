// Package report owns turning samples into medians, ratios and a Markdown table, and putting that table
// into a document without touching the hand-written text around it.
package report

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

var errNoMarkers = errors.New("document has no markers")

// The table lives between these lines of the document.
const (
	begin = "<!-- bench:begin, written by make bench -->"
	end   = "<!-- bench:end -->"
)

// Sample is one measured value; less is better for every metric.
type Sample struct {
	Metric  string  `json:"metric"`
	Unit    string  `json:"unit"`
	Devices int     `json:"devices"`
	Peer    string  `json:"peer"`
	Value   float64 `json:"value"`
}

// Report is what a run has to say.
type Report struct {
	Machine []string `json:"machine"`
	Subject string   `json:"subject"` // the peer that the others are compared with
	Peers   []string `json:"peers"`   // columns, the subject first
	Rivals  []string `json:"rivals"`  // the ratio is to the best of these
	Samples []Sample `json:"samples"`
}

type row struct {
	metric, unit string
	devices      int
}

// rows in the order in which the metrics were first measured, then by number of devices.
func (r *Report) rows() []row {
	var rows []row
	order := map[string]int{}
	for _, s := range r.Samples {
		if _, ok := order[s.Metric]; !ok {
			order[s.Metric] = len(order)
		}
		if k := (row{s.Metric, s.Unit, s.Devices}); !slices.Contains(rows, k) {
			rows = append(rows, k)
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(order[a.metric], order[b.metric]), cmp.Compare(a.devices, b.devices))
	})
	return rows
}

// values of one cell, sorted.
func (r *Report) values(k row, peer string) []float64 {
	var v []float64
	for _, s := range r.Samples {
		if s.Metric == k.metric && s.Devices == k.devices && s.Peer == peer {
			v = append(v, s.Value)
		}
	}
	slices.Sort(v)
	return v
}

// Median of a peer's samples.
func (r *Report) Median(metric string, devices int, peer string) (float64, bool) {
	v := r.values(row{metric: metric, devices: devices}, peer)
	if len(v) == 0 {
		return 0, false
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2, true
}

// Derive adds a metric: what another one has above the median of a base.
func (r *Report) Derive(name, metric, base string) {
	for _, s := range slices.Clone(r.Samples) {
		if m, ok := r.Median(metric, s.Devices, base); ok && s.Metric == metric && s.Peer != base {
			s.Metric, s.Value = name, s.Value-m
			r.Samples = append(r.Samples, s)
		}
	}
}

// Ratio of the subject to the best rival.
func (r *Report) Ratio(metric string, devices int) (float64, bool) {
	own, ok := r.Median(metric, devices, r.Subject)
	best, found := 0.0, false
	for _, peer := range r.Rivals {
		if m, has := r.Median(metric, devices, peer); has && (!found || m < best) {
			best, found = m, true
		}
	}
	if !ok || !found || best <= 0 {
		return 0, false
	}
	return own / best, true
}

// Markdown is the table, medians with (least–most) when there are several samples.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | unit | devices | %s | ratio |\n|---|---|---|%s---|\n",
		strings.Join(r.Peers, " | "), strings.Repeat("---|", len(r.Peers)))
	for _, k := range r.rows() {
		fmt.Fprintf(&b, "| %s | %s | %d |", k.metric, k.unit, k.devices)
		for _, peer := range r.Peers {
			fmt.Fprintf(&b, " %s |", r.cell(k, peer))
		}
		if ratio, ok := r.Ratio(k.metric, k.devices); ok {
			fmt.Fprintf(&b, " **%.2f** |\n", ratio)
		} else {
			b.WriteString(" |\n")
		}
	}
	for _, line := range r.Machine {
		fmt.Fprintf(&b, "\n%s\n", line)
	}
	return b.String()
}

func (r *Report) cell(k row, peer string) string {
	v := r.values(k, peer)
	m, ok := r.Median(k.metric, k.devices, peer)
	switch {
	case !ok:
		return "–"
	case len(v) == 1:
		return number(m)
	}
	return fmt.Sprintf("%s (%s–%s)", number(m), number(v[0]), number(v[len(v)-1]))
}

// number prints three significant digits.
func number(v float64) string {
	switch {
	case v >= 100 || v == 0:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Write puts the table between the markers of a document.
func (r *Report) Write(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, ok1 := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s: %w %q", path, errNoMarkers, begin)
	}
	return os.WriteFile(path, []byte(head+begin+"\n\n"+r.Markdown()+"\n"+end+tail), 0o644)
}

// WriteJSON writes every sample.
func (r *Report) WriteJSON(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
