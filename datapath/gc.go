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
				c.root(corpse{s.Id, s.Device}, session.Protocol(s.Orig.Proto), session.State(s.State), ns(seen(s)))
			} else {
				c.leg(corpse{s.Id, s.Device}, s.Root, ns(s.CreatedNs))
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
	dead := c.verdict()
	if err := k.removeFlows(dead, st.Sessions); err != nil {
		return st, err
	}
	st.Removed, err = k.removeSessions(dead)
	return st, err
}

// removeFlows goes first: then no packet finds the sessions any more. One by one it is exact;
// when much of a big table goes, one pass through all flows is several times faster.
func (k *kernel) removeFlows(dead []corpse, total int) error {
	if len(dead) > 2*batch && len(dead) > total/8 {
		return k.sweepFlows(dead)
	}
	for _, x := range dead {
		var s bpf.SsloSession
		if err := k.SsloObjects.Sessions.Lookup(x.id, &s); err != nil {
			continue // the program was faster: a SYN replaced it
		}
		if err := errors.Join(k.removeFlow(&s.Orig, x.id), k.removeFlow(&s.Reply, x.id)); err != nil {
			return err
		}
	}
	return nil
}

// sweepFlows deletes each chunk as soon as it is read, so that a key has no time to change hands.
func (k *kernel) sweepFlows(dead []corpse) error {
	gone := make(map[uint64]struct{}, len(dead))
	for _, x := range dead {
		gone[x.id] = struct{}{}
	}
	var failed error
	keysOut := make([]bpf.SsloFlowKey, 0, batch)
	err := scan(k.Flows, func(keys []bpf.SsloFlowKey, values []bpf.SsloFlow) bool {
		keysOut = keysOut[:0]
		for i := range values {
			if _, ok := gone[values[i].Session]; ok {
				keysOut = append(keysOut, keys[i])
			}
		}
		failed = deleteBatch(k.Flows, keysOut, func(int) {})
		return failed == nil
	})
	return errors.Join(err, failed)
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

// removeSessions counts for every device what it has no more: only what this call deleted, the
// programs count theirs.
func (k *kernel) removeSessions(dead []corpse) (int, error) {
	removed, closed := 0, map[uint16]uint64{}
	ids := make([]uint64, len(dead))
	for i, x := range dead {
		ids[i] = x.id
	}
	err := deleteBatch(k.SsloObjects.Sessions, ids, func(i int) {
		removed++
		if dev := dead[i].device; dev != 0 {
			closed[dev]++
		}
	})
	return removed, errors.Join(err, k.countClosed(closed))
}

// deleteBatch deletes keys and calls done with the index of each that was there. The kernel stops
// at one that is not: go on after it.
func deleteBatch[K any](m *ebpf.Map, keys []K, done func(int)) error {
	for from := 0; from < len(keys); {
		n, err := m.BatchDelete(keys[from:min(from+batch, len(keys))], nil)
		for i := range n {
			done(from + i)
		}
		from += n
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			from++
		} else if err != nil {
			return fmt.Errorf("delete from %s: %w", m, err)
		}
	}
	return nil
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
