package device

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"time"

	"github.com/google/gopacket/layers"
)

// sender collects what one side's loop sends until the batch of received frames is done.
type sender struct {
	d       *Device
	batches [2]batch
}

func (s *sender) send(to side, raw []byte) {
	s.d.counters.sent[to].add(len(raw))
	s.batches[to].add(raw)
}

func (s *sender) flush() {
	for i := range s.batches {
		b := &s.batches[i]
		b.flush()
		s.d.counters.lost.Add(b.lost)
		b.lost = 0
	}
}

// handle does with one frame what the mode says.
func (d *Device) handle(mode Mode, from side, f frame, tx *sender) {
	to := from.other()
	if f.oversize {
		d.counters.oversize.Add(1)
		return
	}
	switch mode {
	case Forward:
		tx.send(to, f.raw)
	case Blackhole:
		d.counters.dropped.Add(1)
	case BlackholeOrig, BlackholeReply:
		d.pass((from == sideIn) != (mode == BlackholeOrig), to, f, tx)
	case BlackholeData:
		d.pass(!isIP(f), to, f, tx)
	case DelayMode:
		d.delay(to, f)
	case Reflect:
		tx.send(from, f.raw)
	case Flood:
		for range d.opts.Copies {
			tx.send(to, f.raw)
			tx.send(from, f.raw)
		}
	default:
		d.handleTCP(mode, from, f, tx)
	}
}

// pass forwards a frame or counts it as dropped.
func (d *Device) pass(ok bool, to side, f frame, tx *sender) {
	if !ok {
		d.counters.dropped.Add(1)
		return
	}
	tx.send(to, f.raw)
}

// handleTCP has the modes that look at TCP; everything else passes.
func (d *Device) handleTCP(mode Mode, from side, f frame, tx *sender) {
	p, ok := parse(f)
	if !ok {
		tx.send(from.other(), f.raw)
		return
	}
	switch mode {
	case InspectMode, Drop:
		d.inspectTCP(mode, from, &p, tx)
	case RewriteSequence:
		rewrite(&p, from)
		tx.send(from.other(), f.raw)
	case Answer:
		d.answer(from, &p, tx)
	case ResetAll:
		d.reset(from, &p, p.seq(), p.ack(), tx)
	case SwallowSYN:
		d.pass(!p.has(tcpSYN) || p.has(tcpACK), from.other(), f, tx)
	}
}

func (d *Device) inspectTCP(mode Mode, from side, p *packet, tx *sender) {
	if !p.checksumOK() {
		d.counters.badChecksum.Add(1)
		d.counters.dropped.Add(1)
		return
	}
	found := d.inspect.look(p, from, time.Now())
	if from == sideIn {
		if line, ok := requestLine(p.payload()); ok {
			d.counters.observe(Observation{time.Now(), p.src, p.dst, line, found.blocked})
		}
	}
	switch {
	case found.match:
		d.counters.matches.Add(1)
		d.opts.Logger.Info("signature found", "client", p.connection(from).client, "server", p.connection(from).server)
		fallthrough
	case found.blocked:
		d.counters.dropped.Add(1)
		if mode == InspectMode {
			d.reset(from, p, found.onward, found.back, tx)
		}
	default:
		d.pass(!found.unknown, from.other(), p.frame, tx)
	}
}

// reset sends RST to both ends: onward is the number that the packet's receiver expects next, backward its sender.
func (d *Device) reset(from side, p *packet, onwardSeq, backSeq uint32, tx *sender) {
	if p.has(tcpRST) {
		return
	}
	if p.has(tcpSYN) && !p.has(tcpACK) {
		d.sendTCP(from, back, p, layers.TCP{RST: true, ACK: true, Ack: p.seq() + 1}, nil, tx)
		return
	}
	d.sendTCP(from, back, p, layers.TCP{RST: true, ACK: true, Seq: backSeq, Ack: p.seq() + p.length()}, nil, tx)
	d.sendTCP(from, onward, p, layers.TCP{RST: true, ACK: true, Seq: onwardSeq, Ack: p.ack()}, nil, tx)
	d.counters.resets.Add(1)
}

func (d *Device) sendTCP(from side, to heading, p *packet, tcp layers.TCP, payload []byte, tx *sender) {
	eth, err := p.craft(to, tcp, payload)
	if err != nil {
		d.opts.Logger.Warn("can not craft a packet", "err", err)
		return
	}
	out := from.other()
	if to == back {
		out = from
	}
	tx.send(out, d.ports[out].crafted(bytes.Clone(eth)))
}

const blockPage = "HTTP/1.1 403 Forbidden\r\nContent-Length: 8\r\nConnection: close\r\n\r\nblocked\n"

// answer plays the server towards the client and keeps the server out of it.
func (d *Device) answer(from side, p *packet, tx *sender) {
	d.counters.dropped.Add(1)
	if from != sideIn || p.has(tcpRST) {
		return
	}
	const isn = 1000
	switch {
	case p.has(tcpSYN):
		d.sendTCP(from, back, p, layers.TCP{SYN: true, ACK: true, Seq: isn, Ack: p.seq() + 1, Window: 64240}, nil, tx)
	case len(p.payload()) > 0:
		reply := layers.TCP{ACK: true, PSH: true, FIN: true, Seq: isn + 1, Ack: p.seq() + p.length(), Window: 64240}
		d.sendTCP(from, back, p, reply, []byte(blockPage), tx)
	case p.has(tcpFIN):
		d.sendTCP(from, back, p, layers.TCP{ACK: true, Seq: p.ack(), Ack: p.seq() + 1, Window: 64240}, nil, tx)
	}
}

func (d *Device) delay(to side, f frame) {
	select {
	case d.delayed[to] <- delayedFrame{time.Now().Add(d.opts.Delay), bytes.Clone(f.raw)}:
	default:
		d.counters.dropped.Add(1)
	}
}

func isIP(f frame) bool {
	t := be16(f.eth[12:])
	return t == 0x0800 || t == 0x86DD
}

var offsetSeed = maphash.MakeSeed()

// rewrite moves the client's sequence numbers by an offset of the connection, as a firewall
// that randomises initial numbers does.
func rewrite(p *packet, from side) {
	offset := uint32(maphash.Comparable(offsetSeed, p.connection(from))) | 1
	h := p.eth[p.tcp:p.end]
	if from == sideIn {
		binary.BigEndian.PutUint32(h[4:], p.seq()+offset)
	} else if p.has(tcpACK) {
		binary.BigEndian.PutUint32(h[8:], p.ack()-offset)
		rewriteSACK(h[20:p.data-p.tcp], -offset)
	}
	p.fixChecksum()
}

// rewriteSACK moves the edges of selective acknowledgements.
func rewriteSACK(options []byte, offset uint32) {
	for len(options) > 1 && options[0] != 0 {
		if options[0] == 1 { // padding
			options = options[1:]
			continue
		}
		size := int(options[1])
		if size < 2 || size > len(options) {
			return
		}
		if options[0] == 5 {
			for at := 2; at+4 <= size; at += 4 {
				binary.BigEndian.PutUint32(options[at:], be32(options[at:])+offset)
			}
		}
		options = options[size:]
	}
}
