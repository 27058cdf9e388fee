package proxy

import (
	"time"

	"sslo/policy"
	"sslo/policy/schedule"
	"sslo/policy/script"
)

// course is the flow's way through the scheduling order.
func (f *flow) course() *schedule.Course {
	c := schedule.New(&f.vs.order, policy.Input{Source: f.client, Destination: f.listen, Link: f.link})
	if c.Script != nil {
		c.Told = f.scriptDid
	}
	return c
}

func (f *flow) scriptDid(_ script.Hook, e *script.Event, err error) {
	f.tell(e.Lines)
	if err != nil {
		f.p.limiter.warn(f.p.log, "script failed", "virtual_server", f.vs.cfg.Name, "client", f.client, "err", err)
	}
}

// tell logs what the script says.
func (f *flow) tell(lines []string) {
	for _, line := range lines {
		if ok, skipped := f.p.limiter.allow("script "+f.vs.cfg.Name, time.Now()); ok {
			f.p.log.Info("script", "virtual_server", f.vs.cfg.Name, "client", f.client, "text", line, "skipped", skipped)
		}
	}
}
