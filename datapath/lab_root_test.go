package datapath

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	vnetns "github.com/vishvananda/netns"

	"sslo/chain"
	"sslo/internal/testutil"
)

// box is a fresh network namespace with client, server and device links. The devices are Linux
// bridges between the far ends of their links, in the same namespace.
type box struct {
	t   *testing.T
	opt Options
}

func newBox(t *testing.T, devices ...string) *box {
	t.Helper()
	testutil.RequireRoot(t)
	runtime.LockOSThread() // not unlocked: a thread in a foreign namespace must not be used again
	old, err := vnetns.Get()
	must(t, err)
	_, err = vnetns.New()
	must(t, err)
	t.Cleanup(func() { _ = vnetns.Set(old) })
	b := &box{t: t, opt: Options{
		PinPath:  fmt.Sprintf("%s/sslo-test-%d-%d", bpffsRoot, os.Getpid(), time.Now().UnixNano()),
		StateDir: filepath.Join(t.TempDir(), "state"), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}}
	t.Cleanup(func() { _ = unpinAll(b.opt.PinPath) })
	// Without duplicate address detection addresses are stable at once.
	b.run("ip link set lo up; echo 0 > /proc/sys/net/ipv6/conf/all/accept_dad; echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad")
	for _, l := range []string{"ext", "int"} {
		b.veth(l)
	}
	b.run("ip addr add 192.0.2.1/24 dev ext")
	b.run("ip addr add 2001:db8:1::1/64 dev ext nodad")
	for _, d := range devices {
		b.device(d)
	}
	b.settle()
	return b
}

// settle waits for bridges and link-local addresses.
func (b *box) settle() {
	time.Sleep(300 * time.Millisecond)
	for strings.Contains(b.run("ip link"), "NO-CARRIER") {
		time.Sleep(50 * time.Millisecond)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *box) run(cmd string) string {
	b.t.Helper()
	out, err := exec.Command("sh", "-ec", cmd).CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func (b *box) veth(name string) {
	b.run(fmt.Sprintf("ip link add %[1]s type veth peer name %[1]sp; ip link set %[1]s up; ip link set %[1]sp up", name))
}

// device x has links x1 and x2 and bridge xbr.
func (b *box) device(x string) {
	b.veth(x + "1")
	b.veth(x + "2")
	b.run(fmt.Sprintf("ip link add %[1]sbr type bridge; ip link set %[1]s1p master %[1]sbr; ip link set %[1]s2p master %[1]sbr; ip link set %[1]sbr up; echo 1 > /proc/sys/net/ipv6/conf/%[1]sbr/disable_ipv6", x))
}

func (b *box) open() *Datapath {
	b.t.Helper()
	d, err := Open(b.opt)
	must(b.t, err)
	b.t.Cleanup(func() { _ = d.Close() })
	return d
}

// plan has a pool for every device and one chain through all of them.
func plan(devices ...string) Plan {
	p := Plan{
		Links:     []Link{{Name: "ext", NIC: "ext", Role: RoleClient}, {Name: "int", NIC: "int", Role: RoleServer}},
		Addresses: []Address{{"ext", netip.MustParsePrefix("198.51.100.7/32"), true}, {"ext", netip.MustParsePrefix("2001:db8:2::7/128"), true}},
		Chains:    []chain.Chain{{Name: "all"}}, MaxSessions: 4096, TablesFrom: 300, RulePriority: 500, ChainShift: 8,
	}
	for _, x := range devices {
		p.Links = append(p.Links, Link{Name: x + "1", NIC: x + "1", Role: RoleDevice}, Link{Name: x + "2", NIC: x + "2", Role: RoleDevice})
		p.Devices = append(p.Devices, chain.Device{Name: x, In: x + "1", Out: x + "2", Offload: true})
		p.Pools = append(p.Pools, chain.Pool{Name: "pool-" + x, Devices: []chain.PoolMember{{Device: x}}})
		p.Chains[0].Pools = append(p.Chains[0].Pools, "pool-"+x)
	}
	return p
}

func (b *box) apply(d *Datapath, p Plan) {
	b.t.Helper()
	must(b.t, d.Apply(b.t.Context(), p))
}

func up(t *testing.T, d *Datapath, devices ...string) {
	t.Helper()
	for _, x := range devices {
		must(t, d.SetDevice(x, chain.DeviceStatus{Service: chain.Full}))
	}
}

// snapshot is everything of the namespace that an operator could see changed.
func (b *box) snapshot() string {
	b.t.Helper()
	out := b.run(`ip -d -o link | sed 's/ promiscuity.*//'; ip -o addr | sed 's/valid_lft.*//'; ip rule; ip -6 rule
		ip route show table all; ip -6 route show table all
		sysctl -a 2>/dev/null | grep '^net\.ipv[46]\.conf'
		for i in $(ls -d /proc/sys/net/ipv4/conf/*); do n=${i##*/}; ethtool -k $n 2>/dev/null || true; done`)
	out += b.run("ls -R " + b.opt.PinPath + " 2>/dev/null || true")
	if exists(b.opt.StateDir) {
		out += "state directory left\n"
	}
	return out
}

func (b *box) same(what, before, after string) {
	b.t.Helper()
	if before == after {
		return
	}
	old := map[string]int{}
	for _, l := range strings.Split(before, "\n") {
		old[l]++
	}
	for _, l := range strings.Split(after, "\n") {
		if old[l]--; old[l] < 0 {
			b.t.Errorf("%s: added   %s", what, l)
		}
	}
	for l, n := range old {
		if n > 0 {
			b.t.Errorf("%s: removed %s", what, l)
		}
	}
}
