package measure

import (
	"os"
	"slices"
	"testing"
	"time"
)

func TestParseTakesANameWithAnything(t *testing.T) {
	pid, p, err := parse("42 (a) b (c) S 7 42 42 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 1 0 100 0 0")
	if err != nil {
		t.Fatal(err)
	}
	want := process{name: "a) b (c", parent: 7, user: 1500 * time.Millisecond, system: 250 * time.Millisecond}
	if pid != 42 || p != want {
		t.Errorf("got %d %+v, want 42 %+v", pid, p, want)
	}
	for _, bad := range []string{"", "1 no name S 1", "1 (short) S 1 2"} {
		if _, _, err := parse(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestTreeIsTheRootsAndTheirDescendants(t *testing.T) {
	processes := map[int]process{1: {}, 2: {parent: 1}, 3: {parent: 2}, 4: {parent: 1}, 5: {parent: 9}}
	got := tree(processes, []int{2, 4})
	slices.Sort(got)
	if !slices.Equal(got, []int{2, 3, 4}) {
		t.Errorf("got %v", got)
	}
}

func TestReadSeesOurOwnWork(t *testing.T) {
	before := Read(os.Getpid())
	for start := time.Now(); time.Since(start) < 100*time.Millisecond; {
	}
	if spent := Read(os.Getpid()).Sub(before); spent.User < 30*time.Millisecond {
		t.Errorf("100 ms of work cost %v", spent)
	}
	if Resident(os.Getpid()) < 1<<20 {
		t.Error("no resident memory")
	}
}
