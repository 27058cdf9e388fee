package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sslo/test/lab"
)

// mixed is a chain of one device of each type, with a tap in the middle.
func mixed(order ...string) lab.Topology {
	kinds := map[string]lab.Kind{"l2": lab.Bridge, "l3": lab.Router, "arm": lab.OneArm, "vlan1": lab.VLAN, "vlan2": lab.VLAN, "tap": lab.Tap}
	var t lab.Topology
	for _, name := range order {
		t.Devices = append(t.Devices, lab.Device{Name: name, Kind: kinds[name]})
		t.Pools = append(t.Pools, lab.Pool{Name: "pool-" + name, Devices: []string{name}})
		t.Chain = append(t.Chain, "pool-"+name)
	}
	return t
}

// Devices of all types in one chain, in both orders, carry both families both ways.
func TestDeviceTypes(t *testing.T) {
	order := []string{"l2", "l3", "vlan1", "tap", "arm", "vlan2"}
	for range 2 {
		b := up(t, mixed(order...))
		b.sub(strings.Join(order, " "), func(b *bed) { b.throughTypes(order) })
		slices.Reverse(order)
	}
}

func (b *bed) throughTypes(order []string) {
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	seen := map[string]*sighting{}
	for _, d := range order {
		seen[d] = b.watch(ctx, d)
	}
	for _, o := range []lab.ClientOptions{{}, {IPv6: true}} {
		c := b.dial(b.Client(), o)
		b.mustRequest(c)
		want := strings.Join(slices.DeleteFunc(slices.Clone(order), func(d string) bool { return d == "tap" }), " ")
		if got := b.way(c); got != want {
			b.t.Errorf("way %q, want %q", got, want)
		}
		from := local(c)
		for d, s := range seen {
			b.eventually(2*time.Second, func() error {
				if len(s.from(from)) < 3 {
					return fmt.Errorf("%s saw %d packets of %v", d, len(s.from(from)), from)
				}
				return nil
			})
		}
		b.fetch("/bytes/3000000", o)
	}
}

// Whatever type a device is of, its death breaks no connection, and it returns.
func TestDeviceTypesFail(t *testing.T) {
	b := up(t, mixed("l2", "l3", "vlan1", "tap", "arm", "vlan2"))
	for _, device := range []string{"l3", "vlan1", "arm", "vlan2"} {
		for _, how := range []lab.Failure{lab.Blackhole, lab.LinkDown} {
			if how == lab.LinkDown && strings.HasPrefix(device, "vlan") {
				continue // it would take the other with it
			}
			b.sub(device+" "+string(how), func(b *bed) {
				for _, o := range []lab.ClientOptions{{}, {IPv6: true}} {
					c := b.dial(b.Client(), o)
					b.mustRequest(c)
					b.fail(device, how)
					b.mustRequest(c)
					if way := b.way(c); strings.Contains(way, device) {
						b.t.Errorf("way %q", way)
					}
					b.fetch("/bytes/100000", o)
					b.restore(device)
					b.mustRequest(c)
					b.fetch("/bytes/100000", o)
				}
			})
		}
	}
	b.sub("tap", func(b *bed) {
		c := b.dial(b.Client(), lab.ClientOptions{})
		b.must(b.Lab.Fail("tap", lab.LinkDown))
		b.mustRequest(c)
		b.fetch("/bytes/1000000", lab.ClientOptions{})
		b.restore("tap")
		b.mustRequest(c)
	})
}

// The trunk's frames bear the tag of the device that they are for.
func TestVLANTagsInsideTheDevices(t *testing.T) {
	b := up(t, mixed("vlan1", "vlan2"))
	host, err := b.DeviceHost("vlan1")
	b.must(err)
	dump, err := b.Start(host, "tcpdump-trunk", "tcpdump", "-i", lab.DeviceIn, "-e", "-n", "-l", "-U", "tcp or (vlan and tcp)")
	b.must(err)
	b.t.Cleanup(func() { dump.Stop() })
	b.awaitOutput(dump, "listening on")
	b.fetch("/bytes/2000000", lab.ClientOptions{})
	for _, d := range []string{"vlan1", "vlan2"} {
		b.awaitOutput(dump, fmt.Sprintf("vlan %d, ", b.VLANOf(d)))
	}
	if out := dump.Output(); strings.Contains(out, "ethertype IPv4 (0x0800), length") && !strings.Contains(out, "vlan") {
		b.t.Errorf("untagged:\n%s", out[:min(2000, len(out))])
	}
}

// A host behind a tap puts the exchange together again, byte for byte, from what it was sent.
func TestTapSeesTheExchange(t *testing.T) {
	b := up(t, mixed("l2", "tap"))
	host, err := b.DeviceHost("tap")
	b.must(err)
	file := b.Path("tap.pcap")
	dump, err := b.Start(host, "tcpdump-tap", "tcpdump", "-i", lab.DeviceIn, "-n", "-U", "-s", "1600", "-Z", "root", "--immediate-mode", "-w", file)
	b.must(err)
	b.awaitOutput(dump, "listening on")
	body := b.fetch("/bytes/200000", lab.ClientOptions{})
	b.eventually(5*time.Second, func() error {
		info, err := os.Stat(file)
		if err == nil && info.Size() < int64(len(body)) {
			err = fmt.Errorf("%d bytes captured", info.Size())
		}
		return err
	})
	time.Sleep(100 * time.Millisecond)
	dump.Stop()
	out, err := b.Client().Command(b.context(30*time.Second), "tshark", "-r", file, "-d", "tcp.port==80,http", "-q", "-z", "follow,tcp,raw,0").CombinedOutput()
	b.must(err)
	if !strings.Contains(string(out), fmt.Sprintf("%x", "GET /bytes/200000 HTTP/1.1")) {
		b.t.Errorf("no request in %.2000s; tcpdump: %s", out, dump.Output())
	}
	answer := strings.NewReplacer("\n", "", "\t", "").Replace(string(out))
	if !strings.Contains(answer, fmt.Sprintf("%x", body)) {
		b.t.Errorf("the answer of %d bytes is not in what tshark reassembled, %d characters", len(body), len(answer))
	}
	sizes, err := b.Client().Command(b.context(30*time.Second), "tshark", "-r", file, "-T", "fields", "-e", "frame.len").Output()
	b.must(err)
	for _, size := range strings.Fields(string(sizes)) {
		if len(size) > 4 || len(size) == 4 && size > "1514" {
			b.t.Errorf("a frame of %s bytes: larger than the tap's MTU", size)
		}
	}
}
