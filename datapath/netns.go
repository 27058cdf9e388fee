package datapath

import (
	"fmt"
	"os"
	"runtime"
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

// netns is the network namespace that a datapath lives in.
type netns struct{ file *os.File }

func currentNetns() (netns, error) {
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return netns{}, fmt.Errorf("network namespace: %w", err)
	}
	return netns{f}, nil
}

// do runs f on a thread of that namespace: what is in /proc/sys/net depends on the thread that
// looks. The thread is not used again.
func (n netns) do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}
