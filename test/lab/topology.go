package lab

import (
	"fmt"
	"net/netip"

	"sslo/test/device"
)

// Kind of a device.
type Kind string

const (
	Bridge  Kind = "bridge"  // a Linux bridge: forwards whatever comes
	Inspect Kind = "inspect" // package device: reads the plaintext, resets what carries the signature
	Router  Kind = "router"  // routes between its two links: a device of type l3
	OneArm  Kind = "one-arm" // routes on one link
	Tap     Kind = "tap"     // a host that only listens
	VLAN    Kind = "vlan"    // a VLAN of a bridge that all such devices share, by one NIC in and one NIC out of the box
)

// Device is an inline device to build.
type Device struct {
	Name    string
	Kind    Kind           // Bridge if empty
	Offload bool           // an inspecting device that understands unsegmented frames (Bridge always does)
	OutMTU  int            // of its cable towards the server, if not the topology's MTU
	Options device.Options // of an inspecting device; NICs, mode and offload are filled in
}

// Pool is a device pool of the generated configuration.
type Pool struct {
	Name    string
	Devices []string
	Keys    map[string]any // more keys of the pool: method, on_down, return ...
}

// Topology is what to build. The zero value is a client, the box and a server, without a device.
type Topology struct {
	Devices     []Device
	Pools       []Pool
	Chain       []string // names of pools, in order, of the chain "inspect"
	ClientLinks int      // 1 (client) or 2 (client and client2); 1 if 0
	Servers     int      // 1 if 0
	MTU         int      // of device links; 1500 if 0
	NoOrigin    bool     // do not start the built-in TLS origin on each server
}

// Standard is the topology of the demo: a chain of an IPS pool and a WAF pool, two devices each.
func Standard() Topology {
	return Topology{
		Devices: []Device{
			{Name: "ips1", Kind: Inspect}, {Name: "ips2", Kind: Inspect},
			{Name: "waf1", Kind: Bridge}, {Name: "waf2", Kind: Bridge},
		},
		Pools: []Pool{{Name: "ips", Devices: []string{"ips1", "ips2"}}, {Name: "waf", Devices: []string{"waf1", "waf2"}}},
		Chain: []string{"ips", "waf"},
	}
}

// Line is a chain of n pools with one device each, named a, b, c ...: all bridges, or all of one kind.
func Line(n int, kind Kind) Topology {
	var t Topology
	for i := range n {
		name := string(rune('a' + i))
		t.Devices = append(t.Devices, Device{Name: name, Kind: kind})
		t.Pools = append(t.Pools, Pool{Name: "pool-" + name, Devices: []string{name}})
		t.Chain = append(t.Chain, "pool-"+name)
	}
	return t
}

func (t Topology) withDefaults() Topology {
	if t.ClientLinks == 0 {
		t.ClientLinks = 1
	}
	if t.Servers == 0 {
		t.Servers = 1
	}
	if t.MTU == 0 {
		t.MTU = 1500
	}
	for i := range t.Devices {
		if t.Devices[i].Kind == "" {
			t.Devices[i].Kind = Bridge
		}
	}
	return t
}

// Names of the box's NICs; the configuration gives the links the same names.
const (
	ClientNIC  = "ext"
	Client2NIC = "ext2"
	ServerNIC  = "int"
)

// The box's NICs to the host of all devices of kind VLAN; in the host they are DeviceIn and DeviceOut.
const (
	TrunkIn  = "trunk-in"
	TrunkOut = "trunk-out"
)

// InNIC and OutNIC are the box's NICs of a device, towards the client and towards the server; a device
// with one link has the first. The configuration gives its links these names.
func InNIC(device string) string  { return device + "-in" }
func OutNIC(device string) string { return device + "-out" }

// Addresses are fixed: every lab has namespaces of its own.
var (
	// VIP4 and VIP6 are the virtual server's, announced by the box on its first client link.
	VIP4 = netip.MustParseAddr("10.1.0.100")
	VIP6 = netip.MustParseAddr("fd00:1::100")
	// Roam4 and Roam6 are on the loopback of each client, so that a client can move between client links.
	Roam4 = netip.MustParseAddr("198.51.100.10")
	Roam6 = netip.MustParseAddr("fd00:c::10")
)

// TLSPort is the origin's and the virtual server's port.
const TLSPort = 443

func clientAddrs(link int) (box4, host4, box6, host6 netip.Prefix) {
	return prefix("10.%d.0.1/24", link), prefix("10.%d.0.10/24", link), prefix("fd00:%d::1/64", link), prefix("fd00:%d::10/64", link)
}

func serverAddrs(i int) (host4, host6 netip.Prefix) {
	return prefix("10.9.0.%d/24", 10+i), prefix("fd00:9::%d/64", 10+i)
}

func serverGateways() (v4, v6 netip.Prefix) {
	return netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("fd00:9::1/64")
}

func prefix(format string, args ...any) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf(format, args...))
}
