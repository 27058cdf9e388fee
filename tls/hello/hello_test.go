package hello

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
)

// record is what crypto/tls sends first with that configuration.
func record(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	go func() { tls.Client(b, cfg).Handshake() }()
	head := make([]byte, 5)
	if _, err := io.ReadFull(a, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(a, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// split puts the same message into records of n bytes.
func split(rec []byte, n int) (out []byte) {
	for msg := rec[5:]; len(msg) > 0; {
		k := min(n, len(msg))
		out = append(out, 22, 3, 1, byte(k>>8), byte(k))
		out = append(out, msg[:k]...)
		msg = msg[k:]
	}
	return out
}

// pad makes the message size bytes long with a padding extension (RFC 7685).
func pad(rec []byte, size int) []byte {
	msg := slices.Clone(rec[5:])
	more := size - len(msg)
	extAt := 4 + 2 + 32
	extAt += 1 + int(msg[extAt])
	extAt += 2 + int(binary.BigEndian.Uint16(msg[extAt:]))
	extAt += 1 + int(msg[extAt])
	ext := make([]byte, more)
	binary.BigEndian.PutUint16(ext, 21)
	binary.BigEndian.PutUint16(ext[2:], uint16(more-4))
	binary.BigEndian.PutUint16(msg[extAt:], binary.BigEndian.Uint16(msg[extAt:])+uint16(more))
	msg = append(msg, ext...)
	n := len(msg) - 4
	msg[1], msg[2], msg[3] = byte(n>>16), byte(n>>8), byte(n)
	return split(append([]byte{22, 3, 1, 0, 0}, msg...), 16384)
}

var offer = &tls.Config{ServerName: "shop.example.test", NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}

func TestParse(t *testing.T) {
	h, err := Parse(record(t, offer))
	if err != nil {
		t.Fatal(err)
	}
	if h.ServerName != "shop.example.test" || !slices.Equal(h.ALPN, []string{"h2", "http/1.1"}) {
		t.Errorf("name %q, alpn %q", h.ServerName, h.ALPN)
	}
	if !slices.Equal(h.Versions, []uint16{TLS13, TLS12}) || h.TLCP() || h.Version != TLS12 {
		t.Errorf("versions %x, legacy %x", h.Versions, h.Version)
	}
	if !slices.Contains(h.KeyShares, uint16(tls.X25519)) || !slices.Contains(h.Groups, uint16(tls.CurveP256)) {
		t.Errorf("shares %v, groups %v", h.KeyShares, h.Groups)
	}
	if !slices.Contains(h.Signatures, uint16(tls.ECDSAWithP256AndSHA256)) || !slices.Contains(h.Suites, tls.TLS_AES_128_GCM_SHA256) {
		t.Errorf("signatures %x, suites %x", h.Signatures, h.Suites)
	}
}

func TestParseOldClient(t *testing.T) {
	h, err := Parse(record(t, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}))
	if err != nil {
		t.Fatal(err)
	}
	if h.ServerName != "" || !slices.Equal(h.Versions, []uint16{TLS12}) || len(h.KeyShares) != 0 {
		t.Errorf("%+v", h)
	}
}

func TestParseTLCP(t *testing.T) {
	msg := append([]byte{1, 0, 0, 0, 1, 1}, make([]byte, 32)...)
	msg = append(msg, 0, 0, 4, 0xe0, 0x53, 0xe0, 0x13, 1, 0)
	msg[3] = byte(len(msg) - 4)
	h, err := Parse(append([]byte{22, 1, 1, 0, byte(len(msg))}, msg...))
	if err != nil {
		t.Fatal(err)
	}
	if !h.TLCP() || !slices.Equal(h.Suites, []uint16{0xe053, 0xe013}) {
		t.Errorf("%+v", h)
	}
}

// A ClientHello is found whatever its size, its records and its segments are.
func TestParseSplit(t *testing.T) {
	rec := record(t, offer)
	for _, size := range []int{0, 1800, 2100, 16 << 10, 40 << 10, 60 << 10} {
		whole := rec
		if size > 0 {
			whole = pad(rec, size)
		}
		for _, per := range []int{1, 7, 1000, 16384} {
			stream := whole
			if per < 16384 && size <= 2100 {
				stream = split(rec, per)
			}
			for _, seg := range []int{1, 3, 1400, len(stream)} {
				src := &segments{rest: stream, n: seg}
				h, err := Read(src)
				if err != nil || h.ServerName != "shop.example.test" {
					t.Fatalf("size %d, records of %d, segments of %d: %v %v", size, per, seg, h, err)
				}
				if !bytes.Equal(src.got, stream[:len(src.got)]) {
					t.Fatal("consumed")
				}
			}
		}
	}
}

type segments struct {
	got, rest []byte
	n         int
}

func (s *segments) Buffered() []byte { return s.got }

func (s *segments) Fill() error {
	if len(s.rest) == 0 {
		return io.EOF
	}
	n := min(s.n, len(s.rest))
	s.got, s.rest = append(s.got, s.rest[:n]...), s.rest[n:]
	return nil
}

func TestGarbage(t *testing.T) {
	rec := record(t, offer)
	tooLong := slices.Clone(rec)
	tooLong[6] = 2 // a message of more than 128 kB
	badExt := slices.Clone(rec)
	badExt[len(badExt)-1]++ // ends inside an extension, or with another value: must not panic
	endless := bytes.Repeat([]byte{22, 3, 1, 0, 1, 1}, 1)
	endless = append(endless, 22, 3, 1, 0, 3, 0, 255, 255)
	for len(endless) < MaxRaw {
		endless = append(endless, 22, 3, 1, 0, 1, 0)
	}
	cases := map[string]struct {
		in   []byte
		want error
	}{
		"http":         {[]byte("GET / HTTP/1.1\r\n\r\n"), ErrGarbage},
		"one byte":     {[]byte{0}, ErrGarbage},
		"sslv2":        {[]byte{0x80, 0x2e, 1, 0, 2}, ErrGarbage},
		"version":      {[]byte{22, 9}, ErrGarbage},
		"empty record": {[]byte{22, 3, 1, 0, 0}, ErrGarbage},
		"long record":  {[]byte{22, 3, 1, 0x40, 1}, ErrGarbage},
		"server hello": {[]byte{22, 3, 3, 0, 9, 2}, ErrGarbage},
		"too large":    {tooLong, ErrTooLarge},
		"tiny records": {endless, ErrTooLarge},
		"nothing":      {nil, ErrIncomplete},
		"half":         {rec[:len(rec)-1], ErrIncomplete},
		"inside":       {append([]byte{22, 3, 1, 0, 8, 1, 0, 0, 4}, 3, 3, 0, 0), ErrGarbage},
	}
	for name, c := range cases {
		if _, err := Parse(c.in); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	Parse(badExt)
}

func FuzzParse(f *testing.F) {
	rec := record(f, offer)
	f.Add(rec, uint8(1))
	f.Add(split(rec, 11), uint8(5))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		whole, err := Parse(b)
		var s Scanner
		for n := int(step) + 1; ; n += int(step) + 1 {
			part, perr := s.Scan(b[:min(n, len(b))])
			if n < len(b) && errors.Is(perr, ErrIncomplete) {
				continue
			}
			if (err == nil) != (perr == nil) {
				t.Fatalf("whole: %v; in steps of %d: %v", err, int(step)+1, perr)
			}
			if err == nil && (whole.ServerName != part.ServerName || whole.Size != part.Size) {
				t.Fatalf("%+v, in steps %+v", whole, part)
			}
			return
		}
	})
}

func BenchmarkParse(b *testing.B) {
	rec := record(b, offer)
	b.ReportAllocs()
	for b.Loop() {
		Parse(rec)
	}
}
