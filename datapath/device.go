package datapath

import (
	"fmt"

	"sslo/bpf"
	"sslo/chain"
	"sslo/session"
)

// SetDevice tells the session plane which traffic a device may get.
func (d *Datapath) SetDevice(name string, st chain.DeviceStatus) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kernel == nil {
		return ErrNotSet
	}
	id, ok := d.deviceID(&d.plan, name)
	if !ok {
		return fmt.Errorf("device %q: %w", name, ErrUnknown)
	}
	if err := d.setService(id, st); err != nil || st.Service != chain.Out {
		return err
	}
	select {
	case d.dead <- id:
	default: // then its sessions wait for their next packet
	}
	return nil
}

func (d *Datapath) setService(id uint16, st chain.DeviceStatus) error {
	var e bpf.SsloDevice
	if err := d.kernel.Devices.Lookup(uint32(id), &e); err != nil {
		return fmt.Errorf("device %d: %w", id, err)
	}
	e.Service, e.Reason = uint8(st.Service), uint8(st.Reason)
	if st.Service == chain.Full {
		e.Reason = uint8(session.NotBypassed)
	}
	return put(d.kernel.Devices, id, e)
}

// DeviceStatus is a device's status as the kernel has it, also after adoption.
func (d *Datapath) DeviceStatus(name string) (chain.DeviceStatus, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kernel == nil {
		return chain.DeviceStatus{}, false
	}
	id, ok := d.deviceID(&d.plan, name)
	if !ok {
		id, ok = d.st.IDs.Devices.table().id(name) // adopted, no plan yet
	}
	var e bpf.SsloDevice
	if !ok || d.kernel.Devices.Lookup(uint32(id), &e) != nil {
		return chain.DeviceStatus{}, false
	}
	return chain.DeviceStatus{Service: chain.Service(e.Service), Reason: session.BypassReason(e.Reason)}, true
}

// ChainMark is the SO_MARK of a chain's inner connections.
func (d *Datapath) ChainMark(name string) (uint32, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id, ok := d.st.IDs.Chains.Live[name]
	return uint32(id) << d.plan.ChainShift, ok && d.kernel != nil
}
