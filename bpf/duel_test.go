package bpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"sslo/chain"
	"sslo/session"
	"sslo/session/model"
	"sslo/session/model/rulebook"
)

// duel drives the model and the program with the same packets and holds them against each
// other after each: verdict, frame, sessions, flows, expectations, ledger, events, counters.
type duel struct {
	fault
	*lab
	m     *model.Model
	ids   map[uint64]session.ID // the program's id of a session -> the model's
	drops map[session.DropReason]uint64
}

func newDuel(t fault, l *lab) *duel {
	l.reset(t, rulebook.Lab())
	return &duel{fault: t, lab: l, m: model.New(rulebook.Lab()), ids: map[uint64]session.ID{0: 0}, drops: map[session.DropReason]uint64{}}
}

func (d *duel) change(c rulebook.Change) {
	c(&d.m.Topology)
	d.apply(d, d.m.Topology)
}

func (d *duel) wait(by time.Duration) {
	d.age(d, by)
	for k, e := range d.m.Expectations {
		e.Created -= by
		d.m.Expectations[k] = e
	}
}

// send gives a packet to both and returns the outcome they agree on.
func (d *duel) send(p model.Packet) model.Outcome {
	d.Helper()
	frame := frameOf(p)
	p.Bytes = ipLength(frame)
	want := d.m.Handle(monotonic(), p)
	got := d.run(d, d.SteerFrame, p.Link, uint32(p.Chain)<<chainShift, frame)
	want.Lookups = 0
	if got.Outcome != want {
		d.Fatalf("%v %+v on %s: the program says %s, the model %s",
			p.Tuple, p.TCP, rulebook.LinkName(p.Link), rulebook.Name(got.Outcome), rulebook.Name(want))
	}
	d.compareFrame(frame, got)
	d.compareTables()
	d.compareEvents()
	d.compareCounts(p, want)
	return want
}

// compareFrame: a forwarded frame differs in its MACs only, all others not at all.
func (d *duel) compareFrame(in []byte, got result) {
	d.Helper()
	want := slices.Clone(in)
	if got.Verdict == model.Forward && !d.routes(got.Out) {
		to, from := d.mac[d.destination(got.Out)], d.mac[got.Out]
		copy(want, append(to[:], from[:]...))
	}
	if !bytes.Equal(got.frame, want) {
		d.Fatalf("frame out\n%x\nwant\n%x", got.frame, want)
	}
	if got.Verdict == model.Forward && got.mark != 0 {
		d.Fatalf("forwarded with mark %#x", got.mark)
	}
}

// routes: a link leads to a routed device, and its frames are addressed later, by the kernel.
func (d *duel) routes(out session.LinkID) bool {
	for _, dev := range d.m.Devices {
		if dev.Routed && (dev.In == out || dev.Out == out) {
			return true
		}
	}
	return false
}

// destination is the link whose MAC a frame that leaves by a link must bear: for a device, its
// other link, because a bridge will hand it there.
func (d *duel) destination(out session.LinkID) session.LinkID {
	if other, ok := rulebook.Next(&d.m.Topology, out); ok {
		return other
	}
	return out
}

func (d *duel) compareTables() {
	d.Helper()
	sessions := dump[uint64, SsloSession](d, d.Sessions)
	for id, s := range sessions {
		d.ids[id] = d.m.Flows[keyOf(s.Orig)].Session
	}
	d.equal("sessions", d.theirSessions(sessions), d.ourSessions())
	d.equal("flows", d.theirFlows(), d.m.Flows)
	d.equal("expectations", d.theirExpectations(), d.ourExpectations())
	d.equal("ledger", d.theirLedger(), d.m.Ledger)
}

func (d *duel) equal(what string, got, want any) {
	d.Helper()
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b session.Tuple) bool { return a == b })); diff != "" {
		d.Fatalf("%s of the model (-) and the program (+) differ:\n%s", what, diff)
	}
}

func (d *duel) theirSessions(all map[uint64]SsloSession) map[session.ID]session.Session {
	got := map[session.ID]session.Session{}
	for _, s := range all {
		got[d.ids[s.Id]] = d.sessionOf(s)
	}
	return got
}

func (d *duel) sessionOf(s SsloSession) session.Session {
	out := session.Session{
		ID: d.ids[s.Id], Parent: d.ids[s.Parent], Child: d.ids[s.Child], Root: d.ids[s.Root],
		Orig: keyOf(s.Orig), Reply: keyOf(s.Reply),
		Chain: session.ChainID(s.Chain), Pool: session.PoolID(s.Pool),
		Device: session.DeviceID(s.Device), InDevice: session.DeviceID(s.InDevice),
		Position: int(s.Position), First: int(s.First),
		State: session.State(s.State), Flags: session.Flags(s.Flags), Bypass: session.BypassReason(s.Bypass),
		Taps: s.Taps, SynSeq: s.SynSeq, SynAckSeq: s.SynackSeq,
	}
	for dir, t := range s.Traffic {
		out.Packets[dir], out.Bytes[dir], out.NextSeq[dir], out.Acked[dir] = t.Packets, t.Bytes, t.NextSeq, t.Acked
		out.SkippedBytes += t.SkippedBytes
	}
	for _, reason := range s.Skipped {
		out.Skipped = append(out.Skipped, session.BypassReason(reason))
	}
	return out
}

// ourSessions is the model's, without times and with room for all pools in Skipped.
func (d *duel) ourSessions() map[session.ID]session.Session {
	want := map[session.ID]session.Session{}
	for id, s := range d.m.Sessions {
		c := *s
		c.Created, c.Seen, c.BypassedAt = 0, 0, 0
		c.Skipped = make([]session.BypassReason, chain.MaxPools)
		copy(c.Skipped, s.Skipped)
		want[id] = c
	}
	return want
}

func (d *duel) theirFlows() map[session.Key]model.Flow {
	got := map[session.Key]model.Flow{}
	for k, f := range dump[SsloFlowKey, SsloFlow](d, d.Flows) {
		got[keyOf(k)] = model.Flow{Session: d.ids[f.Session], Dir: session.Direction(f.Dir)}
	}
	return got
}

func (d *duel) theirExpectations() map[session.Key]session.ID {
	got := map[session.Key]session.ID{}
	for k, e := range dump[SsloFlowKey, SsloExpectation](d, d.Expectations) {
		got[keyOf(k)] = d.ids[e.Session]
	}
	return got
}

func (d *duel) ourExpectations() map[session.Key]session.ID {
	want := map[session.Key]session.ID{}
	for k, e := range d.m.Expectations {
		want[k] = e.Session
	}
	return want
}

func (d *duel) theirLedger() map[model.LedgerKey]model.LedgerEntry {
	got := map[model.LedgerKey]model.LedgerEntry{}
	for k, cpus := range dump[SsloLedgerKey, []SsloLedgerEntry](d, d.Ledger) {
		var sum model.LedgerEntry
		for _, e := range cpus {
			sum.Sessions += e.Sessions
			sum.Packets += e.Packets
			sum.Bytes += e.Bytes
		}
		got[model.LedgerKey{
			Chain: session.ChainID(k.Chain), Pool: session.PoolID(k.Pool),
			Device: session.DeviceID(k.Device), Reason: session.BypassReason(k.Reason),
		}] = sum
	}
	return got
}

func (d *duel) compareEvents() {
	d.Helper()
	var got []model.Event
	for _, e := range d.drain(d) {
		got = append(got, model.Event{
			Type: model.EventType(e.Type), Session: d.ids[e.Session], Key: keyOf(e.Key),
			Device: session.DeviceID(e.Device), Reason: session.BypassReason(e.Reason),
		})
	}
	d.equal("events", got, d.m.Events)
}

// compareCounts: a drop is counted once and under its reason, and the devices' sessions are.
func (d *duel) compareCounts(p model.Packet, out model.Outcome) {
	d.Helper()
	if out.Verdict == model.Drop {
		d.drops[out.Reason]++
	}
	got := map[session.DropReason]uint64{}
	for id := rulebook.Front; id <= rulebook.Int; id++ {
		for reason, n := range d.dropped(id) {
			got[reason] += n
		}
	}
	d.equal("drops", got, d.drops)
	for id := range d.m.Devices {
		var rt SsloDeviceRuntime
		if err := d.DeviceRuntime.Lookup(uint32(id), &rt); err != nil {
			d.Fatalf("%v", err)
		}
		if rt.Opened-rt.Closed != d.m.Active[id] {
			d.Fatalf("device %d: %d sessions opened, %d closed, want %d active", id, rt.Opened, rt.Closed, d.m.Active[id])
		}
	}
}

// dropped is what was dropped on a link, by reason.
func (l *lab) dropped(id session.LinkID) map[session.DropReason]uint64 {
	var cpus []SsloLinkStats
	if err := l.LinkStats.Lookup(uint32(id), &cpus); err != nil {
		panic(err)
	}
	sum := map[session.DropReason]uint64{}
	for _, c := range cpus {
		for reason, n := range c.Drops {
			if n.Packets > 0 {
				sum[session.DropReason(reason)] += n.Packets
			}
		}
	}
	return sum
}

func eventOf(raw []byte) (e SsloEvent) {
	if err := binary.Read(bytes.NewReader(raw), binary.NativeEndian, &e); err != nil {
		panic(fmt.Sprintf("event of %d bytes: %v", len(raw), err))
	}
	return e
}

// play runs the steps of a row on both.
func (d *duel) play(steps []rulebook.Step, as func(model.Packet) model.Packet) {
	d.Helper()
	for i, s := range steps {
		if s.Change != nil {
			d.change(s.Change)
		}
		if s.Wait > 0 {
			d.wait(s.Wait)
		}
		if s.Want == "" {
			continue
		}
		if got := rulebook.Name(d.send(as(s.Packet))); got != s.Want {
			d.Fatalf("step %d: %s, want %s", i, got, s.Want)
		}
	}
}

func asIs(p model.Packet) model.Packet { return p }

// families are the two ways to play a row.
var families = map[string]func(model.Packet) model.Packet{"ipv4": asIs, "ipv6": over6}

// rowName makes a name that -run can take.
func rowName(s string) string { return strings.ReplaceAll(s, " ", "-") }
