package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoadFailures(t *testing.T) {
	dir := t.TempDir()
	huge := filepath.Join(dir, "huge.yml")
	if err := os.WriteFile(huge, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none.yml"): ": can not read it: no such file or directory",
		dir:                            ": can not read it: is a directory",
		"/dev/zero":                    ": can not read it: larger than 4 MiB",
		huge:                           ": can not read it: larger than 4 MiB",
	} {
		c, err := Load(path)
		var errs Errors
		if !errors.As(err, &errs) || len(errs) != 1 || c != nil {
			t.Errorf("%s: %v, %v", path, c, err)
			continue
		}
		if got := errs[0].Error(); got != path+want {
			t.Errorf("%q, want %q", got, path+want)
		}
	}
}

// Parse uses the files and the interfaces of this machine: lo is on every one.
func TestParseOnThisMachine(t *testing.T) {
	if nic, ok := (machine{}).NIC("lo"); !ok || nic.MTU == 0 || !nic.Virtual {
		t.Errorf("lo: %+v, %v", nic, ok)
	}
	if _, ok := (machine{}).NIC("no-such-nic"); ok {
		t.Error("an interface that is not there")
	}
	c, err := Parse("x.yml", []byte("links: {ext: {nic: no-such-nic}}"))
	if err != nil || !strings.Contains(c.Warnings.Error(), "does not exist on this machine") {
		t.Errorf("%v, %v", c, err)
	}
}

// Aliases that multiply must end soon, with an error.
func TestAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("virtual_servers:\n  v0:\n    rules:\n      - &r {name: r, when: {source: &s [")
	b.WriteString(strings.Repeat("10.0.0.0/8, ", 1000))
	b.WriteString("]}}\n" + strings.Repeat("      - *r\n", 1000))
	if _, err := testLoader(t).Parse("bomb.yml", []byte(b.String())); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("no end: %.200v", err)
	}
}

// Whatever the text is, there is an answer: a consistent configuration, or errors with places.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yml")
	if err != nil {
		f.Fatal(err)
	}
	more, _ := filepath.Glob(examples + "/*.yml")
	for _, name := range append(files, more...) {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	l := testLoader(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := l.Parse("fuzz.yml", data)
		if (c == nil) == (err == nil) {
			t.Fatalf("both or neither: %v, %v", c, err)
		}
		if c != nil {
			checkConsistent(t, c)
			return
		}
		var errs Errors
		if !errors.As(err, &errs) || len(errs) == 0 {
			t.Fatalf("not Errors: %v", err)
		}
		lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 2
		for _, e := range errs {
			if own := e.File == "fuzz.yml"; e.Line < 0 || own && e.Line > lines || e.Msg == "" || !own && !testable(e.File) {
				t.Fatalf("a place that is not in the file of %d lines: %+v", lines, e)
			}
		}
		checkOrder(t, errs)
	})
}

// testable files are those that a configuration may name here: scripts and tables.
func testable(file string) bool {
	return strings.HasSuffix(file, ".lua") || strings.HasSuffix(file, ".txt")
}

// checkConsistent looks up every name, as the users of a Config do without asking.
func checkConsistent(t *testing.T, c *Config) {
	t.Helper()
	for _, d := range c.Devices {
		if c.Link(d.In) == nil || c.Link(d.Out) == nil || (d.In == d.Out) != (d.Link != "") || len(d.Monitors) != len(d.Monitor.Of) {
			t.Fatalf("device %+v", d)
		}
	}
	for _, p := range c.DevicePools {
		for _, d := range p.Devices {
			if c.Device(d.Device) == nil {
				t.Fatalf("pool %+v", p)
			}
		}
	}
	for _, ch := range c.Chains {
		for _, p := range ch.Pools {
			if c.DevicePool(p) == nil {
				t.Fatalf("chain %+v", ch)
			}
		}
	}
	for _, v := range c.VirtualServers {
		if c.ServerPool(v.ServerPool) == nil || v.Chain != "" && c.Chain(v.Chain) == nil || len(v.Listen) == 0 || len(v.Certificates) == 0 {
			t.Fatalf("virtual server %+v", v)
		}
		for _, name := range v.Certificates {
			if c.Certificate(name).Leaf() == nil {
				t.Fatalf("certificate %s of %+v", name, v)
			}
		}
	}
}
