package datapath

import (
	"encoding/binary"
	"net/netip"
	"time"

	"sslo/bpf"
	"sslo/session"
)

// port reads a port in network order; the other way is the same.
func port(v uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], v)
	return binary.BigEndian.Uint16(b[:])
}

func toKey(k *bpf.SsloFlowKey) session.Key {
	return session.Key{
		Tuple: session.Tuple{
			Proto: session.Protocol(k.Proto),
			Src:   netip.AddrPortFrom(netip.AddrFrom16(k.Src).Unmap(), port(k.Sport)),
			Dst:   netip.AddrPortFrom(netip.AddrFrom16(k.Dst).Unmap(), port(k.Dport)),
		},
		Link: session.LinkID(k.Link),
	}
}

func fromKey(k session.Key) bpf.SsloFlowKey {
	return bpf.SsloFlowKey{Src: k.Src.Addr().As16(), Dst: k.Dst.Addr().As16(), Sport: port(k.Src.Port()),
		Dport: port(k.Dst.Port()), Link: uint16(k.Link), Proto: uint8(k.Proto)}
}

func ns(v uint64) time.Duration { return time.Duration(v) }

func toSession(s *bpf.SsloSession) session.Session {
	out := session.Session{
		ID: session.ID(s.Id), Parent: session.ID(s.Parent), Child: session.ID(s.Child), Root: session.ID(s.Root),
		Orig: toKey(&s.Orig), Reply: toKey(&s.Reply),
		Chain: session.ChainID(s.Chain), Pool: session.PoolID(s.Pool),
		Device: session.DeviceID(s.Device), InDevice: session.DeviceID(s.InDevice),
		Position: int(s.Position), First: int(s.First), State: session.State(s.State),
		Flags: session.Flags(s.Flags), Bypass: session.BypassReason(s.Bypass), Taps: s.Taps, Skipped: skipped(s),
		Created: ns(s.CreatedNs), Seen: ns(seen(s)), BypassedAt: ns(s.BypassedNs),
		SynSeq: s.SynSeq, SynAckSeq: s.SynackSeq,
	}
	for d := range s.Traffic {
		t := &s.Traffic[d]
		out.Packets[d], out.Bytes[d], out.NextSeq[d], out.Acked[d] = t.Packets, t.Bytes, t.NextSeq, t.Acked
		out.SkippedBytes += t.SkippedBytes
	}
	return out
}

// seen is when the last packet of either direction passed.
func seen(s *bpf.SsloSession) uint64 {
	return max(s.Traffic[0].SeenNs, s.Traffic[1].SeenNs, s.CreatedNs)
}

// skipped is nil when no pool was, which is the rule.
func skipped(s *bpf.SsloSession) []session.BypassReason {
	if s.Skipped == [len(s.Skipped)]uint8{} {
		return nil
	}
	out := make([]session.BypassReason, len(s.Skipped))
	for i, r := range s.Skipped {
		out[i] = session.BypassReason(r)
	}
	return out
}

func (c *Counter) add(o bpf.SsloCounter) {
	c.Packets += o.Packets
	c.Bytes += o.Bytes
}
