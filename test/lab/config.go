package lab

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Config is a configuration of the daemon as plain maps, so that a test can change any of it.
type Config map[string]any

// Set changes one value by its path, such as "device_pools.ips.on_down". Missing maps are made;
// a nil value removes the key.
func (c Config) Set(path string, value any) Config {
	keys := strings.Split(path, ".")
	m := map[string]any(c)
	for _, k := range keys[:len(keys)-1] {
		next, ok := m[k].(map[string]any)
		if !ok {
			next = make(map[string]any)
			m[k] = next
		}
		m = next
	}
	last := keys[len(keys)-1]
	if value == nil {
		delete(m, last)
	} else {
		m[last] = value
	}
	return c
}

// YAML is the configuration file.
func (c Config) YAML() ([]byte, error) { return yaml.Marshal(map[string]any(c)) }

type dict = map[string]any

// Config for this topology: the virtual server "shop" on both addresses and all client links, its
// chain "inspect" of the topology's pools, server pool "web", and monitors quick enough for a test.
func (l *Lab) Config() Config {
	t := l.Topology
	links := dict{ServerNIC: dict{"nic": ServerNIC}}
	var clientLinks []string
	for i := 1; i <= t.ClientLinks; i++ {
		nic := ClientNIC
		if i > 1 {
			nic = fmt.Sprintf("ext%d", i)
		}
		links[nic] = dict{"nic": nic}
		clientLinks = append(clientLinks, nic)
	}
	devices := dict{}
	for _, d := range t.Devices {
		devices[d.Name] = l.deviceConfig(d, links)
	}
	c := Config{
		"links": links,
		"certificates": dict{
			"www":     dict{"cert": l.Path("www.pem"), "key": l.Path("www.key")},
			"www-rsa": dict{"cert": l.Path("www-rsa.pem"), "key": l.Path("www-rsa.key")},
		},
		"server_pools":    dict{"web": l.serverPool()},
		"virtual_servers": dict{"shop": shop(clientLinks, len(t.Chain) > 0)},
		"system":          dict{"pin_path": l.PinPath(), "state_dir": l.Path("state"), "run_dir": l.Path("run")},
		"admin":           dict{"socket": l.AdminSocket()},
		"log":             dict{"level": "info"},
	}
	if len(t.Devices) > 0 {
		c["devices"], c["device_pools"] = devices, devicePools(t.Pools)
		fast := func(kind string) dict { // failing again and again is what tests do
			return dict{"type": kind, "interval": "100ms", "timeout": "80ms", "fall": 2, "rise": 3, "hold_down": "500ms", "flap_max": 0}
		}
		monitors := dict{"path-fast": fast("path")}
		if slices.ContainsFunc(t.Devices, func(d Device) bool { return d.Kind == Router || d.Kind == OneArm }) {
			monitors["ping-fast"] = fast("icmp")
		}
		c["monitors"] = monitors
	}
	if len(t.Chain) > 0 {
		c["chains"] = dict{"inspect": dict{"pools": t.Chain}}
	}
	return c
}

func (l *Lab) serverPool() dict {
	var members []dict
	for _, s := range l.Servers {
		members = append(members, dict{"address": fmt.Sprintf("%s:%d", s.Addr4, TLSPort)})
	}
	return dict{"members": members,
		"tls": dict{"enabled": true, "ca": l.Path("ca.pem"), "server_name": OriginName, "verify": true}}
}

func shop(links []string, chained bool) dict {
	vs := dict{
		"type": "https", "links": links,
		"listen":       []string{fmt.Sprintf("%s:%d", VIP4, TLSPort), fmt.Sprintf("[%s]:%d", VIP6, TLSPort)},
		"certificates": []string{"www", "www-rsa"}, "server_pool": "web",
	}
	if chained {
		vs["chain"] = "inspect"
	}
	return vs
}

func devicePools(pools []Pool) dict {
	out := dict{}
	for _, p := range pools {
		pool := dict{"devices": p.Devices}
		for k, v := range p.Keys {
			pool[k] = v
		}
		out[p.Name] = pool
	}
	return out
}

// WriteConfig stores a configuration in the lab's directory and returns its path.
func (l *Lab) WriteConfig(c Config) (string, error) {
	b, err := c.YAML()
	if err != nil {
		return "", err
	}
	path := l.Path("sslo.yaml")
	return path, os.WriteFile(path, b, 0o644)
}
