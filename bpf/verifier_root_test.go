package bpf

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"

	"sslo/internal/testutil"
)

// The kernel gives up at a million instructions, and older kernels walk more paths than this one;
// what it walks is also most of the time that a start takes.
const walkedAtMost = 500_000

func TestVerifierHasRoom(t *testing.T) {
	testutil.RequireRoot(t)
	var o SsloObjects
	opts := ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}}
	if err := LoadSsloObjects(&o, &opts); err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	log := o.SteerFrame.VerifierLog
	found := regexp.MustCompile(`processed (\d+) insns`).FindStringSubmatch(log)
	if found == nil {
		t.Fatalf("no count in the verifier's log:\n%s", log)
	}
	if n, _ := strconv.Atoi(found[1]); n > walkedAtMost {
		t.Errorf("the verifier walked %d instructions, more than %d", n, walkedAtMost)
	}
}
