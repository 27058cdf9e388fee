package datapath

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"sslo/bpf"
	"sslo/session"
)

func TestLayoutVersionIsTheOneOfTheHeader(t *testing.T) {
	src, err := os.ReadFile("../bpf/types.h")
	must(t, err)
	m := regexp.MustCompile(`#define LAYOUT_VERSION (\d+)`).FindSubmatch(src)
	if m == nil || string(m[1]) != strconv.Itoa(layoutVersion) {
		t.Errorf("types.h has %q, Go has %d", m, layoutVersion)
	}
}

func TestExpiry(t *testing.T) {
	to := Timeouts{Syn: 1, Established: 100, HalfClosed: 50, Closing: 10, Closed: 2, UDP: 30}.withDefaults()
	for _, tc := range []struct {
		proto   session.Protocol
		state   session.State
		silent  time.Duration
		expired bool
	}{
		{session.TCP, session.SynSent, 1, false}, {session.TCP, session.SynSent, 2, true},
		{session.TCP, session.SynReceived, 2, true},
		{session.TCP, session.Established, 100, false}, {session.TCP, session.Established, 101, true},
		{session.TCP, session.HalfClosed, 50, false}, {session.TCP, session.HalfClosed, 51, true},
		{session.TCP, session.Closing, 10, false}, {session.TCP, session.Closing, 11, true},
		{session.TCP, session.Closed, 2, false}, {session.TCP, session.Closed, 3, true},
		{session.UDP, session.New, 30, false}, {session.UDP, session.Established, 31, true},
		{session.TCP, session.Closed, -5, false}, // seen after the clock was read
	} {
		const now = time.Hour
		if got := to.expired(tc.proto, tc.state, now-tc.silent, now); got != tc.expired {
			t.Errorf("%v %v silent for %d: expired %v", tc.proto, tc.state, tc.silent, got)
		}
	}
	if d := (Timeouts{Syn: time.Minute}).withDefaults(); d.Syn != time.Minute || d.Established != defaultTimeouts.Established {
		t.Errorf("defaults: %+v", d)
	}
}

func TestCensus(t *testing.T) {
	const now = time.Hour
	type entry struct {
		id, root uint64
		state    session.State
		at       time.Duration // last seen (root) or created (leg)
	}
	for name, tc := range map[string]struct {
		in   []entry
		want []uint64
	}{
		"a tree lives":                    {[]entry{{1, 1, session.Established, now}, {2, 1, 0, 0}, {3, 1, 0, 0}}, nil},
		"a tree goes with its root":       {[]entry{{3, 1, 0, 0}, {1, 1, session.Closed, 0}, {2, 1, 0, 0}, {9, 9, session.Established, now}}, []uint64{1, 2, 3}},
		"an orphan goes":                  {[]entry{{5, 4, 0, now - time.Second}}, []uint64{5}},
		"the scan missed a new root":      {[]entry{{5, 4, 0, now - clockLag}}, nil},
		"idle established outlives short": {[]entry{{1, 1, session.Established, now - time.Minute}, {2, 2, session.Closing, now - time.Minute}}, []uint64{2}},
	} {
		c := newCensus(Timeouts{}, now)
		for _, e := range tc.in {
			if e.id == e.root {
				c.root(corpse{id: e.id}, session.TCP, e.state, e.at)
			} else {
				c.leg(corpse{id: e.id}, e.root, e.at)
			}
		}
		var got []uint64
		for _, x := range c.verdict() {
			got = append(got, x.id)
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: removed %v, want %v", name, got, tc.want)
		}
	}
}

func TestIDsStayWithTheirNames(t *testing.T) {
	var tab idTable
	tab.fill()
	assign := func(names ...string) {
		t.Helper()
		must(t, tab.assign("thing", names, 6))
	}
	assign("a", "b", "c")
	was := maps.Clone(tab.Live)
	assign("c", "d", "a")
	if tab.Live["a"] != was["a"] || tab.Live["c"] != was["c"] {
		t.Errorf("ids moved: %v, were %v", tab.Live, was)
	}
	if tab.Live["d"] == was["b"] {
		t.Error("a retired id was given away")
	}
	if tab.table().name(was["b"]) != "b" {
		t.Error("a retired id lost its name")
	}
	assign("a", "b", "c", "d")
	if tab.Live["b"] != was["b"] {
		t.Error("a name that came back got another id")
	}
	assign("a")
	if freed := tab.release(func(id uint16) bool { return id == was["b"] }); len(freed) != 2 {
		t.Errorf("freed %v, want those of c and d", freed)
	}
	assign("a", "x", "y", "z")
	if err := tab.assign("thing", []string{"a", "x", "y", "z", "one more"}, 6); err == nil {
		t.Error("more ids than there are")
	}
}

func TestStateSurvivesARestartNotAReboot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s, err := openStore(dir)
	must(t, err)
	must(t, s.IDs.Pools.assign("pool", []string{"p"}, 9))
	s.Sysctls["x"] = "1"
	s.Addresses = []ownAddress{{"eth0", netip.MustParsePrefix("192.0.2.1/32")}}
	must(t, s.save())
	s2, err := openStore(dir)
	must(t, err)
	if s2.IDs.Pools.Live["p"] != 1 || s2.Sysctls["x"] != "1" || s2.Addresses[0] != s.Addresses[0] {
		t.Errorf("read back %+v", s2.state)
	}
	s2.BootID = "another boot"
	must(t, s2.save())
	s3, err := openStore(dir)
	must(t, err)
	if len(s3.Sysctls)+len(s3.Addresses) != 0 {
		t.Errorf("state of another boot: %+v", s3.state)
	}
	must(t, os.WriteFile(filepath.Join(dir, stateFile), []byte("{"), 0o600))
	if _, err := openStore(dir); err == nil {
		t.Error("a damaged file was taken for an empty one")
	}
	must(t, s3.remove())
}

func TestMatcher(t *testing.T) {
	s := bpf.SsloSession{Id: 2, Parent: 1, Root: 1, Device: 1, InDevice: 2, Chain: 3, State: uint8(session.Established),
		Orig:  fromKey(session.Key{Tuple: session.Tuple{Proto: session.TCP, Src: client4, Dst: server4}, Link: 5}),
		Reply: fromKey(session.Key{Link: 6})}
	n := Names{links: nt("l", 5, "m", 6, "x", 7), devices: nt("d", 1, "e", 2), chains: nt("c", 3)}
	for _, tc := range []struct {
		f    Filter
		want bool
	}{
		{Filter{}, true},
		{Filter{Client: netip.MustParsePrefix("203.0.113.0/24"), Server: netip.MustParsePrefix("198.51.100.7/32")}, true},
		{Filter{Client: netip.MustParsePrefix("203.0.112.0/24")}, false},
		{Filter{Client: netip.MustParsePrefix("0.0.0.0/0")}, true}, {Filter{Client: netip.MustParsePrefix("2001:db8::/32")}, false},
		{Filter{Link: "l"}, true}, {Filter{Link: "m"}, true}, {Filter{Link: "x"}, false}, {Filter{Link: "nowhere"}, false},
		{Filter{Device: "d"}, true}, {Filter{Device: "e"}, true}, {Filter{Chain: "c"}, true}, {Filter{Chain: "d"}, false},
		{Filter{States: []session.State{session.Closed}}, false},
		{Filter{States: []session.State{session.Closed, session.Established}}, true},
		{Filter{Roots: true}, false}, {Filter{Bypassed: true}, false},
	} {
		m := newMatcher(tc.f, n)
		if got := m.match(&s); got != tc.want {
			t.Errorf("%+v: %v", tc.f, got)
		}
	}
}

func nt(pairs ...any) nameTable {
	t := idTable{Live: map[string]uint16{}}
	for i := 0; i < len(pairs); i += 2 {
		t.Live[pairs[i].(string)] = uint16(pairs[i+1].(int))
	}
	return t.table()
}

func TestKeysConvertBothWays(t *testing.T) {
	for range 200 {
		var a [16]byte
		for i := range a {
			a[i] = byte(rand.Uint32())
		}
		k := session.Key{Link: session.LinkID(rand.Uint32()), Tuple: session.Tuple{Proto: session.UDP,
			Src: netip.AddrPortFrom(netip.AddrFrom16(a), uint16(rand.Uint32())),
			Dst: netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[:4])), uint16(rand.Uint32()))}}
		raw := fromKey(k)
		if got := toKey(&raw); got != k {
			t.Fatalf("%v became %v", k, got)
		}
	}
}

func TestAnnouncementsAndResetsAreWellFormed(t *testing.T) {
	mac := []byte{2, 0, 0, 0, 0, 1}
	for _, ip := range []string{"192.0.2.7", "2001:db8::7"} {
		f, err := announcement(mac, netip.MustParseAddr(ip))
		must(t, err)
		checkFrame(t, f)
	}
	for _, r := range []rst{{session.Tuple{Src: client4, Dst: server4}, 7, 9}, {session.Tuple{Src: client6, Dst: server6}, 7, 9}} {
		f, err := r.frame(mac, mac)
		must(t, err)
		checkFrame(t, f)
	}
}

// A collection that emptied a big table is followed by another soon: only what is left costs time again.
func TestPauseBetweenCollections(t *testing.T) {
	for _, test := range []struct {
		st   GCStats
		want time.Duration
	}{
		{GCStats{}, gcEvery},
		{GCStats{Sessions: 100, Took: time.Millisecond}, gcEvery},
		{GCStats{Sessions: 1000, Took: time.Second}, gcShare * time.Second},
		{GCStats{Sessions: 1000, Removed: 1000, Took: 3 * time.Second}, gcEvery},
		{GCStats{Sessions: 1000, Removed: 900, Took: time.Second}, gcShare * time.Second / 10},
	} {
		if got := test.st.pause().Round(time.Millisecond); got != test.want {
			t.Errorf("%+v: %v, want %v", test.st, got, test.want)
		}
	}
}
