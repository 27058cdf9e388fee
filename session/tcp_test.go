package session

import "testing"

type segment struct {
	dir   Direction
	flags TCPFlags
	seq   uint32
}

var (
	syn      = segment{Orig, SYN, 100}
	synAck   = segment{Reply, SYN | ACK, 500}
	ack      = segment{Orig, ACK, 101}
	finOrig  = segment{Orig, FIN | ACK, 101}
	finReply = segment{Reply, FIN | ACK, 501}
	rst      = segment{Reply, RST, 501}
)

func TestTrack(t *testing.T) {
	tests := []struct {
		name     string
		segments []segment
		want     State
	}{
		{"syn", []segment{syn}, SynSent},
		{"syn twice", []segment{syn, syn}, SynSent},
		{"answered", []segment{syn, synAck}, SynReceived},
		{"a syn-ack from the client answers nothing", []segment{syn, {Orig, SYN | ACK, 1}}, SynSent},
		{"an ack before the answer establishes nothing", []segment{syn, ack}, SynSent},
		{"an ack of the server establishes nothing", []segment{syn, synAck, {Reply, ACK, 501}}, SynReceived},
		{"established", []segment{syn, synAck, ack}, Established},
		{"a late syn-ack changes nothing", []segment{syn, synAck, ack, synAck}, Established},
		{"client closes", []segment{syn, synAck, ack, finOrig}, HalfClosed},
		{"server closes", []segment{syn, synAck, ack, finReply}, HalfClosed},
		{"one side closes twice", []segment{syn, synAck, ack, finReply, finReply}, HalfClosed},
		{"both close", []segment{syn, synAck, ack, finReply, finOrig}, Closing},
		{"the last ack", []segment{syn, synAck, ack, finReply, finOrig, ack}, Closing},
		{"reset", []segment{syn, synAck, ack, rst}, Closed},
		{"refused", []segment{syn, rst}, Closed},
		{"a fin after a reset", []segment{syn, rst, finOrig}, Closed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := Session{State: SynSent, SynSeq: syn.seq}
			for _, g := range tt.segments {
				s.Track(Segment{Flags: g.flags, Seq: g.seq}, g.dir)
			}
			if s.State != tt.want {
				t.Errorf("state %v, want %v", s.State, tt.want)
			}
		})
	}
}

func TestTrackTellsTheEndOnce(t *testing.T) {
	var s Session
	ends := 0
	for _, g := range []segment{syn, synAck, ack, finOrig, finReply, finReply, rst} {
		if s.Track(Segment{Flags: g.flags, Seq: g.seq}, g.dir) {
			ends++
		}
	}
	if ends != 1 {
		t.Errorf("told the end %d times", ends)
	}
}

func TestNextSeqNeverGoesBack(t *testing.T) {
	s := Session{State: SynSent}
	for _, step := range []struct {
		segment Segment
		want    uint32
	}{
		{Segment{Flags: SYN, Seq: 1<<32 - 3, Payload: 0}, 1<<32 - 2},
		{Segment{Flags: ACK, Seq: 1<<32 - 2, Payload: 10}, 8},
		{Segment{Flags: ACK, Seq: 1<<32 - 2, Payload: 4}, 8}, // a retransmission
		{Segment{Flags: FIN | ACK, Seq: 8, Payload: 0}, 9},
		{Segment{Flags: SYN, Seq: 100, Payload: 0}, 101},
	} {
		s.Track(step.segment, Orig)
		if s.NextSeq[Orig] != step.want {
			t.Errorf("after %+v: %d, want %d", step.segment, s.NextSeq[Orig], step.want)
		}
	}
}

func TestAckedNeverGoesBack(t *testing.T) {
	s := Session{State: SynReceived}
	for _, step := range []struct {
		segment Segment
		want    uint32
	}{
		{Segment{Flags: SYN, Ack: 7}, 0}, // not an acknowledgement
		{Segment{Flags: ACK, Ack: 1<<32 - 5}, 1<<32 - 5},
		{Segment{Flags: ACK, Ack: 10}, 10},
		{Segment{Flags: ACK, Ack: 1<<32 - 1}, 10}, // late
		{Segment{Flags: RST | ACK, Ack: 12}, 12},
	} {
		s.Track(step.segment, Reply)
		if s.Acked != [2]uint32{Reply: step.want} {
			t.Errorf("after %+v: %d, want %d", step.segment, s.Acked, step.want)
		}
	}
}

func TestSegmentNext(t *testing.T) {
	tests := []struct {
		segment Segment
		want    uint32
	}{
		{Segment{Flags: SYN, Seq: 9}, 10},
		{Segment{Flags: ACK, Seq: 9, Payload: 5}, 14},
		{Segment{Flags: FIN | ACK, Seq: 9, Payload: 5}, 15},
		{Segment{Flags: ACK, Seq: 1<<32 - 1, Payload: 2}, 1},
	}
	for _, tt := range tests {
		if got := tt.segment.Next(); got != tt.want {
			t.Errorf("%+v: %d, want %d", tt.segment, got, tt.want)
		}
	}
}

func TestRetransmits(t *testing.T) {
	tests := []struct {
		name     string
		segments []segment
		seq      uint32
		want     bool
	}{
		{"before the answer", []segment{syn}, 100, true},
		{"before the last ack", []segment{syn, synAck}, 100, true},
		{"another number is another connection", []segment{syn}, 101, false},
		{"established", []segment{syn, synAck, ack}, 100, false},
		{"closed", []segment{syn, rst}, 100, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := Session{State: SynSent, SynSeq: syn.seq}
			for _, g := range tt.segments {
				s.Track(Segment{Flags: g.flags, Seq: g.seq}, g.dir)
			}
			if got := s.Retransmits(Segment{Flags: SYN, Seq: tt.seq}); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
