package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"sslo/test/lab"
)

// Links as they are made, with every offload on, and nobody to call ethtool: whole streams pass, and the
// device that reads packets in software finds every checksum filled in and no packet above the MTU.
func TestOffloadsAsTheyAre(t *testing.T) {
	topology := lab.Line(2, lab.Bridge)
	topology.Devices[0].Kind = lab.Inspect // the configuration says offload: off for it, and no more
	b := build(t, topology)
	for _, nic := range []string{"a-in", "a-out", "b-in", "b-out", lab.ClientNIC, lab.ServerNIC} {
		b.expectOffload(nic, "on") // else this tests nothing
	}
	// The device reads as fast as it can and loses probes then, too: it must not be taken for dead.
	b.config.Set("monitors.path-fast", map[string]any{"type": "path", "interval": "1s", "timeout": "1s", "fall": 60, "verify": "60s"})
	b.start()
	b.awaitReady()
	b.expectOffload("a-in", "off")
	b.expectOffload("b-in", "on")
	const size = 100 << 20
	for _, ipv6 := range []bool{false, true} {
		for name, transfer := range map[string]func(context.Context, *lab.Host, int64, int64, lab.ClientOptions) (lab.Transfer, error){
			"download": b.Download, "upload": b.Upload} {
			o := lab.ClientOptions{IPv6: ipv6}
			b.sub(name+"/"+familyName(o.Target().Addr()), func(b *bed) {
				tr, err := transfer(b.context(time.Minute), b.Client(), size, 0, o)
				if err != nil || !tr.Right {
					b.t.Fatalf("%d bytes, right %t: %v", tr.Bytes, tr.Right, err)
				}
				b.t.Logf("%.0f MB/s", size/1e6/tr.Took.Seconds())
				if tr.Took > 30*time.Second {
					b.t.Errorf("100 MiB took %s", tr.Took)
				}
			})
		}
	}
	s, err := b.DeviceStats("a")
	b.must(err)
	if s.BadChecksum != 0 || s.Oversize != 0 || s.Received[0].Bytes < 2*size || s.Received[1].Bytes < 2*size {
		t.Errorf("device a: %d bad checksums, %d oversize, received %+v", s.BadChecksum, s.Oversize, s.Received)
	}
	if len(b.ledger()) != 0 {
		t.Errorf("not all went through the devices: %+v", b.ledger())
	}
}

// expectOffload checks the three that harm a device in software.
func (b *bed) expectOffload(nic, want string) {
	b.t.Helper()
	out, err := b.Box.Exec(b.t.Context(), "ethtool", "-k", nic)
	b.must(err)
	for _, feature := range []string{"tx-checksumming", "tcp-segmentation-offload", "generic-segmentation-offload"} {
		if line := feature + ": " + want; !strings.Contains(out, line) {
			b.t.Fatalf("%s: want %s in\n%s", nic, line, out)
		}
	}
}

const mss = 1500 - 40 - 12 // IPv4 and TCP with timestamps

// Segments that receive offload has merged to just above the MTU must pass: pieces around the size of a
// segment, in both directions, with hardly a retransmission on the way.
func TestReceiveOffloadMakesNoLosses(t *testing.T) {
	topology := lab.Line(2, lab.Bridge)
	topology.NoOrigin = true
	b := build(t, topology)
	b.config.Set("virtual_servers.shop.type", "tls")
	b.serveEcho()
	b.start()
	b.awaitReady()
	b.receiveOffload()
	for _, size := range []int{mss - 1, mss, mss + 1, 2*mss - 1, 2 * mss, 2*mss + 1, 10*mss + 1} {
		b.sub(fmt.Sprint(size), func(b *bed) {
			b.onceOf(3, func() error { return b.exchange(size) })
			b.onceOf(3, func() error { return b.burst(size) })
		})
	}
}

// serveEcho runs a TLS server on the server that says what it hears.
func (b *bed) serveEcho() {
	b.t.Helper()
	cert, err := tls.LoadX509KeyPair(b.Path("origin.pem"), b.Path("origin.key"))
	b.must(err)
	l, err := b.Server().Listen("tcp", fmt.Sprintf(":%d", lab.TLSPort))
	b.must(err)
	b.t.Cleanup(func() { l.Close() })
	l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(struct{ io.Writer }{c}, c) // ends with the client
			}()
		}
	}()
}

// receiveOffload turns GRO on everywhere: veth has it off unless told.
func (b *bed) receiveOffload() {
	b.t.Helper()
	on := func(ns *lab.Namespace, nics ...string) {
		for _, nic := range nics {
			_, err := ns.Exec(b.t.Context(), "ethtool", "-K", nic, "gro", "on")
			b.must(err)
		}
	}
	on(b.Box, lab.ClientNIC, lab.ServerNIC, "front0", "front1", "back0", "back1")
	for _, d := range b.DeviceNames() {
		on(b.Box, lab.InNIC(d), lab.OutNIC(d))
		host, err := b.DeviceHost(d)
		b.must(err)
		on(host, lab.DeviceIn, lab.DeviceOut)
	}
	on(b.Client().Namespace, b.Client().NIC)
	on(b.Server().Namespace, b.Server().NIC)
}

const exchanges = 100

// onceOf tries until it succeeds, n times: a loss that is ours happens each time, one of a busy machine does not.
func (b *bed) onceOf(n int, try func() error) {
	b.t.Helper()
	var err error
	for range n {
		if err = try(); err == nil {
			return
		}
		b.t.Logf("once more: %v", err)
	}
	b.t.Error(err)
}

// exchange sends pieces one at a time and waits for each to come back.
func (b *bed) exchange(size int) error {
	c := b.dial(b.Client(), lab.ClientOptions{})
	defer c.Close()
	return b.withoutRetransmissions(exchanges/10, func() error {
		piece := make([]byte, size)
		start := time.Now()
		for range exchanges {
			_, err := c.Write(piece)
			b.must(err)
			_, err = io.ReadFull(c, piece)
			b.must(err)
		}
		if took := time.Since(start); took > exchanges*20*time.Millisecond {
			return fmt.Errorf("%d exchanges took %s", exchanges, took)
		}
		return nil
	})
}

// burst sends many pieces without waiting.
func (b *bed) burst(size int) error {
	const pieces = 2000
	c := b.dial(b.Client(), lab.ClientOptions{})
	defer c.Close()
	return b.withoutRetransmissions(pieces/20, func() error {
		failed := make(chan error, 1)
		go func() { failed <- writeMany(c, size, pieces) }()
		_, err := io.CopyN(io.Discard, c, int64(size)*pieces)
		b.must(err)
		b.must(<-failed)
		return nil
	})
}

func writeMany(c net.Conn, size, n int) error {
	piece := make([]byte, size)
	for range n {
		if _, err := c.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// withoutRetransmissions runs fn, in which the box, the client and the server may send no more than a few
// segments again: a busy machine does that by itself.
func (b *bed) withoutRetransmissions(few int, fn func() error) error {
	b.t.Helper()
	hosts := map[string]*lab.Namespace{"box": b.Box, "client": b.Client().Namespace, "server": b.Server().Namespace}
	before := map[string]int{}
	for name, ns := range hosts {
		before[name] = b.retransmitted(ns)
	}
	err := fn()
	for name, ns := range hosts {
		if n := b.retransmitted(ns) - before[name]; n > few {
			err = errors.Join(err, fmt.Errorf("the %s has sent %d segments again", name, n))
		}
	}
	return err
}

// retransmitted is the segments that a host has sent again.
func (b *bed) retransmitted(ns *lab.Namespace) int {
	b.t.Helper()
	out, err := ns.Exec(b.t.Context(), "cat", "/proc/net/snmp")
	b.must(err)
	var names []string
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "Tcp:") {
			continue
		}
		if names == nil {
			names = strings.Fields(line)
			continue
		}
		for i, value := range strings.Fields(line) {
			if names[i] == "RetransSegs" {
				n, err := strconv.Atoi(value)
				b.must(err)
				return n
			}
		}
	}
	b.t.Fatal("no RetransSegs")
	return 0
}

// Device links of unequal MTU would lose the larger packets: the daemon does not start, and says where.
func TestUnequalMTU(t *testing.T) {
	topology := lab.Line(2, lab.Bridge)
	topology.Devices[1].OutMTU = 1400
	b := build(t, topology)
	path, err := b.WriteConfig(b.config)
	b.must(err)
	program, err := lab.Program()
	b.must(err)
	for _, args := range [][]string{{"check", path}, {"run", "--config", path}} {
		out, err := b.Box.Exec(b.context(20*time.Second), program, args...)
		if err == nil || !strings.Contains(err.Error(), "exit status 1") {
			t.Errorf("sslo %s: %v", args[0], err)
		}
		for _, want := range []string{path + ":", "devices.b", "b-in", "1500", "b-out", "1400", "MTU"} {
			if !strings.Contains(out, want) {
				t.Errorf("sslo %s does not say %q:\n%s", args[0], want, out)
			}
		}
	}
	b.config.Set("devices.b", nil).Set("device_pools.pool-b", nil).Set("chains.inspect.pools", []string{"pool-a"})
	b.start() // without that device all is well
}
