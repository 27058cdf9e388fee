package proxy

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// heapFloor is the heap below which collecting is not worth it: a handshake leaves 100 kB of garbage, and with
// a small live heap the collector would take a tenth of the time of new connections. Above it the heap may
// grow by half, which keeps an idle connection at some 45 kB.
const (
	heapFloor  = 32 << 20
	heapGrowth = 50 // per cent
)

// tuneHeap keeps the collector's target at the floor until stop; whoever sets GOGC decides himself.
func tuneHeap() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(heapPercent(liveHeap()))
	t := &heapTuner{}
	t.arm()
	return func() {
		t.stopped.Store(true)
		debug.SetGCPercent(before)
	}
}

// heapTuner runs after every collection, by the finalizer of an object that nothing holds.
type heapTuner struct{ stopped atomic.Bool }

type sentinel struct{ t *heapTuner }

func (t *heapTuner) arm() {
	runtime.SetFinalizer(&sentinel{t}, func(s *sentinel) {
		if !s.t.stopped.Load() {
			debug.SetGCPercent(heapPercent(liveHeap()))
			s.t.arm()
		}
	})
}

// heapPercent is GOGC for a live heap: the floor, or growth. The runtime collects nothing below 4 MB at
// GOGC=100 and scales that too, so less than that counts as that.
func heapPercent(live uint64) int {
	live = max(live, 4<<20)
	if live >= heapFloor {
		return heapGrowth
	}
	return max(int(heapFloor*100/live)-100, heapGrowth)
}

func liveHeap() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
