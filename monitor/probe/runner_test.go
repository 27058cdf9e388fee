package probe

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sslo/monitor"
)

// fast is a timing that tests can wait for.
var fast = monitor.Config{
	Interval: 20 * time.Millisecond, Timeout: 15 * time.Millisecond, Fall: 3, Rise: 3,
	HoldDown: 100 * time.Millisecond, FlapWindow: time.Minute, FlapMax: 10, FlapHold: time.Second,
	Verify: 150 * time.Millisecond,
}

// recorder keeps transitions and log lines.
type recorder struct {
	mu   sync.Mutex
	list []monitor.Transition
	text bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *recorder) report(t monitor.Transition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, t)
}

func (r *recorder) logger() *slog.Logger { return slog.New(slog.NewTextHandler(r, nil)) }

func (r *recorder) log() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *recorder) states() []monitor.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	var s []monitor.State
	for _, t := range r.list {
		s = append(s, t.To)
	}
	return s
}

func (r *recorder) wait(t *testing.T, states ...monitor.State) {
	t.Helper()
	end := time.Now().Add(3 * time.Second)
	for !slices.Equal(r.states(), states) {
		if time.Now().After(end) {
			t.Fatalf("states %v, want %v\n%s", r.states(), states, r.log())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// server is a TCP server that can be away and return at the same address.
type server struct {
	t    *testing.T
	addr string
	l    net.Listener
}

func newServerAt(t *testing.T) *server {
	s := &server{t: t, addr: "127.0.0.1:0"}
	s.up()
	s.addr = s.l.Addr().String()
	t.Cleanup(func() { s.l.Close() })
	return s
}

func (s *server) up() {
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.l = l
}

func (s *server) target(name string, c monitor.Config) Target {
	return Target{Kind: "server", Name: name, Monitors: []Monitor{
		{Name: "tcp", Config: c, Probe: TCPSpec{Address: netip.MustParseAddrPort(s.addr)}},
	}}
}

func TestRunnerFollowsAServer(t *testing.T) {
	s := newServerAt(t)
	rec := &recorder{}
	set := NewSet(rec.logger(), rec.report)
	defer set.Close()
	if err := set.Reload([]Target{s.target("web1", fast)}); err != nil {
		t.Fatal(err)
	}
	rec.wait(t, monitor.Up)
	s.l.Close()
	rec.wait(t, monitor.Up, monitor.Down)
	s.up()
	rec.wait(t, monitor.Up, monitor.Down, monitor.Up)
	if err := set.Operator("web1", monitor.Disable, "alice"); err != nil {
		t.Fatal(err)
	}
	rec.wait(t, monitor.Up, monitor.Down, monitor.Up, monitor.Disabled) // reported before Operator returned
	if st, ok := set.Get("web1"); !ok || st.State != monitor.Disabled || st.Checks[0].Latency <= 0 {
		t.Errorf("%+v", st)
	}
	for _, want := range []string{
		`msg="first probe" server=web1 monitor=tcp`, "ok=true", `from=up to=down health=down reason="tcp: connection refused (3 in a row)`,
		"level=INFO msg=\"state changed\" server=web1 from=down to=up", `reason="disabled by alice"`,
	} {
		if !strings.Contains(rec.log(), want) {
			t.Errorf("log lacks %s:\n%s", want, rec.log())
		}
	}
}

func TestRunnerTellsTheFirstFailure(t *testing.T) {
	s := newServerAt(t)
	s.l.Close()
	rec := &recorder{}
	slow := fast
	slow.Interval = time.Hour
	set := NewSet(rec.logger(), rec.report)
	defer set.Close()
	if err := set.Reload([]Target{s.target("web1", slow)}); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(3 * time.Second)
	for !strings.Contains(rec.log(), `level=INFO msg="first probe"`) && time.Now().Before(end) {
		time.Sleep(5 * time.Millisecond)
	}
	if !strings.Contains(rec.log(), `ok=false reason="connection refused"`) {
		t.Error(rec.log())
	}
	rec.wait(t)
}

// A server that failed is not brought back by a reload, whether its target changed or not.
func TestReloadKeepsState(t *testing.T) {
	s, other := newServerAt(t), newServerAt(t)
	rec := &recorder{}
	set := NewSet(rec.logger(), rec.report)
	defer set.Close()
	slow := fast
	slow.HoldDown = time.Minute
	reload := func(targets ...Target) {
		t.Helper()
		if err := set.Reload(targets); err != nil {
			t.Fatal(err)
		}
	}
	reload(s.target("web1", slow))
	rec.wait(t, monitor.Up)
	s.l.Close()
	rec.wait(t, monitor.Up, monitor.Down)
	before, _ := set.Get("web1")
	s.up()
	for i := range 10 {
		changed := slow
		changed.Rise += i / 2 // every other reload changes nothing
		reload(s.target("web1", changed))
		time.Sleep(10 * time.Millisecond)
	}
	if after, _ := set.Get("web1"); after.State != monitor.Down || !after.Since.Equal(before.Since) || after.Why != before.Why {
		t.Errorf("%+v became %+v", before, after)
	}
	if err := set.Reload([]Target{s.target("a", fast), s.target("a", fast)}); err == nil {
		t.Error("two of one name")
	}
	rec.wait(t, monitor.Up, monitor.Down)
	reload(other.target("web2", fast))
	if err := set.Suspect("web1", "x"); !errors.Is(err, ErrNoTarget) {
		t.Error(err)
	}
	rec.wait(t, monitor.Up, monitor.Down, monitor.Up)
}

func TestRestartKeepsState(t *testing.T) {
	s := newServerAt(t)
	rec := &recorder{}
	slow := fast
	slow.HoldDown = time.Minute
	set := NewSet(rec.logger(), rec.report)
	if err := set.Reload([]Target{s.target("web1", slow)}); err != nil {
		t.Fatal(err)
	}
	rec.wait(t, monitor.Up)
	s.l.Close()
	rec.wait(t, monitor.Up, monitor.Down)
	snapshot := set.Snapshot()
	if err := set.Close(); err != nil {
		t.Fatal(err)
	}
	s.up()
	rec2 := &recorder{}
	next := NewSet(rec2.logger(), rec2.report)
	defer next.Close()
	next.Restore(snapshot)
	if err := next.Reload([]Target{s.target("web1", slow)}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond) // many good probes
	rec2.wait(t)
	if st, _ := next.Get("web1"); st.State != monitor.Down {
		t.Errorf("%+v", st)
	}
}

func TestLinkStateReachesLaterTargets(t *testing.T) {
	s := newServerAt(t)
	rec := &recorder{}
	set := NewSet(rec.logger(), rec.report)
	defer set.Close()
	set.Link("a1", false)
	target := s.target("ips1", fast)
	target.Links = []string{"a1"}
	if err := set.Reload([]Target{target}); err != nil {
		t.Fatal(err)
	}
	rec.wait(t, monitor.Down)
	time.Sleep(150 * time.Millisecond)
	set.Link("a1", true)
	rec.wait(t, monitor.Down, monitor.Up)
}

func TestStopLeavesNothingBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	rec := &recorder{}
	set := NewSet(rec.logger(), rec.report)
	slow := fast
	slow.Timeout = time.Minute
	var targets []Target
	for _, name := range []string{"a", "b", "c", "d"} { // nobody answers there
		targets = append(targets, Target{Kind: "server", Name: name, Monitors: []Monitor{
			{Name: "tcp", Config: slow, Probe: TCPSpec{Address: netip.MustParseAddrPort("127.0.0.1:9"), NIC: ""}},
			{Name: "hang", Config: slow, Probe: hang{}},
		}})
	}
	if err := set.Reload(targets); err != nil {
		t.Fatal(err)
	}
	time.Sleep(150 * time.Millisecond)
	begin := time.Now()
	if err := set.Close(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begin); d > 500*time.Millisecond {
		t.Errorf("stop took %v", d)
	}
	for end := time.Now().Add(2 * time.Second); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// hang is a probe that never gets an answer.
type hang struct{}

func (hang) Open() (Prober, error) { return hang{}, nil }
func (hang) String() string        { return "hang" }
func (hang) Close() error          { return nil }
func (hang) Probe(ctx context.Context) monitor.Result {
	<-ctx.Done()
	return monitor.Result{Reason: "no answer in time"}
}
