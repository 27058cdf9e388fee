package e2e

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sslo/admin/api"
	"sslo/test/lab"
)

// TestDeviceKeepsTheAnswers: what goes towards the server passes A, nothing comes back through it. The
// connection fails after the time to connect, and the log names the device.
func TestDeviceKeepsTheAnswers(t *testing.T) {
	b := unwatched(t)
	for i, how := range []lab.Failure{lab.BlackholeReply, lab.BlackholeOrig} {
		b.must(b.Lab.Fail("a", how))
		began := time.Now()
		if body, err := b.Get(b.context(10*time.Second), b.Client(), "/", lab.ClientOptions{}); err == nil {
			t.Errorf("%s: answered %q", how, body)
		}
		if took := time.Since(began); took < 900*time.Millisecond || took > 2*time.Second {
			t.Errorf("%s: failed after %s, not after 1 s", how, took)
		}
		b.awaitCounter("ended/device-did-not-return", uint64(i)+1)
		b.awaitLog("connection ended", "reason=device-did-not-return", "device a did not return the flow", "within 1s")
		b.must(b.Restore("a"))
	}
	b.fetch("/", lab.ClientOptions{})
}

// TestAbsentDevice: the daemon starts although a device is not there, says so at once, and goes past it.
func TestAbsentDevice(t *testing.T) {
	for _, how := range []lab.Failure{lab.Blackhole, lab.LinkDown} {
		t.Run(string(how), func(t *testing.T) {
			b := build(t, lab.Line(2, lab.Bridge))
			b.must(b.Lab.Fail("a", how))
			b.start()
			b.awaitDevice("b", "up")
			b.fetch("/", lab.ClientOptions{})
			if leg := b.keep(1)[0].at("b"); leg.From != "" {
				t.Errorf("a connection came to b through %q", leg.From)
			}
			started, _, running := strings.Cut(b.daemon.Output(), "msg=running")
			if !running || !hasLine(started, "device=a", "path-fast") && !hasLine(started, "device=a", "link a-in down") {
				t.Errorf("the first probe of a is not told at the start:\n%s", b.daemon.Output())
			}
			if !hasLine(started, "device=b", "up") {
				t.Errorf("the first probe of b is not told at the start:\n%s", b.daemon.Output())
			}
			b.restore("a")
			b.keep(1)[0].wantAt("a", "")
		})
	}
}

func hasLine(text string, parts ...string) bool {
	for line := range strings.Lines(text) {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			return true
		}
	}
	return false
}

// TestDeviceAnswersOnlyProbes: passive evidence against a device and good probes must not fight for ever.
func TestDeviceAnswersOnlyProbes(t *testing.T) {
	topology := pair()
	topology.Devices[0].Offload = false
	b := up(t, topology, set("monitors.path-fast.flap_max", 3), set("virtual_servers.shop.timeouts.connect", "1s"))
	b.sub("drops data", func(b *bed) {
		b.must(b.Lab.Fail("a", lab.BlackholeData))
		news := b.newsOf("a", func() { b.demand(5 * time.Second) })
		// Suspected and cleared three times, the last time saying that it stays quiet now.
		if len(news) < 2 || len(news) > 7 || !strings.Contains(news[len(news)-1].Message, "kept quiet") {
			b.t.Errorf("%d events: %+v", len(news), news)
		}
		if d := b.device("a"); d.State != "up" {
			b.t.Errorf("a is %s: %s", d.State, d.Reason)
		}
		if n := lines(b.daemon.Output(), "device=a"); n > 20 {
			b.t.Errorf("%d lines in the log", n)
		}
		b.must(b.Restore("a"))
		b.fetch("/", lab.ClientOptions{})
	})
	b.sub("resets", func(b *bed) {
		b.must(b.Lab.Fail("a", lab.Reset))
		before := lines(b.daemon.Output(), "connection ended")
		var n int
		news := b.newsOf("a", func() { n = b.demand(2 * time.Second) })
		if len(news) > 0 {
			b.t.Errorf("events %+v", news)
		}
		if told := lines(b.daemon.Output(), "connection ended") - before; n < 50 || told == 0 || told > 20 {
			b.t.Errorf("%d lines for %d connections", told, n)
		}
		b.awaitCounter("ended/inner-connect-failed", uint64(n))
		b.must(b.Restore("a"))
		b.fetch("/", lab.ClientOptions{})
	})
}

// newsOf is the events of a device while fn runs.
func (b *bed) newsOf(device string, fn func()) (news []api.Event) {
	b.t.Helper()
	last := uint64(0)
	for _, e := range get[[]api.Event](b, "/v1/events?limit=1") {
		last = e.Seq
	}
	fn()
	for _, e := range get[[]api.Event](b, fmt.Sprintf("/v1/events?limit=1000&after=%d", last)) {
		if e.Kind == "device" && e.Device == device {
			news = append(news, e)
		}
	}
	return news
}

// demand has four clients ask again and again, in vain.
func (b *bed) demand(d time.Duration) (failed int) {
	b.t.Helper()
	var wait sync.WaitGroup
	counts := make([]int, 4)
	for i := range counts {
		wait.Go(func() {
			for end := time.Now().Add(d); time.Now().Before(end); counts[i]++ {
				if _, err := b.Get(b.context(5*time.Second), b.Client(), "/", lab.ClientOptions{}); err == nil {
					b.t.Error(errors.New("answered"))
				}
			}
		})
	}
	wait.Wait()
	for _, n := range counts {
		failed += n
	}
	return failed
}

func lines(text, part string) (n int) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}
