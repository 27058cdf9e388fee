package lab

import (
	"testing"

	"sslo/config"
	"sslo/internal/testutil"
)

// What the lab writes is what the daemon reads.
func TestConfigIsGood(t *testing.T) {
	testutil.RequireRoot(t)
	for name, topology := range map[string]Topology{
		"standard": Standard(), "no device": {}, "two client links": {ClientLinks: 2, Servers: 2}, "three devices": Line(3, Bridge),
	} {
		t.Run(name, func(t *testing.T) {
			l := Test(t, topology)
			path, err := l.WriteConfig(l.Config())
			must(t, err)
			if _, err := config.Load(path); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestConfigSet(t *testing.T) {
	c := Config{"a": map[string]any{"b": 1, "c": 2}}
	c.Set("a.b", 3).Set("a.c", nil).Set("d.e", "x")
	b, err := c.YAML()
	if got, want := string(b), "a:\n  b: 3\nd:\n  e: x\n"; err != nil || got != want {
		t.Errorf("%q %v, want %q", got, err, want)
	}
}
