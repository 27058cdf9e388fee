package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"sslo/admin/api"
	"sslo/admin/client"
	"sslo/session"
)

func TestEncoderWritesWhatTheTypeSays(t *testing.T) {
	table := connections(1)
	s := table.legs[1]
	s.Flags = session.BypassOut | session.BypassIn | session.RewritesSeq
	s.Bypass, s.BypassedAt = session.DeviceDown, time.Hour-3*time.Second
	s.SkippedBytes, s.Skipped = 77, []session.BypassReason{session.Forced, session.NotBypassed, session.Disabled}
	e := &encoder{time.Hour, newNameTables(fakeNames{}), fakeState{}.Chains()}

	var got api.Session
	text := e.append(nil, &s)
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	want := api.Session{ID: 2, Root: 1, Parent: 1, Child: 3, Protocol: "tcp", Client: s.Orig.Src, Server: s.Orig.Dst,
		Link: "a2", NextLink: "b1", Chain: `inspect "all"`, Position: 1, Pool: "waf", Device: "waf1", From: "ips1",
		State: "established", Bypass: "device-down", BypassFor: 3, FromBypassed: true, RewritesSeq: true, SkippedBytes: 77,
		Skipped: []api.Skipped{{Pool: "ips", Reason: "forced"}, {Pool: "#3", Reason: "disabled"}},
		Packets: s.Packets, Bytes: s.Bytes, Age: 12.345, Idle: 0.021}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	again, _ := json.Marshal(want)
	if string(again) != string(text) {
		t.Errorf("encoder %s\nmarshal %s", text, again)
	}
}

func TestListSessions(t *testing.T) {
	c := serve(t, connections(1000))
	c.table.legs[3].Flags, c.table.legs[3].Bypass = session.BypassOut, session.Forced
	tests := []struct {
		query     client.SessionQuery
		count     int
		truncated bool
	}{
		{client.SessionQuery{}, 3000, false},
		{client.SessionQuery{Limit: 10}, 10, true},
		{client.SessionQuery{Limit: 3000}, 3000, false},
		{client.SessionQuery{Client: "10.0.0.1"}, 3, false},
		{client.SessionQuery{Client: "10.0.0.1:1025", Link: "front"}, 1, false},
		{client.SessionQuery{Client: "10.0.1.0/24"}, 3 * 256, false},
		{client.SessionQuery{Client: ":1024"}, 3, false},
		{client.SessionQuery{Server: "192.0.2.10:443"}, 0, false},
		{client.SessionQuery{Device: "waf1"}, 1000, false},
		{client.SessionQuery{State: "bypassed"}, 1, false},
		{client.SessionQuery{State: "closing"}, 0, false},
		{client.SessionQuery{Client: "10.0.0.1", Link: "front", Trees: true}, 3, false},
		{client.SessionQuery{Trees: true, Limit: 2}, 6, true},
	}
	for _, test := range tests {
		var got api.SessionList
		if err := c.Get(context.Background(), test.query.Path(), &got); err != nil {
			t.Errorf("%s: %v", test.query.Path(), err)
		}
		if got.Count != test.count || len(got.Sessions) != test.count || got.Truncated != test.truncated || got.Error != "" {
			t.Errorf("%s: %d sessions, count %d, truncated %v, error %q; want %d, %v",
				test.query.Path(), len(got.Sessions), got.Count, got.Truncated, got.Error, test.count, test.truncated)
		}
	}
}

func TestListSessionsSaysThatItBrokeOff(t *testing.T) {
	c := serve(t, connections(2))
	c.table.broken = errors.New(`map "sessions" went away`)
	var got api.SessionList
	if err := c.Get(context.Background(), "/v1/sessions", &got); err != nil {
		t.Fatal(err)
	}
	if got.Count != 6 || got.Error != c.table.broken.Error() {
		t.Errorf("got %d sessions and error %q", got.Count, got.Error)
	}
}

func TestRefusals(t *testing.T) {
	c := serve(t, connections(1))
	tests := []struct {
		method, path string
		status       int
		says         string
	}{
		{"GET", "/v1/sessions?link=nowhere", 400, `there is no link "nowhere"; there are: a1, a2, front`},
		{"GET", "/v1/sessions?state=open", 400, `there is no state "open"; there are: new, syn-sent`},
		{"GET", "/v1/sessions?client=10.0.0", 400, `"10.0.0" is not an address`},
		{"GET", "/v1/sessions?limit=-1", 400, `limit: "-1" is not a number`},
		{"GET", "/v1/sessions/zz", 400, `"zz" is not a session id`},
		{"GET", "/v1/sessions/ffff", 404, "session ffff: not found"},
		{"DELETE", "/v1/sessions/ffff", 404, "not found"},
		{"GET", "/v1/devices/ips9", 404, `device "ips9": not found`},
		{"POST", "/v1/devices/ips9/disable", 404, `device "ips9": not found`},
		{"POST", "/v1/devices/ips1/explode", 404, "no POST /v1/devices/ips1/explode"},
		{"GET", "/v2/devices", 404, "no GET /v2/devices"},
	}
	for _, test := range tests {
		status, contentType, body := request(t, c.socket, test.method, test.path, nil)
		var p api.Problem
		if err := json.Unmarshal(body, &p); err != nil || contentType != api.ProblemType {
			t.Errorf("%s %s: %s %q, %v", test.method, test.path, contentType, body, err)
		}
		if status != test.status || p.Status != test.status || !strings.Contains(p.Detail, test.says) {
			t.Errorf("%s %s: %d %q, want %d %q", test.method, test.path, status, p.Detail, test.status, test.says)
		}
	}
}

func request(t *testing.T, socket, method, path string, body io.Reader) (int, string, []byte) {
	t.Helper()
	dial := func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) }
	h := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	req, err := http.NewRequest(method, "http://sslo"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), text
}

func TestOperateNamesTheCaller(t *testing.T) {
	c := serve(t, connections(0))
	device, err := c.SetDevice(context.Background(), "ips1", "disable")
	if err != nil {
		t.Fatal(err)
	}
	who := fmt.Sprintf("uid %d", os.Getuid())
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	if device.Operator == nil || device.Operator.By != who {
		t.Errorf("device %+v, want a decision by %s", device, who)
	}
}

func TestShowAndKillSession(t *testing.T) {
	c := serve(t, connections(3))
	c.table.legs[0].Skipped = []session.BypassReason{session.NotBypassed, session.Disabled}
	var tree api.SessionList
	if err := c.Get(context.Background(), "/v1/sessions/2", &tree); err != nil {
		t.Fatal(err)
	}
	if len(tree.Sessions) != 3 || tree.Sessions[0].ID != 1 {
		t.Fatalf("tree %+v", tree)
	}
	if want := []api.Skipped{{Pool: "waf", Reason: "disabled"}}; !reflect.DeepEqual(tree.Sessions[0].Skipped, want) {
		t.Errorf("skipped %v, want %v", tree.Sessions[0].Skipped, want)
	}
	if tree.Connection != nil {
		t.Errorf("a connection that the proxies do not have: %+v", tree.Connection)
	}
	if err := c.Get(context.Background(), "/v1/sessions/5", &tree); err != nil || tree.Connection == nil || tree.Connection.ServerName != "shop.test" {
		t.Errorf("connection %+v, %v", tree.Connection, err)
	}
	if err := c.KillSession(context.Background(), 2); err != nil || c.table.killed != 2 {
		t.Errorf("killed %v, %v", c.table.killed, err)
	}
}

func TestConnections(t *testing.T) {
	c := serve(t, connections(0))
	for query, want := range map[string][2]int{"": {2, 2}, "?limit=1": {1, 2}, "?client=2001:db8::/32": {1, 1}, "?server=192.0.2.10:443": {1, 1}, "?server=:80": {0, 0}} {
		var got api.ConnectionList
		if err := c.Get(context.Background(), "/v1/connections"+query, &got); err != nil || len(got.Connections) != want[0] || got.Total != want[1] {
			t.Errorf("%s: %d of %d, %v; want %d of %d", query, len(got.Connections), got.Total, err, want[0], want[1])
		}
	}
}

func TestReloadReturnsEveryMistake(t *testing.T) {
	c := serve(t, connections(0))
	got, err := c.Reload(context.Background())
	if err != nil || len(got.Changes) != 1 {
		t.Errorf("reload: %v, %v", got, err)
	}
	want := &api.Problem{Title: "Configuration refused", Status: 422, Detail: "2 mistakes", Errors: []api.ConfigError{
		{File: "sslo.yml", Line: 3, Column: 5, Path: "links.ext", Message: "unknown key"}, {File: "x.pem", Message: "no such file"}}}
	c.control.reload = want
	_, err = c.Reload(context.Background())
	var problem *api.Problem
	if !errors.As(err, &problem) || !reflect.DeepEqual(problem, want) {
		t.Errorf("got %#v", err)
	}
}

func TestEvents(t *testing.T) {
	c := serve(t, connections(0))
	var events []api.Event
	if err := c.Get(context.Background(), "/v1/events?after=1&limit=5", &events); err != nil || len(events) != 2 {
		t.Errorf("events %v, %v", events, err)
	}
}

func TestProfiles(t *testing.T) {
	c := serve(t, connections(0))
	status, contentType, body := request(t, c.socket, "GET", "/v1/debug/goroutine", nil)
	if status != 200 || !strings.HasPrefix(contentType, "text/plain") || !strings.HasPrefix(string(body), "goroutine profile: total ") {
		t.Errorf("%d %s %.100s", status, contentType, body)
	}
	if status, _, body := request(t, c.socket, "GET", "/v1/debug/nothing", nil); status != 404 {
		t.Errorf("%d %s", status, body)
	}
}

func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := Listen(path); !errors.Is(err, ErrInUse) {
		t.Errorf("second listener: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as if killed
	l.Close()
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	l, err = Listen(path)
	if err != nil {
		t.Fatalf("stale socket: %v", err)
	}
	l.Close()
}

func TestClientExplainsAnAbsentDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	err := client.New(path).Get(context.Background(), "/v1/status", nil)
	if !errors.Is(err, client.ErrNotRunning) || !strings.Contains(err.Error(), "no socket at "+path) {
		t.Errorf("got %v", err)
	}
}

func TestHugeBodyIsRefused(t *testing.T) {
	c := serve(t, connections(0))
	// No handler reads a body, so what matters is that the server neither keeps nor drains it. It may have
	// answered and closed before all of it is written.
	conn, err := net.Dial("unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const size = 60 << 10
	if _, err := fmt.Fprintf(conn, "POST /v1/reload HTTP/1.1\r\nHost: sslo\r\nContent-Length: %d\r\n\r\n", size); err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, strings.Repeat("x", size))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func BenchmarkEncode(b *testing.B) {
	s := connections(1).legs[1]
	e := &encoder{time.Hour, newNameTables(fakeNames{}), fakeState{}.Chains()}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = e.append(buf[:0], &s)
	}
	b.SetBytes(int64(len(buf)))
}

// BenchmarkListMillion is the whole way of a million sessions over the socket.
func BenchmarkListMillion(b *testing.B) {
	c := serve(b, connections(1_000_000/3+1))
	for b.Loop() {
		body, err := c.Raw(context.Background(), "/v1/sessions")
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, body)
		if err != nil {
			b.Fatal(err)
		}
		body.Close()
		b.SetBytes(n)
	}
}
