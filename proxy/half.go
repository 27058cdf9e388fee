package proxy

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"sslo/proxy/relay"
)

// side of a half.
type side uint8

const (
	sideClient side = iota
	sideInner
	sideServer
)

// drainTime is how long an end waits for what was received to be delivered before it resets.
const drainTime = 2 * time.Second

// half carries both directions between two legs of a flow: client and inner connection (front), inner
// connection and server (back), or client and server (collapsed).
type half struct {
	f         *flow
	near, far relay.Stream
	nearSide  side
	farSide   side
	broken    atomic.Bool // one leg failed and the flow ends by reset once everything is delivered
}

// run returns when both directions have ended and the legs are closed.
func (h *half) run(up, down *atomic.Uint64) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.direction(relay.Pump(h.near, h.far, h.f.p.bufs, down), h.farSide, h.nearSide, h.near, &h.f.dnEnd)
	}()
	h.direction(relay.Pump(h.far, h.near, h.f.p.bufs, up), h.nearSide, h.farSide, h.far, &h.f.upEnd)
	<-done
	if h.broken.Load() {
		h.resetAfterDelivery()
		return
	}
	_ = h.near.Close()
	_ = h.far.Close()
}

// other is how the opposite direction ended.
func (h *half) other(mark *atomic.Uint32) uint32 {
	if mark == &h.f.upEnd {
		return h.f.dnEnd.Load()
	}
	return h.f.upEnd.Load()
}

// direction passes the end of one direction on; see the package's table.
func (h *half) direction(e relay.End, from, to side, sink relay.Stream, mark *atomic.Uint32) {
	switch {
	case e.Sink:
		h.failed(to, e.Err)
		return
	case e.Err != nil && !errors.Is(e.Err, relay.ErrTruncated):
		h.failed(from, e.Err)
		h.unblock(sink)
		return
	}
	how := mark.Load()
	switch {
	case from != sideInner:
		if how = endInOrder; e.Err != nil {
			how = endCut
		}
		mark.Store(how)
	case how == endOpen:
		if h.f.ended() == ReasonNone && sink != h.near {
			h.f.abort(ReasonDeviceClosed, errDeviceClosed)
			return
		}
		h.f.end(ReasonDeviceClosed, errDeviceClosed) // unless the other half has said why
		h.broken.Store(true)
		h.unblock(sink)
		return
	}
	// A peer that had ended its own direction may be gone altogether by now: nothing is lost.
	if err := sink.CloseWrite(how == endInOrder); err != nil && h.other(mark) == endOpen {
		h.failed(to, err)
		return
	}
	h.f.stage("half-closed")
}

// unblock ends the direction towards the far leg when the one from it broke: it may wait for ever.
func (h *half) unblock(sink relay.Stream) {
	if sink == h.near && h.broken.Load() {
		h.resetAfterDelivery()
	}
}

// failed decides how a broken leg ends the flow. A client that is gone, or a device that resets, ends it at
// once; what a server sent before it failed is delivered first.
func (h *half) failed(s side, err error) {
	switch s {
	case sideClient:
		h.f.abort(ReasonClientReset, err)
	case sideServer:
		h.f.end(ReasonServerReset, err)
		h.broken.Store(true)
	case sideInner:
		if h.f.ended() == ReasonNone {
			h.f.abort(ReasonInnerReset, fmt.Errorf("inner connection: %w", err))
			return
		}
		h.broken.Store(true) // the other half's doing, and it has said why
	}
}

// resetAfterDelivery resets both legs once the near one has acknowledged everything, or will not.
func (h *half) resetAfterDelivery() {
	pause := time.Millisecond
	for end := time.Now().Add(drainTime); h.near.Unsent() > 0 && time.Now().Before(end) && !h.f.isAborted(); {
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
	h.near.Reset()
	h.far.Reset()
}
