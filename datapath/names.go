package datapath

import (
	"fmt"

	"sslo/session"
)

// Names turns the small ids of the session plane into the names of the plan, and back.
// It is a snapshot: take a new one after Apply.
type Names struct{ links, devices, pools, chains nameTable }

type nameTable struct {
	byID   map[uint16]string
	byName map[string]uint16
}

// name is empty for id 0 and shows the number of an id that nobody holds any more.
func (t nameTable) name(id uint16) string {
	if n, ok := t.byID[id]; ok || id == 0 {
		return n
	}
	return fmt.Sprintf("#%d", id)
}

func (t nameTable) id(name string) (uint16, bool) { id, ok := t.byName[name]; return id, ok }

// Link is the name of a link.
func (n Names) Link(id session.LinkID) string { return n.links.name(uint16(id)) }

// Device is the name of a device.
func (n Names) Device(id session.DeviceID) string { return n.devices.name(uint16(id)) }

// Pool is the name of a device pool.
func (n Names) Pool(id session.PoolID) string { return n.pools.name(uint16(id)) }

// Chain is the name of a chain.
func (n Names) Chain(id session.ChainID) string { return n.chains.name(uint16(id)) }
