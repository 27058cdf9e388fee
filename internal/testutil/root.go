// Package testutil owns what tests of several packages share: the gate for tests that need root.
package testutil

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// RequireRoot skips the test without root and fails it instead when SSLO_ROOT_TESTS=1,
// so that a run that promises the root tests can not lose them silently.
func RequireRoot(t testing.TB) {
	t.Helper()
	if unix.Geteuid() == 0 {
		return
	}
	if os.Getenv("SSLO_ROOT_TESTS") == "1" {
		t.Fatal("SSLO_ROOT_TESTS=1 but not root")
	}
	t.Skip("needs root")
}
