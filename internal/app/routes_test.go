package app

import (
	"testing"
	"time"
)

// TestSinceIsOfTheLastReturn: other servers' news does not move it, and one that is down or was never down has none.
func TestSinceIsOfTheLastReturn(t *testing.T) {
	r := newRoutes(nil)
	a := memberName("web", "a")
	r.setServers(map[string]bool{a: true})
	if r.Healthy("web", "a") || !r.Since("web", "a").IsZero() {
		t.Error("a server that is down is in service")
	}
	before := time.Now()
	r.setServers(map[string]bool{memberName("web", "b"): true})
	since := r.Since("web", "a")
	if !r.Healthy("web", "a") || since.Before(before) {
		t.Errorf("it came back %s, not after %s", since, before)
	}
	r.setServers(nil)
	if r.Since("web", "a") != since || r.Since("web", "b").Before(since) || !r.Since("web", "c").IsZero() {
		t.Error("news of b changed when a came back, or c came back that was never away")
	}
	r.setServers(map[string]bool{a: true})
	if !r.Since("web", "a").IsZero() {
		t.Error("it is down again and has a time")
	}
}
