package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the expected errors anew")

// fakeHost has every interface, as the table says or with an MTU of 1500.
type fakeHost map[string]NIC

func (h fakeHost) NIC(name string) (NIC, bool) {
	if n, ok := h[name]; ok {
		return n, n.MTU > 0
	}
	return NIC{MTU: 1500}, true
}

var testHost = fakeHost{"mtu1400": {MTU: 1400}, "veth": {MTU: 1500, Virtual: true}, "absent": {}}

func testLoader(t testing.TB) Loader {
	files := testFiles(t)
	return Loader{
		Host: testHost,
		Now:  func() time.Time { return testNow },
		ReadFile: func(name string) ([]byte, error) {
			if data, ok := files[filepath.Base(name)]; ok {
				return data, nil
			}
			if strings.HasSuffix(name, ".yml") {
				return os.ReadFile(name)
			}
			return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
		},
	}
}

// Every *.bad.yml has its errors, all of them, in *.bad.txt; warnings of *.good.yml likewise.
func TestFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatal("no test files", err)
	}
	l := testLoader(t)
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yml"), func(t *testing.T) {
			c, err := l.Load(name)
			var errs Errors
			switch bad := strings.HasSuffix(name, ".bad.yml"); {
			case bad && !errors.As(err, &errs):
				t.Fatalf("no Errors but %v", err)
			case bad && c != nil:
				t.Error("a configuration comes with the errors")
			case !bad && err != nil:
				t.Fatal(err)
			case !bad:
				errs = c.Warnings
			}
			golden(t, strings.TrimSuffix(name, "yml")+"txt", errs.Error()+"\n")
			checkOrder(t, errs)
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs.\ngot:\n%s\nwant:\n%s", name, got, want)
	}
}

func checkOrder(t *testing.T, errs Errors) {
	t.Helper()
	for i := 1; i < len(errs); i++ {
		a, b := errs[i-1], errs[i]
		if a.Line > b.Line || a.Line == b.Line && a.Col > b.Col {
			t.Errorf("not in the order of the file: %v before %v", a, b)
		}
	}
}
