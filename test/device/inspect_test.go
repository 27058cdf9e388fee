package device

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"pgregory.net/rapid"
)

var (
	client4 = netip.MustParseAddrPort("10.1.0.10:40000")
	server4 = netip.MustParseAddrPort("10.1.0.100:80")
	client6 = netip.MustParseAddrPort("[fd00:1::10]:40000")
	server6 = netip.MustParseAddrPort("[fd00:1::100]:80")
)

// build makes a packet with gopacket and parses it with our parser.
func build(t testing.TB, src, dst netip.AddrPort, tcp layers.TCP, payload string) packet {
	t.Helper()
	template := packet{frame: frame{eth: make([]byte, 14)}, v6: src.Addr().Is6(), src: src, dst: dst}
	eth, err := template.craft(onward, tcp, []byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	eth = slices.Clone(eth)
	p, ok := parse(frame{raw: eth, eth: eth})
	if !ok {
		t.Fatal("our own packet does not parse")
	}
	return p
}

func TestParse(t *testing.T) {
	for _, ends := range [][2]netip.AddrPort{{client4, server4}, {client6, server6}} {
		p := build(t, ends[0], ends[1], layers.TCP{Seq: 7, Ack: 9, PSH: true, ACK: true}, "hello")
		if p.src != ends[0] || p.dst != ends[1] || p.seq() != 7 || p.ack() != 9 || string(p.payload()) != "hello" {
			t.Errorf("%+v", p)
		}
		if !p.checksumOK() {
			t.Errorf("%s: gopacket's checksum is not ours", ends[0])
		}
		p.eth[p.data]++
		if p.checksumOK() {
			t.Errorf("%s: a changed byte was not noticed", ends[0])
		}
		p.fixChecksum()
		if !p.checksumOK() {
			t.Errorf("%s: the checksum was not repaired", ends[0])
		}
	}
}

func FuzzParse(f *testing.F) {
	p := build(f, client4, server4, layers.TCP{SYN: true}, "x")
	f.Add(p.eth)
	p = build(f, client6, server6, layers.TCP{SYN: true}, "x")
	f.Add(p.eth)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 14 { // receive gives nothing shorter
			return
		}
		if p, ok := parse(frame{raw: b, eth: b}); ok {
			newInspector([]byte("sig"), false).look(&p, sideIn, time.Now())
			p.checksumOK()
			rewrite(&p, sideOut)
		}
	})
}

// However a stream is cut, repeated and reordered, the signature is found when it is complete and not before.
func TestSignatureIsFoundHoweverItIsCut(t *testing.T) {
	const signature = "../../etc/passwd"
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.StringMatching(`[a-z./]{0,60}`).Draw(t, "before")
		after := rapid.StringMatching(`[a-z./]{0,60}`).Draw(t, "after")
		text := before + signature + after
		at := strings.Index(text, signature) // an accident may have made it earlier
		end := at + len(signature)
		isn := rapid.Uint32().Draw(t, "isn")
		i := newInspector([]byte(signature), false)
		s := &stream{started: true, next: isn}
		received := make([]bool, len(text))
		for _, seg := range cuts(t, text) {
			found := i.feed(s, isn+uint32(seg[0]), []byte(text[seg[0]:seg[1]]))
			for n := seg[0]; n < seg[1]; n++ {
				received[n] = true
			}
			complete := !slices.Contains(received[:end], false)
			if found != complete {
				t.Fatalf("after %v: found %v, complete %v", seg, found, complete)
			}
			if found {
				return
			}
		}
		t.Fatal("not found")
	})
}

// cuts divides the stream into segments, shuffles them a little and repeats some.
func cuts(t *rapid.T, text string) [][2]int {
	var segs [][2]int
	for at := 0; at < len(text); {
		n := min(rapid.IntRange(1, 12).Draw(t, "length"), len(text)-at)
		segs = append(segs, [2]int{at, at + n})
		at += n
	}
	if rapid.Bool().Draw(t, "repeat") {
		segs = append(segs, segs[rapid.IntRange(0, len(segs)-1).Draw(t, "which")])
	}
	return rapid.Permutation(segs).Draw(t, "order")
}

func TestSignatureOverTwoConnectionsIsNone(t *testing.T) {
	i := newInspector([]byte("attack"), false)
	for port, part := range []string{"att", "ack"} {
		src := netip.AddrPortFrom(client4.Addr(), uint16(40000+port))
		p := build(t, src, server4, layers.TCP{Seq: 1, ACK: true}, part)
		if f := i.look(&p, sideIn, time.Now()); f.match {
			t.Error("found in two halves of two connections")
		}
	}
}

func TestStrictDropsWhatItHasNotSeenBegin(t *testing.T) {
	i := newInspector([]byte("x"), true)
	data := build(t, client4, server4, layers.TCP{Seq: 5, ACK: true}, "data")
	if f := i.look(&data, sideIn, time.Now()); !f.unknown {
		t.Error("data of an unknown connection passes")
	}
	syn := build(t, client4, server4, layers.TCP{Seq: 4, SYN: true}, "")
	if f := i.look(&syn, sideIn, time.Now()); f.unknown {
		t.Error("SYN does not pass")
	}
	if f := i.look(&data, sideIn, time.Now()); f.unknown {
		t.Error("data after the SYN does not pass")
	}
}

func TestIdleConnectionsAreForgotten(t *testing.T) {
	i := newInspector([]byte("x"), false)
	now := time.Now()
	for n, at := range []time.Time{now, now.Add(idleAfter + time.Minute)} {
		src := netip.AddrPortFrom(client4.Addr(), uint16(40000+n))
		p := build(t, src, server4, layers.TCP{SYN: true}, "")
		i.look(&p, sideIn, at)
	}
	if n := i.connections(); n != 1 {
		t.Errorf("%d connections, want the young one only", n)
	}
}

func TestRewriteMovesNumbersOneWayAndBack(t *testing.T) {
	sack := []layers.TCPOption{{OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindNop},
		{OptionType: layers.TCPOptionKindSACK, OptionLength: 10, OptionData: make([]byte, 8)}}
	out := build(t, client4, server4, layers.TCP{Seq: 100, ACK: true}, "data")
	rewrite(&out, sideIn)
	offset := out.seq() - 100
	if offset == 0 || !out.checksumOK() {
		t.Fatalf("offset %d, checksum %v", offset, out.checksumOK())
	}
	binary.BigEndian.PutUint32(sack[2].OptionData, 200+offset)
	binary.BigEndian.PutUint32(sack[2].OptionData[4:], 300+offset)
	back := build(t, server4, client4, layers.TCP{Ack: 104 + offset, ACK: true, Options: sack}, "")
	rewrite(&back, sideOut)
	parsed := gopacket.NewPacket(back.eth, layers.LayerTypeEthernet, gopacket.Default).TransportLayer().(*layers.TCP)
	if back.ack() != 104 || !back.checksumOK() {
		t.Errorf("ack %d, want 104", back.ack())
	}
	for _, o := range parsed.Options {
		if o.OptionType == layers.TCPOptionKindSACK && (be32(o.OptionData) != 200 || be32(o.OptionData[4:]) != 300) {
			t.Errorf("SACK %v, want 200-300", o.OptionData)
		}
	}
}

func TestUnknownMode(t *testing.T) {
	if _, err := Open(Options{Mode: "broken"}); err == nil {
		t.Error("a mode that does not exist was accepted")
	}
}

func BenchmarkInspect(b *testing.B) {
	i := newInspector([]byte(DefaultSignature), false)
	p := build(b, client4, server4, layers.TCP{ACK: true}, strings.Repeat("a body of text. ", 90))
	now := time.Now()
	b.SetBytes(int64(len(p.eth)))
	for n := 0; b.Loop(); n++ {
		binary.BigEndian.PutUint32(p.eth[p.tcp+4:], uint32(n*len(p.payload())))
		p.checksumOK()
		i.look(&p, sideIn, now)
	}
}
