package probe

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"sslo/monitor"
)

func through(kind ThroughKind) ThroughSpec {
	return ThroughSpec{PathSpec: PathSpec{In: "a1", Out: "a2"}, Kind: kind, Client: netip.MustParseAddr("198.18.0.1"),
		Server:  netip.MustParseAddrPort("198.18.0.2:80"),
		Request: HTTPRequest{Method: "GET", Path: "/probe", Status: []StatusRange{{200, 299}}, Body: "sslo"}}
}

func through6(kind ThroughKind) ThroughSpec {
	s := through(kind)
	s.Client, s.Server = netip.MustParseAddr("2001:2::1"), netip.MustParseAddrPort("[2001:2::2]:80")
	return s
}

func firstPass(t *testing.T, p Prober) {
	t.Helper()
	var last monitor.Result
	for range 100 {
		if last = probeFor(p, 100*time.Millisecond); last.OK {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never passes: %s", last.Reason)
}

func TestThroughABridge(t *testing.T) {
	d := newBridgeDevice(t)
	for _, spec := range []ThroughSpec{through(ThroughTCP), through(ThroughHTTP), through(ThroughUDP),
		through6(ThroughTCP), through6(ThroughHTTP), through6(ThroughUDP)} {
		t.Run(spec.String(), func(t *testing.T) {
			p := mustOpen(t, spec)
			firstPass(t, p)
			for range 20 {
				if r := probeFor(p, 500*time.Millisecond); !r.OK {
					t.Fatal(r.Reason)
				}
			}
			d.inside("ip link set br0 down")
			wantFail(t, p, "no answer in time")
			d.inside("ip link set br0 up")
			firstPass(t, p)
		})
	}
}

// A device that forwards frames but no HTTP: exactly what a path monitor does not see.
func TestThroughSeesWhatAPathDoesNot(t *testing.T) {
	d := newBridgeDevice(t)
	path, p := d.open(), mustOpen(t, through(ThroughHTTP))
	firstPass(t, p)
	d.inside("nft add table bridge f")
	d.inside("nft add chain bridge f c {type filter hook forward priority 0;}")
	d.inside("nft add rule bridge f c ip protocol tcp tcp dport 80 drop")
	wantPass(t, path)
	wantFail(t, p, "no answer in time")
}

func TestNegative(t *testing.T) {
	d := newBridgeDevice(t)
	bad := through(ThroughHTTP)
	bad.Negative, bad.Request.Path, bad.Request.Body = true, "/?q=<script>", ""
	p, good := mustOpen(t, bad), mustOpen(t, through(ThroughHTTP))
	firstPass(t, good)
	if r := probeFor(p, time.Second); r.OK || r.Reason != errNotBlocked.Error() {
		t.Fatalf("a bridge blocks nothing, but %+v", r)
	}
	// A device that drops packets with "<scri" at the place where the bad request has it.
	d.inside("nft add table bridge f")
	d.inside("nft add chain bridge f c {type filter hook forward priority 0;}")
	d.inside("nft add rule bridge f c ip protocol tcp @th,224,48 0x3c7363726970 drop")
	if r := probeFor(p, 300*time.Millisecond); !r.OK || !strings.Contains(r.Reason, "blocked: the request did not pass") {
		t.Errorf("blocked in silence: %+v", r)
	}
	wantPass(t, good)
}
