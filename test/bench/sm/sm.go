// Package sm measures the SM stacks: it runs their packages' Go benchmarks, which put the CPU time of a handshake
// or a record beside that of the primitives in the same run, and makes a table of the medians.
package sm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// Markers of the table in a document.
const (
	begin = "<!-- sm:begin, written by make bench -->"
	end   = "<!-- sm:end -->"
)

// packages that have BenchmarkServer and BenchmarkBulk.
var packages = []string{"./tls/tlcp", "./tls/tls13sm"}

// Table of benchmarks in the order in which they ran.
type Table struct {
	names   []string
	samples map[string][]sample
}

// sample is one benchmark's: our time and that of the primitives in µs.
type sample struct{ ours, least, ratio float64 }

// Run runs the benchmarks some times.
func Run(ctx context.Context, repeat int, quick bool) (*Table, error) {
	t := &Table{samples: map[string][]sample{}}
	time := "3000x"
	if quick {
		time = "300x"
	}
	for range repeat {
		args := append([]string{"test", "-run", "^$", "-bench", "^Benchmark(Server|Bulk)$", "-benchtime", time}, packages...)
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
		}
		t.read(out)
	}
	return t, nil
}

func (t *Table) read(out []byte) {
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		name, one, ok := parse(s.Text())
		if !ok {
			continue
		}
		if t.samples[name] == nil {
			t.names = append(t.names, name)
		}
		t.samples[name] = append(t.samples[name], one)
	}
}

// parse reads a line such as
// BenchmarkServer/ECC_SM4_GCM_SM3/full-2  3000  1.5 ratio  110 µs/handshake  70 µs/primitives
func parse(line string) (name string, one sample, ok bool) {
	f := strings.Fields(line)
	if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
		return "", one, false
	}
	for i := 2; i+1 < len(f); i += 2 {
		v, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			return "", one, false
		}
		switch f[i+1] {
		case "µs/handshake", "µs/record":
			one.ours = v
		case "µs/primitives", "µs/cipher":
			one.least = v
		case "ratio":
			one.ratio = v
		}
	}
	parts := strings.Split(f[0], "/") // the number of cores is behind the last
	last := len(parts) - 1
	if at := strings.LastIndexByte(parts[last], '-'); at > 0 {
		parts[last] = parts[last][:at]
	}
	kind := map[string]string{"BenchmarkServer": "handshake", "BenchmarkBulk": "16 kB record"}[parts[0]]
	return strings.Join(append([]string{kind}, parts[1:]...), " "), one, kind != "" && one.ratio > 0
}

// Markdown is the table.
func (t *Table) Markdown() string {
	var b strings.Builder
	b.WriteString("| | µs of CPU | primitives alone | ratio |\n|---|---:|---:|---:|\n")
	for _, n := range t.names {
		m := t.median(n)
		fmt.Fprintf(&b, "| %s | %.1f | %.1f | %.2f |\n", n, m.ours, m.least, m.ratio)
	}
	return b.String()
}

// median is by ratio, of which the other two are part.
func (t *Table) median(name string) sample {
	list := slices.Clone(t.samples[name])
	slices.SortFunc(list, func(a, b sample) int {
		switch {
		case a.ratio < b.ratio:
			return -1
		case a.ratio > b.ratio:
			return 1
		}
		return 0
	})
	return list[len(list)/2]
}

// Write replaces the table in a document.
func (t *Table) Write(path, where string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, ok1 := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s: no markers %q", path, begin)
	}
	return os.WriteFile(path, []byte(head+begin+"\n\n"+where+"\n\n"+t.Markdown()+"\n"+end+tail), 0o644)
}
