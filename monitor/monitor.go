// Package monitor owns the state of a monitored target (a device, a server): a pure state
// machine that combines probe results, carrier, suspicion and the operator's word into one of
// unknown, up, degraded, down, suspect, disabled and forced-bypass, with since when and why. It knows no
// clock (time is a parameter), no socket and no goroutine; package monitor/probe does the I/O.
package monitor

import (
	"fmt"
	"time"

	"sslo/chain"
	"sslo/session"
)

// State of a target.
type State uint8

// The states. Health is one of the first three; the others are put over it.
const (
	Unknown      State = iota // not one good probe yet: no traffic
	Up                        // in service
	Down                      // out of service
	Suspect                   // up, but passive evidence says otherwise: being verified, keeps its traffic
	Disabled                  // drained by an operator: keeps established sessions while healthy
	ForcedBypass              // taken out by an operator, established sessions too
	Degraded                  // up and in service, but it does not do all that it should
)

var stateNames = [...]string{"unknown", "up", "down", "suspect", "disabled", "forced-bypass", "degraded"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("unknown-%d", uint8(s))
}

// MarshalText makes the state a word in JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (s *State) UnmarshalText(b []byte) error {
	for i, n := range stateNames {
		if n == string(b) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("no such state: %q", b)
}

// Command of an operator.
type Command uint8

// The commands.
const (
	Enable  Command = iota // back to what the monitors say; lets a `return: never` device return, ends any hold
	Disable                // drain
	Bypass                 // force bypass
)

// Config is the timing of one monitor. A target with several monitors takes the longest hold
// and flap window and the smallest flap limit of them.
type Config struct {
	Interval time.Duration // from one probe's start to the next
	Timeout  time.Duration // of one probe
	Fall     int           // this many bad probes in a row: down
	Rise     int           // this many good probes in a row: up again (the very first good probe needs no second)
	HoldDown time.Duration // a target that went down stays down at least this long

	FlapWindow time.Duration // going down FlapMax times within it is flapping...
	FlapMax    int           // ... (0: never), and each hold is then twice the one before,
	FlapHold   time.Duration // up to this long, until it was up for a whole FlapWindow

	Verify time.Duration // a suspicion is confirmed or cleared by Fall probes within this time
}

// DeviceDefaults and ServerDefaults are the timings of monitors that say nothing else.
var (
	DeviceDefaults = Config{
		Interval: time.Second, Timeout: 900 * time.Millisecond, Fall: 3, Rise: 5, HoldDown: 10 * time.Second,
		FlapWindow: time.Minute, FlapMax: 4, FlapHold: 5 * time.Minute, Verify: 150 * time.Millisecond,
	}
	ServerDefaults = Config{
		Interval: 5 * time.Second, Timeout: 16 * time.Second, Fall: 3, Rise: 2,
		FlapWindow: time.Minute, FlapMax: 4, FlapHold: 5 * time.Minute, Verify: time.Second,
	}
)

// Monitor is a named Config of a target.
type Monitor struct {
	Name string
	Config
	Degrades bool // its failure makes the target degraded instead of down
}

// Target is what a Machine watches. As many monitors as required must be good and no link down for it
// to be up. Without monitors it is up when every link is.
type Target struct {
	Name        string
	Monitors    []Monitor
	Require     int      // so many of the monitors (those that degrade not counted); 0: all
	Links       []string // carrier of these is reported by Machine.Link
	ReturnNever bool     // `return: never`: stays down after recovery until an operator enables it
}

// Result of one probe.
type Result struct {
	OK      bool
	Reason  string        // why it failed; when it passed, a remark if there is one
	Started time.Time     // when the probe was sent
	Latency time.Duration // round trip
}

// Transition is a change that somebody must hear of. From and To are equal when the state stays
// but its meaning changed: health under an operator's state, "recovered, waiting for operator".
type Transition struct {
	Target   string
	From, To State
	Health   State // unknown, up or down, below the operator's state
	Why      string
	At       time.Time
	Damped   bool          // flapping: held down longer, or further suspicions are kept quiet
	Hold     time.Duration // when going down: stays down at least this long
}

// Changed reports whether the state itself changed.
func (t Transition) Changed() bool { return t.From != t.To }

// DeviceStatus is what the session plane is to be told.
func (t Transition) DeviceStatus() chain.DeviceStatus { return DeviceStatus(t.To, t.Health) }

// DeviceStatus maps a state, and the health below it, to the traffic a device may get. A
// disabled device that is not healthy gets none: draining into a dead device helps nobody.
func DeviceStatus(state, health State) chain.DeviceStatus {
	switch state {
	case ForcedBypass:
		return chain.DeviceStatus{Service: chain.Out, Reason: session.Forced}
	case Disabled:
		if health == Up {
			return chain.DeviceStatus{Service: chain.EstablishedOnly, Reason: session.Disabled}
		}
		return DeviceStatus(health, health)
	case Up, Suspect, Degraded:
		return chain.DeviceStatus{Service: chain.Full}
	case Down:
		return chain.DeviceStatus{Service: chain.Out, Reason: session.DeviceDown}
	}
	return chain.DeviceStatus{Service: chain.Out, Reason: session.NotProbed}
}
