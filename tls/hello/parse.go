package hello

import "fmt"

const (
	recordHandshake = 22
	recordHeader    = 5
	maxRecord       = 16384
	typeClientHello = 1
	msgHeader       = 4
)

// Scanner puts a ClientHello together from a growing prefix of the stream. It looks at every byte
// once, however small the steps are. The zero value is ready.
type Scanner struct {
	at  int    // offset of the next record in the stream
	msg []byte // handshake bytes of the records before it
}

// Scan looks at all that has arrived so far, which must begin with what the previous call was given.
// It returns ErrIncomplete until the whole message is there.
func (s *Scanner) Scan(stream []byte) (*Hello, error) {
	for {
		rest := stream[min(s.at, len(stream)):]
		if err := checkRecord(rest, s.at == 0); err != nil {
			return nil, err
		}
		if err := s.checkMessage(rest); err != nil {
			return nil, err
		}
		if len(rest) < recordHeader {
			return nil, s.incomplete(stream)
		}
		n := recordHeader + int(rest[3])<<8 + int(rest[4])
		if len(rest) < n {
			return nil, s.incomplete(stream)
		}
		s.msg = append(s.msg, rest[recordHeader:n]...)
		s.at += n
		if want := s.want(); want > 0 && len(s.msg) >= want {
			return parse(s.msg[:want])
		}
	}
}

// Parse reads a ClientHello from the beginning of a stream.
func Parse(stream []byte) (*Hello, error) { return new(Scanner).Scan(stream) }

func (s *Scanner) incomplete(stream []byte) error {
	if len(stream) >= MaxRaw {
		return fmt.Errorf("%w: %d bytes in records and still not whole", ErrTooLarge, len(stream))
	}
	return ErrIncomplete
}

// want is the length of the message with its header, 0 while that is unknown.
func (s *Scanner) want() int {
	if len(s.msg) < msgHeader {
		return 0
	}
	return msgHeader + (int(s.msg[1])<<16 | int(s.msg[2])<<8 | int(s.msg[3]))
}

// checkRecord judges as many bytes of a record header as there are, so that garbage is told early.
func checkRecord(b []byte, first bool) error {
	if len(b) > 0 && b[0] != recordHandshake {
		return fmt.Errorf("%w: record type %d", ErrGarbage, b[0])
	}
	if len(b) > 1 && b[1] != 3 && b[1] != 1 || len(b) > 2 && b[1] == 1 && b[2] != 1 {
		return fmt.Errorf("%w: record version", ErrGarbage)
	}
	if len(b) < recordHeader {
		return nil
	}
	if n := int(b[3])<<8 | int(b[4]); n == 0 || n > maxRecord {
		return fmt.Errorf("%w: record of %d bytes", ErrGarbage, n)
	}
	return nil
}

// checkMessage judges the message header, which may be split over records, as early as it is there.
func (s *Scanner) checkMessage(rest []byte) error {
	head := s.msg
	if len(head) < msgHeader && len(rest) > recordHeader {
		n := int(rest[3])<<8 | int(rest[4])
		head = append(head[:len(head):len(head)], rest[recordHeader:min(len(rest), recordHeader+min(n, msgHeader))]...)
	}
	if len(head) > 0 && head[0] != typeClientHello {
		return fmt.Errorf("%w: handshake type %d", ErrGarbage, head[0])
	}
	if len(head) < msgHeader {
		return nil
	}
	if n := int(head[1])<<16 | int(head[2])<<8 | int(head[3]); n > MaxHandshake {
		return fmt.Errorf("%w: %d bytes", ErrTooLarge, n)
	}
	return nil
}

// parse reads the message; what is malformed inside is garbage.
func parse(msg []byte) (*Hello, error) {
	h := &Hello{Size: len(msg)}
	r := cursor{b: msg[msgHeader:]}
	h.Version = r.u16()
	r.skip(32) // random
	r.skip(int(r.u8()))
	h.Suites = r.vector16().u16s()
	if r.skip(int(r.u8())); r.bad { // compression methods
		return nil, fmt.Errorf("%w: truncated inside", ErrGarbage)
	}
	if h.Version>>8 != 3 && h.Version != TLCP11 {
		return nil, fmt.Errorf("%w: version %#04x", ErrGarbage, h.Version)
	}
	if len(r.b) > 0 {
		if err := h.extensions(r.vector16(), &r); err != nil {
			return nil, err
		}
	}
	if h.Versions == nil {
		h.Versions = []uint16{h.Version}
	}
	return h, nil
}

func (h *Hello) extensions(exts cursor, outer *cursor) error {
	if outer.bad || len(outer.b) > 0 {
		return fmt.Errorf("%w: extensions", ErrGarbage)
	}
	for len(exts.b) > 0 {
		id, body := exts.u16(), exts.vector16()
		if exts.bad {
			return fmt.Errorf("%w: extension", ErrGarbage)
		}
		if h.extension(id, &body); body.bad {
			return fmt.Errorf("%w: extension %d", ErrGarbage, id)
		}
	}
	return nil
}

func (h *Hello) extension(id uint16, b *cursor) {
	switch id {
	case extServerName:
		h.ServerName = b.serverName()
	case extSupportedGroups:
		h.Groups = b.sub16().u16s()
	case extSignatures:
		h.Signatures = b.sub16().u16s()
	case extALPN:
		h.ALPN = b.protocols()
	case extSessionTicket:
		h.Ticket = h.Ticket || len(b.b) > 0
	case extPreSharedKey:
		h.Ticket = true
	case extEarlyData:
		h.EarlyData = true
	case extSupportedVersions:
		h.Versions = b.sub8().u16s()
	case extKeyShare:
		h.KeyShares = b.shares()
	case extECH:
		h.Encrypted = true
	}
}
