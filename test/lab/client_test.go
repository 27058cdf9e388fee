package lab

import (
	"testing"
	"time"

	"sslo/test/lab/origin"
)

func TestStood(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(1e12 + int64(ms)) }
	tr := Transfer{Gaps: []origin.Gap{{At: at(0), For: 300 * time.Millisecond}, {At: at(400), For: 100 * time.Millisecond}, {At: at(900), For: time.Second}}}
	for _, tc := range []struct{ from, to, want int }{{0, 2000, 1000}, {0, 900, 300}, {250, 900, 100}, {100, 300, 200}, {600, 800, 0}} {
		if got := tr.Stood(at(tc.from), at(tc.to)); got != time.Duration(tc.want)*time.Millisecond {
			t.Errorf("%d to %d: %s", tc.from, tc.to, got)
		}
	}
}
