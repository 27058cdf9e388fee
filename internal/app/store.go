package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"sslo/admin/api"
	"sslo/chain"
	"sslo/monitor"
	"sslo/session"
)

// store is the small file in the state directory. The operator's decisions in it hold over reloads,
// restarts and reboots; what monitors found is only believed when the session plane says the same.
type store struct {
	path string
	mu   sync.Mutex
	data stored
}

type stored struct {
	Decisions map[string]api.Decision     `json:"decisions"` // by device
	Devices   map[string]monitor.Snapshot `json:"devices"`
}

func openStore(dir string) (*store, error) {
	s := &store{path: filepath.Join(dir, "state.json")}
	text, err := os.ReadFile(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("state file: %w", err)
	default:
		if err := json.Unmarshal(text, &s.data); err != nil {
			return nil, fmt.Errorf("state file %s: %w (remove it to start without the operators' decisions)", s.path, err)
		}
	}
	if s.data.Decisions == nil {
		s.data.Decisions = map[string]api.Decision{}
	}
	return s, nil
}

// decision of an operator that holds for a device, or nil.
func (s *store) decision(device string) *api.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.data.Decisions[device]; ok {
		return &d
	}
	return nil
}

// decide notes a decision; enable ends the one that holds.
func (s *store) decide(device string, d api.Decision) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Action == actionEnable {
		delete(s.data.Decisions, device)
	} else {
		s.data.Decisions[device] = d
	}
	return s.write()
}

// save notes the state of all devices.
func (s *store) save(devices []monitor.Snapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data.Devices = make(map[string]monitor.Snapshot, len(devices))
	for _, d := range devices {
		s.data.Devices[d.Name] = d
	}
	return s.write()
}

// write replaces the file whole, so that a crash leaves the old one or the new one.
func (s *store) write() error {
	text, err := json.MarshalIndent(s.data, "", "  ")
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o755); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	next := s.path + ".new"
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	return os.Rename(next, s.path)
}

// snapshot is the state that a device begins with. Health comes from the kernel's map alone: after a
// reboot that is unknown, whatever the file says. The file adds since when and why.
func (s *store) snapshot(device string, adopted monitor.Snapshot) monitor.Snapshot {
	decision := s.decision(device)
	s.mu.Lock()
	snap, ok := s.data.Devices[device]
	s.mu.Unlock()
	if !ok || snap.Health != adopted.Health && adopted.Operator != monitor.ForcedBypass {
		snap = adopted
	}
	if adopted.Operator == monitor.ForcedBypass {
		snap.Health = monitor.Unknown // hidden by the bypass: to be probed
	}
	snap.Operator = monitor.Unknown
	if decision != nil {
		snap.Operator = operatorStates[decision.Action]
		snap.Why, snap.Since = snap.Operator.String()+" by "+decision.By, decision.At
	}
	return snap
}

// Actions of an operator.
const (
	actionEnable  = "enable"
	actionDisable = "disable"
	actionBypass  = "bypass"
)

var operatorStates = map[string]monitor.State{actionDisable: monitor.Disabled, actionBypass: monitor.ForcedBypass}

var operatorCommands = map[string]monitor.Command{
	actionEnable: monitor.Enable, actionDisable: monitor.Disable, actionBypass: monitor.Bypass}

// statusOf is what the session plane is to give a device in that state.
func statusOf(s monitor.Snapshot) chain.DeviceStatus {
	state := s.Health
	if s.Operator != monitor.Unknown {
		state = s.Operator
	}
	return monitor.DeviceStatus(state, s.Health)
}

var serviceNames = map[chain.Service]string{chain.Full: "full", chain.EstablishedOnly: "established", chain.Out: "none"}

// bypassName is why a device gets less than everything, if so.
func bypassName(st chain.DeviceStatus) string {
	if st.Service == chain.Full || st.Reason == session.NotBypassed {
		return ""
	}
	return st.Reason.String()
}
