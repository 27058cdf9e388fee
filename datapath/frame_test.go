package datapath

import (
	"encoding/binary"
	"testing"
)

// checkFrame sums what the checksums of an Ethernet frame with TCP or ICMPv6 cover (RFC 1071):
// a right one makes it all ones. Short frames are padded. Of ARP it checks the length only.
func checkFrame(t *testing.T, f []byte) {
	t.Helper()
	var pseudo, l4 []byte
	switch binary.BigEndian.Uint16(f[12:]) {
	case 0x0806:
		if len(f) < 14+28 {
			t.Errorf("ARP frame of %d bytes", len(f))
		}
		return
	case 0x0800:
		if sum(f[14:34]) != 0xffff {
			t.Errorf("IPv4 header % x", f[14:34])
		}
		pseudo, l4 = append([]byte{0, f[23]}, f[26:34]...), f[34:14+binary.BigEndian.Uint16(f[16:])]
	case 0x86dd:
		pseudo, l4 = append([]byte{0, f[20]}, f[22:54]...), f[54:54+binary.BigEndian.Uint16(f[18:])]
	}
	pseudo = binary.BigEndian.AppendUint16(pseudo, uint16(len(l4)))
	if s := sum(append(pseudo, l4...)); s != 0xffff {
		t.Errorf("checksum of % x is off: %#x", l4, s)
	}
}

func sum(b []byte) uint32 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		s += uint32(b[i]) << 8
		if i+1 < len(b) {
			s += uint32(b[i+1])
		}
	}
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return s
}
