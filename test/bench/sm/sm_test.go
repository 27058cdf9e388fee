package sm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const output = `goos: linux
BenchmarkServer/ECC_SM4_GCM_SM3/full-2         	    3000	         1.600 ratio	       112.0 µs/handshake	        70.00 µs/primitives
BenchmarkBulk/ECC_SM4_GCM_SM3/write            	    3000	         1.01 ratio	        31.57 µs/cipher	        32.00 µs/record
BenchmarkOther/x-2     3000   12 ns/op
PASS
`

func TestTable(t *testing.T) {
	table := &Table{samples: map[string][]sample{}}
	for _, ratio := range []string{"1.600", "1.5", "9.9"} {
		table.read([]byte(strings.Replace(output, "1.600", ratio, 1)))
	}
	want := "| handshake ECC_SM4_GCM_SM3 full | 112.0 | 70.0 | 1.60 |\n| 16 kB record ECC_SM4_GCM_SM3 write | 32.0 | 31.6 | 1.01 |\n"
	if got := table.Markdown(); !strings.HasSuffix(got, "---:|\n"+want) {
		t.Error(got)
	}
	doc := filepath.Join(t.TempDir(), "x.md")
	if err := os.WriteFile(doc, []byte("before\n"+begin+"\nold\n"+end+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := table.Write(doc, "here"); err != nil {
			t.Fatal(err)
		}
	}
	text, _ := os.ReadFile(doc)
	if s := string(text); !strings.HasPrefix(s, "before\n"+begin) || !strings.HasSuffix(s, end+"\nafter\n") || strings.Contains(s, "old") || strings.Count(s, "112.0") != 1 {
		t.Error(s)
	}
	if err := os.WriteFile(doc, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := table.Write(doc, ""); err == nil {
		t.Error("a document without markers")
	}
}
