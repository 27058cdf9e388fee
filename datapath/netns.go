package datapath

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// netnsInode identifies the calling thread's network namespace.
func netnsInode() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return 0, fmt.Errorf("network namespace: %w", err)
	}
	return st.Ino, nil
}

// Now is the clock of sessions and events: CLOCK_MONOTONIC.
func Now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // can not fail with this clock
	return time.Duration(ts.Nano())
}
