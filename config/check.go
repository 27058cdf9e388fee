package config

import (
	"slices"
	"strings"
)

// checker makes the checks that need more than one key, and resolves what they find. Each part
// of the file has its own file here.
type checker struct {
	*source
	*Config
	Loader
	dir string

	used     map[string]bool // paths of objects that something names
	defaults []*Monitor      // that the file does not define
}

func (c *checker) check() {
	c.used = map[string]bool{}
	c.checkLinks()
	c.checkMonitors()
	c.checkDevices()
	c.checkPools()
	c.checkChains()
	c.checkCertificates()
	c.checkServerPools()
	c.checkTables()
	c.checkVirtualServers()
	c.checkListeners()
	c.checkSystem()
	c.warnUnused()
}

// reference finds a named object, and reports a name that is not defined at path. It returns nil
// too when the name itself is already known to be wrong.
func reference[T any](c *checker, section, kind, name, path string, all []*T) *T {
	if !c.ok(path) || name == "" {
		return nil
	}
	if o := find(all, name); o != nil {
		c.used[join(section, name)] = true
		return o
	}
	if len(all) == 0 && !c.ok(section) {
		return nil // the section could not be read
	}
	c.errorf(path, "undefined %s %q%s", kind, name, didYouMean(name, namesOf(all)))
	return nil
}

func (c *checker) link(name, path string) *Link {
	return reference(c, "links", "link", name, path, c.Links)
}

func (c *checker) chain(name, path string) *Chain {
	return reference(c, "chains", "chain", name, path, c.Chains)
}

func (c *checker) serverPool(name, path string) *ServerPool {
	return reference(c, "server_pools", "server pool", name, path, c.ServerPools)
}

// duplicates reports every value of a list that was there before.
func (c *checker) duplicates(path string, names []string) {
	for i, n := range names {
		if p := index(path, i); n != "" && slices.Contains(names[:i], n) && c.ok(p) {
			c.errorf(p, "%q is in this list twice", n)
		}
	}
}

func (c *checker) warnUnused() {
	unused := func(section, what string, names []string) {
		for _, n := range names {
			if p := join(section, n); !c.used[p] && c.ok(p) {
				c.warnf(p, "no %s uses it", what)
			}
		}
	}
	unused("devices", "device pool", namesOf(c.Devices))
	unused("device_pools", "chain", namesOf(c.DevicePools))
	unused("chains", "virtual server", namesOf(c.Chains))
	unused("monitors", "device or server pool", namesOf(c.Monitors))
	unused("certificates", "virtual server or server pool", namesOf(c.Certificates))
	unused("server_pools", "virtual server", namesOf(c.ServerPools))
	if len(c.VirtualServers) == 0 && len(c.errs) == 0 {
		c.warnf("", "there is no virtual server: sslo would have nothing to do")
	}
}

// validHost reports whether a name can be a server's: letters, digits, hyphens, dots.
func validHost(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.IndexFunc(label, notHostRune) >= 0 {
			return false
		}
	}
	return true
}

func notHostRune(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
}
