package topo

import (
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	allowedPath = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"
	allowedLock = "/run/lock/sslo-bench" // what was allowed before, while anybody uses more
)

// AllowCongestion lets namespaces use a congestion control that is not the host's default; without it every
// peer would silently run with the default. The last of all processes that asked for it takes it back.
func AllowCongestion(congestion string) (restore func(), err error) {
	lock, err := os.OpenFile(allowedLock, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, err
	}
	old, err := os.ReadFile(allowedPath)
	if err != nil {
		return nil, err
	}
	if allowed := strings.TrimSpace(string(old)); !slices.Contains(strings.Fields(allowed), congestion) {
		if _, err := lock.WriteAt(old, 0); err != nil {
			return nil, err
		}
		if err := os.WriteFile(allowedPath, []byte(allowed+" "+congestion), 0o644); err != nil {
			return nil, err
		}
	}
	return func() { disallow(lock) }, unix.Flock(int(lock.Fd()), unix.LOCK_SH)
}

func disallow(lock *os.File) {
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return // somebody else still needs it, and will take it back
	}
	if old, err := io.ReadAll(lock); err == nil && len(old) > 0 {
		_ = os.WriteFile(allowedPath, old, 0o644)
		_ = lock.Truncate(0)
	}
}
