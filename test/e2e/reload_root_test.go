package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sslo/admin/api"
	"sslo/admin/client"
	"sslo/test/lab"
)

// two is a chain of one pool with two devices.
func two() lab.Topology {
	return lab.Topology{Devices: []lab.Device{{Name: "a"}, {Name: "b"}}, Chain: []string{"ips"},
		Pools: []lab.Pool{{Name: "ips", Devices: []string{"a", "b"}}}}
}

// A device that is down stays down over a reload, whatever the reload changes: it gets nothing, and no
// event says that it came up or went down again.
func TestReloadWithADeviceDown(t *testing.T) {
	b := up(t, two())
	b.fail("a", lab.Blackhole)
	down := b.device("a")
	reloads := map[string]func(){
		"the same file":      func() { b.reload() },
		"the pool":           func() { b.reload(set("device_pools.ips.method", "least-sessions")) },
		"the device":         func() { b.reload(set("devices.a.offload", "off")) },
		"the monitor":        func() { b.reload(set("monitors.path-fast.fall", 3)) },
		"the chain's name":   func() { b.reload(rename("inspect", "inspect2")) },
		"the file by SIGHUP": func() { b.hangup(set("virtual_servers.shop.timeouts", map[string]any{"idle": "1h"})) },
	}
	for name, reload := range reloads {
		b.sub(name, func(b *bed) {
			last := b.lastEvent()
			reload()
			b.twenty(down)
			b.noEventOf("a", last)
		})
	}
	time.Sleep(1500 * time.Millisecond) // longer than fall, rise and hold-down take
	b.noEventOf("a", 0, "down")
	b.restore("a")
}

func rename(from, to string) func(lab.Config) {
	return func(c lab.Config) {
		chains := c["chains"].(map[string]any)
		chains[to] = chains[from]
		delete(chains, from)
		c.Set("virtual_servers.shop.chain", to)
	}
}

// hangup does what reload does, by signal.
func (b *bed) hangup(edit func(lab.Config)) {
	b.t.Helper()
	before := get[api.Status](b, "/v1/status").Loaded
	edit(b.config)
	_, err := b.WriteConfig(b.config)
	b.must(err)
	b.must(b.daemon.Signal(syscall.SIGHUP))
	b.eventually(5*time.Second, func() error {
		if get[api.Status](b, "/v1/status").Loaded.Equal(before) {
			return errors.New("not loaded")
		}
		return nil
	})
}

// twenty connections at once: none of them to the device that is down.
func (b *bed) twenty(down api.Device) {
	b.t.Helper()
	was, other := b.device("a"), b.device("b")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := b.Get(b.t.Context(), b.Client(), "/", lab.ClientOptions{}); err != nil {
				b.t.Error(err)
			}
		})
	}
	all.Wait()
	now := b.device("a")
	if now.Opened != was.Opened || now.Sent != was.Sent {
		b.t.Errorf("the device that is down got sessions %d → %d, frames %v → %v", was.Opened, now.Opened, was.Sent, now.Sent)
	}
	if now.State != "down" || !now.Since.Equal(down.Since) || now.Service != "none" {
		b.t.Errorf("%s (%s) since %v, was down since %v", now.State, now.Service, now.Since, down.Since)
	}
	if n := b.device("b").Opened - other.Opened; n != 20 {
		b.t.Errorf("the other device got %d of 20", n)
	}
}

func (b *bed) lastEvent() uint64 {
	b.t.Helper()
	events := get[[]api.Event](b, "/v1/events")
	if len(events) == 0 {
		return 0
	}
	return events[len(events)-1].Seq
}

// noEventOf a device after another event, but for those that lead to the state.
func (b *bed) noEventOf(device string, after uint64, but ...string) {
	b.t.Helper()
	seen := false
	for _, e := range get[[]api.Event](b, fmt.Sprintf("/v1/events?after=%d", after)) {
		if e.Device != device || e.Kind != "device" {
			continue
		}
		if len(but) > 0 && !seen {
			seen = e.To == but[0]
			continue
		}
		b.t.Errorf("event: %s", e.Message)
	}
}

// A file that is wrong changes nothing, and says where it is wrong; what can not be applied is taken back.
func TestBadReload(t *testing.T) {
	b := up(t, two())
	open := b.dial(b.Client(), lab.ClientOptions{})
	before := get[api.Status](b, "/v1/status")
	chains := get[[]api.Chain](b, "/v1/chains")
	path := b.Path("sslo.yaml")
	good, err := os.ReadFile(path)
	b.must(err)
	for name, bad := range map[string]struct {
		text string
		want []string // parts of one error each
	}{
		"unknown key and value": {strings.Replace(string(good), "type: https", "type: gopher", 1) + "nonsense: 1\n", []string{"gopher", "nonsense"}},
		"not YAML":              {"links: [\n", []string{""}},
		"undefined name":        {strings.Replace(string(good), "server_pool: web", "server_pool: nowhere", 1), []string{"nowhere"}},
	} {
		b.sub(name, func(b *bed) {
			b.must(os.WriteFile(path, []byte(bad.text), 0o644))
			b.refusesReload(path, bad.want)
		})
	}
	b.sub("an address that somebody else has", func(b *bed) {
		l, err := b.Box.Listen("tcp", "10.1.0.100:8443")
		b.must(err)
		defer l.Close()
		edited := strings.Replace(string(good), "- 10.1.0.100:443", "- 10.1.0.100:443\n    - 10.1.0.100:8443", 1)
		b.must(os.WriteFile(path, []byte(strings.Replace(edited, "inspect", "other", -1)), 0o644))
		_, err = b.admin.Reload(b.context(10 * time.Second))
		if err == nil || !strings.Contains(err.Error(), "10.1.0.100:8443") {
			b.t.Errorf("reload says %v", err)
		}
	})
	if now := get[api.Status](b, "/v1/status"); !now.Loaded.Equal(before.Loaded) {
		t.Errorf("loaded %v, was %v", now.Loaded, before.Loaded)
	}
	if now := get[[]api.Chain](b, "/v1/chains"); fmt.Sprint(now) != fmt.Sprint(chains) {
		t.Errorf("chains %v, were %v", now, chains)
	}
	io.WriteString(open, "GET / HTTP/1.0\r\n\r\n")
	if got, err := io.ReadAll(open); err != nil || !strings.Contains(string(got), "hello") {
		t.Errorf("the open connection: %q %v", got, err)
	}
	b.fetch("/", lab.ClientOptions{})
	b.fetch("/", lab.ClientOptions{IPv6: true})
}

// refusesReload tells every error with its place, to the caller and in the log.
func (b *bed) refusesReload(path string, want []string) {
	b.t.Helper()
	_, err := b.admin.Reload(b.context(10 * time.Second))
	var p *api.Problem
	if !errors.As(err, &p) || p.Status != http.StatusUnprocessableEntity || len(p.Errors) != len(want) {
		b.t.Fatalf("reload says %v: %+v", err, p)
	}
	for i, e := range p.Errors {
		if e.File != path || e.Line == 0 || e.Column == 0 {
			b.t.Errorf("no place: %+v", e)
		}
		if !strings.Contains(e.String(), want[i]) {
			b.t.Errorf("%q does not tell of %q", e, want[i])
		}
		b.awaitLog("refused", fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column))
	}
	out, err := b.cli("reload")
	if err == nil || !strings.Contains(out, p.Errors[0].String()) {
		b.t.Errorf("sslo reload says %q, %v", out, err)
	}
}

// cli runs an sslo command against the daemon.
func (b *bed) cli(args ...string) (string, error) {
	program, err := lab.Program()
	if err != nil {
		return "", err
	}
	return b.Box.Exec(b.context(10*time.Second), program, append(args, "--socket", b.AdminSocket())...)
}

// A good reload keeps open connections, their sessions and what the monitors know, and gives new connections
// what is new.
func TestGoodReload(t *testing.T) {
	b := up(t, two())
	p := &lab.Progress{}
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() {
		tr, err := b.Download(ctx, b.Client(), 4<<20, 2<<20, lab.ClientOptions{Progress: p})
		if err == nil && !tr.Right {
			err = errors.New("wrong hash")
		}
		done <- err
	}()
	idle := b.dial(b.Client(), lab.ClientOptions{})
	b.eventually(5*time.Second, func() error {
		if !p.Client().IsValid() || len(b.sessions(client.SessionQuery{})) < 4 {
			return errors.New("no sessions yet")
		}
		return nil
	})
	before, since := ids(b.tree(p.Client())), b.device("a").Since
	b.reload(set("device_pools.ips.method", "weighted"))
	b.reload(set("virtual_servers.shop.chain", nil), set("virtual_servers.shop.plaintext_port", 8080))
	if after := ids(b.tree(p.Client())); after != before {
		t.Errorf("sessions %s, were %s", after, before)
	}
	if d := b.device("a"); d.State != "up" || !d.Since.Equal(since) {
		t.Errorf("a is %s since %v, was up since %v", d.State, d.Since, since)
	}
	n := len(b.sessions(client.SessionQuery{}))
	fresh := b.dial(b.Client(), lab.ClientOptions{}) // without a chain: no sessions
	b.asks(fresh)
	if got := len(b.sessions(client.SessionQuery{})); got > n {
		t.Errorf("%d sessions, were %d: the new connection takes the old chain", got, n)
	}
	b.asks(idle)
	b.must(<-done)
}

func ids(tree []api.Session) string {
	var all []string
	for _, s := range tree {
		all = append(all, fmt.Sprintf("%s on %s", s.ID, s.Link))
	}
	return strings.Join(all, ", ")
}

// asks something on an open connection.
func (b *bed) asks(c io.ReadWriter) {
	b.t.Helper()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	b.must(err)
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(body), "hello") {
		b.t.Errorf("%q %v", body, err)
	}
}
