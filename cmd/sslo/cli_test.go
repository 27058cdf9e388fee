package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sslo/admin/api"
)

var update = flag.Bool("update", false, "write the golden files")

// connection is the tree of one connection through two devices, the first bypassed in mid-stream.
func connection() []api.Session {
	leg := func(id api.ID, in, out string) api.Session {
		return api.Session{ID: id, Root: 0x1f, Protocol: "tcp", Client: netip.MustParseAddrPort("192.0.2.7:41822"),
			Server: netip.MustParseAddrPort("198.51.100.10:80"), Link: in, NextLink: out, Chain: "inspect", State: "established",
			Packets: [2]uint64{100, 2000}, Bytes: [2]uint64{12345, 3_456_789_012}, Age: 75.5, Idle: 0.021}
	}
	a, b, c := leg(0x1f, "front0", "a1"), leg(0x20, "a2", "b1"), leg(0x21, "b2", "back0")
	a.Child, a.Pool, a.Device, a.Bypass, a.BypassFor, a.SkippedBytes = b.ID, "ips", "ips1", "device-down", 3.2, 1_200_000
	b.Parent, b.Child, b.Pool, b.Device, b.From, b.FromBypassed, b.RewritesSeq = a.ID, c.ID, "waf", "waf1", "ips1", true, true
	c.Parent, c.From, c.Position, c.Skipped = b.ID, "waf1", 3, []api.Skipped{{Pool: "dlp", Reason: "disabled"}}
	return []api.Session{a, b, c}
}

// answers are what the fake daemon says.
func answers() map[string]any {
	since := time.Now().Add(-90 * time.Second)
	return map[string]any{
		"GET /v1/sessions":    api.SessionList{Sessions: connection(), Count: 3, Truncated: true},
		"GET /v1/sessions/20": api.SessionList{Sessions: connection()},
		"GET /v1/devices": []api.Device{
			{Name: "ips1", In: "a1", Out: "a2", Pools: []string{"ips"}, State: "down", Since: since, Service: "none",
				Reason: "path: no answer (3 in a row)", Monitors: []api.Monitor{{Name: "path", Type: "path", State: "down"}}},
			{Name: "waf1", In: "b1", Out: "b2", Pools: []string{"waf"}, State: "up", Since: since.Add(-49 * time.Hour), Service: "full",
				Sessions: 7, Reason: "first probe passed", Sent: [2]api.Counter{{Bytes: 999}, {Bytes: 1_500_000}}},
		},
		"GET /v1/chains": []api.Chain{{Name: "inspect", InService: true, Pools: []api.Pool{
			{Name: "ips", Method: "weighted", OnDown: "bypass", Devices: []api.PoolDevice{{Name: "ips1", State: "down", Weight: 3}}},
			{Name: "waf", Method: "round-robin", OnDown: "reset", InService: true, Devices: []api.PoolDevice{{Name: "waf1", State: "up", Weight: 1}}}}}},
		"GET /v1/ledger": []api.LedgerEntry{{Chain: "inspect", Pool: "ips", Device: "ips1", Reason: "device-down", Source: "kernel", Sessions: 1, Packets: 900, Bytes: 1_200_000},
			{Chain: "inspect", Reason: "forced", Source: "proxy", Sessions: 2, Bytes: 5}},
		"POST /v1/devices/ips1/disable": api.Device{Name: "ips1", State: "disabled", Service: "established", Sessions: 4},
		"POST /v1/reload":               api.Reload{Changes: []string{"chain inspect: changed"}},
		"DELETE /v1/sessions/20":        nil,
		"GET /v1/sessions/99":           &api.Problem{Status: 404, Title: "Not found", Detail: "session 99: not found"},
		"POST /v1/devices/bad/enable": &api.Problem{Status: 422, Title: "Refused", Detail: "x.yml was refused",
			Errors: []api.ConfigError{{File: "x.yml", Line: 3, Column: 7, Path: "links.ext", Message: "unknown key"}}},
	}
}

func fakeDaemon(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "admin.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for pattern, answer := range answers() {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			if p, ok := answer.(*api.Problem); ok {
				w.Header().Set("Content-Type", api.ProblemType)
				w.WriteHeader(p.Status)
			}
			json.NewEncoder(w).Encode(answer)
		})
	}
	s := &http.Server{Handler: mux}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return socket
}

// command runs a command line and returns what it printed.
func command(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := newRootCmd()
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	code = execute(context.Background(), root, args)
	return code, stdout.String(), stderr.String()
}

func TestViews(t *testing.T) {
	socket := fakeDaemon(t)
	for name, args := range map[string]string{
		"sessions":     "show sessions",
		"sessions-all": "show sessions --limit 0 --client 192.0.2.0/24 --tree",
		"session":      "show session 20",
		"devices":      "show devices",
		"chains":       "show chains",
		"ledger":       "show ledger",
		"disable":      "device disable ips1",
		"reload":       "reload",
		"kill":         "session kill 20",
	} {
		code, out, errs := command(t, append(strings.Fields(args), "--socket", socket)...)
		if code != exitOK || errs != "" {
			t.Errorf("%s: exit code %d, %q", args, code, errs)
		}
		golden(t, name, out)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
	}
}

func TestJSONIsWhatTheDaemonSays(t *testing.T) {
	code, out, _ := command(t, "show", "session", "20", "-o", "json", "--socket", fakeDaemon(t))
	var tree api.SessionList
	if err := json.Unmarshal([]byte(out), &tree); err != nil || code != exitOK || len(tree.Sessions) != 3 {
		t.Errorf("exit code %d, %v in %s", code, err, out)
	}
}

func TestExitCodes(t *testing.T) {
	socket := fakeDaemon(t)
	nowhere := filepath.Join(t.TempDir(), "nowhere.sock")
	tests := []struct {
		args string
		code int
		says string
	}{
		{"version", exitOK, ""},
		{"--help", exitOK, ""},
		{"nonsense", exitUsage, `unknown command "nonsense"`},
		{"show devcies", exitUsage, `there is nothing called "devcies" to show`},
		{"show sessions --colour", exitUsage, "Run 'sslo show sessions --help'"},
		{"show devices -o xml", exitUsage, `unknown output format "xml"`},
		{"show session", exitUsage, "accepts 1 arg"},
		{"show session xyz", exitUsage, "hexadecimal"},
		{"show devices --socket " + nowhere, exitNotRunning, "daemon is not running: no socket at " + nowhere},
		{"show session 99 --socket " + socket, exitNotFound, "session 99: not found"},
		{"device enable bad --socket " + socket, exitFailed, "x.yml:3:7: links.ext: unknown key\nsslo: x.yml was refused"},
		{"run --config " + nowhere, exitFailed, nowhere},
	}
	for _, test := range tests {
		code, _, errs := command(t, strings.Fields(test.args)...)
		if code != test.code || !strings.Contains(errs, test.says) {
			t.Errorf("sslo %s: exit code %d, want %d; it says %q, not %q", test.args, code, test.code, errs, test.says)
		}
	}
}

func TestHumanNumbers(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 9949: "9.9 kB", 12345: "12 kB", 999_499: "999 kB", 999_500: "1.0 MB", 3_456_789_012: "3.5 GB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{20 * time.Millisecond: "0.0s", 75 * time.Second: "1m15s", 3*time.Hour + 5*time.Minute: "3h05m", 50 * time.Hour: "2d02h", -time.Second: "0.0s"} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
}
