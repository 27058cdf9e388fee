// Package device is an inline security device in user space: two NICs, a frame that comes in by
// one leaves by the other, and in between whatever such devices do in the field, good or bad. It
// reads the TCP stream and resets a connection that carries its signature, and it can be told to
// drop, delay, hang, reflect, flood or answer by itself. It knows nothing of the box it is cabled to.
package device

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Mode is what the device does with frames.
type Mode string

const (
	Forward         Mode = "forward"          // everything passes, unread
	InspectMode     Mode = "inspect"          // pass, but reset a connection that carries the signature
	Drop            Mode = "drop"             // pass, but swallow a connection that carries the signature
	DelayMode       Mode = "delay"            // everything passes later
	Blackhole       Mode = "blackhole"        // nothing passes, probes neither; links stay up
	BlackholeData   Mode = "blackhole-data"   // IP is dropped, anything else (probes) passes
	BlackholeOrig   Mode = "blackhole-orig"   // nothing passes from in to out
	BlackholeReply  Mode = "blackhole-reply"  // nothing passes from out to in
	RewriteSequence Mode = "rewrite-sequence" // TCP sequence numbers differ on both sides
	Hang            Mode = "hang"             // frames are not even read
	Reflect         Mode = "reflect"          // every frame goes back where it came from
	Flood           Mode = "flood"            // every frame passes several times, and goes back as often
	Answer          Mode = "answer"           // TCP is answered here, with a block page
	ResetAll        Mode = "reset"            // every TCP packet is answered with RST to both sides
	SwallowSYN      Mode = "swallow-syn"      // connection attempts vanish, the rest passes
)

// Modes lists them all.
var Modes = []Mode{Forward, InspectMode, Drop, DelayMode, Blackhole, BlackholeData, BlackholeOrig, BlackholeReply,
	RewriteSequence, Hang, Reflect, Flood, Answer, ResetAll, SwallowSYN}

// ErrMode is returned for a mode that does not exist.
var ErrMode = errors.New("no such mode")

// Options of a device; zero values are usable but for the NICs.
type Options struct {
	In, Out   string        // NICs, towards the client and towards the server
	Mode      Mode          // Forward if empty
	Signature string        // what InspectMode and Drop look for; DefaultSignature if empty
	Offload   bool          // take and give unsegmented frames with unfilled checksums, as a kernel does
	Strict    bool          // drop TCP packets of connections whose SYN was not seen
	Delay     time.Duration // of DelayMode; 20 ms if 0
	Copies    int           // of Flood; 4 if 0
	Logger    *slog.Logger
}

// DefaultSignature is an old path traversal.
const DefaultSignature = "../../etc/passwd"

// Side of the device where a frame came in.
type side int

const (
	sideIn  side = iota // from the client
	sideOut             // from the server
)

func (s side) other() side { return 1 - s }

// Device forwards frames between two NICs until it is closed.
type Device struct {
	opts      Options
	ports     [2]*port
	mode      atomic.Pointer[Mode]
	since     atomic.Int64 // Unix nanoseconds of the last change of mode
	stopped   atomic.Bool
	receivers sync.WaitGroup
	delayers  sync.WaitGroup
	inspect   *inspector
	delayed   [2]chan delayedFrame
	counters  counters
}

// Open starts a device on two NICs of the calling thread's network namespace.
func Open(opts Options) (*Device, error) {
	opts = opts.withDefaults()
	if !valid(opts.Mode) {
		return nil, fmt.Errorf("%w: %q", ErrMode, opts.Mode)
	}
	d := &Device{opts: opts, inspect: newInspector([]byte(opts.Signature), opts.Strict)}
	for s, nic := range []string{opts.In, opts.Out} {
		p, err := openPort(nic, opts.Offload)
		if err != nil {
			d.closePorts()
			return nil, err
		}
		d.ports[s] = p
	}
	d.setMode(opts.Mode)
	for s := range d.ports {
		d.delayed[s] = make(chan delayedFrame, 1<<14)
		d.receivers.Go(func() { d.forward(side(s)) })
		d.delayers.Go(func() { d.sendDelayed(side(s)) })
	}
	return d, nil
}

func (o Options) withDefaults() Options {
	if o.Mode == "" {
		o.Mode = Forward
	}
	if o.Signature == "" {
		o.Signature = DefaultSignature
	}
	if o.Delay == 0 {
		o.Delay = 20 * time.Millisecond
	}
	if o.Copies == 0 {
		o.Copies = 4
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Mode is the present one.
func (d *Device) Mode() Mode { return *d.mode.Load() }

// SetMode changes what happens to the next frame.
func (d *Device) SetMode(m Mode) error {
	if !valid(m) {
		return fmt.Errorf("%w: %q", ErrMode, m)
	}
	d.opts.Logger.Info("mode changed", "device", d.opts.In, "mode", m)
	d.setMode(m)
	return nil
}

func (d *Device) setMode(m Mode) {
	d.mode.Store(&m)
	d.since.Store(time.Now().UnixNano())
}

func valid(m Mode) bool {
	for _, known := range Modes {
		if m == known {
			return true
		}
	}
	return false
}

// Close stops forwarding.
func (d *Device) Close() error {
	if d.stopped.Swap(true) {
		return nil
	}
	d.receivers.Wait()
	for _, c := range d.delayed {
		close(c)
	}
	d.delayers.Wait()
	d.closePorts()
	return nil
}

func (d *Device) closePorts() {
	for _, p := range d.ports {
		if p != nil {
			p.close()
		}
	}
}

// forward is the loop of one side.
func (d *Device) forward(from side) {
	rx := newReceiver(d.ports[from])
	tx := &sender{d: d, batches: [2]batch{newBatch(d.ports[sideIn]), newBatch(d.ports[sideOut])}}
	for !d.stopped.Load() {
		frames, err := rx.receive()
		if err != nil {
			d.opts.Logger.Warn("receive failed", "device", d.ports[from].nic, "err", err)
			time.Sleep(10 * time.Millisecond) // the NIC may be down for now
			continue
		}
		mode := d.working()
		for _, f := range frames {
			d.counters.received[from].add(len(f.eth))
			d.handle(mode, from, f, tx)
		}
		tx.flush()
	}
}

// working is the mode after receiving, so that no frame is handled as an earlier mode would. It
// returns only when the device does not hang.
func (d *Device) working() Mode {
	for d.Mode() == Hang && !d.stopped.Load() {
		time.Sleep(2 * time.Millisecond)
	}
	return d.Mode()
}

type delayedFrame struct {
	due time.Time
	raw []byte
}

// sendDelayed sends what DelayMode has kept, in order.
func (d *Device) sendDelayed(to side) {
	b := newBatch(d.ports[to])
	for f := range d.delayed[to] {
		time.Sleep(time.Until(f.due))
		b.add(f.raw)
		d.counters.sent[to].add(len(f.raw))
		b.flush()
	}
}
