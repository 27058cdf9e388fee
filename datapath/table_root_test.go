package datapath

import (
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"sslo/bpf"
	"sslo/internal/testutil"
	"sslo/session"
)

// bigTable fills a session table with connections through two devices: three sessions each.
func bigTable(tb testing.TB, sessions int) (*Datapath, *kernel) {
	tb.Helper()
	testutil.RequireRoot(tb)
	spec, err := bpf.LoadSslo()
	must(tb, err)
	k := &kernel{pin: tb.TempDir()}
	must(tb, k.size(spec, sessions))
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	must(tb, spec.LoadAndAssign(&k.SsloObjects, nil))
	tb.Cleanup(func() { _ = k.close() })
	fillTable(tb, k, sessions/3)
	d := &Datapath{kernel: k, st: &store{}}
	d.st.fill()
	d.publishNames()
	return d, k
}

func fillTable(tb testing.TB, k *kernel, trees int) {
	tb.Helper()
	for from := 0; from < trees; from += batch {
		var ids []uint64
		var sessions []bpf.SsloSession
		var keys []bpf.SsloFlowKey
		var flows []bpf.SsloFlow
		for i := from; i < min(from+batch, trees); i++ {
			for leg := range 3 {
				s := tableSession(i, leg)
				ids, sessions = append(ids, s.Id), append(sessions, s)
				keys = append(keys, s.Orig, s.Reply)
				flows = append(flows, bpf.SsloFlow{Session: s.Id}, bpf.SsloFlow{Session: s.Id, Dir: 1})
			}
		}
		_, err := k.SsloObjects.Sessions.BatchUpdate(ids, sessions, nil)
		must(tb, err)
		_, err = k.Flows.BatchUpdate(keys, flows, nil)
		must(tb, err)
	}
}

func tableSession(tree, leg int) bpf.SsloSession {
	id := uint64(3*tree + leg + 1)
	s := bpf.SsloSession{Id: id, Root: uint64(3*tree + 1), Chain: 1, State: uint8(session.Established), Device: uint16(leg + 1)}
	if leg > 0 {
		s.Parent = id - 1
	}
	if leg < 2 {
		s.Child = id + 1
	} else {
		s.Device = 0
	}
	s.Orig.Src = [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: byte(tree >> 16), 14: byte(tree >> 8), 15: byte(tree)}
	s.Orig.Dst = [16]byte{10: 0xff, 11: 0xff, 12: 198, 13: 51, 14: 100, 15: 7}
	s.Orig.Sport, s.Orig.Dport, s.Orig.Proto, s.Orig.Link = port(40000), port(80), 6, uint16(2*leg+1)
	s.Reply = bpf.SsloFlowKey{Src: s.Orig.Dst, Dst: s.Orig.Src, Sport: s.Orig.Dport, Dport: s.Orig.Sport, Proto: 6, Link: uint16(2*leg + 2)}
	return s
}

func TestAMillionSessions(t *testing.T) {
	const n = 999_999
	d, k := bigTable(t, n)
	began := cpuTime()
	list, err := d.Sessions(Filter{Roots: true}, 100)
	took := cpuTime() - began
	must(t, err)
	if list.Total != n || list.Matched != n/3 || len(list.Sessions) != 100 {
		t.Errorf("total %d, matched %d, listed %d", list.Total, list.Matched, len(list.Sessions))
	}
	t.Logf("listed by filter in %v", took)
	if took > time.Second {
		t.Errorf("listing took %v", took)
	}
	st, err := d.CollectGarbage(time.Minute)
	must(t, err)
	t.Logf("nothing to collect: %+v", st)
	if st.Removed != 0 {
		t.Errorf("%d removed", st.Removed)
	}
	st, err = d.CollectGarbage(24 * time.Hour)
	must(t, err)
	t.Logf("all collected: %+v", st)
	if st.Removed != n {
		t.Errorf("%d removed", st.Removed)
	}
	if left := count(t, d); left != 0 {
		t.Errorf("%d flows left", left)
	}
	for dev, want := range []uint64{0, n / 3, n / 3} {
		var closed uint64
		must(t, k.DeviceClosed.Lookup(uint32(dev), &closed))
		if closed != want {
			t.Errorf("device %d: %d closed, want %d", dev, closed, want)
		}
	}
}

// cpuTime is what this process has used: other load does not count.
func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestSessionsAreListedById(t *testing.T) {
	d, _ := bigTable(t, 3000)
	list, err := d.Sessions(Filter{}, 0)
	must(t, err)
	for i, s := range list.Sessions {
		if int(s.ID) != i+1 {
			t.Fatalf("place %d has session %d", i, s.ID)
		}
	}
	if len(list.Sessions) != 3000 {
		t.Errorf("%d listed", len(list.Sessions))
	}
}

// Between scan and removal a SYN may give a session's key to a new one: that one must stay.
func TestRemovalSparesATakenOverKey(t *testing.T) {
	d, k := bigTable(t, 3)
	old := tableSession(0, 0)
	must(t, k.Flows.Put(old.Orig, bpf.SsloFlow{Session: 77}))
	must(t, k.SsloObjects.Sessions.Delete(uint64(2))) // the program removed one meanwhile
	dead := []corpse{{id: 1}, {id: 2}, {id: 3}}
	must(t, k.removeFlows(dead, 3))
	n, err := k.removeSessions(dead)
	must(t, err)
	if n != 2 {
		t.Errorf("%d removed, want 2", n)
	}
	var f bpf.SsloFlow
	if err := k.Flows.Lookup(old.Orig, &f); err != nil || f.Session != 77 {
		t.Errorf("taken over key: %+v, %v", f, err)
	}
	if err := k.Flows.Lookup(old.Reply, &f); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("reply key: %v", err)
	}
	if _, err := d.Session(3); !errors.Is(err, ErrNoSession) {
		t.Errorf("session 3: %v", err)
	}
}

func TestExpectationsAreCollected(t *testing.T) {
	d, k := bigTable(t, 3)
	now := Now()
	for i, e := range []bpf.SsloExpectation{{Session: 1, CreatedNs: uint64(now - time.Second)},
		{Session: 1, CreatedNs: uint64(now - 31*time.Second)}, {Session: 99, CreatedNs: uint64(now)}} {
		must(t, k.Expectations.Put(bpf.SsloFlowKey{Link: uint16(i)}, e))
	}
	var st GCStats
	must(t, d.kernel.collectExpectations(now, &st))
	if st.Expectations != 3 || st.ExpectationsRm != 2 {
		t.Errorf("%+v, want 2 of 3 removed: one too old, one without parent", st)
	}
}

func BenchmarkListSessions(b *testing.B) {
	d, _ := bigTable(b, 300_000)
	for b.Loop() {
		if _, err := d.Sessions(Filter{Roots: true}, 100); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCollectNothing(b *testing.B) {
	d, _ := bigTable(b, 300_000)
	for b.Loop() {
		if _, err := d.CollectGarbage(time.Minute); err != nil {
			b.Fatal(err)
		}
	}
}
