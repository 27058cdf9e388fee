package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sslo/admin/api"
	"sslo/test/lab"
)

// tracing is a trace that runs, and what it told so far.
type tracing struct {
	mu     sync.Mutex
	events []api.TraceEvent
	body   io.ReadCloser
}

// trace begins a trace; when it returns, new connections are seen.
func (b *bed) trace(query url.Values) *tracing {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	body, err := b.admin.Raw(ctx, "/v1/trace?"+query.Encode())
	b.must(err)
	b.t.Cleanup(func() { cancel(); body.Close() })
	t := &tracing{body: body}
	go t.read()
	b.eventually(5*time.Second, func() error { return t.has(0, "begin") })
	return t
}

func (t *tracing) read() {
	for d := json.NewDecoder(t.body); ; {
		var e api.TraceEvent
		if d.Decode(&e) != nil {
			return
		}
		t.mu.Lock()
		t.events = append(t.events, e)
		t.mu.Unlock()
	}
}

// of is what was told of one connection, in words.
func (t *tracing) of(connection uint64) (words []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.events {
		if e.Connection == connection {
			words = append(words, strings.Join(strings.Fields(fmt.Sprint(e.Kind, " ", e.Link, " ", e.NextLink, " ", e.Pool, " ", e.Device, " ", e.Reason)), " "))
		}
	}
	return words
}

func (t *tracing) has(connection uint64, prefix string) error {
	if words := t.of(connection); !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, prefix) }) {
		return fmt.Errorf("no %q of connection %d: %q", prefix, connection, words)
	}
	return nil
}

// ordered fails the test when times go backwards, or a connection is told of that does not match.
func (t *tracing) ordered(b *bed) {
	b.t.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	last := map[uint64]float64{}
	for _, e := range t.events {
		if e.Offset < last[e.Connection] {
			b.t.Errorf("connection %d: %s at %f after %f", e.Connection, e.Kind, e.Offset, last[e.Connection])
		}
		last[e.Connection] = e.Offset
	}
}

// TestTrace follows connections through two devices: both there, one down, one that dies in mid-stream, both
// down; and refuses to tell of others.
func TestTrace(t *testing.T) {
	b := up(t, lab.Line(2, lab.Bridge))
	d := b.DeviceNames()
	all, mine := b.trace(url.Values{}), b.trace(url.Values{"sni": {lab.ShopName}, "dst": {":443"}, "src": {b.Client().Addr4.String()}})
	other := b.trace(url.Values{"sni": {"other.test"}})
	links := func(kind, from, to, rest string) string {
		return strings.TrimSpace(kind + " " + from + " " + to + " " + rest)
	}

	request := func(n uint64, want ...string) {
		t.Helper()
		b.fetch("/", lab.ClientOptions{})
		want = append(append([]string{"open ext", "tls"}, want...), "server", "close ok")
		for _, tr := range []*tracing{all, mine} {
			b.eventually(5*time.Second, func() error { return tr.has(n, "close") })
			got := tr.of(n)
			if last := len(got) - 1; got[last] == "close client-reset" {
				got[last] = "close ok" // the client did not read to the end of TLS
			}
			if tr == mine { // the name is only known with the route, and told with it
				slices.Sort(got)
				want = slices.Sorted(slices.Values(want))
			}
			if !slices.Equal(got, want) {
				t.Errorf("connection %d\n got %q\nwant %q", n, got, want)
			}
		}
	}
	pools := get[[]api.Chain](b, "/v1/chains")[0].Pools
	hop := func(i int) string {
		from := "front0"
		if i > 0 {
			from = d[i-1] + "-out"
		}
		return links("hop", from, d[i]+"-in", pools[i].Name+" "+d[i])
	}
	request(1, "route", hop(0), hop(1), links("hop", d[1]+"-out", "back0", ""))

	b.fail(d[1], lab.Blackhole)
	request(2, "route", hop(0), "skip "+pools[1].Name+" device-down", links("hop", d[0]+"-out", "back0", ""))

	_, err := b.admin.SetDevice(t.Context(), d[0], "bypass")
	b.must(err)
	request(3, "route forced")
	_, err = b.admin.SetDevice(t.Context(), d[0], "enable")
	b.must(err)
	b.restore(d[1])

	c := b.dial(b.Client(), lab.ClientOptions{})
	b.mustRequest(c)
	b.fail(d[0], lab.Blackhole)
	b.mustRequest(c)
	b.eventually(5*time.Second, func() error { return all.has(4, links("bypass", "front0", pools[0].Name, d[0]+" device-down")) })
	c.Close()
	b.eventually(5*time.Second, func() error { return all.has(4, "close") })
	all.mu.Lock()
	last := all.events[len(all.events)-1]
	all.mu.Unlock()
	if last.Bytes == nil || last.Bytes[0] == 0 || last.Bytes[1] == 0 || last.SkippedBytes == 0 {
		t.Errorf("the end tells no bytes: %+v", last)
	}
	all.ordered(b)
	mine.ordered(b)
	if got := other.of(1); len(got) > 0 {
		t.Errorf("a trace of another name told %q", got)
	}
}

// TestTraceLosesForSlowReaders: a reader that reads nothing holds nothing up, and is told what it missed.
func TestTraceLosesForSlowReaders(t *testing.T) {
	b := up(t, lab.Line(1, lab.Bridge))
	body, err := b.admin.Raw(context.Background(), "/v1/trace")
	b.must(err)
	t.Cleanup(func() { body.Close() })
	for range 1500 { // more than the buffers of trace, transport and socket hold
		b.fetch("/", lab.ClientOptions{})
	}
	d := json.NewDecoder(body)
	deadline := time.AfterFunc(30*time.Second, func() { body.Close() }) // Decode then fails
	defer deadline.Stop()
	for lost := uint64(0); lost == 0; {
		var e api.TraceEvent
		if err := d.Decode(&e); err != nil {
			t.Fatalf("nothing was lost: %v", err)
		}
		lost = e.Lost
	}
}

// TestExplainAgreesWithTheTrace: what the daemon says would happen is what happens, also when a device is down.
func TestExplainAgreesWithTheTrace(t *testing.T) {
	b := up(t, lab.Line(2, lab.Bridge))
	tr := b.trace(url.Values{})
	d := b.DeviceNames()
	for n := uint64(1); n <= 2; n++ {
		v := url.Values{"src": {b.Client().Addr4.String()}, "dst": {lab.VIP4.String()}, "sni": {lab.ShopName}, "link": {"ext"}}
		x := get[api.Explanation](b, "/v1/explain?"+v.Encode())
		var said []string
		for _, h := range x.Hops {
			if h.Takes != "" {
				said = append(said, h.Takes)
			}
		}
		b.fetch("/", lab.ClientOptions{})
		b.eventually(5*time.Second, func() error { return tr.has(n, "close") })
		var went []string
		tr.mu.Lock()
		for _, e := range tr.events {
			if e.Connection == n && e.Kind == api.TraceHop && e.Device != "" {
				went = append(went, e.Device)
			}
		}
		tr.mu.Unlock()
		if !x.Running || x.Chain != "inspect" || !x.Inspected || !slices.Equal(said, went) || len(went) != int(3-n) {
			t.Errorf("explained as %q (%+v), went %q", said, x, went)
		}
		if n == 1 {
			b.fail(d[0], lab.LinkDown)
		}
	}
}
