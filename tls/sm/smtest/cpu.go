package smtest

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CPU is the time that the calling thread has worked: on a busy machine the clock on the wall says nothing. The
// caller holds its thread.
func CPU(b *testing.B) time.Duration {
	b.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// Compare measures our work beside the least that it could be, in turns, so that what else the machine does weighs
// on both alike. who is second finds the caches warm, so that turns too. what is the unit: a handshake, a record.
func Compare(b *testing.B, what, least string, ours, theirs func() time.Duration) {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ours() // warms up
	theirs()
	var o, t time.Duration
	for i := range b.N {
		if i%2 == 0 {
			t += theirs()
			o += ours()
		} else {
			o += ours()
			t += theirs()
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(o.Nanoseconds())/float64(b.N)/1000, "µs/"+what)
	b.ReportMetric(float64(t.Nanoseconds())/float64(b.N)/1000, "µs/"+least)
	b.ReportMetric(float64(o)/float64(t), "ratio")
}

// Timed measures a piece of work.
func Timed(b *testing.B, f func()) func() time.Duration {
	return func() time.Duration {
		start := CPU(b)
		f()
		return CPU(b) - start
	}
}
