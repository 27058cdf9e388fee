package config

import "path/filepath"

// What the session plane takes of the kernel's numbers, at most.
const (
	tablesFixed, tablesPerLink         = 4, 2
	prioritiesFixed, prioritiesPerLink = 4, 4
	firstKernelTable, lastKernelTable  = 253, 255 // default, main, local
	mainPriority                       = 32766
	unixPathMax                        = 107
)

func (c *checker) checkSystem() {
	s := &c.System
	c.absolute("system.pin_path", s.PinPath)
	c.absolute("system.state_dir", s.StateDir)
	c.absolute("system.run_dir", s.RunDir)
	c.absolute("admin.socket", c.Admin.Socket)
	if len(c.Admin.Socket) > unixPathMax {
		c.errorf("admin.socket", "a socket's path has at most %d characters", unixPathMax)
	}
	last := s.RoutingTable + tablesFixed + tablesPerLink*len(c.Links) - 1
	if c.ok("system.routing_table") && s.RoutingTable <= lastKernelTable && last >= firstKernelTable {
		c.errorf("system.routing_table", "tables %d to %d would be used, but %d to %d are the kernel's own",
			s.RoutingTable, last, firstKernelTable, lastKernelTable)
	}
	if last := s.RulePriority + prioritiesFixed + prioritiesPerLink*len(c.Links); last >= mainPriority && c.ok("system.rule_priority") {
		c.errorf("system.rule_priority", "priorities up to %d would be used; they must stay below %d, that of the main table", last, mainPriority)
	}
	if s.MTU != 0 && s.MTU < 576 {
		c.errorf("system.mtu", "must be 0 or at least 576")
	}
	if s.TripAfter != 0 && s.TripAfter < s.SuspectAfter {
		c.errorf("system.trip_after", "must not be shorter than suspect_after (%v)", s.SuspectAfter)
	}
	if l := &s.Limits; l.HandshakesPerClient > l.Handshakes {
		c.warnf("system.limits.handshakes_per_client", "has no effect: it is more than handshakes (%d)", l.Handshakes)
	}
}

func (c *checker) absolute(path, name string) {
	if c.ok(path) && !filepath.IsAbs(name) {
		c.errorf(path, "must be an absolute path, not %q", name)
	}
}
