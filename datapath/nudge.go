package datapath

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"sslo/bpf"
	"sslo/session"
)

// A stream whose packets a dead device has swallowed waits for TCP's retransmission timer, which has
// doubled with every try while nobody knew, so that it stands still for up to twice the time that it
// took to find out. An ICMP error about the oldest byte that is not acknowledged takes one doubling
// back, and retransmits at once when that makes the timer overdue (RFC 6069). So when a device goes
// out of service, the senders of the streams through it, our own sockets, are told so as many times
// as the timer may have doubled.
const nudges = 8 // 20 ms doubled so often are five seconds

// again is when those are told once more that still wait: a socket that is being written to hears nothing.
var again = []time.Duration{10 * time.Millisecond, 30 * time.Millisecond, 90 * time.Millisecond}

// stalled is a sender that waits for an acknowledgement.
type stalled struct {
	id    uint64        // of the leg next to it
	link  uint16        // it is behind: front or back
	tuple session.Tuple // of what it sends
	seq   uint32        // the oldest byte that is not acknowledged
}

func (d *Datapath) nudgeAll(ctx context.Context, k *kernel, senders []stalled) error {
	err := d.nudge(senders)
	for _, pause := range again {
		if err != nil || len(senders) == 0 || ctx.Err() != nil {
			break
		}
		sleep(ctx, pause)
		senders = slices.DeleteFunc(senders, k.goesOn)
		err = d.nudge(senders)
	}
	return err
}

// goesOn says that a sender got its acknowledgement since, or is gone.
func (k *kernel) goesOn(w stalled) bool {
	var s bpf.SsloSession
	return k.SsloObjects.Sessions.Lookup(w.id, &s) != nil || !slices.Contains(owing(&s), w)
}

// nudge tells everybody once before it tells anybody twice.
func (d *Datapath) nudge(senders []stalled) error {
	if len(senders) == 0 {
		return nil
	}
	frames, err := d.nudgeFrames(senders)
	if err != nil {
		return err
	}
	for range nudges {
		for _, f := range frames {
			if err := d.host.send(f.ifindex, f.bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// owing gives the senders next to a leg that wait: front's socket at the first, back's at the last.
func owing(s *bpf.SsloSession) (list []stalled) {
	if session.Protocol(s.Orig.Proto) != session.TCP || s.State < uint8(session.Established) || s.State >= uint8(session.Closed) {
		return nil // an ICMP error ends an attempt to connect
	}
	orig, reply := &s.Traffic[session.Orig], &s.Traffic[session.Reply]
	if s.Orig.Link == frontID && orig.NextSeq != reply.Acked {
		list = append(list, stalled{s.Id, frontID, toKey(&s.Orig).Tuple, reply.Acked})
	}
	if s.Reply.Link == backID && reply.NextSeq != orig.Acked {
		list = append(list, stalled{s.Id, backID, toKey(&s.Reply).Tuple, orig.Acked})
	}
	return list
}

type outgoing struct {
	ifindex int
	bytes   []byte
}

func (d *Datapath) nudgeFrames(senders []stalled) ([]outgoing, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	type way struct {
		ifindex  int
		src, dst net.HardwareAddr
	}
	ways := map[uint16]way{}
	for _, id := range []uint16{frontID, backID} {
		nic, dst, err := d.towards(id, senders[0].tuple.Src.Addr())
		if err != nil {
			return nil, err
		}
		ways[id] = way{nic.Attrs().Index, nic.Attrs().HardwareAddr, dst}
	}
	frames := make([]outgoing, 0, len(senders))
	var errs []error
	for _, s := range senders {
		w := ways[s.link]
		f, err := s.frame(w.src, w.dst)
		frames, errs = append(frames, outgoing{w.ifindex, f}), append(errs, err)
	}
	return frames, errors.Join(errs...)
}

const ethernetHeader = 14

// frame says that the destination of the sender's oldest byte could not be reached.
func (s stalled) frame(src, dst net.HardwareAddr) ([]byte, error) {
	quoted, err := rst{tuple: s.tuple, seq: s.seq}.frame(src, dst) // which flags it has nobody looks at
	if err != nil {
		return nil, err
	}
	quoted = quoted[ethernetHeader:]
	eth := &layers.Ethernet{SrcMAC: src, DstMAC: dst, EthernetType: layers.EthernetTypeIPv4}
	from, to := s.tuple.Dst.Addr(), s.tuple.Src.Addr()
	if from.Is4() {
		return serialize(eth, &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolICMPv4, SrcIP: from.AsSlice(), DstIP: to.AsSlice()},
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeHost)},
			gopacket.Payload(quoted))
	}
	eth.EthernetType = layers.EthernetTypeIPv6
	ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolICMPv6, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeDestinationUnreachable, layers.ICMPv6CodeNoRouteToDst)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	return serialize(eth, ip, icmp, gopacket.Payload(append(make([]byte, 4), quoted...)))
}
