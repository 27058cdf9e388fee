package datapath

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"sslo/bpf"
	"sslo/session"
)

// CollectGarbage removes what has expired at now (CLOCK_MONOTONIC, see Now), and frees the ids
// of objects that left the plan once no session refers to them.
func (d *Datapath) CollectGarbage(now time.Duration) (GCStats, error) {
	began := time.Now()
	d.mu.Lock()
	k, timeouts := d.kernel, d.plan.Timeouts
	var used *references
	if d.st.IDs.anyRetired() {
		used = &references{}
	}
	d.mu.Unlock()
	if k == nil {
		return GCStats{}, ErrNotSet
	}
	st, err := k.collectSessions(newCensus(timeouts, now), used)
	if err == nil {
		err = k.collectExpectations(now, &st)
	}
	if err == nil && used != nil {
		err = d.releaseIDs(used)
	}
	st.Took = time.Since(began)
	return st, err
}

func (k *kernel) collectSessions(c *census, used *references) (GCStats, error) {
	var st GCStats
	err := scan(k.SsloObjects.Sessions, func(_ []uint64, values []bpf.SsloSession) bool {
		st.Sessions += len(values)
		for i := range values {
			s := &values[i]
			if s.Parent == 0 {
				c.root(s.Id, session.Protocol(s.Orig.Proto), session.State(s.State), ns(seen(s)))
			} else {
				c.leg(s.Id, s.Root, ns(s.CreatedNs))
			}
			if used != nil {
				used.add(s)
			}
		}
		return true
	})
	if err != nil {
		return st, err
	}
	st.Removed, err = k.remove(c.verdict())
	return st, err
}

// remove removes sessions: first their flows, so that no packet finds them any more, then the
// sessions themselves.
func (k *kernel) remove(ids []uint64) (int, error) {
	removed := 0
	closed := map[uint16]uint64{}
	for len(ids) > 0 {
		n := min(len(ids), batch)
		rm, err := k.removeBatch(ids[:n], closed)
		removed += rm
		if err != nil {
			return removed, errors.Join(err, k.countClosed(closed))
		}
		ids = ids[n:]
	}
	return removed, k.countClosed(closed)
}

func (k *kernel) removeBatch(ids []uint64, closed map[uint16]uint64) (int, error) {
	devices := make([]uint16, len(ids))
	for i, id := range ids {
		var s bpf.SsloSession
		if err := k.SsloObjects.Sessions.Lookup(id, &s); err != nil {
			continue // the program was faster: a SYN replaced it
		}
		devices[i] = s.Device
		if err := errors.Join(k.removeFlow(&s.Orig, id), k.removeFlow(&s.Reply, id)); err != nil {
			return 0, err
		}
	}
	return k.deleteSessions(ids, devices, closed)
}

// removeFlow removes a key only while it is that session's: since the scan a new session may
// have taken it over. That is undone, within the time of a system call.
func (k *kernel) removeFlow(key *bpf.SsloFlowKey, id uint64) error {
	var f bpf.SsloFlow
	err := k.Flows.LookupAndDelete(key, &f)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	if err == nil && f.Session != id {
		err = k.Flows.Update(key, f, ebpf.UpdateNoExist)
		if errors.Is(err, ebpf.ErrKeyExist) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("remove flow: %w", err)
	}
	return nil
}

// deleteSessions deletes by batch. The kernel stops at a key that is not there; go on after it.
func (k *kernel) deleteSessions(ids []uint64, devices []uint16, closed map[uint16]uint64) (int, error) {
	removed := 0
	for len(ids) > 0 {
		n, err := k.SsloObjects.Sessions.BatchDelete(ids, nil)
		for _, dev := range devices[:n] {
			if dev != 0 {
				closed[dev]++
			}
		}
		removed += n
		if err == nil {
			return removed, nil
		}
		if !errors.Is(err, ebpf.ErrKeyNotExist) {
			return removed, fmt.Errorf("remove sessions: %w", err)
		}
		ids, devices = ids[n+1:], devices[n+1:]
	}
	return removed, nil
}

// countClosed keeps the number of sessions a device has right, for least-sessions.
func (k *kernel) countClosed(closed map[uint16]uint64) error {
	for dev, n := range closed {
		var have uint64
		if err := k.DeviceClosed.Lookup(uint32(dev), &have); err != nil {
			return fmt.Errorf("device %d: closed sessions: %w", dev, err)
		}
		if err := k.DeviceClosed.Put(uint32(dev), have+n); err != nil {
			return fmt.Errorf("device %d: closed sessions: %w", dev, err)
		}
	}
	return nil
}

// collectExpectations removes those that waited too long or whose parent is gone.
func (k *kernel) collectExpectations(now time.Duration, st *GCStats) error {
	var dead []bpf.SsloFlowKey
	err := scan(k.Expectations, func(keys []bpf.SsloFlowKey, values []bpf.SsloExpectation) bool {
		st.Expectations += len(keys)
		for i, e := range values {
			if now-ns(e.CreatedNs) > unusedFor || !k.alive(e.Session) {
				dead = append(dead, keys[i])
			}
		}
		return true
	})
	for _, key := range dead {
		if err := k.Expectations.Delete(key); err == nil {
			st.ExpectationsRm++
		}
	}
	return err
}

func (k *kernel) alive(id uint64) bool {
	_, err := k.session(id)
	return err == nil
}
