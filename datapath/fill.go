package datapath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"sslo/bpf"
	"sslo/chain"
	"sslo/session"
)

// check refuses a plan that the maps can not hold. Configuration errors are found earlier, with
// positions; this guards against other callers.
func (p *Plan) check() error {
	links, devices, pools := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, l := range p.Links {
		links[l.Name] = true
	}
	var errs []error
	for _, d := range p.Devices {
		devices[d.Name] = true
		if oneLink := d.Type == chain.OneArm || d.Type == chain.Tap; !links[d.In] || !links[d.Out] || (d.In == d.Out) != oneLink {
			errs = append(errs, fmt.Errorf("device %s: links %q and %q: %w", d.Name, d.In, d.Out, ErrUnknown))
		}
	}
	for _, pl := range p.Pools {
		pools[pl.Name] = true
		errs = append(errs, checkPool(pl, devices))
	}
	for _, c := range p.Chains {
		errs = append(errs, p.checkChain(c, pools))
	}
	return errors.Join(errs...)
}

func checkPool(p chain.Pool, devices map[string]bool) error {
	if len(p.Devices) > chain.MaxDevices {
		return fmt.Errorf("device pool %s: more than %d devices", p.Name, chain.MaxDevices)
	}
	for _, m := range p.Devices {
		if !devices[m.Device] {
			return fmt.Errorf("device pool %s: device %q: %w", p.Name, m.Device, ErrUnknown)
		}
	}
	return nil
}

func (p *Plan) checkChain(c chain.Chain, pools map[string]bool) error {
	hops, taps := 0, 0
	for _, name := range c.Pools {
		if n := len(p.taps(name)); n > 0 {
			taps += n
		} else {
			hops++
		}
	}
	if hops > chain.MaxPools || taps > chain.MaxTaps {
		return fmt.Errorf("chain %s: more than %d device pools or %d taps", c.Name, chain.MaxPools, chain.MaxTaps)
	}
	for _, name := range c.Pools {
		if !pools[name] {
			return fmt.Errorf("chain %s: device pool %q: %w", c.Name, name, ErrUnknown)
		}
	}
	return nil
}

// assignIDs gives every object of the plan its id and writes them down before they are used.
func (d *Datapath) assignIDs(p *Plan) error {
	links, devices, pools, chains := []string{frontLink, backLink}, []string{}, []string{}, []string{}
	for _, l := range p.Links {
		links = append(links, l.Name)
	}
	for _, dev := range p.Devices {
		devices = append(devices, deviceKey(dev.Name, dev.In, dev.Out))
	}
	for _, pl := range p.Pools {
		pools = append(pools, pl.Name)
	}
	for _, c := range p.Chains {
		chains = append(chains, c.Name)
	}
	ids := &d.st.IDs
	return errors.Join(
		ids.Links.assign("link", links, maxLinks), ids.Devices.assign("device", devices, maxDevices),
		ids.Pools.assign("device pool", pools, maxPools), ids.Chains.assign("chain", chains, maxChains), d.st.save())
}

// Sizes of the maps (bpf/types.h).
const (
	maxLinks   = 512
	maxDevices = 256
	maxPools   = 128
	maxChains  = 1024
)

func (d *Datapath) deviceID(p *Plan, name string) (uint16, bool) {
	for _, dev := range p.Devices {
		if dev.Name == name {
			id, ok := d.st.IDs.Devices.Live[deviceKey(dev.Name, dev.In, dev.Out)]
			return id, ok
		}
	}
	return 0, false
}

// fill writes the plan into the maps, leaves first: nothing refers to what is not there yet. Of the
// links only those that are there have an interface to send to.
func (d *Datapath) fill(p, there *Plan) error {
	return errors.Join(d.fillLinks(there), d.fillDevices(p), d.fillPools(p), d.fillChains(p), d.fillSettings(p))
}

// put writes an entry only when it differs: an unchanged plan touches no map.
func put[T comparable](m *ebpf.Map, id uint16, v T) error {
	var have T
	if err := m.Lookup(uint32(id), &have); err == nil && have == v {
		return nil
	}
	if err := m.Put(uint32(id), v); err != nil {
		return fmt.Errorf("map %s, entry %d: %w", m, id, err)
	}
	return nil
}

// present is a plan's link with its interface.
type present struct {
	id   uint16
	role bpf.SsloLinkRole
	nic  netlink.Link
	plan Link
}

func (d *Datapath) presentLinks(p *Plan) ([]present, error) {
	roles := map[Role]bpf.SsloLinkRole{RoleClient: bpf.SsloLinkRoleROLE_CLIENT, RoleServer: bpf.SsloLinkRoleROLE_SERVER,
		RoleDevice: bpf.SsloLinkRoleROLE_DEVICE}
	var out []present
	var errs []error
	add := func(id uint16, role bpf.SsloLinkRole, plan Link) {
		l, err := d.host.link(plan.NIC)
		if err != nil {
			errs = append(errs, err)
			return
		}
		out = append(out, present{id, role, l, plan})
	}
	add(frontID, bpf.SsloLinkRoleROLE_FRONT, Link{NIC: frontLink})
	add(backID, bpf.SsloLinkRoleROLE_BACK, Link{NIC: backLink})
	for _, l := range p.Links {
		add(d.st.IDs.Links.Live[l.Name], roles[l.Role], l)
	}
	return out, errors.Join(errs...)
}

func (l present) entry() bpf.SsloLink {
	e := bpf.SsloLink{Ifindex: uint32(l.nic.Attrs().Index), Role: uint8(l.role), Mac: mac(l.nic.Attrs().HardwareAddr),
		Vlan: uint16(l.plan.VLAN), Controls: uint8(len(l.plan.Controls))}
	if l.plan.Routed {
		e.Routed = 1
	}
	if l.id == frontID || l.id == backID {
		e.Ingress = 1 // our own sockets are behind the receive path
	}
	return e
}

func mac(a net.HardwareAddr) (m [6]byte) {
	copy(m[:], a)
	return m
}

// fillLinks empties the entries of links that left the plan or whose interface is gone: nothing
// is sent there.
func (d *Datapath) fillLinks(p *Plan) error {
	links, err := d.presentLinks(p)
	errs := []error{err}
	index, there := map[bpf.SsloLinkKey]uint16{}, map[uint16]bool{}
	for _, l := range links {
		e := l.entry()
		index[bpf.SsloLinkKey{Ifindex: e.Ifindex, Vlan: uint32(e.Vlan)}], there[l.id] = l.id, true
		errs = append(errs, put(d.kernel.LinkControls, l.id, controls(l.plan.Controls)), put(d.kernel.Links, l.id, e))
	}
	for _, id := range d.st.IDs.Links.all() {
		if !there[id] {
			errs = append(errs, put(d.kernel.Links, id, bpf.SsloLink{}))
		}
	}
	return errors.Join(append(errs, d.fillLinkIDs(index))...)
}

func controls(rules []Control) (e bpf.SsloControls) {
	for i, c := range rules[:min(len(rules), len(e.Rules))] {
		r := &e.Rules[i]
		r.Src, r.SrcBits = wide(c.Source)
		r.Dst, r.DstBits = wide(c.Destination)
		r.Proto, r.PortFrom, r.PortTo = c.Protocol, c.From, c.To
	}
	return e
}

// wide is a prefix in the 16 byte form of the maps.
func wide(p netip.Prefix) (addr [16]byte, bits uint8) {
	if !p.IsValid() {
		return addr, 0
	}
	return p.Addr().As16(), uint8(128 - p.Addr().BitLen() + p.Bits())
}

func (d *Datapath) fillLinkIDs(want map[bpf.SsloLinkKey]uint16) error {
	have := map[bpf.SsloLinkKey]uint16{}
	it := d.kernel.LinkIds.Iterate()
	for k, v := (bpf.SsloLinkKey{}), uint16(0); it.Next(&k, &v); {
		have[k] = v
	}
	var errs []error
	for k, v := range want {
		if old, ok := have[k]; !ok || old != v {
			errs = append(errs, d.kernel.LinkIds.Put(k, v))
		}
	}
	for k := range have {
		if _, ok := want[k]; !ok {
			errs = append(errs, d.kernel.LinkIds.Delete(k))
		}
	}
	return errors.Join(append(errs, it.Err())...)
}

// fillDevices keeps the service of devices that are there already; a new one gets no traffic
// before a monitor has seen it work. Sessions of a retired device are bypassed around it.
func (d *Datapath) fillDevices(p *Plan) error {
	ids := &d.st.IDs
	var errs []error
	for _, dev := range p.Devices {
		id := ids.Devices.Live[deviceKey(dev.Name, dev.In, dev.Out)]
		e := bpf.SsloDevice{InLink: ids.Links.Live[dev.In], OutLink: ids.Links.Live[dev.Out],
			Service: uint8(chain.Out), Reason: uint8(session.NotProbed), Next: [2]bpf.SsloNextHop{nextHop(dev.InHops), nextHop(dev.OutHops)}}
		if dev.Type.Routed() {
			e.Routed = 1
		}
		var have bpf.SsloDevice
		if err := d.kernel.Devices.Lookup(uint32(id), &have); err == nil && have.InLink != 0 {
			e.Service, e.Reason = have.Service, have.Reason
		}
		errs = append(errs, put(d.kernel.Devices, id, e))
	}
	for _, id := range ids.Devices.Retired {
		errs = append(errs, d.setService(id, chain.DeviceStatus{Service: chain.Out, Reason: session.Disabled}))
	}
	return errors.Join(errs...)
}

func nextHop(h chain.NextHops) (e bpf.SsloNextHop) {
	if h.V4.IsValid() {
		e.V4 = h.V4.As4()
	}
	if h.V6.IsValid() {
		e.V6 = h.V6.As16()
	}
	return e
}

func (d *Datapath) fillPools(p *Plan) error {
	var errs []error
	for i := range p.Pools {
		errs = append(errs, d.fillPool(p, &p.Pools[i]))
	}
	return errors.Join(errs...)
}

func (d *Datapath) fillPool(p *Plan, pl *chain.Pool) error {
	e := bpf.SsloPool{Method: uint8(pl.Method), OnDown: uint8(pl.OnDown), Established: uint8(pl.Established),
		Count: uint16(len(pl.Devices)), MinActive: uint16(max(pl.MinActive, 1))}
	if pl.Return == chain.ReturnImmediate {
		e.ReturnNow = 1
	}
	for i, m := range pl.Devices {
		id, _ := d.deviceID(p, m.Device)
		e.Devices[i] = bpf.SsloPoolDevice{Device: id, Weight: uint16(max(m.Weight, 1))}
	}
	return put(d.kernel.Pools, d.st.IDs.Pools.Live[pl.Name], e)
}

func (d *Datapath) fillChains(p *Plan) error {
	var errs []error
	for _, c := range p.Chains {
		errs = append(errs, put(d.kernel.Chains, d.st.IDs.Chains.Live[c.Name], d.chainEntry(p, c)))
	}
	return errors.Join(errs...)
}

// chainEntry tells the pools that packets pass through from those that get copies at their place.
func (d *Datapath) chainEntry(p *Plan, c chain.Chain) (e bpf.SsloChain) {
	for _, name := range c.Pools {
		taps := p.taps(name)
		for _, tap := range taps {
			id, _ := d.deviceID(p, tap)
			e.Taps[e.TapCount] = bpf.SsloChainTap{Before: e.Count, Device: id}
			e.TapCount++
		}
		if len(taps) == 0 {
			e.Pools[e.Count] = d.st.IDs.Pools.Live[name]
			e.Count++
		}
	}
	return e
}

// taps are the taps of a pool, which has nothing else then.
func (p *Plan) taps(pool string) (names []string) {
	for _, pl := range p.Pools {
		if pl.Name != pool {
			continue
		}
		for _, m := range pl.Devices {
			if slices.ContainsFunc(p.Devices, func(v chain.Device) bool { return v.Name == m.Device && v.Type == chain.Tap }) {
				names = append(names, m.Device)
			}
		}
	}
	return names
}

func (d *Datapath) fillSettings(p *Plan) error {
	d.settings = bpf.SsloSettings{HeartbeatNs: uint64(Now()), Layout: layoutVersion, ChainShift: uint32(p.ChainShift),
		ChainMask: maxMark, TripMs: uint32(p.TripAfter.Milliseconds()), Front: frontID, Back: backID}
	return put(d.kernel.Settings, 0, d.settings)
}

// attachAll runs the programs on the plan's interfaces, after the maps they read are filled.
func (d *Datapath) attachAll(p *Plan) error {
	links, err := d.presentLinks(p)
	front, back, nics := 0, 0, []int{}
	for _, l := range links {
		i := l.nic.Attrs().Index
		switch l.role {
		case bpf.SsloLinkRoleROLE_FRONT:
			front = i
		case bpf.SsloLinkRoleROLE_BACK:
			back = i
		default:
			nics = append(nics, i)
		}
	}
	slices.Sort(nics)
	return errors.Join(err, d.kernel.attach(wantHooks(front, back, slices.Compact(nics))))
}
