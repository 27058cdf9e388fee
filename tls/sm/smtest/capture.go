// Package smtest reads recorded handshakes for the tests of the SM stacks: captures of packets, and the logs of
// keys beside them. It knows no protocol above the record.
package smtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
)

// Record is one record as it was on the wire.
type Record struct {
	FromClient bool
	Type       uint8
	Version    uint16
	Body       []byte
}

// Session is one TCP connection: its records in the order in which they were complete.
type Session struct {
	Records []Record
	Client  []byte // all that the client sent
	Server  []byte
}

var errCapture = errors.New("not a capture of Ethernet packets")

// ReadCapture reads the connections of a capture, in the order of their beginnings.
func ReadCapture(path string) ([]*Session, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(b) < 24 || binary.LittleEndian.Uint32(b) != 0xa1b2c3d4 || binary.LittleEndian.Uint32(b[20:]) != 1 {
		return nil, fmt.Errorf("%s: %w", path, errCapture)
	}
	flows := map[string]*flow{}
	var order []*flow
	for b = b[24:]; len(b) >= 16; {
		n := int(binary.LittleEndian.Uint32(b[8:]))
		if len(b) < 16+n {
			break
		}
		order = addPacket(flows, order, b[16:16+n])
		b = b[16+n:]
	}
	sessions := make([]*Session, len(order))
	for i, f := range order {
		sessions[i] = f.s
	}
	return sessions, nil
}

type flow struct {
	s    *Session
	half [2]half // of the client, of the server
}

type half struct {
	next    uint32
	known   bool
	pending map[uint32][]byte
	parsed  int
}

// addPacket takes one Ethernet frame. A SYN without ACK begins a connection.
func addPacket(flows map[string]*flow, order []*flow, p []byte) []*flow {
	if len(p) < 34 || p[12] != 8 || p[13] != 0 || p[23] != 6 {
		return order
	}
	ip := p[14:]
	ip = ip[:min(len(ip), int(binary.BigEndian.Uint16(ip[2:])))]
	tcp := ip[int(ip[0]&15)*4:]
	seq, flags, data := binary.BigEndian.Uint32(tcp[4:]), tcp[13], tcp[int(tcp[12]>>4)*4:]
	there := fmt.Sprintf("%x%x%x%x", ip[12:16], tcp[0:2], ip[16:20], tcp[2:4])
	back := fmt.Sprintf("%x%x%x%x", ip[16:20], tcp[2:4], ip[12:16], tcp[0:2])
	f, side := flows[there], 0
	if f == nil {
		f, side = flows[back], 1
	}
	if flags&0x12 == 0x02 { // SYN alone
		f, side = &flow{s: &Session{}}, 0
		flows[there] = f
		order = append(order, f)
	}
	if f != nil {
		f.add(side, seq, flags&2 != 0, data)
	}
	return order
}

func (f *flow) add(side int, seq uint32, syn bool, data []byte) {
	h := &f.half[side]
	if syn {
		h.next, h.known, h.pending = seq+1, true, map[uint32][]byte{}
		return
	}
	if !h.known || len(data) == 0 {
		return
	}
	h.pending[seq] = data
	stream := &f.s.Client
	if side == 1 {
		stream = &f.s.Server
	}
	*stream = append(*stream, h.take()...)
	f.records(h, side == 0, *stream)
}

// take gives what is in order now.
func (h *half) take() (out []byte) {
	var seqs []uint32
	for s := range h.pending {
		seqs = append(seqs, s)
	}
	sort.Slice(seqs, func(i, j int) bool { return int32(seqs[i]-seqs[j]) < 0 })
	for _, s := range seqs {
		data, old := h.pending[s], int32(h.next-s)
		if old < 0 {
			break
		}
		delete(h.pending, s)
		if int(old) < len(data) {
			out = append(out, data[old:]...)
			h.next += uint32(len(data)) - uint32(old)
		}
	}
	return out
}

func (f *flow) records(h *half, client bool, stream []byte) {
	for {
		b := stream[h.parsed:]
		if len(b) < 5 {
			return
		}
		n := 5 + int(b[3])<<8 + int(b[4])
		if len(b) < n {
			return
		}
		f.s.Records = append(f.s.Records, Record{client, b[0], uint16(b[1])<<8 | uint16(b[2]), bytes.Clone(b[5:n])})
		h.parsed += n
	}
}

// ReadKeyLog reads a log of keys: label, then client random in hex, to secret. No file is no keys.
func ReadKeyLog(path string) (map[string]map[string][]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	keys := map[string]map[string][]byte{}
	for in := bufio.NewScanner(bytes.NewReader(b)); in.Scan(); {
		f := strings.Fields(in.Text())
		if len(f) != 3 {
			continue
		}
		secret, err := hex.DecodeString(f[2])
		if err != nil {
			continue
		}
		if keys[f[0]] == nil {
			keys[f[0]] = map[string][]byte{}
		}
		keys[f[0]][f[1]] = secret
	}
	return keys, err
}
