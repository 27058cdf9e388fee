package e2e

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"sslo/admin/api"
	"sslo/test/device"
	"sslo/test/lab"
)

// kept is a client connection that stays open between requests.
type kept struct {
	b      *bed
	conn   *tls.Conn
	answer *bufio.Reader
}

// keep opens n connections and makes a request on each.
func (b *bed) keep(n int) []*kept {
	b.t.Helper()
	var list []*kept
	for range n {
		c := b.dial(b.Client(), lab.ClientOptions{})
		k := &kept{b: b, conn: c, answer: bufio.NewReader(c)}
		b.must(k.ask())
		list = append(list, k)
	}
	return list
}

// ask makes a request and reads the answer.
func (k *kept) ask() error {
	_ = k.conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := fmt.Fprintf(k.conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", lab.ShopName); err != nil {
		return err
	}
	resp, err := http.ReadResponse(k.answer, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	return nil
}

func (k *kept) client() netip.AddrPort { return k.conn.LocalAddr().(*net.TCPAddr).AddrPort() }

// at is the leg that a device was chosen for.
func (k *kept) at(device string) api.Session {
	k.b.t.Helper()
	for _, leg := range k.b.tree(k.client()) {
		if leg.Device == device {
			return leg
		}
	}
	k.b.t.Errorf("no session of %s has device %s: %+v", k.client(), device, k.b.tree(k.client()))
	return api.Session{}
}

// wantAt asks once and looks whether that went through the device (bypass "") or past it.
func (k *kept) wantAt(device, bypass string) {
	k.b.t.Helper()
	before := k.at(device)
	if err := k.ask(); err != nil {
		k.b.t.Errorf("%s: %v", k.client(), err)
		return
	}
	after := k.at(device)
	past := after.SkippedBytes > before.SkippedBytes
	if after.Bypass != bypass || past != (bypass != "") {
		k.b.t.Errorf("%s at %s: bypass %q, want %q; %d bytes went past it before, %d now", k.client(), device, after.Bypass, bypass,
			before.SkippedBytes, after.SkippedBytes)
	}
}

// wantReset waits for the client's reset.
func (k *kept) wantReset(limit time.Duration) {
	k.b.t.Helper()
	_ = k.conn.SetDeadline(time.Now().Add(limit))
	_, err := k.answer.ReadByte()
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		k.b.t.Errorf("%s was not closed within %s: %v", k.client(), limit, err)
	}
}

// TestReturn: what becomes of sessions that went past a device when it is back.
func TestReturn(t *testing.T) {
	b := up(t, lab.Line(2, lab.Bridge))
	b.sub("new-sessions", func(b *bed) {
		old := b.bypassedBriefly("a")
		old.wantAt("a", "device-down")
		b.keep(1)[0].wantAt("a", "")
	})
	b.sub("immediate", func(b *bed) {
		b.reload(set("device_pools.pool-a.return", "immediate"))
		old := b.bypassedBriefly("a")
		old.wantAt("a", "")
		b.eventually(2*time.Second, func() error {
			if n := b.counters().Events["returned"]; n != 1 {
				return fmt.Errorf("%d sessions were counted as returned", n)
			}
			return nil
		})
	})
	b.sub("never", func(b *bed) {
		b.reload(set("device_pools.pool-a.return", "never"))
		old := b.keep(1)[0]
		b.fail("a", lab.Blackhole)
		old.wantAt("a", "device-down")
		b.must(b.Restore("a"))
		b.eventually(5*time.Second, func() error {
			if d := b.device("a"); d.State != "down" || d.Reason != "recovered, waiting for operator" {
				return fmt.Errorf("a is %s: %s", d.State, d.Reason)
			}
			return nil
		})
		before := b.device("a").Opened
		b.keep(1)
		if now := b.device("a").Opened; now != before {
			t.Errorf("%d sessions opened on a device that waits for the operator", now-before)
		}
		_, err := b.admin.SetDevice(b.context(5*time.Second), "a", "enable")
		b.must(err)
		b.awaitService("a", "full")
		old.wantAt("a", "device-down")
		b.keep(1)[0].wantAt("a", "")
	})
}

// bypassedBriefly is a connection that went past a device which then came back.
func (b *bed) bypassedBriefly(device string) *kept {
	b.t.Helper()
	k := b.keep(1)[0]
	k.wantAt(device, "")
	b.fail(device, lab.Blackhole)
	k.wantAt(device, "device-down")
	b.restore(device)
	return k
}

// TestEstablished: of ten open sessions of a device that dies each is bypassed or closed, as configured, and counted.
func TestEstablished(t *testing.T) {
	const n = 10
	b := up(t, lab.Line(2, lab.Bridge))
	b.sub("bypass", func(b *bed) {
		open := b.keep(n)
		b.fail("a", lab.Blackhole)
		for _, k := range open {
			k.wantAt("a", "device-down")
		}
		if got := b.skipped(api.LedgerEntry{Pool: "pool-a", Device: "a", Reason: "device-down"}); got != n {
			b.t.Errorf("the ledger has %d sessions, not %d", got, n)
		}
		b.wantEvents("bypass", n)
		b.restore("a")
	})
	b.sub("reset", func(b *bed) {
		b.reload(set("device_pools.pool-a.established", "reset"))
		open := b.keep(n)
		b.fail("a", lab.Blackhole)
		for _, k := range open { // without a byte from anybody
			k.wantReset(time.Second)
		}
		b.wantEvents("reset", n)
		b.awaitCounter("ended/inner-reset", n)
		if got := b.tree(open[0].client()); len(got) > 0 && got[0].State != "closed" {
			b.t.Errorf("still there: %+v", got)
		}
		b.keep(1) // new ones are not affected
		b.restore("a")
	})
}

// TestRewriterIsReset: a device that rewrites sequence numbers can not be taken out of a stream; its
// sessions end at once instead of hanging.
func TestRewriterIsReset(t *testing.T) {
	topology := lab.Line(2, lab.Bridge)
	topology.Devices[0].Kind, topology.Devices[0].Options.Mode = lab.Inspect, device.RewriteSequence
	b := up(t, topology)
	b.must(b.SetDeviceMode("a", device.RewriteSequence))
	both := b.startStreams()
	idle := b.keep(1)[0]
	if leg := idle.at("a"); !leg.RewritesSeq {
		t.Errorf("not seen that a rewrites sequence numbers: %+v", leg)
	}
	if leg := idle.at("b"); leg.RewritesSeq {
		t.Errorf("b does not rewrite sequence numbers: %+v", leg)
	}
	time.Sleep(300 * time.Millisecond)
	b.fail("a", lab.Hang)
	down := time.Now()
	for _, s := range both {
		<-s.done
		if took := time.Since(down); s.err == nil || s.result.Right || took > time.Second {
			t.Errorf("the %s ended after %s: %v", s.name, took, s.err)
		}
	}
	idle.wantReset(time.Second)
	b.wantEvents("reset", 3)
	b.keep(1) // new ones go past it
	b.restore("a")
}

// wantEvents waits until so many events were counted, and no more.
func (b *bed) wantEvents(kind string, n uint64) {
	b.t.Helper()
	b.eventually(3*time.Second, func() error {
		if got := b.counters().Events[kind]; got < n {
			return fmt.Errorf("%d events %q, want %d", got, kind, n)
		}
		return nil
	})
	if got := b.counters().Events[kind]; got != n {
		b.t.Errorf("%d events %q, want %d", got, kind, n)
	}
}

// TestOperator: disabled drains, bypass moves.
func TestOperator(t *testing.T) {
	b := up(t, lab.Line(2, lab.Bridge))
	old := b.keep(1)[0]
	b.operate("disable", "established")
	old.wantAt("a", "")
	before := b.device("a")
	b.keep(3)
	if after := b.device("a"); after.Opened != before.Opened || after.Sessions != before.Sessions {
		t.Errorf("a disabled device got new sessions: %d, now %d", before.Opened, after.Opened)
	}
	if n := b.skipped(api.LedgerEntry{Pool: "pool-a", Reason: "disabled"}); n != 3 {
		t.Errorf("%d sessions in the ledger: %+v", n, b.ledger())
	}
	b.operate("bypass", "none")
	old.wantAt("a", "forced")
	b.keep(2)
	if n := b.skipped(api.LedgerEntry{Pool: "pool-a", Reason: "forced"}); n != 3 { // the old one as well
		t.Errorf("%d sessions in the ledger: %+v", n, b.ledger())
	}
	b.operate("enable", "full")
	old.wantAt("a", "forced")
	b.keep(1)[0].wantAt("a", "")
}

func (b *bed) operate(action, service string) {
	b.t.Helper()
	_, err := b.admin.SetDevice(b.context(5*time.Second), "a", action)
	b.must(err)
	b.awaitService("a", service)
}
