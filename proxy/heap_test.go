package proxy

import "testing"

func TestHeapPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 700, 8 << 20: 300, 16 << 20: 100, 30 << 20: 50, 32 << 20: 50, 1 << 30: 50} {
		if got := heapPercent(live); got != want {
			t.Errorf("live %d MB: %d, want %d", live>>20, got, want)
		}
	}
}
