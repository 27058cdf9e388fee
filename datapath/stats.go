package datapath

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"sslo/bpf"
	"sslo/session"
)

// Links lists the links, the virtual ones first.
func (d *Datapath) Links() ([]LinkStatus, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kernel == nil {
		return nil, ErrNotSet
	}
	links := append([]Link{{Name: frontLink, NIC: frontLink}, {Name: backLink, NIC: backLink}}, d.plan.Links...)
	out := make([]LinkStatus, 0, len(links))
	var errs []error
	for _, l := range links {
		s, err := d.linkStatus(l)
		out, errs = append(out, s), append(errs, err)
	}
	return out, errors.Join(errs...)
}

func (d *Datapath) linkStatus(l Link) (LinkStatus, error) {
	id := d.st.IDs.Links.Live[l.Name]
	s := LinkStatus{Name: l.Name, NIC: l.NIC, ID: session.LinkID(id), Role: l.Role}
	if nic, err := d.host.link(l.NIC); err == nil {
		a := nic.Attrs()
		s.Index, s.Up, s.Carrier, s.MTU, s.MAC = a.Index, isUp(nic), carrier(nic), a.MTU, a.HardwareAddr.String()
	}
	cpus, err := perCPU[bpf.SsloLinkStats](d.kernel.LinkStats, id)
	for i := range cpus {
		s.Rx.add(cpus[i].Rx)
		s.Tx.add(cpus[i].Tx)
		for r := range min(len(s.Drops), len(cpus[i].Drops)) {
			s.Drops[r].add(cpus[i].Drops[r])
		}
	}
	return s, err
}

func perCPU[V any](m *ebpf.Map, id uint16) ([]V, error) {
	var cpus []V
	if err := m.Lookup(uint32(id), &cpus); err != nil {
		return nil, fmt.Errorf("read %s, entry %d: %w", m, id, err)
	}
	return cpus, nil
}

// Drops lists the non-zero drop counters.
func (d *Datapath) Drops() ([]Drop, error) {
	links, err := d.Links()
	var out []Drop
	for _, l := range links {
		for reason, c := range l.Drops {
			if c.Packets != 0 {
				out = append(out, Drop{l.Name, session.DropReason(reason), c})
			}
		}
	}
	return out, err
}

// DeviceStats lists the devices' counters.
func (d *Datapath) DeviceStats() ([]DeviceStats, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kernel == nil {
		return nil, ErrNotSet
	}
	now := Now()
	var out []DeviceStats
	var errs []error
	for _, dev := range d.plan.Devices {
		id, _ := d.deviceID(&d.plan, dev.Name)
		s, err := d.kernel.deviceStats(dev.Name, id, now)
		out, errs = append(out, s), append(errs, err)
	}
	return out, errors.Join(errs...)
}

func (k *kernel) deviceStats(name string, id uint16, now time.Duration) (DeviceStats, error) {
	s := DeviceStats{Name: name, ID: session.DeviceID(id)}
	cpus, err := perCPU[bpf.SsloDeviceStats](k.SsloObjects.DeviceStats, id)
	if err != nil {
		return s, err
	}
	for i := range cpus {
		for dir := range 2 {
			s.Sent[dir].add(cpus[i].Sent[dir])
			s.Received[dir].add(cpus[i].Received[dir])
		}
	}
	var rt bpf.SsloDeviceRuntime
	var closed uint64
	err = errors.Join(k.DeviceRuntime.Lookup(uint32(id), &rt), k.DeviceClosed.Lookup(uint32(id), &closed))
	s.Opened, s.Tripped = rt.Opened, ns(rt.TrippedNs)
	if ended := rt.Closed + closed; ended < rt.Opened {
		s.Active = rt.Opened - ended
	}
	for dir := range rt.Flow {
		s.Pending[dir] = waiting(rt.Flow[dir].PendingNs, now)
	}
	return s, err
}

// waiting is how long ago a frame went in that did not come out; 0 when none is out.
func waiting(since uint64, now time.Duration) time.Duration {
	if since == 0 || ns(since) > now {
		return 0
	}
	return now - ns(since)
}

// Suspicions lists devices that have kept frames for longer than after.
func (d *Datapath) Suspicions(after time.Duration) ([]Suspicion, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kernel == nil {
		return nil, ErrNotSet
	}
	now := Now()
	var out []Suspicion
	for _, dev := range d.plan.Devices {
		id, _ := d.deviceID(&d.plan, dev.Name)
		var rt bpf.SsloDeviceRuntime
		if err := d.kernel.DeviceRuntime.Lookup(uint32(id), &rt); err != nil {
			return out, fmt.Errorf("device %s: %w", dev.Name, err)
		}
		for dir := range rt.Flow {
			if w := waiting(rt.Flow[dir].PendingNs, now); w > after {
				out = append(out, Suspicion{dev.Name, session.Direction(dir), w})
			}
		}
	}
	return out, nil
}

// Ledger lists what skipped devices.
func (d *Datapath) Ledger() ([]LedgerEntry, error) {
	k, err := d.loaded()
	if err != nil {
		return nil, err
	}
	n := d.Names()
	var out []LedgerEntry
	var key bpf.SsloLedgerKey
	var cpus []bpf.SsloLedgerEntry
	it := k.SsloObjects.Ledger.Iterate()
	for it.Next(&key, &cpus) {
		e := LedgerEntry{Chain: n.chains.name(key.Chain), Pool: n.pools.name(key.Pool), Device: n.devices.name(key.Device),
			Reason: session.BypassReason(key.Reason)}
		for _, c := range cpus {
			e.Sessions += c.Sessions
			e.Packets += c.Packets
			e.Bytes += c.Bytes
		}
		out = append(out, e)
	}
	if err := it.Err(); err != nil {
		return out, fmt.Errorf("read ledger: %w", err)
	}
	return out, nil
}
