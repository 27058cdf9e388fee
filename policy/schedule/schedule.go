// Package schedule owns the scheduling order of one virtual server: pre-policy, script, chain, server pool. The
// proxies run it for connections and explain runs it for questions, so that both say the same. It knows no socket,
// and asks policy.World what can be carried out at the moment.
package schedule

import (
	"sslo/policy"
	"sslo/policy/script"
)

// Server is a virtual server as scheduling sees it.
type Server struct {
	Name          string
	Rules         []policy.Rule
	Script        *script.Script // nil: none
	ScriptRejects bool           // a connection that the script fails for is refused; else the script is left out
	Own           policy.Defaults
}

// Course is the way of one connection through the order.
type Course struct {
	*Server
	Event script.Event
	// Told hears what the script did in a hook that it has a function for. May be nil.
	Told func(script.Hook, *script.Event, error)
	// Visit hears of each attempt to carry a decision out. May be nil.
	Visit func(policy.Route)
	// Err is the script's, when that ended the connection.
	Err error
}

// New begins a course.
func New(s *Server, in policy.Input) *Course {
	return &Course{Server: s, Event: script.Event{VirtualServer: s.Name, Input: in}}
}

// Connect is the course of a connection that was accepted and of which nothing was read. It is false when
// that is its end, by the route.
func (c *Course) Connect() (policy.Route, bool) { return c.consult(script.OnConnect) }

// Hello is the rest of it, when what the ClientHello says is in Event.Input.
func (c *Course) Hello(w policy.World) policy.Route {
	if r, ok := c.consult(script.OnClientHello); !ok {
		return r
	}
	return policy.Find(c.Rules, c.Event.Input, c.Event.Verdict, c.Own, w, c.Visit)
}

func (c *Course) consult(h script.Hook) (policy.Route, bool) {
	if !c.Script.Handles(h) {
		return policy.Route{}, true
	}
	e := &c.Event
	if h == script.OnClientHello {
		d := policy.Decide(c.Rules, e.Input)
		if e.Rule = d.Rule; d.Refuses() {
			return policy.Route{}, true // the script can not save it
		}
	}
	e.Lines = nil
	err := c.Script.Run(h, e)
	if c.Told != nil {
		c.Told(h, e, err)
	}
	switch {
	case err != nil && c.ScriptRejects:
		c.Err = err
		return c.ended(policy.Reject, policy.ByScriptError), false
	case err == nil && h == script.OnConnect && e.Verdict.Refuses():
		return c.ended(e.Verdict.Action, policy.ByPolicy), false
	}
	return policy.Route{}, true
}

func (c *Course) ended(a policy.Action, why policy.Refusal) policy.Route {
	return policy.Route{Decision: policy.Decision{Action: a, Script: true, Index: len(c.Rules)}, Refusal: why}
}
