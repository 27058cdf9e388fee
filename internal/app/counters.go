package app

import "sslo/proxy"

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
	for _, h := range v.Handshakes {
		name := "handshake/" + h.Version + "/" + h.Suite
		if h.Resumed {
			name += "/resumed"
		}
		c[name] += h.Count
	}
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
