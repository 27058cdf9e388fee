package script

import (
	"context"
	"errors"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// Sizes of an interpreter.
const (
	callDepth  = 64
	registers  = 4096
	denseLimit = 1024 // larger indexes of a table are kept by hash: a lone t[60000] must not cost 60000 places
	wornAfter  = 16   // memory budgets of use, after which a state is thrown away with what it may have kept
)

func init() { lua.MaxArrayIndex = denseLimit }

// state is an interpreter with the script loaded.
type state struct {
	script    *Script
	lua       *lua.LState
	functions [hooks]lua.LValue
	budget    budget
	conn      *lua.LUserData
	event     *Event
	hook      Hook
	lines     int
	used      int // bytes since it was made
}

func (s *Script) newState() (*state, error) {
	st := &state{script: s, lua: lua.NewState(lua.Options{SkipOpenLibs: true, CallStackSize: callDepth, RegistrySize: registers})}
	st.budget = budget{Context: context.Background(), open: make(chan struct{}), spent: closed}
	st.lua.SetContext(&st.budget)
	st.library()
	st.refill()
	main := st.lua.NewFunctionFromProto(s.proto)
	if err := st.call(main); err != nil {
		st.close()
		return nil, s.explain(err)
	}
	for h := range hooks {
		if f, ok := st.lua.GetGlobal(h.String()).(*lua.LFunction); ok {
			st.functions[h] = f
		}
	}
	st.freeze()
	return st, nil
}

func (st *state) close() { st.lua.Close() }

// worn states may have kept something of every connection.
func (st *state) worn() bool { return st.used > wornAfter*st.script.cfg.Memory }

func (st *state) refill() {
	st.budget.instructions, st.budget.memory = st.script.cfg.Instructions, st.script.cfg.Memory
	st.budget.err, st.lines = nil, 0
}

// run calls the function of a hook.
func (st *state) run(h Hook, e *Event) error {
	st.refill()
	st.event, st.hook = e, h
	defer func() { st.event = nil }() // what the script has kept of it is of no more use
	err := st.call(st.functions[h], st.conn)
	st.used += st.script.cfg.Memory - st.budget.memory
	return err
}

func (st *state) call(f lua.LValue, args ...lua.LValue) error {
	err := st.lua.CallByParam(lua.P{Fn: f, Protect: true}, args...)
	st.lua.SetTop(0)
	if st.budget.err != nil && err == nil {
		err = st.budget.err // pcall caught it, and there was nothing left to do
	}
	return err
}

// freeze makes the globals what the main chunk made of them: a connection can not leave something
// for the next, which may be another interpreter's.
func (st *state) freeze() {
	env, kept := st.lua.G.Global, st.lua.NewTable()
	env.ForEach(func(k, v lua.LValue) { kept.RawSet(k, v) })
	kept.ForEach(func(k, _ lua.LValue) { env.RawSet(k, lua.LNil) })
	meta := st.lua.NewTable()
	meta.RawSetString("__index", kept)
	meta.RawSetString("__newindex", st.lua.NewFunction(func(l *lua.LState) int {
		l.RaiseError("global %q can only be set when the script is loaded: make it local", l.ToString(2))
		return 0
	}))
	st.lua.SetMetatable(env, meta)
}

// budget is the context of an interpreter. The interpreter asks whether it is done before each instruction,
// which is how instructions are counted.
type budget struct {
	context.Context
	instructions int
	memory       int
	err          error
	open, spent  chan struct{}
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Done implements context.Context.
func (b *budget) Done() <-chan struct{} {
	if b.instructions--; b.instructions < 0 || b.err != nil {
		if b.err == nil {
			b.err = ErrBudget
		}
		return b.spent
	}
	return b.open
}

// Err implements context.Context.
func (b *budget) Err() error { return b.err }

// pay takes bytes of the budget; the script ends when there are none.
func (st *state) pay(bytes int) {
	if bytes < 0 || bytes > st.budget.memory {
		st.budget.memory, st.budget.err = 0, ErrMemory
		st.lua.RaiseError("%s", ErrMemory.Error())
	}
	st.budget.memory -= bytes
}

// work takes instructions of the budget.
func (st *state) work(instructions int) {
	if instructions < 0 || instructions > st.budget.instructions {
		st.budget.instructions, st.budget.err = 0, ErrBudget
		st.lua.RaiseError("%s", ErrBudget.Error())
	}
	st.budget.instructions -= instructions
}

// explain makes an Error of what the interpreter says: "name:line: message".
func (s *Script) explain(err error) *Error {
	out := &Error{Name: s.cfg.Name, Msg: err.Error()}
	var own *Error
	var api *lua.ApiError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &api):
		out.Msg = api.Object.String()
	}
	rest, ok := strings.CutPrefix(out.Msg, s.cfg.Name+":")
	if line, msg, cut := strings.Cut(rest, ":"); ok && cut && number(line) > 0 {
		out.Line, out.Msg = number(line), msg
	}
	out.Msg = clean(strings.TrimSpace(firstLine(out.Msg)))
	return out
}

func number(digits string) (n int) {
	for _, d := range digits {
		if d < '0' || d > '9' || n > 1e8 {
			return 0
		}
		n = n*10 + int(d-'0')
	}
	return n
}
