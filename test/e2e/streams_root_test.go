package e2e

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"sslo/admin/api"
	"sslo/test/lab"
)

// slack is what a stream may stand still beyond the time that the daemon took to find a device dead.
const slack = 300 * time.Millisecond

// streams is how much flows each way while devices die, and how fast. With SSLO_LONG_TESTS=1 it is a gigabyte.
func streams() (size, rate int64) {
	if os.Getenv("SSLO_LONG_TESTS") == "1" {
		return 1 << 30, 50_000_000
	}
	return 60_000_000, 25_000_000
}

// pair is a device that reads and a bridge: A, the first of the chain, and B, the last.
func pair() lab.Topology {
	t := lab.Line(2, lab.Bridge)
	t.Devices[0].Kind, t.Devices[0].Offload = lab.Inspect, true
	return t
}

// TestStreamsOutliveDevices fails A, B and both in each silent way under a download and an upload.
func TestStreamsOutliveDevices(t *testing.T) {
	b := up(t, pair())
	for _, devices := range [][]string{{"a"}, {"b"}, {"a", "b"}} {
		for _, how := range []lab.Failure{lab.LinkDown, lab.Blackhole, lab.Hang} {
			b.sub(fmt.Sprintf("%v/%s", devices, how), func(b *bed) { b.outlive(how, devices) })
		}
	}
}

func (b *bed) outlive(how lab.Failure, devices []string) {
	both := b.startStreams()
	time.Sleep(time.Second)
	began := time.Now()
	for _, d := range devices {
		b.must(b.Lab.Fail(d, how))
	}
	var detected time.Duration
	for _, d := range devices {
		b.awaitService(d, "none")
		detected = max(detected, b.device(d).Since.Sub(began))
	}
	time.Sleep(300 * time.Millisecond) // some bytes go past it
	for _, s := range both {
		b.wantBypassed(s, devices)
	}
	for _, s := range both {
		b.wantWhole(s, began, detected)
	}
	for _, d := range devices {
		b.restore(d)
	}
}

// stream is a download or an upload under way.
type stream struct {
	name     string
	progress lab.Progress
	done     chan struct{}
	result   lab.Transfer
	err      error
}

// startStreams begins a download and an upload and returns when both flow.
func (b *bed) startStreams() []*stream {
	b.t.Helper()
	size, rate := streams()
	type transfer func(context.Context, *lab.Host, int64, int64, lab.ClientOptions) (lab.Transfer, error)
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	both := []*stream{{name: "download"}, {name: "upload"}}
	var wait sync.WaitGroup
	for i, start := range []transfer{b.Download, b.Upload} {
		s := both[i]
		s.done = make(chan struct{})
		wait.Go(func() {
			s.result, s.err = start(ctx, b.Client(), size, rate, lab.ClientOptions{Progress: &s.progress})
			close(s.done)
		})
	}
	b.t.Cleanup(func() { cancel(); wait.Wait() })
	for _, s := range both {
		b.eventually(5*time.Second, func() error {
			if !s.progress.Client().IsValid() {
				return fmt.Errorf("the %s does not flow", s.name)
			}
			return nil
		})
	}
	return both
}

func (b *bed) wantBypassed(s *stream, devices []string) {
	b.t.Helper()
	skipped := map[string]api.Session{}
	for _, leg := range b.tree(s.progress.Client()) {
		if leg.Bypass != "" {
			skipped[leg.Device] = leg
		}
	}
	for _, d := range devices {
		if leg := skipped[d]; leg.Bypass != "device-down" || leg.SkippedBytes == 0 {
			b.t.Errorf("the %s's session at %s: bypass %q, %d bytes past it", s.name, d, leg.Bypass, leg.SkippedBytes)
		}
	}
	if len(skipped) != len(devices) {
		b.t.Errorf("the %s goes past %d devices, not past %v", s.name, len(skipped), devices)
	}
}

func (b *bed) wantWhole(s *stream, failed time.Time, detected time.Duration) {
	b.t.Helper()
	<-s.done
	r := s.result
	if s.err != nil || !r.Right {
		b.t.Errorf("the %s: %d bytes, right %v: %v", s.name, r.Bytes, r.Right, s.err)
		return
	}
	// What begins later is no longer the device's doing: the stream goes past it, or had gone on.
	stood := r.Stood(failed, failed.Add(detected+slack))
	b.t.Logf("%s: %d MB in %.1f s, detected after %d ms, stood still for %d ms (%+d); longest of all %d ms from %d ms on", s.name, r.Bytes/1e6,
		r.Took.Seconds(), detected.Milliseconds(), stood.Milliseconds(), (stood - detected).Milliseconds(), r.Stall.Milliseconds(),
		r.StallAt.Sub(failed).Milliseconds())
	if stood > detected+slack {
		b.t.Errorf("the %s stood still for %s, detection took %s", s.name, stood, detected)
	}
}
