package session

// TCPFlags are the flags of a TCP header (RFC 9293, 3.1).
type TCPFlags uint8

const (
	FIN TCPFlags = 1 << iota
	SYN
	RST
	PSH
	ACK
)

// Has says whether all of want are set.
func (f TCPFlags) Has(want TCPFlags) bool { return f&want == want }

// Opens says whether the flags are those of a connection's first packet.
func (f TCPFlags) Opens() bool { return f&(FIN|SYN|RST|ACK) == SYN }

// Segment is what a session remembers of a TCP packet.
type Segment struct {
	Flags   TCPFlags
	Seq     uint32
	Payload uint32
	Ack     uint32 // with ACK
}

// Next is the sequence number after the segment's last byte: SYN and FIN count as one each.
func (g Segment) Next() uint32 {
	n := g.Seq + g.Payload
	if g.Flags.Has(SYN) {
		n++
	}
	if g.Flags.Has(FIN) {
		n++
	}
	return n
}

// Track moves the TCP state of s by a segment and says whether that ended the connection.
func (s *Session) Track(g Segment, dir Direction) (ended bool) {
	s.advance(g, dir)
	s.acknowledge(g, dir)
	before := s.State
	if before == Closed {
		return false
	}
	switch f := g.Flags; {
	case f.Has(RST):
		s.State = Closed
	case f.Has(FIN):
		s.fin(dir)
	case before == SynSent && dir == Reply && f.Has(SYN|ACK):
		s.State, s.SynAckSeq = SynReceived, g.Seq
	case before == SynReceived && dir == Orig && f.Has(ACK):
		s.State = Established
	}
	return before < Closing && s.State >= Closing
}

// advance remembers the end of what was sent. It never goes back: a reset with the number of a
// retransmission would be ignored by the peer.
func (s *Session) advance(g Segment, dir Direction) {
	next := g.Next()
	if g.Flags.Has(SYN) || int32(next-s.NextSeq[dir]) > 0 {
		s.NextSeq[dir] = next
	}
}

// acknowledge remembers what the other side need not send again. Old acknowledgements come late.
func (s *Session) acknowledge(g Segment, dir Direction) {
	if g.Flags.Has(ACK) && (s.Acked[dir] == 0 || int32(g.Ack-s.Acked[dir]) > 0) {
		s.Acked[dir] = g.Ack
	}
}

func (s *Session) fin(dir Direction) {
	s.Flags |= FinOrig << dir
	s.State = HalfClosed
	if s.Flags&(FinOrig|FinReply) == FinOrig|FinReply {
		s.State = Closing
	}
}

// Retransmits says whether a SYN is the session's own first packet once more, and not a new
// connection that reuses its tuple.
func (s *Session) Retransmits(g Segment) bool {
	return (s.State == SynSent || s.State == SynReceived) && s.SynSeq == g.Seq
}
