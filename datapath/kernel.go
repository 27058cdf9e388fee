package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"sslo/bpf"
)

// layoutVersion is LAYOUT_VERSION of bpf/types.h.
const layoutVersion = 2

const defaultSessions = 1 << 16

// kernel is the loaded programs and maps and where they are attached. Everything is pinned, so
// that it works on without a daemon.
type kernel struct {
	bpf.SsloObjects
	pin string
	log *slog.Logger
}

func mapsDir(pin string) string     { return filepath.Join(pin, "maps") }
func programsDir(pin string) string { return filepath.Join(pin, "programs") }
func linksDir(pin string) string    { return filepath.Join(pin, "links") }

// pinned says whether an earlier process left its maps.
func pinned(pin string) bool { return exists(filepath.Join(mapsDir(pin), bpf.SsloMapSettings)) }

// loadKernel adopts pinned maps, or makes new ones of the given size, and puts this binary's
// programs in the place of what is attached. Maps of another layout can not be read by the
// programs: they are dropped, and with them the sessions.
func loadKernel(pin string, sessions int, log *slog.Logger) (*kernel, error) {
	if err := ensureBPFFS(pin); err != nil {
		return nil, err
	}
	k := &kernel{pin: pin, log: log}
	why := layoutChanged(pin)
	if why == nil {
		why = k.load(sessions)
	}
	if errors.Is(why, errLayout) || errors.Is(why, ebpf.ErrMapIncompatible) {
		log.Error("pinned maps are of another version: sessions are lost", "reason", why)
		if err := os.RemoveAll(mapsDir(pin)); err != nil {
			return nil, fmt.Errorf("remove old maps: %w", err)
		}
		why = k.load(sessions)
	}
	if why != nil {
		return nil, why
	}
	return k, k.pinPrograms()
}

var errLayout = errors.New("another layout")

func layoutChanged(pin string) error {
	if !pinned(pin) {
		return nil
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(mapsDir(pin), bpf.SsloMapSettings), nil)
	if err != nil {
		return fmt.Errorf("pinned settings: %w", err)
	}
	defer m.Close()
	var s bpf.SsloSettings
	if err := m.Lookup(uint32(0), &s); err != nil {
		return fmt.Errorf("%w: settings: %v", errLayout, err)
	}
	// 0: the process died before it wrote its settings, so nothing is in the other maps either.
	if s.Layout != layoutVersion && s.Layout != 0 {
		return fmt.Errorf("%w: pinned %d, mine %d", errLayout, s.Layout, layoutVersion)
	}
	return nil
}

func (k *kernel) load(sessions int) error {
	spec, err := bpf.LoadSslo()
	if err != nil {
		return err
	}
	if err := k.size(spec, sessions); err != nil {
		return err
	}
	if err := os.MkdirAll(mapsDir(k.pin), 0o700); err != nil {
		return fmt.Errorf("pin directory: %w", err)
	}
	opts := &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: mapsDir(k.pin)}}
	if err := spec.LoadAndAssign(&k.SsloObjects, opts); err != nil {
		return fmt.Errorf("load programs: %w", err)
	}
	return nil
}

// size sets the tables' sizes and marks every map but the scratch one as pinned. A pinned table
// keeps its size: a new one would lose the sessions.
func (k *kernel) size(spec *ebpf.CollectionSpec, sessions int) error {
	if sessions <= 0 {
		sessions = defaultSessions
	}
	spec.Maps[bpf.SsloMapSessions].MaxEntries = uint32(sessions)
	spec.Maps[bpf.SsloMapFlows].MaxEntries = uint32(2 * sessions)
	spec.Maps[bpf.SsloMapExpectations].MaxEntries = uint32(max(sessions/4, 1024))
	for name, m := range spec.Maps {
		if name == bpf.SsloMapScratch || name[0] == '.' {
			continue
		}
		m.Pinning = ebpf.PinByName
		if err := keepSize(filepath.Join(mapsDir(k.pin), name), m); err != nil {
			return err
		}
	}
	return nil
}

func keepSize(path string, spec *ebpf.MapSpec) error {
	if !exists(path) {
		return nil
	}
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return fmt.Errorf("pinned map %s: %w", spec.Name, err)
	}
	spec.MaxEntries = m.MaxEntries()
	return m.Close()
}

// pinPrograms pins the programs for whoever looks with bpftool, and for the links' replacement.
func (k *kernel) pinPrograms() error {
	dir := programsDir(k.pin)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("pin directory: %w", err)
	}
	for name, p := range k.programs() {
		path := filepath.Join(dir, name)
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("unpin old program: %w", err)
		}
		if err := p.Pin(path); err != nil {
			return fmt.Errorf("pin program %s: %w", name, err)
		}
	}
	return nil
}

func (k *kernel) programs() map[string]*ebpf.Program {
	return map[string]*ebpf.Program{
		bpf.SsloProgSteerFrame: k.SteerFrame, bpf.SsloProgBackLookup: k.BackLookup,
	}
}

func (k *kernel) close() error { return k.SsloObjects.Close() }

// unpinAll lets go of everything: with its last pin a link is detached.
func unpinAll(pin string) error {
	if err := os.RemoveAll(linksDir(pin)); err != nil { // links first: no program runs half the maps
		return fmt.Errorf("unpin links: %w", err)
	}
	if err := os.RemoveAll(pin); err != nil {
		return fmt.Errorf("unpin: %w", err)
	}
	return nil
}
