package app

import (
	"sslo/proxy"
	"sslo/proxy/pool"
	"sslo/tls/term"
)

// serverCounters flattens what a virtual server counted: connections, how they ended, handshakes, bytes.
func serverCounters(v proxy.VirtualServerStats) map[string]uint64 {
	c := map[string]uint64{
		"connections": v.Total,
		"open":        uint64(max(v.Open, 0)),
		"bytes-up":    v.BytesUp,
		"bytes-down":  v.BytesDown,
	}
	for reason, n := range v.Ended {
		c["ended/"+reason] = n
	}
	handshakeCounters(c, "", v.Handshakes, v.Failures)
	for where, n := range v.Script.Errors {
		c["script-error/"+where] = n
	}
	for name, n := range v.Script.Counters {
		c["script/"+name] = n
	}
	if v.Script.Runs > 0 {
		c["script-runs"] = v.Script.Runs
	}
	return c
}

// handshakeCounters have a name for each family, version and suite, and for each reason of a failure.
func handshakeCounters(c map[string]uint64, prefix string, made []term.Made, failed []term.Failed) {
	for _, h := range made {
		name := prefix + "handshake/" + h.Family.String() + "/" + h.Version + "/" + h.Suite
		if h.Resumed {
			name += "/resumed"
		}
		c[name] += h.Count
	}
	for _, f := range failed {
		family := f.Family.String()
		if family == "" {
			family = "none"
		}
		c[prefix+"handshake-failed/"+family+"/"+f.Reason] += f.Count
	}
}

// poolCounters flattens what the members of a server pool did.
func poolCounters(s pool.Stats) map[string]uint64 {
	c := map[string]uint64{}
	for i := range s.Members {
		m := &s.Members[i]
		prefix := m.Name + "/"
		c[prefix+"connections"], c[prefix+"open"] = m.Total, uint64(max(m.Open, 0))
		c[prefix+"connect-failed"], c[prefix+"handshake-failed"] = m.ConnectFailed, m.HandshakeFailed
		handshakeCounters(c, prefix, m.Handshakes, m.Failures)
	}
	return c
}
