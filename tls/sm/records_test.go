package sm

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
)

// stream is a transport that has these bytes to read, and takes any.
type stream struct {
	net.Conn
	r io.Reader
}

func (s stream) Read(b []byte) (int, error)  { return s.r.Read(b) }
func (s stream) Write(b []byte) (int, error) { return len(b), nil }

func reading(b []byte, rules Rules) *Records {
	return NewRecords(stream{r: bytes.NewReader(b)}, rules)
}

func record(typ RecordType, version uint16, body ...byte) []byte {
	return append(AppendHeader(nil, typ, version, len(body)), body...)
}

func TestLimits(t *testing.T) {
	big := make([]byte, MaxPlain+1)
	for name, x := range map[string]struct {
		b     []byte
		rules Rules
		alert Alert
	}{
		"too long in clear":    {record(RecordHandshake, 0x0101, big...), Rules{}, AlertRecordOverflow},
		"HTTP":                 {[]byte("GET / HTTP/1.1\r\n\r\n"), Rules{}, AlertUnexpectedMessage},
		"SSL 2":                {record(RecordHandshake, 0x0002, 1), Rules{}, AlertProtocolVersion},
		"other version":        {record(RecordHandshake, 0x0303, 1), Rules{Expect: 0x0101}, AlertProtocolVersion},
		"site to site":         {record(RecordSite2Site, 0x0101, 1), Rules{}, AlertUnexpectedMessage},
		"early data":           {record(RecordApplicationData, 0x0101, 1), Rules{ForbidEarly: true}, AlertUnexpectedMessage},
		"data":                 {record(RecordApplicationData, 0x0101, 1), Rules{}, AlertUnexpectedMessage},
		"huge message":         {record(RecordHandshake, 0x0101, 1, 255, 255, 255), Rules{}, AlertDecodeError},
		"alert of one byte":    {record(RecordAlert, 0x0101, 2), Rules{}, AlertDecodeError},
		"alert of level 3":     {record(RecordAlert, 0x0101, 3, 10), Rules{}, AlertIllegalParameter},
		"empty ones":           {bytes.Repeat(record(RecordHandshake, 0x0101), maxUseless+1), Rules{}, AlertUnexpectedMessage},
		"empty one in TLS 1.3": {record(RecordHandshake, 0x0303), Rules{TLS13: true}, AlertUnexpectedMessage},
		"warnings":             {bytes.Repeat(record(RecordAlert, 0x0101, 1, 90), maxUseless+1), Rules{}, AlertUnexpectedMessage},
	} {
		_, err := reading(x.b, x.rules).ReadHandshake()
		if a, ok := AlertOf(err); !ok || a != x.alert {
			t.Errorf("%s: %v, want alert %d", name, err, uint8(x.alert))
		}
	}
}

func TestPeersAlerts(t *testing.T) {
	var p *PeerAlert
	_, err := reading(record(RecordAlert, 0x0301, 2, 40), Rules{}).ReadHandshake()
	if !errors.As(err, &p) || p.Alert != AlertHandshakeFailure || !errors.Is(err, AlertHandshakeFailure) {
		t.Error(err)
	}
	if _, ok := AlertOf(err); ok {
		t.Error("an alert is answered by an alert")
	}
	if _, err := reading(record(RecordAlert, 0x0101, 1, 0), Rules{}).ReadHandshake(); err != io.EOF {
		t.Error(err)
	}
	if _, err := reading(record(RecordAlert, 0x0303, 1, 40), Rules{TLS13: true}).ReadHandshake(); !errors.As(err, &p) {
		t.Errorf("a warning in TLS 1.3: %v", err)
	}
}

// A message may not span a change of keys, and nothing may stand before change_cipher_spec.
func TestKeyChangeIsBetweenMessages(t *testing.T) {
	two := append(record(RecordHandshake, 0x0101, 14, 0, 0, 0, 20, 0), record(RecordChangeCipherSpec, 0x0101, 1)...)
	r := reading(two, Rules{})
	if msg, err := r.ReadHandshake(); err != nil || len(msg) != 4 {
		t.Fatal(err)
	}
	if a, ok := AlertOf(r.SetIn(nil)); !ok || a != AlertUnexpectedMessage {
		t.Error("keys change within a message")
	}
	if a, ok := AlertOf(r.ReadChangeCipherSpec()); !ok || a != AlertUnexpectedMessage {
		t.Error("change_cipher_spec within a message")
	}
}

func TestTranscript(t *testing.T) {
	a, b := NewTranscript(true), NewTranscript(false)
	a.Add([]byte("one"))
	b.Add([]byte("o"))
	b.Add([]byte("ne"))
	if !bytes.Equal(a.Sum(), b.Sum()) || string(a.Raw()) != "one" || len(b.Raw()) != 0 {
		t.Error("transcripts differ")
	}
	sum := a.Sum()
	a.Restart()
	c := NewTranscript(false)
	c.Add(append([]byte{254, 0, 0, 32}, sum...))
	if !bytes.Equal(a.Sum(), c.Sum()) {
		t.Error("message_hash")
	}
}
