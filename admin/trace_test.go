package admin

import (
	"bufio"
	"context"
	"io"
	"net/netip"
	"testing"
	"time"
)

func TestTraceFilter(t *testing.T) {
	c, l := netip.MustParseAddrPort("10.1.0.2:4711"), netip.MustParseAddrPort("192.0.2.10:443")
	for _, tt := range []struct {
		src, dst, sni, link string
		want                bool
	}{
		{"", "", "", "", true},
		{"10.1.0.0/16", ":443", "www.test", "ext", true},
		{"10.1.0.2:4712", "", "", "", false},
		{"", "192.0.2.11", "", "", false},
		{"", "", "bank.test", "", false},
		{"", "", "", "int", false},
	} {
		f := TraceFilter{sni: tt.sni, link: tt.link}
		if err := parseEndpoint("src", tt.src, &f.client); err != nil {
			t.Fatal(err)
		}
		if err := parseEndpoint("dst", tt.dst, &f.server); err != nil {
			t.Fatal(err)
		}
		if got := f.Match(c, l, "ext", "www.test"); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// TestTraceOutlivesRequestsAndEnds: an answer goes on after the time that a request may take, and the end of
// the server does not wait for a reader that reads nothing.
func TestTraceOutlivesRequestsAndEnds(t *testing.T) {
	var body io.ReadCloser
	t.Cleanup(func() { body.Close() }) // the last: the server ends first, while nobody reads
	c := serve(t, connections(1))
	var err error
	body, err = c.Raw(context.Background(), "/v1/trace")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(body)
	for began := time.Now(); time.Since(began) < headerTimeout+time.Second; {
		if _, err := lines.ReadBytes('\n'); err != nil {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
	}
	if _, err := c.Raw(t.Context(), "/v1/trace?link=nowhere"); err == nil {
		t.Error("a link that is not there was accepted")
	}
}
