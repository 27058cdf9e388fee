package datapath

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// state is what must survive a crash to restore the host exactly and to keep ids stable.
// Every change of the host is recorded here before it is made, so that a process that dies
// in between leaves a record of too much, never of too little.
type state struct {
	BootID    string                     `json:"boot_id"` // host changes of an earlier boot are gone
	Veths     bool                       `json:"veths,omitempty"`
	Sysctls   map[string]string          `json:"sysctls,omitempty"`   // path → what was there
	Addresses []ownAddress               `json:"addresses,omitempty"` // we added them
	NoARP     []string                   `json:"no_arp,omitempty"`    // NICs whose ARP we turned off
	Features  map[string]map[string]bool `json:"features,omitempty"`  // NIC → offload feature → what was there
	V6Lost    map[string][]lostAddress   `json:"v6_lost,omitempty"`   // NIC → addresses lost when IPv6 went off
	IDs       idSet                      `json:"ids"`
}

type ownAddress struct {
	NIC    string       `json:"nic"`
	Prefix netip.Prefix `json:"prefix"`
}

type lostAddress struct {
	Prefix netip.Prefix `json:"prefix"`
	Flags  int          `json:"flags,omitempty"`
}

// store keeps the state in one small file.
type store struct {
	dir string
	state
}

const stateFile = "state.json"

func openStore(dir string) (*store, error) {
	s := &store{dir: dir}
	boot := bootID()
	err := s.load()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if s.BootID != boot {
		s.state = state{BootID: boot}
	}
	s.fill()
	return s, nil
}

func (s *store) fill() {
	if s.Sysctls == nil {
		s.Sysctls = map[string]string{}
	}
	if s.Features == nil {
		s.Features = map[string]map[string]bool{}
	}
	if s.V6Lost == nil {
		s.V6Lost = map[string][]lostAddress{}
	}
	s.IDs.fill()
}

func (s *store) load() error {
	b, err := os.ReadFile(filepath.Join(s.dir, stateFile))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &s.state); err != nil {
		return fmt.Errorf("state file %s is damaged: %w", filepath.Join(s.dir, stateFile), err)
	}
	return nil
}

// save replaces the file in one step: a crash leaves the old or the new one.
func (s *store) save() error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	b, err := json.MarshalIndent(&s.state, "", "  ")
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	tmp := filepath.Join(s.dir, stateFile+".new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(s.dir, stateFile)); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

// remove deletes the file, and the directory when nothing else is in it.
func (s *store) remove() error {
	err := os.Remove(filepath.Join(s.dir, stateFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove state: %w", err)
	}
	_ = os.Remove(s.dir)
	return nil
}

func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}
