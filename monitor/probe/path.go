package probe

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"sslo/monitor"
)

// EtherType of path probes: IEEE 802 local experimental. The session plane lets it through.
const EtherType = layers.EthernetType(0x88B5)

// Path probes a device by frames from its in NIC to its out NIC and back, each addressed to the
// other NIC, so that learning bridges pass them. Both directions must work.
type Path struct {
	ends   [2]*nic // in, out
	vlans  [2]int  // of the ends; 0: untagged
	target uint64  // tells our frames from those of others
	close  sync.Once

	mu      sync.Mutex
	pending map[uint64]*attempt // by nonce
}

// direction of a frame: the index of the end that sends it.
type direction int

var directionNames = [2]string{"in→out", "out→in"}

// attempt is one probe: a frame each way.
type attempt struct {
	arrived   [2]time.Time // by direction
	reflected [2]bool      // came back to the NIC it was sent by
	done      chan struct{}
}

// Open is part of Spec.
func (s PathSpec) Open() (Prober, error) {
	p, err := OpenPath(s.In, s.Out)
	if err != nil {
		return nil, err
	}
	p.vlans = [2]int{s.InVLAN, s.OutVLAN}
	return p, nil
}

func (s PathSpec) String() string {
	return "path " + nicName(s.In, s.InVLAN) + "↔" + nicName(s.Out, s.OutVLAN)
}

func nicName(nic string, vlan int) string {
	if vlan == 0 {
		return nic
	}
	return fmt.Sprintf("%s.%d", nic, vlan)
}

// OpenPath opens the sockets and begins to listen. The NICs need not be there yet, and may go
// and come back.
func OpenPath(in, out string) (*Path, error) {
	h := fnv.New64a()
	fmt.Fprint(h, in, "\x00", out, "\x00", rand.Uint64())
	p := &Path{target: h.Sum64(), pending: map[uint64]*attempt{}}
	for i, name := range []string{in, out} {
		n, err := openNIC(name, EtherType)
		if err != nil {
			p.Close()
			return nil, err
		}
		p.ends[i] = n
	}
	for i := range p.ends {
		go p.ends[i].receive(func(frame []byte) { p.receive(i, frame, time.Now()) })
	}
	return p, nil
}

// Close is part of Prober.
func (p *Path) Close() error {
	var err error
	p.close.Do(func() {
		for _, n := range p.ends {
			if n == nil {
				continue
			}
			if e := n.Close(); e != nil {
				err = e
			}
		}
	})
	return err
}

// Probe is part of Prober.
func (p *Path) Probe(ctx context.Context) monitor.Result {
	r := monitor.Result{Started: time.Now()}
	for _, n := range p.ends {
		if err := n.refresh(); err != nil {
			r.Reason = err.Error()
			return r
		}
	}
	nonce := rand.Uint64()
	a := p.expect(nonce)
	defer p.forget(nonce)
	for d := range p.ends {
		if err := p.send(direction(d), nonce); err != nil {
			r.Reason = err.Error()
			return r
		}
	}
	select {
	case <-a.done:
	case <-ctx.Done():
		p.drain() // the answer may be here already, and the reader late on a busy box
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return a.verdict(r)
}

func (p *Path) expect(nonce uint64) *attempt {
	a := &attempt{done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending[nonce] = a
	return a
}

func (p *Path) forget(nonce uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pending, nonce)
}

// verdict: both directions arrived, or which did not. Latency is the way there and back.
func (a *attempt) verdict(r monitor.Result) monitor.Result {
	for d, at := range a.arrived {
		if a.reflected[d] {
			r.Reason += fmt.Sprintf("%s reflected to its sender, ", directionNames[d])
		}
		if at.IsZero() {
			r.Reason += fmt.Sprintf("%s lost, ", directionNames[d])
			continue
		}
		r.Latency += at.Sub(r.Started)
	}
	r.OK = !a.arrived[0].IsZero() && !a.arrived[1].IsZero()
	if len(r.Reason) > 0 {
		r.Reason = r.Reason[:len(r.Reason)-2]
	}
	return r
}

// drain takes what the sockets hold without waiting.
func (p *Path) drain() {
	for i, n := range p.ends {
		n.drain(func(frame []byte) { p.receive(i, frame, time.Now()) })
	}
}

// The frame after its Ethernet header: magic, direction, target, nonce; padded to the least length.
const (
	magic     = "SSLOPATH"
	frameSize = 60
)

func (p *Path) send(d direction, nonce uint64) error {
	body := make([]byte, frameSize-14)
	copy(body, magic)
	body[8] = byte(d)
	binary.BigEndian.PutUint64(body[9:], p.target)
	binary.BigEndian.PutUint64(body[17:], nonce)
	from, to := p.ends[d], p.ends[1-d]
	frame, err := frameOf(from.hardwareAddr(), to.hardwareAddr(), p.vlans[d], EtherType, body)
	if err != nil {
		return err
	}
	return from.send(frame)
}

// frameOf is an Ethernet frame, with a tag unless the VLAN is 0.
func frameOf(from, to net.HardwareAddr, vlan int, proto layers.EthernetType, body []byte) ([]byte, error) {
	eth := &layers.Ethernet{SrcMAC: from, DstMAC: to, EthernetType: proto}
	frame := []gopacket.SerializableLayer{eth, gopacket.Payload(body)}
	if vlan != 0 {
		eth.EthernetType = layers.EthernetTypeDot1Q
		frame = slices.Insert(frame, 1, gopacket.SerializableLayer(&layers.Dot1Q{VLANIdentifier: uint16(vlan), Type: proto}))
	}
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{}, frame...)
	return buf.Bytes(), err
}

// receive takes a frame that came in at an end.
func (p *Path) receive(end int, frame []byte, at time.Time) {
	var eth layers.Ethernet
	if eth.DecodeFromBytes(frame, gopacket.NilDecodeFeedback) != nil {
		return
	}
	body := eth.Payload
	if len(body) < 25 || string(body[:8]) != magic || body[8] > 1 || binary.BigEndian.Uint64(body[9:]) != p.target {
		return
	}
	d := int(body[8])
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.pending[binary.BigEndian.Uint64(body[17:])]
	switch {
	case a == nil: // too late
	case end == d:
		a.reflected[d] = true
	case a.arrived[d].IsZero():
		a.arrived[d] = at
		if !a.arrived[1-d].IsZero() {
			close(a.done)
		}
	}
}
