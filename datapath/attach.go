package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"sslo/bpf"
)

// hook is a place where a program is attached: an interface, or the network namespace (0).
type hook struct {
	program string
	ifindex int
	egress  bool
}

// pinName has no dot: bpffs refuses them.
func (h hook) pinName() string { return h.program + "-" + strconv.Itoa(h.ifindex) }

func wantHooks(front, back int, nics []int) []hook {
	hooks := []hook{{program: bpf.SsloProgBackLookup}, {bpf.SsloProgSteerFrame, front, true}, {bpf.SsloProgSteerFrame, back, true}}
	for _, i := range nics {
		hooks = append(hooks, hook{bpf.SsloProgSteerFrame, i, false})
	}
	return hooks
}

// attach makes exactly the wanted hooks run this binary's programs. A pinned link gets the
// program replaced in place: no packet passes unseen.
func (k *kernel) attach(want []hook) error {
	dir := linksDir(k.pin)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("pin directory: %w", err)
	}
	have, err := names(dir)
	if err != nil {
		return fmt.Errorf("list pinned links: %w", err)
	}
	wanted := map[string]bool{}
	var errs []error
	for _, h := range want {
		wanted[h.pinName()] = true
		errs = append(errs, k.attachOne(h))
	}
	for _, name := range have {
		if !wanted[name] {
			errs = append(errs, os.Remove(filepath.Join(dir, name)))
		}
	}
	return errors.Join(errs...)
}

func (k *kernel) attachOne(h hook) error {
	path := filepath.Join(linksDir(k.pin), h.pinName())
	prog := k.programs()[h.program]
	if exists(path) {
		if err := replace(path, h, prog); err == nil {
			return nil
		}
		// It is defunct: its interface went away and another has got the index.
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("unpin %s: %w", path, err)
		}
	}
	l, err := newLink(h, prog)
	if err != nil {
		return fmt.Errorf("attach %s to interface %d: %w", h.program, h.ifindex, err)
	}
	defer l.Close()
	if err := l.Pin(path); err != nil {
		return fmt.Errorf("pin %s: %w", path, err)
	}
	return nil
}

// replace gives the pinned link this program, unless it runs it already.
func replace(path string, h hook, prog *ebpf.Program) error {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return err
	}
	if !attachedTo(info, h) {
		return errDefunct
	}
	if mine, err := prog.Info(); err == nil {
		if id, ok := mine.ID(); ok && id == info.Program {
			return nil
		}
	}
	return l.Update(prog)
}

var errDefunct = errors.New("defunct link")

func attachedTo(info *link.Info, h hook) bool {
	if h.ifindex != 0 {
		tcx := info.TCX()
		return tcx != nil && int(tcx.Ifindex) == h.ifindex
	}
	ns := info.NetNs()
	inode, err := netnsInode()
	return ns != nil && err == nil && uint64(ns.NetnsInode) == inode
}

func newLink(h hook, prog *ebpf.Program) (link.Link, error) {
	if h.ifindex == 0 {
		ns, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return nil, err
		}
		defer ns.Close()
		return link.AttachNetNs(int(ns.Fd()), prog)
	}
	at := ebpf.AttachTCXIngress
	if h.egress {
		at = ebpf.AttachTCXEgress
	}
	return link.AttachTCX(link.TCXOptions{Interface: h.ifindex, Program: prog, Attach: at})
}
