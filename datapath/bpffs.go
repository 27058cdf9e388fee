package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const bpffsRoot = "/sys/fs/bpf"

// ensureBPFFS makes sure that a pin path lies on a bpffs. The usual one is mounted when it is
// not, as systemd does at boot, and stays mounted: other programs may pin there too.
func ensureBPFFS(pin string) error {
	if onBPFFS(pin) {
		return nil
	}
	if !strings.HasPrefix(pin+"/", bpffsRoot+"/") {
		return fmt.Errorf("pin path %s is not on a bpffs", pin)
	}
	dir, err := os.Open(bpffsRoot)
	if err != nil {
		return fmt.Errorf("bpffs: %w", err)
	}
	defer dir.Close()
	// Two processes must not mount one over the other: the second looks again under the lock.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", bpffsRoot, err)
	}
	if onBPFFS(pin) {
		return nil
	}
	if err := unix.Mount("bpf", bpffsRoot, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mount bpffs on %s: %w", bpffsRoot, err)
	}
	return nil
}

// onBPFFS looks at the nearest parent that exists.
func onBPFFS(path string) bool {
	var s unix.Statfs_t
	err := unix.Statfs(path, &s)
	for errors.Is(err, unix.ENOENT) && path != "/" {
		path = filepath.Dir(path)
		err = unix.Statfs(path, &s)
	}
	return err == nil && s.Type == unix.BPF_FS_MAGIC
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, nil
}
