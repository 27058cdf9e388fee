package datapath

import (
	"errors"
	"fmt"

	"sslo/bpf"
)

// bitset of small ids.
type bitset [1024 / 64]uint64

func (b *bitset) set(i uint16)      { b[i/64%uint16(len(b))] |= 1 << (i % 64) }
func (b *bitset) has(i uint16) bool { return b[i/64%uint16(len(b))]&(1<<(i%64)) != 0 }

// references is what the sessions of one scan refer to.
type references struct{ links, devices, pools, chains bitset }

func (r *references) add(s *bpf.SsloSession) {
	r.links.set(s.Orig.Link)
	r.links.set(s.Reply.Link)
	r.devices.set(s.Device)
	r.devices.set(s.InDevice)
	r.pools.set(s.Pool)
	r.chains.set(s.Chain)
}

func (s *idSet) anyRetired() bool {
	return len(s.Links.Retired)+len(s.Devices.Retired)+len(s.Pools.Retired)+len(s.Chains.Retired) > 0
}

// releaseIDs frees ids that nothing refers to. Sessions made since the scan are no danger: they
// can not begin to use an object that left the plan before it.
func (d *Datapath) releaseIDs(used *references) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kernel == nil {
		return nil
	}
	ids := &d.st.IDs
	d.keepReferred(used)
	var errs []error
	devices := ids.Devices.release(used.devices.has)
	for _, id := range devices {
		errs = append(errs, d.kernel.clearDevice(id))
	}
	pools, chains := ids.Pools.release(used.pools.has), ids.Chains.release(used.chains.has)
	for _, id := range pools {
		errs = append(errs, put(d.kernel.Pools, id, bpf.SsloPool{}))
	}
	for _, id := range chains {
		errs = append(errs, put(d.kernel.Chains, id, bpf.SsloChain{}))
	}
	links := ids.Links.release(used.links.has)
	for _, id := range links {
		errs = append(errs, d.kernel.clearLink(id))
	}
	if len(devices)+len(pools)+len(chains)+len(links) > 0 {
		d.publishNames()
		errs = append(errs, d.st.save())
	}
	return errors.Join(errs...)
}

// keepReferred adds what retired objects in use refer to themselves: a session goes around a
// retired device by the device's links.
func (d *Datapath) keepReferred(used *references) {
	for _, id := range d.st.IDs.Chains.Retired {
		var e bpf.SsloChain
		if used.chains.has(id) && d.kernel.Chains.Lookup(uint32(id), &e) == nil {
			for _, p := range e.Pools {
				used.pools.set(p)
			}
		}
	}
	for _, id := range d.st.IDs.Pools.Retired {
		var e bpf.SsloPool
		if used.pools.has(id) && d.kernel.Pools.Lookup(uint32(id), &e) == nil {
			for _, m := range e.Devices {
				used.devices.set(m.Device)
			}
		}
	}
	for _, id := range d.st.IDs.Devices.Retired {
		var e bpf.SsloDevice
		if used.devices.has(id) && d.kernel.Devices.Lookup(uint32(id), &e) == nil {
			used.links.set(e.InLink)
			used.links.set(e.OutLink)
		}
	}
}

// clearDevice makes an id as new: its next holder inherits no counters.
func (k *kernel) clearDevice(id uint16) error {
	cpus, err := perCPU[bpf.SsloDeviceStats](k.SsloObjects.DeviceStats, id)
	if err != nil {
		return err
	}
	err = errors.Join(
		k.Devices.Put(uint32(id), bpf.SsloDevice{}), k.DeviceRuntime.Put(uint32(id), bpf.SsloDeviceRuntime{}),
		k.DeviceClosed.Put(uint32(id), uint64(0)),
		k.SsloObjects.DeviceStats.Put(uint32(id), make([]bpf.SsloDeviceStats, len(cpus))))
	if err != nil {
		return fmt.Errorf("clear device %d: %w", id, err)
	}
	return nil
}

func (k *kernel) clearLink(id uint16) error {
	cpus, err := perCPU[bpf.SsloLinkStats](k.LinkStats, id)
	if err != nil {
		return err
	}
	err = errors.Join(k.SsloObjects.Links.Put(uint32(id), bpf.SsloLink{}),
		k.LinkStats.Put(uint32(id), make([]bpf.SsloLinkStats, len(cpus))))
	if err != nil {
		return fmt.Errorf("clear link %d: %w", id, err)
	}
	return nil
}
