package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sslo/admin/api"
	"sslo/test/lab"
)

// unwatched is a chain of A, a device that can be told to misbehave and that no monitor probes, and B, a
// bridge. What moves on A's links is then traffic, and whatever A does it stays in service.
func unwatched(t *testing.T) *bed {
	topology := pair()
	topology.Devices[0].Offload = false
	return up(t, topology, set("devices.a.monitor", []string{}), set("virtual_servers.shop.timeouts.connect", "1s"))
}

// load is what one link carries: frames in and out.
type load map[string]uint64

func (b *bed) load() load {
	b.t.Helper()
	l := load{}
	for _, link := range get[[]api.Link](b, "/v1/links") {
		l[link.Name] = link.RX.Packets + link.TX.Packets
	}
	return l
}

// awaitSilence waits until nothing moves any more on the links of A: what still circulates never ends.
func (b *bed) awaitSilence() {
	b.t.Helper()
	links := []string{lab.InNIC("a"), lab.OutNIC("a")}
	b.eventually(10*time.Second, func() error {
		before := b.load()
		time.Sleep(500 * time.Millisecond)
		after := b.load()
		for _, link := range links {
			if after[link] != before[link] {
				return fmt.Errorf("%d frames in half a second on %s", after[link]-before[link], link)
			}
		}
		return nil
	})
}

// wantLoad is that the links carried at most so many frames each since before.
func (b *bed) wantLoad(before load, most uint64) {
	b.t.Helper()
	for link, n := range b.load() {
		if strings.HasPrefix(link, "b-") {
			continue // probes
		}
		if n -= before[link]; n > most {
			b.t.Errorf("%d frames on %s, more than %d", n, link, most)
		}
	}
}

// TestReflectingDevice sends every frame back where it came from.
func TestReflectingDevice(t *testing.T) {
	b := unwatched(t)
	b.sub("new connection", func(b *bed) {
		b.must(b.Lab.Fail("a", lab.Reflect))
		before := b.load()
		_, err := b.Get(b.context(5*time.Second), b.Client(), "/", lab.ClientOptions{})
		if err == nil {
			t.Error("answered, although no frame can pass the device")
		}
		b.awaitCounter("ended/device-did-not-return", 1)
		b.awaitLog("device a did not return the flow")
		b.awaitSilence()
		b.wantLoad(before, 40)
		if n := b.dropped(lab.InNIC("a"), "no-session"); n == 0 {
			t.Errorf("no frame was dropped: %+v", b.counters().Drops)
		}
		b.must(b.Restore("a"))
	})
	b.sub("in mid-stream", func(b *bed) {
		both := b.startStreams()
		time.Sleep(300 * time.Millisecond)
		before := b.load()
		b.must(b.Lab.Fail("a", lab.Reflect))
		time.Sleep(2 * time.Second)
		b.wantLoad(before, 4000) // a window each way and retransmissions, a stream would be 100,000
		b.must(b.Restore("a"))
		for _, s := range both {
			<-s.done
			if s.err != nil || !s.result.Right {
				t.Errorf("the %s: right %v: %v", s.name, s.result.Right, s.err)
			}
		}
		b.awaitSilence()
	})
}

// TestFloodingDevice sends every frame on several times, and back as often.
func TestFloodingDevice(t *testing.T) {
	b := unwatched(t)
	b.must(b.Lab.Fail("a", lab.Flood))
	before, dropped := b.load(), b.dropped(lab.InNIC("a"), "no-session")
	const requests = 5
	for range requests {
		b.fetch("/bytes/10000", lab.ClientOptions{})
	}
	b.awaitSilence()
	// Some 20 frames a connection, four times for the copies, and each copy may be answered.
	b.wantLoad(before, requests*20*4*5)
	if n := b.dropped(lab.InNIC("a"), "no-session"); n == dropped {
		t.Error("no copy that came back was dropped")
	}
	if got := b.device("a"); got.Received[0].Packets <= got.Sent[0].Packets {
		t.Errorf("no copies came through: %+v", got)
	}
}

// TestAnsweringDevice plays the server with a block page. Back never sees the connection.
func TestAnsweringDevice(t *testing.T) {
	b := unwatched(t)
	b.must(b.Lab.Fail("a", lab.Answer))
	before := b.load()
	const requests = 5
	for range requests {
		body, err := b.Get(b.context(5*time.Second), b.Client(), "/", lab.ClientOptions{})
		if err == nil || body != "blocked\n" {
			t.Errorf("the client got %q, %v instead of the device's 403", body, err)
		}
	}
	b.awaitSilence()
	b.wantLoad(before, requests*30)
	if got := b.device("b"); got.Sent[0].Packets > 0 || got.Sent[1].Packets > 0 {
		t.Errorf("the next device got %+v", got.Sent)
	}
	b.must(b.Restore("a"))
	b.fetch("/", lab.ClientOptions{})
}
