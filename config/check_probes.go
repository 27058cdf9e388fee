package config

import (
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sslo/session"
)

// probeKeys are the keys that only some types of monitors have.
var probeKeys = map[string][]MonitorType{
	"address": {MonitorICMP, MonitorTCP, MonitorHTTP, MonitorHTTPS, MonitorUDP, MonitorDNS, MonitorExec},
	"through": {MonitorTCP, MonitorHTTP, MonitorUDP}, "negative": {MonitorHTTP},
	"client": {MonitorTCP, MonitorHTTP, MonitorUDP}, "server": {MonitorTCP, MonitorHTTP, MonitorUDP},
	"method": {MonitorHTTP, MonitorHTTPS}, "path": {MonitorHTTP, MonitorHTTPS}, "host": {MonitorHTTP, MonitorHTTPS},
	"headers": {MonitorHTTP, MonitorHTTPS}, "status": {MonitorHTTP, MonitorHTTPS}, "body": {MonitorHTTP, MonitorHTTPS},
	"tls": {MonitorHTTPS}, "send": {MonitorUDP}, "expect": {MonitorUDP, MonitorDNS},
	"query": {MonitorDNS}, "record": {MonitorDNS}, "command": {MonitorExec},
}

// badPath is what a negative monitor asks for: nothing that harms anybody, but what every device
// that inspects HTTP has a rule against.
const badPath = "/?q=<script>alert(1)</script>&f=../../../../etc/passwd&id=1'%20OR%20'1'='1"

func (c *checker) checkMonitor(m *Monitor, path string) {
	for key, types := range probeKeys {
		if p := join(path, key); c.given(p) && !slices.Contains(types, m.Type) {
			if key == "address" && m.Type == MonitorPath {
				c.errorf(p, "a path monitor has no address: it goes through the device that uses it")
				continue
			}
			c.errorf(p, "a monitor of type %s has no %s", Word(m.Type), key)
		}
	}
	c.checkMonitorAddress(m, join(path, "address"))
	c.checkThrough(m, path)
	switch m.Type {
	case MonitorHTTP, MonitorHTTPS:
		c.checkRequest(m, path)
	case MonitorDNS:
		c.checkQuery(m, path)
	case MonitorExec:
		c.checkCommand(m, join(path, "command"))
	}
	c.regular(join(path, "body"), m.Body)
	c.regular(join(path, "expect"), m.Expect)
}

func (c *checker) regular(path, expression string) {
	if _, err := regexp.Compile(expression); err != nil {
		c.errorf(path, "%v", err)
	}
}

func (c *checker) checkMonitorAddress(m *Monitor, path string) {
	if m.Address == "" || !c.ok(path) {
		return
	}
	a, errA := parseAddr(m.Address)
	ap, errAP := parseAddrPort(m.Address)
	switch {
	case m.Type == MonitorICMP || m.Type == MonitorExec && errA == nil:
		if m.Target = netip.AddrPortFrom(a, 0); errA != nil {
			c.errorf(path, "%v", errA)
		}
	default:
		if m.Target = ap; errAP != nil {
			c.errorf(path, "%v", errAP)
		}
	}
}

func (c *checker) checkThrough(m *Monitor, path string) {
	if !m.Through {
		for _, key := range []string{"negative", "client", "server"} {
			if p := join(path, key); c.given(p) && c.ok(p) {
				c.errorf(p, "has no meaning without through: on")
			}
		}
		return
	}
	if p := join(path, "address"); m.Address != "" {
		c.errorf(p, "has no meaning with through: the responder is at server")
	}
	client, server := join(path, "client"), join(path, "server")
	if !c.ok(client) || !c.ok(server) {
		return
	}
	for p, a := range map[string]netip.Addr{client: m.Client, server: m.Server.Addr()} {
		if !session.Reserved(a) {
			c.errorf(p, "%s must be in %s or %s, which no client and no server is in", a, session.Reserved4, session.Reserved6)
		}
	}
	switch {
	case m.Client.Is4() != m.Server.Addr().Is4():
		c.errorf(client, "must be of the same family as server")
	case m.Client == m.Server.Addr():
		c.errorf(client, "must not be the address of server")
	}
}

func (c *checker) checkRequest(m *Monitor, path string) {
	if m.Path == "" {
		if m.Path = "/"; m.Negative {
			m.Path = badPath
		}
	}
	if p := join(path, "path"); !strings.HasPrefix(m.Path, "/") || strings.ContainsAny(m.Path, " \t\r\n") {
		c.errorf(p, "must begin with / and have no spaces, not %q", m.Path)
	}
	if p := join(path, "method"); m.Method == "" || strings.ContainsFunc(m.Method, func(r rune) bool { return r < 'A' || r > 'Z' }) {
		c.errorf(p, "%q is no HTTP method", m.Method)
	}
	for i, h := range m.Headers {
		name, _, ok := strings.Cut(h, ":")
		if at := index(join(path, "headers"), i); !ok || strings.TrimSpace(name) == "" || strings.ContainsAny(h, "\r\n") {
			c.errorf(at, "must be written as Name: value, not %q", h)
		}
	}
	if len(m.Status) == 0 {
		m.Status = []StatusRange{{200, 399}}
	}
	m.TLS.Trust = c.readTrust(&m.TLS.CA, new(string), join(path, "tls.ca"), "")
	c.checkTrustFits(m.TLS.Trust, m.TLS.Protocol, m.TLS.CA, join(path, "tls.ca"))
}

func (c *checker) checkQuery(m *Monitor, path string) {
	switch p := join(path, "query"); {
	case m.Query == "":
		c.errorf(path, "query is required for a monitor of type dns")
	case !validHost(strings.TrimSuffix(m.Query, ".")):
		c.errorf(p, "%q is not a host name", m.Query)
	}
}

func (c *checker) checkCommand(m *Monitor, path string) {
	switch {
	case len(m.Command) == 0:
		c.errorf(parentPath(path), "command is required for a monitor of type exec")
	case !filepath.IsAbs(m.Command[0]):
		c.errorf(path, "the program must be an absolute path, not %q", m.Command[0])
	case slices.ContainsFunc(m.Command, func(a string) bool { return strings.Contains(a, "\x00") }):
		c.errorf(path, "an argument can not have a zero byte")
	}
}
