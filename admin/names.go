package admin

import (
	"slices"

	"sslo/session"
)

// Names turns the small ids in sessions into names.
type Names interface {
	Link(session.LinkID) string
	Device(session.DeviceID) string
	Pool(session.PoolID) string
	Chain(session.ChainID) string
}

// nameTables remember names for the time of one request: a listing asks for the same few a million times.
type nameTables struct {
	links   nameTable[session.LinkID]
	devices nameTable[session.DeviceID]
	pools   nameTable[session.PoolID]
	chains  nameTable[session.ChainID]
	states  nameTable[session.State]
	reasons nameTable[session.BypassReason]
}

func newNameTables(n Names) *nameTables {
	return &nameTables{
		links:   nameTable[session.LinkID]{name: n.Link},
		devices: nameTable[session.DeviceID]{name: n.Device},
		pools:   nameTable[session.PoolID]{name: n.Pool},
		chains:  nameTable[session.ChainID]{name: n.Chain},
		states:  nameTable[session.State]{name: session.State.String},
		reasons: nameTable[session.BypassReason]{name: session.BypassReason.String},
	}
}

type nameTable[K ~uint8 | ~uint16] struct {
	name    func(K) string
	entries []nameEntry // by id
}

type nameEntry struct {
	plain  string
	quoted []byte // as a JSON string
}

func (t *nameTable[K]) get(id K) *nameEntry {
	if int(id) >= len(t.entries) {
		t.entries = append(t.entries, make([]nameEntry, int(id)+1-len(t.entries))...)
	}
	e := &t.entries[id]
	if e.quoted == nil {
		e.plain = t.name(id)
		e.quoted = quote(e.plain)
	}
	return e
}

// names lists the names of things.
func names[T any](all []T, name func(T) string) []string {
	list := make([]string, 0, len(all))
	for _, one := range all {
		list = append(list, name(one))
	}
	slices.Sort(list)
	return list
}
