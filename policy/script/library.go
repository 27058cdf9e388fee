package script

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// What memory costs.
const (
	tableCost   = 2048 // an empty one, with its first key
	elementCost = 64
	stringCost  = 32
	maxString   = 64 << 10
)

// library is all that a script finds.
func (st *state) library() {
	l := st.lua
	lua.OpenBase(l)
	env := l.G.Global
	base := map[string]lua.LValue{}
	for _, name := range []string{"assert", "error", "ipairs", "next", "pairs", "pcall", "select", "tonumber", "type", "unpack"} {
		base[name] = env.RawGetString(name)
	}
	env.ForEach(func(k, _ lua.LValue) { env.RawSet(k, lua.LNil) })
	for name, f := range base {
		env.RawSetString(name, f)
	}
	l.SetTop(0)
	functions := map[string]lua.LGFunction{"tostring": st.toString, fnConcat: st.concat, fnTable: st.table, fnIndex: st.index}
	for name, f := range functions {
		env.RawSetString(name, l.NewFunction(f))
	}
	st.openString()
	st.openMath()
	ip := l.NewTable()
	ip.RawSetString("within", l.NewFunction(within))
	env.RawSetString("ip", ip)
	env.RawSetString("tables", st.openTables())
	st.conn = st.openConn()
}

// text is an argument as a string, as Lua converts it.
func text(l *lua.LState, i int) string {
	switch v := l.Get(i).(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return v.String()
	}
	l.TypeError(i, lua.LTString)
	return ""
}

// give returns a string that was made, and has it paid for.
func (st *state) give(s string) int {
	st.pay(len(s) + stringCost)
	st.lua.Push(lua.LString(s))
	return 1
}

func (st *state) concat(l *lua.LState) int {
	for i := 1; i <= 2; i++ {
		if v := l.Get(i); v.Type() != lua.LTString && v.Type() != lua.LTNumber {
			l.RaiseError("attempt to concatenate a %s value", v.Type())
		}
	}
	a, b := text(l, 1), text(l, 2)
	if len(a)+len(b) > maxString {
		l.RaiseError("string longer than %d bytes", maxString)
	}
	return st.give(a + b)
}

func (st *state) table(l *lua.LState) int {
	t := l.CheckTable(1)
	st.pay(tableCost + elementCost*t.Len())
	l.Push(t)
	return 1
}

// index is the key of an assignment, and in what, if that is known.
func (st *state) index(l *lua.LState) int {
	key := l.Get(1)
	cost := elementCost
	if n, ok := key.(lua.LNumber); ok && n >= 1 && n < denseLimit {
		pad := int(n)
		if t, ok := l.Get(2).(*lua.LTable); ok {
			pad = max(pad-t.Len(), 0)
		}
		cost += 16 * pad
	}
	st.pay(cost)
	l.Push(key)
	return 1
}

func (st *state) toString(l *lua.LState) int { return st.give(plain(l.CheckAny(1))) }

// plain is a value as text, without the addresses that Lua shows of objects.
func plain(v lua.LValue) string {
	switch v.(type) {
	case lua.LString, lua.LNumber, lua.LBool, *lua.LNilType:
		return v.String()
	}
	return v.Type().String()
}

func within(l *lua.LState) int {
	addr, err := netip.ParseAddr(text(l, 1))
	if err != nil {
		l.ArgError(1, "not an IP address")
	}
	l.Push(lua.LBool(contains(l, 2, addr)))
	return 1
}

func contains(l *lua.LState, arg int, addr netip.Addr) bool {
	s := text(l, arg)
	prefix, err := netip.ParsePrefix(s)
	if one, errAddr := netip.ParseAddr(s); errAddr == nil {
		prefix, err = netip.PrefixFrom(one, one.BitLen()), nil
	}
	if err != nil {
		l.ArgError(arg, "neither a prefix nor an IP address")
	}
	return prefix.Contains(addr.Unmap())
}

func (st *state) openMath() {
	number := func(f func(l *lua.LState) float64) *lua.LFunction {
		return st.lua.NewFunction(func(l *lua.LState) int { l.Push(lua.LNumber(f(l))); return 1 })
	}
	m := st.lua.NewTable()
	m.RawSetString("floor", number(func(l *lua.LState) float64 { return math.Floor(float64(l.CheckNumber(1))) }))
	m.RawSetString("ceil", number(func(l *lua.LState) float64 { return math.Ceil(float64(l.CheckNumber(1))) }))
	m.RawSetString("abs", number(func(l *lua.LState) float64 { return math.Abs(float64(l.CheckNumber(1))) }))
	m.RawSetString("min", number(func(l *lua.LState) float64 { return float64(min(l.CheckNumber(1), l.CheckNumber(2))) }))
	m.RawSetString("max", number(func(l *lua.LState) float64 { return float64(max(l.CheckNumber(1), l.CheckNumber(2))) }))
	st.lua.G.Global.RawSetString("math", m)
}

// clean makes text fit for a line of a log.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	const most = 256
	if len(s) > most {
		s = fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(s[:most], ""), len(s))
	}
	return s
}
