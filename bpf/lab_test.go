package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sslo/internal/testutil"
	"sslo/session"
	"sslo/session/model"
	"sslo/session/model/rulebook"
)

// Tests run the programs with BPF_PROG_TEST_RUN: nothing is attached and no frame leaves. The
// program needs interfaces all the same, because it asks for the one a frame came in on.

// chainShift and chainMask place the chain in the socket mark.
const (
	chainShift = 16
	chainMask  = 0x3ff
)

// fault is what the lab's methods need of testing.T and of rapid.T.
type fault interface {
	Helper()
	Fatalf(format string, args ...any)
}

// lab is the loaded programs with the links of the rulebook.
type lab struct {
	SsloObjects
	events  *ringbuf.Reader
	jobs    chan func()
	ifindex map[session.LinkID]int
	mac     map[session.LinkID][6]byte
}

func newLab(t testing.TB) *lab {
	t.Helper()
	testutil.RequireRoot(t)
	l := &lab{jobs: make(chan func()), ifindex: map[session.LinkID]int{}, mac: map[session.LinkID][6]byte{}}
	if err := LoadSsloObjects(&l.SsloObjects, nil); err != nil {
		t.Fatalf("load: %+v", err)
	}
	t.Cleanup(func() { l.SsloObjects.Close() })
	events, err := ringbuf.NewReader(l.Events)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { events.Close() })
	l.events = events
	l.enterNamespace(t)
	l.reset(t, rulebook.Lab())
	return l
}

// enterNamespace starts the thread that runs programs, in a network namespace of its own that
// ends with it.
func (l *lab) enterNamespace(t testing.TB) {
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread dies, and the namespace with it
		ready <- errors.Join(unix.Unshare(unix.CLONE_NEWNET), l.addLinks())
		for job := range l.jobs {
			job()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(l.jobs) })
}

// addLinks makes an interface for each link of the rulebook: both ends of a veth are one.
func (l *lab) addLinks() error {
	for id := rulebook.Front; id <= rulebook.Int; id += 2 {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = rulebook.LinkName(id)
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: rulebook.LinkName(id + 1)}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add %s: %w", attrs.Name, err)
		}
		if err := errors.Join(l.know(id), l.know(id+1)); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) know(id session.LinkID) error {
	link, err := netlink.LinkByName(rulebook.LinkName(id))
	if err != nil {
		return err
	}
	l.ifindex[id] = link.Attrs().Index
	l.mac[id] = [6]byte(link.Attrs().HardwareAddr)
	return nil
}

// reset forgets every session and count, and puts a topology into the maps.
func (l *lab) reset(t fault, top model.Topology) {
	t.Helper()
	empty[SsloFlowKey, SsloFlow](t, l.Flows)
	empty[uint64, SsloSession](t, l.Sessions)
	empty[SsloFlowKey, SsloExpectation](t, l.Expectations)
	empty[SsloLedgerKey, []SsloLedgerEntry](t, l.Ledger)
	for id := range uint32(16) {
		put(t, l.DeviceRuntime, id, SsloDeviceRuntime{})
		put(t, l.PoolCursor, id, uint32(0))
		put(t, l.Chains, id, SsloChain{})
		put(t, l.LinkControls, id, SsloControls{})
		put(t, l.LinkStats, id, make([]SsloLinkStats, ebpf.MustPossibleCPU()))
	}
	for id, ifindex := range l.ifindex {
		if err := l.LinkIds.Put(SsloLinkKey{Ifindex: uint32(ifindex)}, uint16(id)); err != nil {
			t.Fatalf("%v", err)
		}
	}
	l.drain(t)
	l.apply(t, top)
}

// apply puts a topology into the maps. The number 100 + id stands for the interface of a link.
func (l *lab) apply(t fault, top model.Topology) {
	t.Helper()
	put(t, l.Settings, 0, SsloSettings{
		HeartbeatNs: uint64(monotonic()), ChainShift: chainShift, ChainMask: chainMask,
		Front: uint16(top.Front), Back: uint16(top.Back),
	})
	for id, link := range top.Links {
		put(t, l.Links, uint32(id), SsloLink{
			Ifindex: uint32(l.ifindex[session.LinkID(max(0, link.Ifindex-100))]), Mac: l.mac[id], Role: uint8(link.Role),
			Vlan: uint16(link.VLAN), Controls: uint8(len(link.Controls)),
		})
		put(t, l.LinkControls, uint32(id), controlsValue(link.Controls))
	}
	for id, d := range top.Devices {
		put(t, l.Devices, uint32(id), deviceValue(d))
	}
	for id, p := range top.Pools {
		put(t, l.Pools, uint32(id), poolValue(p))
	}
	for id, pools := range top.Chains {
		c := SsloChain{Count: uint16(len(pools))}
		for i, p := range pools {
			c.Pools[i] = uint16(p)
		}
		c.TapCount = uint16(len(top.Taps[id]))
		for i, tap := range top.Taps[id] {
			c.Taps[i] = SsloChainTap{Before: uint16(tap.Before), Device: uint16(tap.Device)}
		}
		put(t, l.Chains, uint32(id), c)
	}
}

func deviceValue(d model.Device) SsloDevice {
	v := SsloDevice{InLink: uint16(d.In), OutLink: uint16(d.Out), Service: uint8(d.Service), Reason: uint8(d.Reason)}
	if d.Routed {
		v.Routed = 1
		for dir := range v.Next {
			v.Next[dir] = SsloNextHop{V4: [4]byte{10, 0, 0, 9}, V6: netip.MustParseAddr("fd00::9").As16()}
		}
	}
	return v
}

func controlsValue(rules []model.Control) (v SsloControls) {
	bits := func(p netip.Prefix) uint8 { return uint8(p.Bits() + 128 - p.Addr().BitLen()) }
	for i, c := range rules {
		v.Rules[i] = SsloControl{Src: c.Source.Addr().As16(), Dst: c.Destination.Addr().As16(), SrcBits: bits(c.Source),
			DstBits: bits(c.Destination), Proto: uint8(c.Protocol), PortFrom: c.From, PortTo: c.To}
	}
	return v
}

func poolValue(p model.Pool) SsloPool {
	v := SsloPool{
		Method: uint8(p.Method), OnDown: uint8(p.OnDown), Established: uint8(p.Established),
		Count: uint16(len(p.Members)), MinActive: uint16(p.MinActive),
	}
	if p.ReturnNow {
		v.ReturnNow = 1
	}
	for i, m := range p.Members {
		v.Devices[i].Device, v.Devices[i].Weight = uint16(m.Device), uint16(m.Weight)
	}
	return v
}

func put(t fault, m *ebpf.Map, key uint32, value any) {
	t.Helper()
	if err := m.Put(key, value); err != nil {
		t.Fatalf("%v %d: %v", m, key, err)
	}
}

// dump is the content of a map.
func dump[K comparable, V any](t fault, m *ebpf.Map) map[K]V {
	t.Helper()
	all := map[K]V{}
	var k K
	var v V
	it := m.Iterate()
	for it.Next(&k, &v) {
		all[k] = v
	}
	if err := it.Err(); err != nil {
		t.Fatalf("%v: %v", m, err)
	}
	return all
}

func empty[K comparable, V any](t fault, m *ebpf.Map) {
	t.Helper()
	for k := range dump[K, V](t, m) {
		if err := m.Delete(k); err != nil {
			t.Fatalf("%v: %v", m, err)
		}
	}
}

// drain is the events since the last time.
func (l *lab) drain(t fault) (all []SsloEvent) {
	t.Helper()
	l.events.SetDeadline(time.Unix(1, 0))
	for {
		record, err := l.events.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return all
		}
		if err != nil {
			t.Fatalf("events: %v", err)
		}
		all = append(all, eventOf(record.RawSample))
	}
}

// age makes the expectations older, as if time had passed.
func (l *lab) age(t fault, d time.Duration) {
	t.Helper()
	for k, e := range dump[SsloFlowKey, SsloExpectation](t, l.Expectations) {
		e.CreatedNs -= uint64(d)
		if err := l.Expectations.Put(k, e); err != nil {
			t.Fatalf("%v", err)
		}
	}
}

func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// skBuff is the context of a run (linux/bpf.h, struct __sk_buff): what is not named must be 0.
type skBuff struct {
	Len, PktType, Mark uint32
	_                  [7]uint32
	Ifindex, TcIndex   uint32
	Cb                 [5]uint32
	_                  [19]uint32
	_                  [48]byte
}

// result of a run.
type result struct {
	model.Outcome
	frame []byte
	mark  uint32
}

// run gives a frame to a program as if it had come in on a link.
func (l *lab) run(t fault, prog *ebpf.Program, link session.LinkID, mark uint32, frame []byte) result {
	t.Helper()
	in := skBuff{Mark: mark, Ifindex: uint32(l.ifindex[link])}
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Context: in, ContextOut: &skBuff{}}
	var err error
	done := make(chan struct{})
	l.jobs <- func() {
		defer close(done)
		_, err = prog.Run(&opts)
	}
	<-done
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	out := opts.ContextOut.(*skBuff)
	return result{
		Outcome: model.Outcome{
			Verdict: model.Verdict(out.Cb[0] & 0xff),
			Reason:  session.DropReason(out.Cb[0] >> 8),
			Out:     session.LinkID(out.Cb[1]),
			Copies:  out.Cb[2],
		},
		frame: opts.DataOut,
		mark:  out.Mark,
	}
}

func flowKey(k session.Key) SsloFlowKey {
	return SsloFlowKey{
		Src: k.Src.Addr().As16(), Dst: k.Dst.Addr().As16(), Link: uint16(k.Link), Proto: uint8(k.Proto),
		Sport: swap(k.Src.Port()), Dport: swap(k.Dst.Port()),
	}
}

func keyOf(k SsloFlowKey) session.Key {
	return session.Key{
		Tuple: session.Tuple{
			Proto: session.Protocol(k.Proto),
			Src:   netip.AddrPortFrom(netip.AddrFrom16(k.Src).Unmap(), swap(k.Sport)),
			Dst:   netip.AddrPortFrom(netip.AddrFrom16(k.Dst).Unmap(), swap(k.Dport)),
		},
		Link: session.LinkID(k.Link),
	}
}

// swap: ports in the maps are in network order.
func swap(p uint16) uint16 { return p<<8 | p>>8 }
