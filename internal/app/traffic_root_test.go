package app_test

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sslo/admin/api"
	"sslo/admin/client"
	"sslo/test/lab"
)

// download starts a paced download of a second and returns how it ended.
func (b *bed) download(o lab.ClientOptions) <-chan error {
	b.Helper()
	ended, started := make(chan error, 1), &lab.Progress{}
	o.Progress = started
	go func() {
		tr, err := b.Download(b.Context(), b.Lab.Client(), 10_000_000, 10_000_000, o)
		if err == nil && !tr.Right {
			err = fmt.Errorf("%d bytes with a wrong hash", tr.Bytes)
		}
		ended <- err
	}()
	lab.Eventually(b.T, 5*time.Second, func() error {
		if !started.Client().IsValid() {
			return errors.New("the download has not begun")
		}
		return nil
	})
	return ended
}

func (b *bed) sessions(q client.SessionQuery) []api.Session {
	b.Helper()
	var list api.SessionList
	b.get(q.Path(), &list)
	return list.Sessions
}

// TestReloadUnderTraffic: a reload opens and closes listeners and leaves connections alone.
func TestReloadUnderTraffic(t *testing.T) {
	b := newBed(t)
	b.start()
	b.awaitAllUp()
	second := lab.ClientOptions{Address: netip.MustParseAddrPort("10.1.0.101:8443")}
	if _, err := b.Get(t.Context(), b.Lab.Client(), "/", second); err == nil {
		t.Fatal("there is a second virtual server already")
	}
	running := b.download(lab.ClientOptions{})
	reload := func() []string {
		t.Helper()
		_, err := b.WriteConfig(b.config)
		b.must(err)
		r, err := b.admin.Reload(t.Context())
		b.must(err)
		return r.Changes
	}
	b.config.Set("virtual_servers.second", map[string]any{"links": []string{"ext"}, "listen": []string{second.Address.String()},
		"certificates": []string{"www"}, "server_pool": "web", "chain": "light"})
	b.config.Set("chains.light", map[string]any{"pools": []string{"waf"}})
	if got := reload(); !slices.Equal(got, []string{"chain light: added", "virtual server second: added"}) {
		t.Errorf("changes %q", got)
	}
	if _, err := b.Get(t.Context(), b.Lab.Client(), "/", second); err != nil {
		t.Errorf("the new virtual server: %v", err)
	}
	removed := b.download(second)
	b.config.Set("virtual_servers.second", nil)
	b.config.Set("chains.light", nil)
	reload()
	if _, err := b.Get(t.Context(), b.Lab.Client(), "/", second); err == nil {
		t.Error("the virtual server that was removed still answers")
	}
	if !strings.Contains(b.hostState(), "10.1.0.101") {
		t.Error("the address went before its last connection")
	}
	b.must(<-running)
	if err := <-removed; err != nil {
		t.Errorf("a connection of a virtual server that was removed: %v", err)
	}
	lab.Eventually(t, 5*time.Second, func() error {
		if strings.Contains(b.hostState(), "10.1.0.101") {
			return errors.New("the address is still there")
		}
		return nil
	})
}

// TestReloadThatFailsLate: the last step can not be done, so the steps before are undone.
func TestReloadThatFailsLate(t *testing.T) {
	b := newBed(t)
	b.start()
	b.awaitAllUp()
	before := b.hostState()
	taken, err := b.Box.Listen("tcp", ":8443")
	b.must(err)
	defer taken.Close()
	b.config.Set("virtual_servers.second", map[string]any{"links": []string{"ext"}, "listen": []string{"10.1.0.101:8443"},
		"certificates": []string{"www"}, "server_pool": "web", "chain": "light"})
	b.config.Set("chains.light", map[string]any{"pools": []string{"waf"}})
	_, err = b.WriteConfig(b.config)
	b.must(err)
	running := b.download(lab.ClientOptions{})
	if _, err := b.admin.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("reload: %v", err)
	}
	var chains []api.Chain
	if b.get("/v1/chains", &chains); len(chains) != 1 {
		t.Errorf("chains %+v", chains)
	}
	b.awaitHost(before)
	b.must(<-running)
	_, err = b.Get(t.Context(), b.Lab.Client(), "/", lab.ClientOptions{})
	b.must(err)
}

// TestShowAndKill: the tree of a connection is exactly its three sessions, and killing one ends it at both ends.
func TestShowAndKill(t *testing.T) {
	b := newBed(t)
	b.start()
	b.awaitAllUp()
	ended := b.download(lab.ClientOptions{})
	legs := b.sessions(client.SessionQuery{Client: b.Lab.Client().Addr4.String(), Trees: true})
	var way []string
	for _, s := range legs {
		way = append(way, s.Link+" "+s.NextLink)
	}
	ips, waf := legs[0].Device, legs[1].Device
	want := []string{"front0 " + ips + "-in", ips + "-out " + waf + "-in", waf + "-out back0"}
	if !slices.Equal(way, want) {
		t.Errorf("sessions %q, want %q", way, want)
	}
	if got := b.sessions(client.SessionQuery{Device: waf, State: "established"}); len(got) != 1 || got[0].ID != legs[1].ID {
		t.Errorf("sessions of %s: %+v", waf, got)
	}
	b.must(b.admin.KillSession(t.Context(), legs[1].ID))
	select {
	case err := <-ended:
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the client saw %v", err)
		}
	case <-time.After(time.Second):
		t.Error("the connection goes on")
	}
	lab.Eventually(t, 15*time.Second, func() error {
		if n := len(b.sessions(client.SessionQuery{})); n != 0 {
			return fmt.Errorf("%d sessions left", n)
		}
		return nil
	})
}

// TestLedgerHasBothSources: a device that is bypassed in the kernel, and a chain that is skipped inside the process.
func TestLedgerHasBothSources(t *testing.T) {
	b := newBed(t)
	b.start()
	b.awaitAllUp()
	get := func() {
		t.Helper()
		_, err := b.Get(t.Context(), b.Lab.Client(), "/", lab.ClientOptions{})
		b.must(err)
	}
	for _, device := range []string{"ips1", "ips2", "waf1", "waf2"} {
		_, err := b.admin.SetDevice(t.Context(), device, "bypass")
		b.must(err)
		get()
	}
	for _, want := range []string{"kernel inspect ips forced", "proxy inspect  forced"} {
		lab.Eventually(t, 5*time.Second, func() error { // bytes are counted when a connection has ended
			if seen := b.ledger(); !slices.Contains(seen, want) {
				return fmt.Errorf("ledger %q, want %q", seen, want)
			}
			return nil
		})
	}
}

// ledger entries that count something.
func (b *bed) ledger() []string {
	b.Helper()
	var entries []api.LedgerEntry
	b.get("/v1/ledger", &entries)
	var seen []string
	for _, e := range entries {
		if e.Sessions > 0 && e.Bytes > 0 {
			seen = append(seen, e.Source+" "+e.Chain+" "+e.Pool+" "+e.Reason)
		}
	}
	return seen
}

// TestDrain: at the end open connections may finish, and new ones are refused.
func TestDrain(t *testing.T) {
	b := newBed(t)
	b.start()
	b.awaitAllUp()
	ended := b.download(lab.ClientOptions{})
	b.must(b.daemon.Signal(syscall.SIGTERM))
	lab.Eventually(t, time.Second, func() error {
		if _, err := b.Get(t.Context(), b.Lab.Client(), "/", lab.ClientOptions{}); err == nil {
			return errors.New("new connections are still taken")
		}
		return nil
	})
	if err := <-ended; err != nil {
		t.Errorf("the connection that was open: %v", err)
	}
	if err := b.daemon.Wait(5 * time.Second); err != nil || strings.Contains(b.daemon.Output(), "aborted") {
		t.Errorf("the end: %v", err)
	}
}
