package datapath

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"sslo/bpf"
	"sslo/session"
)

// Events delivers what the session plane reports while Run runs. When its reader is slow the
// newest are lost, and counted in LostEvents.
func (d *Datapath) Events() <-chan Event { return d.events }

// LostEvents is the number of events that found no room.
func (d *Datapath) LostEvents() uint64 { return d.lostEvents.Load() }

// readEvents runs until ctx is done.
func (d *Datapath) readEvents(ctx context.Context, k *kernel) error {
	r, err := ringbuf.NewReader(k.SsloObjects.Events)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = r.Close() })()
	defer r.Close()
	var rec ringbuf.Record
	for {
		if err := r.ReadInto(&rec); errors.Is(err, ringbuf.ErrClosed) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		if raw := decodeEvent(rec.RawSample); raw != nil {
			d.handle(toEvent(raw, d.Names()))
		}
	}
}

// decodeEvent copies: the record is reused. A record of another size is not ours.
func decodeEvent(b []byte) *bpf.SsloEvent {
	var e bpf.SsloEvent
	if len(b) < int(unsafe.Sizeof(e)) {
		return nil
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)), b)
	return &e
}

func toEvent(e *bpf.SsloEvent, n Names) Event {
	return Event{Type: EventType(e.Type), Time: ns(e.TimeNs), Session: session.ID(e.Session), Root: session.ID(e.Root),
		Key: toKey(&e.Key), Chain: n.chains.name(e.Chain), Pool: n.pools.name(e.Pool), Device: n.devices.name(e.Device),
		Link: n.links.name(e.Link), Reason: session.BypassReason(e.Reason), Direction: session.Direction(e.Dir),
		link: e.Link, seq: e.Seq, ack: e.Ack, tcpFlags: e.TcpFlags}
}

func (d *Datapath) handle(e Event) {
	if e.Type == EventReset {
		if err := d.answerReset(e); err != nil {
			d.log.Warn("reset not sent", "session", e.Session, "link", e.Link, "err", err)
		}
	}
	d.publish(e)
}

func (d *Datapath) publish(e Event) {
	select {
	case d.events <- e:
	default:
		d.lostEvents.Add(1)
	}
}
