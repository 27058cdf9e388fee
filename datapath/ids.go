package datapath

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Ids of the virtual links; real links follow.
const (
	frontID = 1
	backID  = 2
)

// idSet gives every named object a small id that stays with its name across restarts.
type idSet struct {
	Links   idTable `json:"links"`
	Devices idTable `json:"devices"`
	Pools   idTable `json:"pools"`
	Chains  idTable `json:"chains"`
}

func (s *idSet) fill() {
	for _, t := range []*idTable{&s.Links, &s.Devices, &s.Pools, &s.Chains} {
		t.fill()
	}
	s.Links.Live[frontLink], s.Links.Live[backLink] = frontID, backID
}

// idTable is the ids of one kind. An id of an object that left the plan is retired: sessions may
// still refer to it, so it is given to another object only after release.
type idTable struct {
	Live    map[string]uint16 `json:"live"`
	Retired map[string]uint16 `json:"retired,omitempty"`
}

func (t *idTable) fill() {
	if t.Live == nil {
		t.Live = map[string]uint16{}
	}
	if t.Retired == nil {
		t.Retired = map[string]uint16{}
	}
}

// assign makes exactly the names live, with ids below limit. Old names keep their ids, and a
// name that comes back before its id was released gets it back.
func (t *idTable) assign(kind string, names []string, limit int) error {
	want := make(map[string]bool, len(names))
	for _, n := range names {
		want[n] = true
	}
	t.retire(want)
	used := t.used()
	next := uint16(1)
	for _, n := range names {
		if _, ok := t.Live[n]; ok {
			continue
		}
		if id, ok := t.Retired[n]; ok {
			t.Live[n] = id
			delete(t.Retired, n)
			continue
		}
		for used[next] {
			next++
		}
		if int(next) >= limit {
			return fmt.Errorf("no id left for %s %q: %d are in use or still referred to by sessions", kind, n, len(used))
		}
		t.Live[n], used[next] = next, true
	}
	return nil
}

func (t *idTable) retire(want map[string]bool) {
	for n, id := range t.Live {
		if !want[n] {
			t.Retired[n] = id
			delete(t.Live, n)
		}
	}
}

func (t *idTable) used() map[uint16]bool {
	used := make(map[uint16]bool, len(t.Live)+len(t.Retired))
	for _, m := range []map[string]uint16{t.Live, t.Retired} {
		for _, id := range m {
			used[id] = true
		}
	}
	return used
}

// release frees the retired ids that nothing refers to and returns them.
func (t *idTable) release(referred func(uint16) bool) []uint16 {
	var freed []uint16
	for n, id := range t.Retired {
		if !referred(id) {
			freed = append(freed, id)
			delete(t.Retired, n)
		}
	}
	slices.Sort(freed)
	return freed
}

// all is every id by name; a live name wins over a retired one of the same display name.
func (t *idTable) all() map[string]uint16 {
	out := maps.Clone(t.Retired)
	maps.Copy(out, t.Live)
	return out
}

// table is a snapshot for names: retired ids keep their name, lookups by name find live ones.
func (t *idTable) table() nameTable {
	nt := nameTable{byID: map[uint16]string{}, byName: map[string]uint16{}}
	for _, m := range []map[string]uint16{t.Retired, t.Live} {
		for key, id := range m {
			n, _, _ := strings.Cut(key, idSep)
			nt.byID[id], nt.byName[n] = n, id
		}
	}
	return nt
}

const idSep = "\t"

// deviceKey is a device's identity: with other links it is another device to old sessions,
// which must not be sent out by links they do not know.
func deviceKey(name, in, out string) string { return name + idSep + in + idSep + out }
