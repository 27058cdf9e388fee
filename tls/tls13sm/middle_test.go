package tls13sm

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"sslo/tls/sm"
)

// middle is a man in the middle who knows the keys from the key logs: it may split, join and change
// messages whose protection it renews.
type middle struct {
	suite    uint16
	coalesce bool                                            // messages of a flight in one record
	fragment bool                                            // one byte a record
	edit     func(fromServer bool, n int, msg []byte) []byte // n-th message of that end; nil: dropped
	logs     [2]keyLog
}

// keyLog remembers the secrets that one end logs.
type keyLog struct {
	mu sync.Mutex
	m  map[string]secret
}

func (k *keyLog) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.m == nil {
		k.m = map[string]secret{}
	}
	var label, random string
	var s []byte
	fmt.Sscanf(strings.TrimSpace(string(b)), "%s %s %x", &label, &random, &s)
	k.m[label] = secret(s)
	return len(b), nil
}

func (k *keyLog) get(label string) secret {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.m[label]
}

// pair makes two ends with the middle in between.
func (m *middle) pair(t testing.TB, sc, cc *Config) (server, client *Conn) {
	sc.KeyLogWriter, cc.KeyLogWriter = &m.logs[1], &m.logs[0]
	a, a2 := tcp(t)
	b, b2 := tcp(t)
	go m.pass(a2, b2, 0)
	go m.pass(b2, a2, 1)
	return Server(b, sc), Client(a, cc)
}

// direction is one way through the middle.
type direction struct {
	m      *middle
	from   int
	to     net.Conn
	in     *protection
	out    *protection
	n      int
	hand   []byte
	flight []byte
	phase  int // 0: clear, 1: handshake keys, 2: application keys
}

func (m *middle) pass(src, dst *net.TCPConn, from int) {
	d := &direction{m: m, from: from, to: dst}
	defer dst.CloseWrite()
	head := make([]byte, sm.HeaderSize)
	for {
		if _, err := io.ReadFull(src, head); err != nil {
			return
		}
		body := make([]byte, int(head[3])<<8|int(head[4]))
		if _, err := io.ReadFull(src, body); err != nil {
			return
		}
		if d.record(sm.RecordType(head[0]), append([]byte(nil), head...), body) != nil {
			return
		}
	}
}

func (d *direction) record(typ sm.RecordType, head, body []byte) error {
	if typ == sm.RecordApplicationData {
		if d.phase == 0 {
			d.keys([]string{"CLIENT", "SERVER"}[d.from] + "_HANDSHAKE_TRAFFIC_SECRET")
		}
		inner, plain, err := d.in.Open(nil, typ, version12, body)
		if err != nil {
			return err
		}
		typ, body = inner, plain
	}
	if typ != sm.RecordHandshake || d.phase == 2 {
		if err := d.flush(); err != nil {
			return err
		}
		if d.phase == 0 || typ == sm.RecordChangeCipherSpec {
			_, err := d.to.Write(append(head, body...))
			return err
		}
		_, err := d.to.Write(d.out.Seal(nil, typ, body))
		return err
	}
	d.hand = append(d.hand, body...)
	for len(d.hand) >= 4 {
		n := 4 + int(d.hand[1])<<16 + int(d.hand[2])<<8 + int(d.hand[3])
		if len(d.hand) < n {
			return nil
		}
		msg := append([]byte(nil), d.hand[:n]...)
		d.hand = d.hand[n:]
		if err := d.message(msg); err != nil {
			return err
		}
	}
	return nil
}

func (d *direction) keys(label string) {
	s := d.m.logs[d.from].get(label)
	d.in, _ = newProtection(suiteByID(d.m.suite), s)
	d.out, _ = newProtection(suiteByID(d.m.suite), s)
	d.phase++
}

func (d *direction) message(msg []byte) error {
	typ := msg[0]
	if d.m.edit != nil {
		msg = d.m.edit(d.from == 1, d.n, msg)
	}
	d.n++
	if d.flight = append(d.flight, msg...); !d.m.coalesce || typ == typeFinished || d.phase == 0 {
		if err := d.flush(); err != nil {
			return err
		}
	}
	if typ == typeFinished {
		d.keys([]string{"CLIENT", "SERVER"}[d.from] + "_TRAFFIC_SECRET_0")
	}
	return nil
}

func (d *direction) flush() error {
	most := sm.MaxPlain
	if d.m.fragment {
		most = 1
	}
	var out []byte
	for len(d.flight) > 0 {
		n := min(len(d.flight), most)
		if d.out == nil {
			out = append(sm.AppendHeader(out, sm.RecordHandshake, 0x0301, n), d.flight[:n]...)
		} else {
			out = d.out.Seal(out, sm.RecordHandshake, d.flight[:n])
		}
		d.flight = d.flight[n:]
	}
	if len(out) == 0 {
		return nil
	}
	_, err := d.to.Write(out)
	return err
}
