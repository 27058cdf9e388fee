// Package script owns the scripts of virtual servers: Lua that looks at a connection and says what becomes
// of it. It owns the sandbox (no I/O, no other libraries, a budget of instructions and memory) and the
// pool of interpreters. It knows no socket and no configuration file, and not what a chain is: it hands a
// policy.Verdict back.
package script

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"

	"sslo/policy"
)

// Hook is an event that a script may have a function for.
type Hook uint8

// The hooks, in the order in which a connection meets them.
const (
	OnConnect     Hook = iota // accepted, nothing read
	OnClientHello             // its ClientHello is there, and the pre-policies have decided
	hooks
)

var hookNames = [hooks]string{"on_connect", "on_client_hello"}

func (h Hook) String() string { return hookNames[h] }

// Defaults of a Config.
const (
	DefaultInstructions = 100_000
	DefaultMemory       = 1 << 20
)

// Config is a script with what it may use.
type Config struct {
	Name         string // for messages: the file's name
	Source       string
	Instructions int                          // for one event; 0: DefaultInstructions
	Memory       int                          // bytes of strings and tables made in one event; 0: DefaultMemory
	Tables       map[string]map[string]string // read-only, by name
	Chains       []string                     // that it may name
	ServerPools  []string
}

// Script is a compiled script. It is safe for concurrent use.
type Script struct {
	cfg     Config
	proto   *lua.FunctionProto
	tables  map[string]*table
	defined [hooks]bool
	states  sync.Pool
	counts  counts
}

// Errors of scripts.
var (
	ErrBudget  = errors.New("instruction budget used up")
	ErrMemory  = errors.New("memory budget used up")
	ErrNoHook  = errors.New("defines none of " + strings.Join(hookNames[:], ", "))
	errExpired = errors.New("the connection is over; do not keep it")
)

// Error is what is wrong with a script, and where.
type Error struct {
	Name string
	Line int // 0: unknown
	Msg  string
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Where(), e.Msg) }

// Where is file:line.
func (e *Error) Where() string {
	if e.Line == 0 {
		return e.Name
	}
	return fmt.Sprintf("%s:%d", e.Name, e.Line)
}

// Compile parses a script and runs its main chunk once, so that what is wrong with it is found now.
func Compile(cfg Config) (*Script, error) {
	if cfg.Instructions <= 0 {
		cfg.Instructions = DefaultInstructions
	}
	if cfg.Memory <= 0 {
		cfg.Memory = DefaultMemory
	}
	s := &Script{cfg: cfg, tables: map[string]*table{}}
	for name, entries := range cfg.Tables {
		s.tables[name] = newTable(name, entries)
	}
	var err error
	if s.proto, err = compile(cfg.Name, cfg.Source); err != nil {
		return nil, err
	}
	st, err := s.newState()
	if err != nil {
		return nil, err
	}
	for h, f := range st.functions {
		s.defined[h] = f != nil
	}
	s.states.Put(st)
	if s.defined == [hooks]bool{} {
		return nil, &Error{Name: cfg.Name, Msg: ErrNoHook.Error()}
	}
	return s, nil
}

// Same says whether two scripts would do the same.
func (s *Script) Same(other *Script) bool {
	return s != nil && other != nil && reflect.DeepEqual(s.cfg, other.cfg)
}

// Fresh is the same script with counts of its own, for trying it.
func (s *Script) Fresh() (*Script, error) { return Compile(s.cfg) }

// Name is the script's, as in messages.
func (s *Script) Name() string { return s.cfg.Name }

// Handles says whether the script has a function for a hook.
func (s *Script) Handles(h Hook) bool { return s != nil && s.defined[h] }

// Hooks are the names of those that the script has a function for.
func (s *Script) Hooks() (names []string) {
	for h := range hooks {
		if s.defined[h] {
			names = append(names, h.String())
		}
	}
	return names
}

// Event is what a script sees of a connection, and what it said so far.
type Event struct {
	Input         policy.Input
	VirtualServer string
	Rule          string // that decided, if one did
	Verdict       policy.Verdict
	Lines         []string // what the script logged
}

// Run runs the function of a hook, if the script has one. On an error, which is counted, the event is as it
// was, but for the lines.
func (s *Script) Run(h Hook, e *Event) error {
	if !s.Handles(h) {
		return nil
	}
	st, err := s.state()
	if err != nil {
		return err
	}
	before := e.Verdict
	if err := st.run(h, e); err != nil {
		e.Verdict = before
		return s.counts.failed(s.explain(err))
	}
	s.counts.ran()
	if st.worn() {
		st.close()
	} else {
		s.states.Put(st)
	}
	return nil
}

func (s *Script) state() (*state, error) {
	if st, ok := s.states.Get().(*state); ok {
		return st, nil
	}
	st, err := s.newState()
	if err != nil {
		return nil, s.counts.failed(err)
	}
	return st, nil
}
