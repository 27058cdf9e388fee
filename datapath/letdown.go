package datapath

import (
	"context"
	"errors"
	"sync"

	"sslo/bpf"
	"sslo/chain"
	"sslo/session"
)

// attendTo does for the sessions of each device that goes out of service what the programs could only
// do at their next packet, which may be long in coming: those that cannot or must not be bypassed are
// reset, and the others' senders retransmit. It runs until ctx is done.
func (d *Datapath) attendTo(ctx context.Context, k *kernel) {
	var devices sync.WaitGroup // one must not wait for another's senders
	defer devices.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case device := <-d.dead:
			devices.Go(func() { d.attend(ctx, k, device) })
		}
	}
}

func (d *Datapath) attend(ctx context.Context, k *kernel, device uint16) {
	l, err := k.letDown(device)
	err = errors.Join(err, d.resetAll(k, l.doomed), d.nudgeAll(ctx, k, l.senders))
	name := d.Names().devices.name(device)
	if err != nil {
		d.log.Warn("not all sessions of a device out of service were attended to", "device", name, "err", err)
	}
	d.log.Debug("device out of service", "device", name, "reset", len(l.doomed), "retransmit", len(l.senders))
}

// letDown is whom a device leaves behind.
type letDown struct {
	doomed  []uint64 // sessions to reset
	senders []stalled
}

func (k *kernel) letDown(device uint16) (letDown, error) {
	var l letDown
	through := map[uint64]bool{} // roots of its sessions
	senders := map[uint64][]stalled{}
	pools := map[uint16]bool{}
	err := scan(k.SsloObjects.Sessions, func(_ []uint64, values []bpf.SsloSession) bool {
		for i := range values {
			s := &values[i]
			if owing := owing(s); len(owing) > 0 {
				senders[s.Root] = append(senders[s.Root], owing...)
			}
			if s.Device != device {
				continue
			}
			through[s.Root] = true
			if k.doomed(s, pools) {
				l.doomed = append(l.doomed, s.Id)
			}
		}
		return true
	})
	for root, list := range senders {
		if through[root] {
			l.senders = append(l.senders, list...)
		}
	}
	return l, err
}

// doomed is what the programs do with the session's next packet (steer.h, detour). pools remembers answers.
func (k *kernel) doomed(s *bpf.SsloSession, pools map[uint16]bool) bool {
	flags := session.Flags(s.Flags)
	if flags&(session.BypassOut|session.WasReset) != 0 || s.State == uint8(session.Closed) {
		return false
	}
	if flags&session.RewritesSeq != 0 {
		return true
	}
	resets, known := pools[s.Pool]
	if !known {
		resets = k.poolResets(s.Pool)
		pools[s.Pool] = resets
	}
	return resets
}

// poolResets: sessions of a device that is out of service are reset.
func (k *kernel) poolResets(id uint16) bool {
	var p bpf.SsloPool
	if k.Pools.Lookup(uint32(id), &p) != nil {
		return false
	}
	if chain.Action(p.OnDown) == chain.Bypass || k.usable(&p) {
		return chain.Action(p.Established) == chain.Reset
	}
	return chain.Action(p.OnDown) == chain.Reset
}

// usable: enough devices take new sessions.
func (k *kernel) usable(p *bpf.SsloPool) bool {
	n := 0
	for _, m := range p.Devices[:p.Count] {
		var dev bpf.SsloDevice
		if k.SsloObjects.Devices.Lookup(uint32(m.Device), &dev) == nil && chain.Service(dev.Service) == chain.Full {
			n++
		}
	}
	return n > 0 && n >= int(p.MinActive)
}

// resetAll reports each session as the programs do. One that they were faster with is theirs to report.
func (d *Datapath) resetAll(k *kernel, ids []uint64) error {
	var errs []error
	for _, id := range ids {
		var s bpf.SsloSession
		if k.SsloObjects.Sessions.Lookup(id, &s) != nil || session.Flags(s.Flags)&session.WasReset != 0 {
			continue
		}
		if err := d.resetTree(session.ID(id), nil); err != nil && !errors.Is(err, ErrNoSession) {
			errs = append(errs, err)
		}
		d.publish(toEvent(&bpf.SsloEvent{TimeNs: uint64(Now()), Session: id, Root: s.Root, Key: s.Orig, Type: uint32(EventReset),
			Chain: s.Chain, Pool: s.Pool, Device: s.Device, Link: s.Orig.Link, Reason: uint8(session.DeviceDown)}, d.Names()))
	}
	return errors.Join(errs...)
}
