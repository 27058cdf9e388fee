package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sslo/test/lab"
)

// TestMain builds the binary before any test's clock runs, and removes it afterwards.
func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		return m.Run() // every test skips, or fails, by itself
	}
	program, err := lab.Program()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if dir := filepath.Dir(program); strings.HasPrefix(dir, filepath.Join(os.TempDir(), "sslo-test-")) {
		defer os.RemoveAll(dir)
	}
	return m.Run()
}
