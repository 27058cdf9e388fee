package admin

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"sslo/admin/api"
	"sslo/session"
)

// encoder appends sessions as JSON without reflection or allocation: a table of a million is listed
// while somebody waits. Its output is api.Session's; a test compares the two.
type encoder struct {
	now    time.Duration
	names  *nameTables
	chains []api.Chain
}

func (e *encoder) append(b []byte, s *session.Session) []byte {
	b = appendID(append(b, `{"id":`...), s.ID)
	b = appendID(append(b, `,"root":`...), s.Root)
	if s.Parent != 0 {
		b = appendID(append(b, `,"parent":`...), s.Parent)
	}
	if s.Child != 0 {
		b = appendID(append(b, `,"child":`...), s.Child)
	}
	b = e.appendTuple(b, s)
	b = e.appendPlace(b, s)
	b = append(append(b, `,"state":`...), e.names.states.get(s.State).quoted...)
	b = e.appendBypass(b, s)
	b = appendPair(append(b, `,"packets":[`...), s.Packets)
	b = appendPair(append(b, `,"bytes":[`...), s.Bytes)
	b = appendSeconds(append(b, `,"age":`...), e.now-s.Created)
	b = appendSeconds(append(b, `,"idle":`...), e.now-s.Seen)
	return append(b, '}')
}

func (e *encoder) appendTuple(b []byte, s *session.Session) []byte {
	switch s.Orig.Proto {
	case session.TCP:
		b = append(b, `,"protocol":"tcp","client":"`...)
	default:
		b = append(b, `,"protocol":"`...)
		b = append(b, s.Orig.Proto.String()...)
		b = append(b, `","client":"`...)
	}
	b = s.Orig.Src.AppendTo(b)
	b = s.Orig.Dst.AppendTo(append(b, `","server":"`...))
	return append(b, '"')
}

func (e *encoder) appendPlace(b []byte, s *session.Session) []byte {
	b = append(append(b, `,"link":`...), e.names.links.get(s.Orig.Link).quoted...)
	b = append(append(b, `,"next_link":`...), e.names.links.get(s.Reply.Link).quoted...)
	b = append(append(b, `,"chain":`...), e.names.chains.get(s.Chain).quoted...)
	b = strconv.AppendInt(append(b, `,"position":`...), int64(s.Position), 10)
	if s.Device != 0 {
		b = append(append(b, `,"pool":`...), e.names.pools.get(s.Pool).quoted...)
		b = append(append(b, `,"device":`...), e.names.devices.get(s.Device).quoted...)
	}
	if s.InDevice != 0 {
		b = append(append(b, `,"from":`...), e.names.devices.get(s.InDevice).quoted...)
	}
	return b
}

func (e *encoder) appendBypass(b []byte, s *session.Session) []byte {
	if s.Flags&session.BypassOut != 0 {
		b = append(append(b, `,"bypass":`...), e.names.reasons.get(s.Bypass).quoted...)
		b = appendSeconds(append(b, `,"bypass_for":`...), e.now-s.BypassedAt)
	}
	if s.Flags&session.BypassIn != 0 {
		b = append(b, `,"from_bypassed":true`...)
	}
	if s.Flags&session.RewritesSeq != 0 {
		b = append(b, `,"rewrites_seq":true`...)
	}
	if s.SkippedBytes != 0 {
		b = strconv.AppendUint(append(b, `,"skipped_bytes":`...), s.SkippedBytes, 10)
	}
	return e.appendSkipped(b, s)
}

// appendSkipped tells which pools of the chain the session went past when it was made.
func (e *encoder) appendSkipped(b []byte, s *session.Session) []byte {
	separator := `,"skipped":[{"pool":`
	for i, reason := range s.Skipped {
		if reason == session.NotBypassed {
			continue
		}
		b = append(append(b, separator...), quote(e.poolName(s.Chain, i))...)
		b = append(append(b, `,"reason":`...), e.names.reasons.get(reason).quoted...)
		b = append(b, '}')
		separator = `,{"pool":`
	}
	if separator == `,{"pool":` {
		b = append(b, ']')
	}
	return b
}

func (e *encoder) poolName(id session.ChainID, i int) string {
	name := e.names.chains.get(id).plain
	for _, c := range e.chains {
		if c.Name == name && i < len(c.Pools) {
			return c.Pools[i].Name
		}
	}
	return fmt.Sprintf("#%d", i+1)
}

func appendID(b []byte, id session.ID) []byte {
	return append(strconv.AppendUint(append(b, '"'), uint64(id), 16), '"')
}

func appendPair(b []byte, pair [2]uint64) []byte {
	b = strconv.AppendUint(b, pair[0], 10)
	b = strconv.AppendUint(append(b, ','), pair[1], 10)
	return append(b, ']')
}

// appendSeconds writes a duration in seconds with three decimals.
func appendSeconds(b []byte, d time.Duration) []byte {
	ms := max(d.Milliseconds(), 0)
	b = strconv.AppendInt(b, ms/1000, 10)
	if ms %= 1000; ms == 0 {
		return b
	}
	return append(b, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10))
}

func quote(text string) []byte {
	b, err := json.Marshal(text)
	if err != nil {
		return []byte(`""`)
	}
	return b
}
