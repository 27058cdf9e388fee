package e2e

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"sslo/bpf"
	"sslo/session"
	"sslo/test/lab"
)

const (
	crowd       = 4500
	descriptors = 20_000
	most        = (descriptors - 64) / 4 // connections: four descriptors each, and some for everything else
)

// TestCrowd: 4,500 connections through two devices, then up to the descriptor limit and beyond. What is too
// much is refused at once and counted, and hurts nobody who is in.
func TestCrowd(t *testing.T) {
	line := lab.Line(2, lab.Bridge)
	b := build(t, lab.Topology{NoOrigin: true, Devices: line.Devices, Pools: line.Pools, Chain: line.Chain})
	b.config.Set("system.limits", map[string]any{"descriptors": descriptors})
	b.originProcess() // its descriptors are not the client's: this process is the client
	b.start()
	b.awaitReady()
	b.fetch("/", lab.ClientOptions{})
	before := b.resources()

	c := &clients{bed: b}
	start := time.Now()
	if refused := c.grow(crowd); refused != 0 {
		t.Fatalf("%d of %d refused", refused, crowd)
	}
	t.Logf("%d connections in %v, %d descriptors, %.1f kB resident each", crowd, time.Since(start).Round(time.Millisecond),
		b.openFiles(), float64(b.resident())/crowd)
	b.eventually(20*time.Second, func() error { // the first request's own sessions may still be there
		if n := b.counters().Sessions; n != 3*crowd {
			return fmt.Errorf("%d sessions, want %d", n, 3*crowd)
		}
		return nil
	})
	if n := b.openFiles(); n < 4*crowd {
		t.Errorf("%d descriptors: not four a connection", n)
	}
	over := 100
	if refused := c.grow(most - crowd + over); refused != over {
		t.Errorf("%d refused beyond the limit, want %d", refused, over)
	}
	b.awaitCounter("ended/fd-limit", uint64(over))
	b.awaitLog("reason=fd-limit")
	if n := b.openFiles(); n > descriptors {
		t.Errorf("%d descriptors", n)
	}
	start = time.Now()
	c.askAll()
	t.Logf("all %d asked again in %v", len(c.all), time.Since(start).Round(time.Millisecond))
	c.shrink(100)
	b.eventually(10*time.Second, func() error { return b.open(most - 100) })
	if refused := c.grow(100); refused != 0 {
		t.Errorf("%d refused although there is room again", refused)
	}
	c.shrink(len(c.all))
	b.awaitRest(before)
}

// originProcess runs the origin as a process of its own.
func (b *bed) originProcess() {
	b.t.Helper()
	program, err := lab.Program()
	b.must(err)
	_, err = b.Start(b.Server().Namespace, "origin", program, "lab", "origin-run", "--name", "server1", "--dir", b.Dir)
	b.must(err)
}

// clients are open connections.
type clients struct {
	*bed
	all []*tls.Conn
}

// grow makes n connections, each of which asks once, and says how many were refused.
func (c *clients) grow(n int) int {
	c.t.Helper()
	var mu sync.Mutex
	var refused atomic.Int64
	c.parallel(n, func(int) {
		conn, err := c.DialTLS(c.t.Context(), c.Client(), lab.ClientOptions{})
		switch {
		case err == nil:
			c.hello(conn)
			mu.Lock()
			c.all = append(c.all, conn)
			mu.Unlock()
		case errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE):
			refused.Add(1)
		default:
			c.t.Error(err)
		}
	})
	return int(refused.Load())
}

func (c *clients) parallel(n int, fn func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range 48 {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				fn(int(i))
			}
		})
	}
	workers.Wait()
}

func (c *clients) hello(conn *tls.Conn) {
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n")
	buf := make([]byte, 4096)
	var got []byte
	for !bytes.Contains(got, []byte("hello from")) {
		n, err := conn.Read(buf)
		if got = append(got, buf[:n]...); err != nil {
			c.t.Errorf("%q %v", got, err)
			return
		}
	}
}

func (c *clients) askAll() { c.parallel(len(c.all), func(i int) { c.hello(c.all[i]) }) }

func (c *clients) shrink(n int) {
	for _, conn := range c.all[:n] {
		conn.Close()
	}
	c.all = slices.Delete(c.all, 0, n)
}

// openFiles of the daemon.
func (b *bed) openFiles() int {
	b.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.daemon.PID()))
	b.must(err)
	return len(entries)
}

// resident memory of the daemon in kB.
func (b *bed) resident() (kb int) {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.daemon.PID()))
	b.must(err)
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	_, err = fmt.Sscan(rest, &kb)
	b.must(err)
	return kb
}

// cpu time that the daemon has used.
func (b *bed) cpu() time.Duration {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.daemon.PID()))
	b.must(err)
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var ticks time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		b.must(err)
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond // USER_HZ is 100 everywhere
}

const million = 1_000_000

// TestMillionSessions lists a full table over the admin socket in about a second, and garbage collection
// empties it while the daemon works on.
func TestMillionSessions(t *testing.T) {
	b := up(t, lab.Line(1, lab.Bridge), set("system.sessions", 1<<20), set("log.level", "debug"))
	sessions, flows := b.table(bpf.SsloMapSessions), b.table(bpf.SsloMapFlows)
	fill(t, sessions, flows, now()-uint64(time.Minute))

	best, cpu := time.Hour, time.Hour
	for range 3 {
		took, used := b.listAll()
		best, cpu = min(best, took), min(cpu, used)
	}
	t.Logf("%d sessions listed in %v, %v of the daemon's CPU", million, best.Round(time.Millisecond), cpu)
	if cpu > 3*time.Second { // generous, and not of the clock's time: other tests may run
		t.Errorf("listing a million sessions takes %v of CPU", cpu)
	}
	b.fetch("/", lab.ClientOptions{})

	b.reload(set("system.timeouts", map[string]any{"established": "10s"})) // they have been silent for longer
	start, used := time.Now(), b.cpu()
	slowest := time.Duration(0)
	for !strings.Contains(b.daemon.Output(), "sessions collected") && time.Since(start) < time.Minute {
		began := time.Now()
		b.fetch("/", lab.ClientOptions{})
		slowest = max(slowest, time.Since(began))
		time.Sleep(200 * time.Millisecond)
	}
	t.Logf("collected after %v, with %v of CPU; the slowest connection meanwhile took %v",
		time.Since(start).Round(time.Millisecond), b.cpu()-used, slowest.Round(time.Millisecond))
	b.eventually(time.Minute, func() error {
		s, f := entries[uint64, bpf.SsloSession](t, sessions), entries[bpf.SsloFlowKey, bpf.SsloFlow](t, flows)
		if s != 0 || f != 0 {
			return fmt.Errorf("%d sessions and %d flows left", s, f)
		}
		return nil
	})
}

func now() uint64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano())
}

// listAll reads the whole listing.
func (b *bed) listAll() (took, cpu time.Duration) {
	b.t.Helper()
	start, used := time.Now(), b.cpu()
	body, err := b.admin.Raw(b.context(30*time.Second), "/v1/sessions")
	b.must(err)
	defer body.Close()
	r := bufio.NewReaderSize(body, 1<<20)
	var last []byte
	n := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			break
		}
		n++
		last = append(last[:0], line...)
	}
	if want := fmt.Sprintf(`"count":%d`, million); !bytes.Contains(last, []byte(want)) && n < million {
		b.t.Errorf("%d lines, the last is %s", n, last)
	}
	return time.Since(start), b.cpu() - used
}

// table is one of the daemon's pinned maps.
func (b *bed) table(name string) *ebpf.Map {
	b.t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(b.PinPath(), "maps", name), nil)
	b.must(err)
	b.t.Cleanup(func() { m.Close() })
	return m
}

// fill writes a million sessions with their two flows each into the tables.
func fill(t *testing.T, sessions, flows *ebpf.Map, seen uint64) {
	t.Helper()
	const chunk = 10_000
	ids, values := make([]uint64, chunk), make([]bpf.SsloSession, chunk)
	keys, ends := make([]bpf.SsloFlowKey, 2*chunk), make([]bpf.SsloFlow, 2*chunk)
	for first := range million / chunk {
		for i := range chunk {
			id := uint64(1)<<40 + uint64(first*chunk+i) // no session of the programs has such a number
			s := synthetic(id, seen)
			ids[i], values[i] = id, s
			keys[2*i], keys[2*i+1] = s.Orig, s.Reply
			ends[2*i], ends[2*i+1] = bpf.SsloFlow{Session: id}, bpf.SsloFlow{Session: id, Dir: 1}
		}
		if _, err := sessions.BatchUpdate(ids, values, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := flows.BatchUpdate(keys, ends, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func synthetic(id, seen uint64) bpf.SsloSession {
	s := bpf.SsloSession{Id: id, Root: id, CreatedNs: seen, State: uint8(session.Established)}
	copy(s.Orig.Src[10:], []byte{0xff, 0xff, 100, byte(id >> 16), byte(id >> 8), byte(id)})
	copy(s.Orig.Dst[10:], []byte{0xff, 0xff, 192, 0, 2, 10})
	s.Orig.Sport, s.Orig.Dport, s.Orig.Proto, s.Orig.Link = uint16(id), 80<<8, 6, 1
	s.Reply = s.Orig
	s.Reply.Src, s.Reply.Dst, s.Reply.Sport, s.Reply.Dport, s.Reply.Link = s.Orig.Dst, s.Orig.Src, s.Orig.Dport, s.Orig.Sport, 2
	for dir := range s.Traffic {
		s.Traffic[dir].Packets, s.Traffic[dir].Bytes, s.Traffic[dir].SeenNs = id&0xffff, id&0xffffff, seen
	}
	return s
}

// entries counts what is in a map.
func entries[K, V any](t *testing.T, m *ebpf.Map) (n int) {
	t.Helper()
	var cursor ebpf.MapBatchCursor
	keys, values := make([]K, 8192), make([]V, 8192)
	for {
		got, err := m.BatchLookup(&cursor, keys, values, nil)
		n += got
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
