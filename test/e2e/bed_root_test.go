package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sslo/admin/api"
	"sslo/admin/client"
	"sslo/internal/testutil"
	"sslo/test/lab"
)

// bed is a lab with the daemon in its box and a client of the daemon's admin API.
type bed struct {
	*lab.Lab
	t      *testing.T
	admin  *client.Client
	config lab.Config
	daemon *lab.Process
}

// build makes the lab without starting the daemon; edit b.config, then call start.
func build(t *testing.T, topology lab.Topology) *bed {
	t.Helper()
	testutil.RequireRoot(t)
	l := lab.Test(t, topology)
	return &bed{Lab: l, t: t, admin: client.New(l.AdminSocket()), config: l.Config()}
}

// up makes the lab, starts the daemon with the lab's configuration as changed by edits, and waits
// until all devices and servers are up.
func up(t *testing.T, topology lab.Topology, edits ...func(lab.Config)) *bed {
	t.Helper()
	b := build(t, topology)
	for _, edit := range edits {
		edit(b.config)
	}
	b.start()
	b.awaitReady()
	return b
}

// set is an edit of one value of the configuration.
func set(path string, value any) func(lab.Config) {
	return func(c lab.Config) { c.Set(path, value) }
}

// start runs the daemon with b.config; it ends with the test.
func (b *bed) start() {
	b.t.Helper()
	b.daemon = b.RunDaemon(b.t, b.config)
}

// on is the same bed for a subtest.
func (b *bed) on(t *testing.T) *bed {
	c := *b
	c.t = t
	return &c
}

// sub runs a subtest on this bed.
func (b *bed) sub(name string, fn func(b *bed)) {
	b.t.Helper()
	b.t.Run(name, func(t *testing.T) { fn(b.on(t)) })
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// eventually waits until fn succeeds.
func (b *bed) eventually(limit time.Duration, fn func() error) {
	b.t.Helper()
	lab.Eventually(b.t, limit, fn)
}

// context is the subtest's, with a deadline.
func (b *bed) context(limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(b.t.Context(), limit)
	b.t.Cleanup(cancel)
	return ctx
}

// reload changes the running daemon's configuration.
func (b *bed) reload(edits ...func(lab.Config)) {
	b.t.Helper()
	for _, edit := range edits {
		edit(b.config)
	}
	_, err := b.WriteConfig(b.config)
	b.must(err)
	_, err = b.admin.Reload(b.context(10 * time.Second))
	b.must(err)
}

// get is a GET of the admin API.
func get[T any](b *bed, path string) (out T) {
	b.t.Helper()
	b.must(b.admin.Get(b.context(10*time.Second), path, &out))
	return out
}

func (b *bed) device(name string) api.Device {
	b.t.Helper()
	return get[api.Device](b, "/v1/devices/"+name)
}

func (b *bed) awaitDevice(name, state string) {
	b.t.Helper()
	b.eventually(10*time.Second, func() error {
		if d := b.device(name); d.State != state {
			return fmt.Errorf("%s is %s (%s), not %s", name, d.State, d.Reason, state)
		}
		return nil
	})
}

// awaitService waits until the kernel gives a device full, established or no (none) traffic.
func (b *bed) awaitService(name, service string) {
	b.t.Helper()
	b.eventually(10*time.Second, func() error {
		if d := b.device(name); d.Service != service {
			return fmt.Errorf("%s is %s, service %s, not %s", name, d.State, d.Service, service)
		}
		return nil
	})
}

// awaitReady waits until all devices and all members of server pools are up.
func (b *bed) awaitReady() {
	b.t.Helper()
	for _, d := range b.DeviceNames() {
		b.awaitDevice(d, "up")
	}
	b.eventually(10*time.Second, func() error {
		for _, p := range get[[]api.ServerPool](b, "/v1/servers") {
			for _, m := range p.Members {
				if m.State != "up" {
					return fmt.Errorf("member %s of %s is %s: %s", m.Address, p.Name, m.State, m.Reason)
				}
			}
		}
		return nil
	})
}

// fail makes a device fail and waits until the daemon has taken it out of service.
func (b *bed) fail(device string, how lab.Failure) {
	b.t.Helper()
	b.must(b.Lab.Fail(device, how))
	b.awaitService(device, "none")
}

// restore makes a device whole and waits until it is in service.
func (b *bed) restore(device string) {
	b.t.Helper()
	b.must(b.Restore(device))
	b.awaitService(device, "full")
}

// sessions selects legs.
func (b *bed) sessions(q client.SessionQuery) []api.Session {
	b.t.Helper()
	list := get[api.SessionList](b, q.Path())
	if list.Error != "" {
		b.t.Fatal(list.Error)
	}
	return list.Sessions
}

// tree is the legs of all connections of one client address and port, in order of creation (id) of
// the connections, each from the root on.
func (b *bed) tree(of netip.AddrPort) []api.Session {
	b.t.Helper()
	legs := b.sessions(client.SessionQuery{Client: of.String(), Trees: true})
	slices.SortStableFunc(legs, func(x, y api.Session) int {
		if x.Root != y.Root {
			return compare(x.Root, y.Root)
		}
		return compare(x.Position, y.Position)
	})
	return legs
}

func compare[N api.ID | int](a, b N) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (b *bed) ledger() []api.LedgerEntry {
	b.t.Helper()
	return get[[]api.LedgerEntry](b, "/v1/ledger")
}

// skipped is the sessions in the ledger that fit; empty strings fit all.
func (b *bed) skipped(want api.LedgerEntry) (n uint64) {
	b.t.Helper()
	for _, e := range b.ledger() {
		if fits(want.Chain, e.Chain) && fits(want.Pool, e.Pool) && fits(want.Device, e.Device) &&
			fits(want.Reason, e.Reason) && fits(want.Source, e.Source) {
			n += e.Sessions
		}
	}
	return n
}

func fits(want, got string) bool { return want == "" || want == got }

func (b *bed) counters() api.Counters {
	b.t.Helper()
	return get[api.Counters](b, "/v1/counters")
}

// counter is one of the virtual server's, such as "ended/ok".
func (b *bed) counter(name string) uint64 {
	b.t.Helper()
	return b.counters().VirtualServers["shop"][name]
}

// awaitCounter waits until a counter of the virtual server is at least n.
func (b *bed) awaitCounter(name string, n uint64) {
	b.t.Helper()
	b.eventually(5*time.Second, func() error {
		if c := b.counters().VirtualServers["shop"]; c[name] < n {
			return fmt.Errorf("%s is %d, not %d: %v", name, c[name], n, c)
		}
		return nil
	})
}

// dropped is the frames dropped on a link for a reason; empty strings fit all.
func (b *bed) dropped(link, reason string) (n uint64) {
	b.t.Helper()
	for _, d := range b.counters().Drops {
		if fits(link, d.Link) && fits(reason, d.Reason) {
			n += d.Packets
		}
	}
	return n
}

// awaitLog waits for a line of the daemon's log that has all parts.
func (b *bed) awaitLog(parts ...string) {
	b.t.Helper()
	b.eventually(5*time.Second, func() error {
		for line := range strings.Lines(b.daemon.Output()) {
			if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
				return nil
			}
		}
		return fmt.Errorf("no line of the log has %q", parts)
	})
}

// fetch asks for a path with a connection of its own, and fails the test without an answer.
func (b *bed) fetch(path string, o lab.ClientOptions) string {
	b.t.Helper()
	body, err := b.Get(b.context(10*time.Second), b.Client(), path, o)
	b.must(err)
	return body
}

// dial makes a TLS connection that ends with the test.
func (b *bed) dial(from *lab.Host, o lab.ClientOptions) *tls.Conn {
	b.t.Helper()
	c, err := b.DialTLS(b.context(10*time.Second), from, o)
	b.must(err)
	b.t.Cleanup(func() { c.Close() })
	return c
}
