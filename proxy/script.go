package proxy

import (
	"time"

	"sslo/policy"
	"sslo/policy/script"
)

// consult asks the virtual server's script. It is false when that ends the connection; the route is then
// the refusal.
func (f *flow) consult(h script.Hook, e *script.Event) bool {
	cfg := &f.vs.cfg
	if !cfg.Script.Handles(h) {
		return true
	}
	if h == script.OnClientHello {
		d := policy.Decide(cfg.Rules, e.Input)
		if e.Rule = d.Rule; d.Refuses() {
			return true // the script can not save it
		}
	}
	e.Lines = nil
	err := cfg.Script.Run(h, e)
	f.tell(e.Lines)
	switch {
	case err != nil:
		f.p.limiter.warn(f.p.log, "script failed", "virtual_server", cfg.Name, "client", f.client, "err", err)
		if cfg.ScriptRejects {
			f.route = route{action: policy.Reject, rule: "script", reason: ReasonScriptError, err: err}
			return false
		}
	case h == script.OnConnect && e.Verdict.Refuses():
		f.route = route{action: e.Verdict.Action, rule: "script", reason: ReasonPolicyReject, err: errByPolicy}
		if e.Verdict.Action == policy.Drop {
			f.route.reason = ReasonPolicyDrop
		}
		return false
	}
	return true
}

// tell logs what the script says.
func (f *flow) tell(lines []string) {
	for _, line := range lines {
		if ok, skipped := f.p.limiter.allow("script "+f.vs.cfg.Name, time.Now()); ok {
			f.p.log.Info("script", "virtual_server", f.vs.cfg.Name, "client", f.client, "text", line, "skipped", skipped)
		}
	}
}
