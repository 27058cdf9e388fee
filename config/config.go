// Package config owns the configuration file: its keys, their defaults, strict decoding of YAML,
// and every check that can be made without starting anything. What it returns is complete and
// consistent: defaults applied, names resolved, files read. It refuses to know what is done with
// it; internal/app turns it into the plans of the other packages.
//
// A wrong file gives all its errors at once, each with file, line, column and path.
package config

//go:generate go run ./docgen -source config.go,tls.go -o ../docs/config.md

import (
	"net/netip"
	"time"

	"sslo/chain"
	"sslo/policy"
	"sslo/policy/script"
	"sslo/session"
)

// Tags of the fields below: yaml is the key ("-": not in the file; ",name": the key of the
// section's mapping is the name), default as it would be written in the file, required, min, max and
// values (fewer than the type has); doc is a default that needs words. The comments are the text of docs/config.md.

// Config is one configuration file. Everything the box does is in it; sslo itself keeps only
// what an operator changed at run time (see system.state_dir).
type Config struct {
	// The NICs that sslo uses.
	Links []*Link `yaml:"links" named:"NAME"`
	// The inline security devices that are cabled to the box.
	Devices []*Device `yaml:"devices" named:"NAME"`
	// Sets of equal devices: a connection passes one device of each pool of its chain.
	DevicePools []*DevicePool `yaml:"device_pools" named:"NAME"`
	// Ordered lists of device pools.
	Chains []*Chain `yaml:"chains" named:"NAME"`
	// How to find out whether a device or a server works. The monitors `path`, `icmp` and `tcp`
	// exist without being defined, with the defaults below; defining one by such a name replaces it.
	Monitors []*Monitor `yaml:"monitors" named:"NAME"`
	// Certificates with their keys, shown to clients.
	Certificates []*Certificate `yaml:"certificates" named:"NAME"`
	// The servers that connections end at.
	ServerPools []*ServerPool `yaml:"server_pools" named:"NAME"`
	// The addresses that clients connect to.
	VirtualServers []*VirtualServer `yaml:"virtual_servers" named:"NAME"`
	// Tables that scripts read.
	Tables []*Table `yaml:"tables" named:"NAME"`
	// The box itself: places in the kernel, table sizes, timeouts. The defaults fit most boxes.
	System System `yaml:"system"`
	// The API that the `sslo` commands use.
	Admin Admin `yaml:"admin"`
	// What the daemon writes to standard error.
	Log Log `yaml:"log"`

	// Warnings are what is allowed but probably not meant.
	Warnings Errors `yaml:"-"`
	// File is the name that positions in messages are given with.
	File string `yaml:"-"`
}

// Link is a NIC of the box. What it is used for follows from the rest of the file: it is a device
// link if a device names it, else a client link if a virtual server names it, else a server link.
type Link struct {
	Name string `yaml:",name"`
	// The interface's name in the kernel. One interface belongs to one link, or to several with a `vlan` each.
	NIC string `yaml:"nic" required:"true"`
	// The 802.1Q VLAN of a device link: sslo tags and untags its frames itself, so that many devices can share a
	// trunk, and no VLAN interface is needed. 0: untagged. For all other links, and for those of routed
	// devices, make a VLAN interface (`eth0.100`) and name that as `nic`.
	VLAN int `yaml:"vlan" default:"0" min:"0" max:"4094"`
	// The box's own addresses on the link of a routed device, with their prefix length. Those that it does not have are added, and removed at the end.
	Addresses []HostPrefix `yaml:"addresses"`
	// Next hop (IPv4) of replies that leave by this link, where the routing table does not say better.
	Gateway netip.Addr `yaml:"gateway"`
	// The same for IPv6.
	Gateway6 netip.Addr `yaml:"gateway6"`

	Role Role `yaml:"-"`
}

// HostPrefix is an address of the box with the length of its subnet's prefix.
type HostPrefix struct{ netip.Prefix }

// Role is what a link is used for.
type Role uint8

// The roles of links.
const (
	RoleServer Role = iota // any link that is named nowhere else: towards the servers
	RoleClient             // named by a virtual server
	RoleDevice             // named by a device
)

// DeviceType is how a device is cabled.
type DeviceType uint8

// Device is a security device that is cabled to the box. If it has two links, they need the same
// MTU. No other device may use its links.
type Device struct {
	Name string `yaml:",name"`
	// How it is cabled. `l2`: transparent, like a cable or a bridge, between the links `in` and `out`. `l3`: routed, between
	// `in` and `out`. `one-arm`: routed, with one `link` for both directions. `tap`: gets copies on its `link`; packets are
	// copied at the place that its pool has in a chain, with their own addresses and ports, and a tap that is down or slow harms nothing.
	Type chain.DeviceType `yaml:"type" default:"l2"`
	// The link towards the client: what clients send enters the device here. For `l2` and `l3`.
	In string `yaml:"in"`
	// The link towards the servers. For `l2` and `l3`.
	Out string `yaml:"out"`
	// The only link of a device of type `one-arm` or `tap`.
	Link string `yaml:"link"`
	// Addresses of a routed device, to which packets are sent: one of IPv4 or IPv6 or one of each. On `in` for `l3`, on `link`
	// for `one-arm`. The box needs addresses in the same subnets (see the link's `addresses`), and the device routes by which all
	// clients are behind the box's address on `in` and everything else behind that on `out`.
	Address []netip.Addr `yaml:"address"`
	// The same for what comes from the servers, on `out`. For `l3`.
	OutAddress []netip.Addr `yaml:"out_address"`
	// What a routed device may say to the box itself, or to others by way of the box, as far as the box forwards. ARP, neighbour
	// discovery and answers to pings always pass; all else that is of no session is dropped.
	Control []Control `yaml:"control"`
	// Checksum and segmentation offload on its two links. `off` is for devices that read packets in
	// software on this machine or on a virtual switch (AF_PACKET): they would see unfilled checksums
	// and packets larger than the MTU.
	Offload bool `yaml:"offload" default:"on"`
	// Its monitors: it is up while all of them, and both links, are up. The link monitor is always
	// on and is not named here. An empty list leaves only that one, as for a `tap`. Without this key, a transparent device is
	// monitored by `path` and a routed one by `icmp`. Those of type `icmp` without an address ask a routed device's `address`.
	Monitor MonitorSet `yaml:"monitor" doc:"path / icmp / none"`

	// Monitors are those of Monitor, with the defaults for devices.
	Monitors []Monitor `yaml:"-"`
}

// Control is a rule that lets a routed device's own traffic reach the box.
type Control struct {
	// `tcp`, `udp` or `icmp`; without it any protocol.
	Protocol ControlProtocol `yaml:"protocol" default:"any"`
	// Port of either side: `22` or `8000-8100`.
	Port policy.PortRange `yaml:"port"`
	// Where the packet comes from; without it anywhere.
	Source netip.Prefix `yaml:"source"`
	// Where it goes; without it anywhere.
	Destination netip.Prefix `yaml:"destination"`
}

// ControlProtocol is a protocol, or any.
type ControlProtocol uint8

// DevicePool is a set of equal devices. A connection gets one of them and keeps it.
type DevicePool struct {
	Name string `yaml:",name"`
	// Names of devices, at most 16. With `active-standby` the order is the order of preference. In a pool of taps each gets its copies.
	Devices []PoolDevice `yaml:"devices" required:"true"`
	// How a new connection gets its device.
	Method chain.Method `yaml:"method" default:"round-robin"`
	// When the whole pool is down: `bypass` goes on without it, uninspected, and counts that in the
	// ledger; `reset` resets connections; `drop` lets them time out. Holds for new and established ones.
	OnDown chain.Action `yaml:"on_down" default:"bypass"`
	// When the device of an established connection goes down: `bypass` lets it go on without this
	// pool (another device has not seen its start and would block it); `reset` resets it.
	Established chain.Action `yaml:"established" default:"bypass" values:"bypass,reset"`
	// When a device that was down gets traffic again: `new-sessions` gives it new connections only,
	// and those that bypassed it go on without it; `immediate` gives it those back too, which only
	// stateless devices can bear; `never` waits for `sslo device enable`.
	Return chain.Return `yaml:"return" default:"new-sessions" values:"new-sessions,immediate,never"`
	// How long the share of a device grows after it came into service, from a twentieth to all of it; with
	// `round-robin` and `weighted`.
	SlowStart time.Duration `yaml:"slow_start" default:"0s" min:"0s" max:"1h"`
	// With fewer devices than this in service the whole pool counts as down.
	MinActive int `yaml:"min_active" default:"1" min:"1" max:"16"`
}

// PoolDevice is an entry of `devices`: a name, or a mapping when it has a weight.
type PoolDevice struct {
	// Name of the device.
	Device string `yaml:"device,scalar" required:"true"`
	// Share of new connections, with `method: weighted`.
	Weight int `yaml:"weight" default:"1" min:"1" max:"65535"`
}

// Chain is an ordered list of device pools.
type Chain struct {
	Name string `yaml:",name"`
	// Names of device pools, from the client to the server, at most 8. No device may be in two of them.
	Pools []string `yaml:"pools" required:"true"`
}

// MonitorSet is the monitors of a device or a server pool. A list alone means all of them.
type MonitorSet struct {
	// Names of monitors.
	Of []string `yaml:"of,list"`
	// How many of them must be good: `all`, `any`, or a number. A `negative` monitor is not counted: it degrades.
	Require Require `yaml:"require" default:"all"`
}

// Require is a number of monitors; 0 for all.
type Require int

// MonitorType is how a monitor probes.
type MonitorType uint8

// The types of monitors that can be configured; the link monitor is always on.
const (
	MonitorPath MonitorType = iota // a frame through the device, in to out and out to in
	MonitorICMP
	MonitorTCP
	MonitorHTTP
	MonitorHTTPS
	MonitorUDP
	MonitorDNS
	MonitorExec
)

// Monitor is a way to find out whether a device or a server works. Everything starts as unknown:
// nothing gets traffic before its first good probe.
//
// Where a default is given as two values, the first is for devices and the second for servers.
type Monitor struct {
	Name string `yaml:",name"`
	// `path` sends a frame through a device, from its in link to its out link and back (devices only);
	// `icmp` sends an echo request; `tcp` opens a connection and closes it; `http` and `https` send a request and
	// look at the answer; `udp` sends a datagram that must be answered; `dns` asks a question; `exec` runs a command.
	Type MonitorType `yaml:"type" required:"true"`
	// What to probe: an address with port, or for `icmp` an address alone. Servers are probed at their
	// own address unless this is given; for a device it is required, and is its management address, say.
	// For `exec` it may be either, or nothing.
	Address string `yaml:"address"`
	// For devices, with `tcp`, `http` and `udp`: a real connection from the box through the device, from its in link to its out
	// link, to a responder of the box's own, which answers HTTP requests with status 200 and the text `sslo responder`, and sends
	// datagrams back. Nothing of it reaches the box's other traffic. Such a monitor has no `address` but `client` and `server`.
	Through bool `yaml:"through" default:"off"`
	// For `through` with `http`: the request is a harmless attack that the device must block, by whatever means. One that
	// passes does not make the device down but `degraded`: in service, but shown and counted.
	Negative bool `yaml:"negative" default:"off"`
	// For `through`: the address that the connection comes from. It and that of `server` must be in 198.18.0.0/15 or 2001:2::/48,
	// which are reserved for such tests; devices with strict rules must let them pass.
	Client netip.Addr `yaml:"client" default:"198.18.0.1"`
	// For `through`: the address and port that the connection goes to, as the device sees it.
	Server netip.AddrPort `yaml:"server" default:"198.18.0.2:80"`
	// For `http` and `https`: the method.
	Method string `yaml:"method" default:"GET"`
	// The path with its query, sent as it is. With `negative` the default has what every device should know: a script, a
	// path traversal and an SQL injection.
	Path string `yaml:"path" doc:"/"`
	// The Host header.
	Host string `yaml:"host" doc:"the address"`
	// More headers, each as `Name: value`.
	Headers []string `yaml:"headers"`
	// Status codes and ranges of them that are good.
	Status []StatusRange `yaml:"status" doc:"200-399"`
	// Regular expression (RE2) that must be found in the first MiB of the body.
	Body string `yaml:"body"`
	// For `https`: how TLS is spoken. Without it, servers are probed as the `tls` of their pool says.
	TLS MonitorTLS `yaml:"tls"`
	// For `udp`: what is sent, with the escapes of a YAML string in double quotes.
	Send string `yaml:"send" default:"sslo"`
	// For `udp` and `dns`: regular expression that the answer must match; for `dns`, one of the records of the type asked for, as
	// in a zone file. Without it any answer is good, for `dns` any without an error.
	Expect string `yaml:"expect"`
	// For `dns`: the name to ask for.
	Query string `yaml:"query"`
	// For `dns`: the type of record.
	Record DNSRecord `yaml:"record" default:"a"`
	// For `exec`: program with arguments, run without a shell as the daemon's user. Exit status 0 is good; the first line of
	// output is shown as the reason. It finds the target in SSLO_TARGET, SSLO_ADDRESS and SSLO_PORT, and is killed, with
	// what it started, at the timeout.
	Command []string `yaml:"command"`
	// Time from one probe to the next.
	Interval time.Duration `yaml:"interval" doc:"1s / 5s" min:"10ms" max:"1h"`
	// A probe that is not answered within this time has failed.
	Timeout time.Duration `yaml:"timeout" doc:"0.9 × interval / 3 × interval + 1s" min:"5ms" max:"10m"`
	// So many probes in a row must fail before the target is down.
	Fall int `yaml:"fall" doc:"3" min:"1" max:"100"`
	// So many probes in a row must be good before a target that was down is up.
	Rise int `yaml:"rise" doc:"5 / 2" min:"1" max:"100"`
	// A target that went down stays down at least so long.
	HoldDown time.Duration `yaml:"hold_down" doc:"10s / 0s" min:"0s" max:"24h"`
	// Flap damping: a target that went down `flap_max` times within this time is held down twice as
	// long each time, until it was up for so long.
	FlapWindow time.Duration `yaml:"flap_window" default:"1m" min:"0s" max:"24h"`
	// See `flap_window`; 0 turns flap damping off.
	FlapMax int `yaml:"flap_max" default:"4" min:"0" max:"1000"`
	// The longest that flap damping holds a target down.
	FlapHold time.Duration `yaml:"flap_hold" default:"5m" min:"0s" max:"24h"`
	// A device that is suspected (see `system.suspect_after`) is probed `fall` times within this time.
	Verify time.Duration `yaml:"verify" doc:"150ms / 1s" min:"5ms" max:"1m"`

	// Target is Address, parsed; with MonitorICMP its port is 0.
	Target netip.AddrPort `yaml:"-"`
}

// MonitorTLS is how a monitor speaks TLS.
type MonitorTLS struct {
	// What is spoken, as with the servers of a pool.
	Protocol ServerProtocol `yaml:"protocol" default:"tls"`
	// Verify the certificate and the name.
	Verify bool `yaml:"verify" default:"true"`
	// The name that is sent and verified; without it the address is verified.
	ServerName string `yaml:"server_name"`
	// File with the CA certificates; without it those of the system. Relative to the configuration file.
	CA string `yaml:"ca"`

	// Trust is what CA holds.
	Trust *Trust `yaml:"-"`
}

// StatusRange is a range of HTTP status codes, both ends included.
type StatusRange struct{ From, To int }

// DNSRecord is a type of DNS record as on the wire.
type DNSRecord uint16

// ServerPool is a set of equal servers. Connections go round-robin to the members that are up;
// when one refuses, the next is tried.
type ServerPool struct {
	Name string `yaml:",name"`
	// The servers: addresses with port.
	Members []Member `yaml:"members" required:"true"`
	// How a new connection gets its server. `source-hash` gives a client's address the same server as
	// long as that is up. When a server can not be reached, the next by the same method is tried.
	Method chain.Method `yaml:"method" default:"round-robin" values:"round-robin,weighted,source-hash,least-sessions"`
	// How long the share of a server grows after it came into service, from a twentieth to all of it.
	SlowStart time.Duration `yaml:"slow_start" default:"0s" min:"0s" max:"1h"`
	// Monitors of each member: it is up while all of them are good. An empty list means always up.
	Monitor MonitorSet `yaml:"monitor" default:"tcp"`
	// Encryption towards the servers.
	TLS ServerTLS `yaml:"tls"`

	// Monitors are those of Monitor, with the defaults for servers.
	Monitors []Monitor `yaml:"-"`
}

// Member is an entry of `members`: an address, or a mapping.
type Member struct {
	// Address and port of the server, such as `10.0.0.1:443` or `[2001:db8::1]:443`.
	Address netip.AddrPort `yaml:"address,scalar" required:"true"`
	// Share of new connections, with every method but `round-robin`.
	Weight int `yaml:"weight" default:"1" min:"1" max:"65535"`
}

// ServerType is what a virtual server speaks.
type ServerType uint8

// The types of virtual servers.
const (
	TypeHTTPS ServerType = iota
	TypeTLS
)

// VirtualServer is what clients connect to: addresses on client links, with a certificate, a chain and a server pool.
type VirtualServer struct {
	Name string `yaml:",name"`
	// `https`: HTTP/1.1 inside TLS; `tls`: any protocol inside TLS, relayed as bytes.
	Type ServerType `yaml:"type" default:"https"`
	// Client links that it is reached by.
	Links []string `yaml:"links" required:"true"`
	// Addresses and ports. An address that the box does not have is added to the client links (see `announce`).
	// `0.0.0.0:443` or `[::]:443` means every address that the box itself has on the links.
	Listen []netip.AddrPort `yaml:"listen" required:"true"`
	// Add addresses that the box does not have to the client links, so that ARP and neighbour
	// discovery are answered, and withdraw them at the end. `false` when something routes them here.
	Announce bool `yaml:"announce" default:"true"`
	// The port that the inner, plaintext connection goes to, as devices see it. 0: 80 for port 443, else the port of `listen`.
	PlaintextPort int `yaml:"plaintext_port" default:"0" min:"0" max:"65535"`
	// Names of certificates. A client gets the one that its SNI fits, and the first when none does or it sends no SNI. RSA, ECDSA and SM2 may
	// cover the same names, in any order; any of them alone will do.
	Certificates []string `yaml:"certificates" required:"true"`
	// How TLS with clients is spoken.
	TLS ClientTLS `yaml:"tls"`
	// Application protocols, in order of preference. Default for `https`: `http/1.1`; for `tls`: none.
	ALPN []string `yaml:"alpn"`
	// The chain, unless a rule names another. Without one nothing is inspected.
	Chain string `yaml:"chain"`
	// The server pool, unless a rule names another.
	ServerPool string `yaml:"server_pool" required:"true"`
	// Pre-policies: the first rule that matches decides. When none does, the virtual server's own settings hold.
	Rules []Rule `yaml:"rules"`
	// A Lua script that has a word after the pre-policies; see [scripts.md](scripts.md).
	Script Script `yaml:"script"`
	// Limits of this virtual server.
	Limits Limits `yaml:"limits"`
	// Timeouts of this virtual server.
	Timeouts Timeouts `yaml:"timeouts"`
}

// Rule is a pre-policy: conditions and what happens to the connections that fulfil them.
type Rule struct {
	// What messages, logs and statistics call it.
	Name string `yaml:"name" required:"true"`
	// `all`: every condition in `when` must hold; `any`: one is enough.
	Match policy.Match `yaml:"match" default:"all"`
	// Conditions, each a list of which any value fits. Without conditions the rule always matches.
	When When `yaml:"when"`
	// `intercept` terminates TLS; `bypass` relays the ciphertext (through the chain only if the rule
	// names one); `reject` resets the connection; `drop` ends it in silence.
	Action policy.Action `yaml:"action" default:"intercept"`
	// Chain for these connections, instead of the virtual server's; `none` for no chain.
	Chain string `yaml:"chain"`
	// Server pool for these connections, instead of the virtual server's. It is applied after the chain.
	ServerPool string `yaml:"server_pool"`
	// When what the rule names can not be used (no member of its server pool is up, its chain is down
	// with `on_down: reset` or `drop`): `reset`, `drop`, or go on with the `next-rule` that matches.
	OnFailure policy.OnFailure `yaml:"on_failure" default:"reset"`
}

// ScriptError is what becomes of a connection that a script fails for.
type ScriptError uint8

// The choices of ScriptError.
const (
	ScriptNext ScriptError = iota
	ScriptReject
)

// Script is a virtual server's script.
type Script struct {
	// File with the script. Relative to the configuration file.
	File string `yaml:"file,scalar"`
	// When the script fails (an error in it, a budget used up): `next` goes on as the pre-policies decided, `reject` resets
	// the connection. Either way it is logged and counted with file and line.
	OnError ScriptError `yaml:"on_error" default:"next"`
	// Instructions for one event; 100000 take about 5 ms.
	Instructions int `yaml:"instructions" default:"100000" min:"1000" max:"10000000"`
	// Memory that one event may make strings and tables of.
	Memory Size `yaml:"memory" default:"1MiB" min:"64KiB" max:"64MiB"`

	// Text is what File holds, Program what it was compiled to; nil without a script.
	Text    string         `yaml:"-"`
	Program *script.Script `yaml:"-"`
}

// Table is a read-only table for scripts: `tables.NAME[key]`, and `tables.NAME:match(address)` for the longest prefix.
type Table struct {
	Name string `yaml:",name"`
	// Keys with their values.
	Entries map[string]string `yaml:"entries"`
	// File with more of them: a line each, a key, spaces, and the value; `#` begins a comment. Relative to the configuration file.
	File string `yaml:"file"`
}

// When holds the conditions of a rule. Each is a list (or one value), and any of its values fits.
type When struct {
	// Client addresses: prefixes or addresses.
	Source []netip.Prefix `yaml:"source"`
	// Addresses connected to.
	Destination []netip.Prefix `yaml:"destination"`
	// Ports connected to: `443` or `8000-8100`.
	Port []policy.PortRange `yaml:"port"`
	// `tcp` or `udp`.
	Protocol []session.Protocol `yaml:"protocol"`
	// Client links.
	Link []string `yaml:"link"`
	// Names the client asks for: `www.bank.test`; `*.bank.test` for every name below it at any depth,
	// but not `bank.test` itself; `""` for clients that send none.
	SNI []string `yaml:"sni"`
	// Application protocols that the client offers.
	ALPN []string `yaml:"alpn"`
	// The highest TLS version that the client offers: `1.0`, `1.1`, `1.2`, `1.3`.
	TLSVersion []TLSVersion `yaml:"tls_version"`
	// The protocol family that the virtual server would speak with the client, by what both can: `tls`, `tlcp`, `tls13-sm`.
	TLSFamily []Protocol `yaml:"tls_family"`
}

// Limits are those of a virtual server. A connection over the limit is refused and counted.
type Limits struct {
	// Connections at one time; 0 for no limit but that of the process.
	Connections int `yaml:"connections" default:"0" min:"0" max:"10000000"`
	// The same for one client address.
	ConnectionsPerClient int `yaml:"connections_per_client" default:"0" min:"0" max:"10000000"`
}

// Timeouts are those of a virtual server.
type Timeouts struct {
	// From accepting a connection to its complete ClientHello.
	ClientHello time.Duration `yaml:"client_hello" default:"10s" min:"100ms" max:"5m"`
	// For a TLS handshake, with the client and with the server.
	Handshake time.Duration `yaml:"handshake" default:"10s" min:"100ms" max:"5m"`
	// Without data in either direction.
	Idle time.Duration `yaml:"idle" default:"10m" min:"1s" max:"24h"`
	// To connect to one member of the server pool, and for the chain to return a new inner connection.
	Connect time.Duration `yaml:"connect" default:"5s" min:"10ms" max:"5m"`
	// How long a connection that a rule drops is held in silence.
	Drop time.Duration `yaml:"drop" default:"30s" min:"100ms" max:"10m"`
}

// System is the box itself.
type System struct {
	// Where programs, links and maps stay pinned while the daemon is not running: a folder on a BPF file system.
	PinPath string `yaml:"pin_path" default:"/sys/fs/bpf/sslo"`
	// What an operator changed at run time (devices disabled or bypassed) is kept here over restarts.
	StateDir string `yaml:"state_dir" default:"/var/lib/sslo"`
	// What the daemon must find again after a crash, but not after a reboot, is kept here: what it
	// changed on the box.
	RunDir string `yaml:"run_dir" default:"/run/sslo"`
	// The first of the routing tables that sslo uses; all must be free on this box.
	RoutingTable int `yaml:"routing_table" default:"100" min:"1" max:"2147483000"`
	// The first of the priorities of its routing rules.
	RulePriority int `yaml:"rule_priority" default:"1000" min:"1" max:"32000"`
	// Where in a socket's mark the chain's number begins. It takes 10 bits from there.
	MarkShift int `yaml:"mark_shift" default:"16" min:"0" max:"22"`
	// Size of the session table. A connection takes one entry more than its chain has pools.
	Sessions int `yaml:"sessions" default:"262144" min:"1024" max:"16777216"`
	// MTU of the inner connections; 0 for the least of the device links.
	MTU int `yaml:"mtu" default:"0" min:"0" max:"65535"`
	// Time without a packet after which an entry of the session table is removed, by its state.
	Timeouts SessionTimeouts `yaml:"timeouts"`
	// A device that was sent packets and has returned none for so long is suspected, and probed at once.
	SuspectAfter time.Duration `yaml:"suspect_after" default:"100ms" min:"1ms" max:"1m"`
	// While no daemon runs nobody probes: a device that has returned nothing for so long is then
	// bypassed by the kernel program itself. 0 turns that off.
	TripAfter time.Duration `yaml:"trip_after" default:"1s" min:"0s" max:"1m"`
	// Limits of the whole process.
	Limits SystemLimits `yaml:"limits"`
}

// SessionTimeouts are idle timeouts of the session table.
type SessionTimeouts struct {
	// SYN seen, no established connection yet.
	Syn time.Duration `yaml:"syn" default:"30s" min:"1s" max:"10m"`
	// Established.
	Established time.Duration `yaml:"established" default:"1h" min:"10s" max:"168h"`
	// One side has sent its FIN.
	HalfClosed time.Duration `yaml:"half_closed" default:"5m" min:"1s" max:"24h"`
	// Both sides have.
	Closing time.Duration `yaml:"closing" default:"10s" min:"1s" max:"10m"`
	// Reset.
	Closed time.Duration `yaml:"closed" default:"5s" min:"1s" max:"10m"`
	// UDP.
	UDP time.Duration `yaml:"udp" default:"1m" min:"1s" max:"24h"`
}

// Size is a number of bytes.
type Size int64

// SystemLimits are limits of the whole process. New connections over a limit are refused and counted.
type SystemLimits struct {
	// Files that the process may have open (a connection through a chain takes four); 0 for the hard limit it was started with.
	Descriptors int `yaml:"descriptors" default:"0" min:"0" max:"100000000"`
	// Memory for large relay buffers; connections beyond it get small ones.
	BufferMemory Size `yaml:"buffer_memory" default:"256MiB" min:"1MiB" max:"1TiB"`
	// Client handshakes in progress at one time.
	Handshakes int `yaml:"handshakes" default:"4096" min:"1" max:"1000000"`
	// The same for one client address.
	HandshakesPerClient int `yaml:"handshakes_per_client" default:"256" min:"1" max:"1000000"`
}

// Admin is the API that the `sslo` commands use.
type Admin struct {
	// Unix socket of the API. Only root may open it.
	Socket string `yaml:"socket" default:"/run/sslo/admin.sock"`
}

// LogLevel is how much is logged.
type LogLevel int

// LogFormat is how it is written.
type LogFormat uint8

// The formats of the log.
const (
	LogText LogFormat = iota
	LogJSON
)

// Log is what the daemon writes to standard error.
type Log struct {
	// `debug`, `info` (state changes), `warn` or `error`.
	Level LogLevel `yaml:"level" default:"info"`
	// `text` or `json`.
	Format LogFormat `yaml:"format" default:"text"`
}
