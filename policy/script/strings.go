package script

import (
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/pm"
)

// openString is the string library, with what it makes paid for. There is no string.gsub with a function
// and no string.dump.
func (st *state) openString() {
	lib := st.lua.NewTable()
	for name, f := range map[string]lua.LGFunction{
		"len":    func(l *lua.LState) int { l.Push(lua.LNumber(len(text(l, 1)))); return 1 },
		"lower":  func(l *lua.LState) int { return st.give(strings.ToLower(text(l, 1))) },
		"upper":  func(l *lua.LState) int { return st.give(strings.ToUpper(text(l, 1))) },
		"sub":    st.sub,
		"byte":   st.byte,
		"rep":    st.rep,
		"format": st.format,
		"find":   st.find,
		"match":  st.match,
		"gsub":   st.gsub,
		"starts": func(l *lua.LState) int { l.Push(lua.LBool(strings.HasPrefix(text(l, 1), text(l, 2)))); return 1 },
		"ends":   func(l *lua.LState) int { l.Push(lua.LBool(strings.HasSuffix(text(l, 1), text(l, 2)))); return 1 },
	} {
		lib.RawSetString(name, st.lua.NewFunction(f))
	}
	st.lua.G.Global.RawSetString("string", lib)
	meta := st.lua.NewTable()
	meta.RawSetString("__index", lib)
	st.lua.SetMetatable(lua.LString(""), meta)
}

// position turns Lua's, which counts from 1 and from the end when negative, into an offset.
func position(i, length int) int {
	if i < 0 {
		return length + i
	}
	return i - 1
}

func (st *state) sub(l *lua.LState) int {
	s := text(l, 1)
	from := max(position(l.OptInt(2, 1), len(s)), 0)
	to := min(position(l.OptInt(3, -1), len(s))+1, len(s))
	if from >= to {
		return st.give("")
	}
	return st.give(s[from:to])
}

func (st *state) byte(l *lua.LState) int {
	s := text(l, 1)
	if i := position(l.OptInt(2, 1), len(s)); i >= 0 && i < len(s) {
		l.Push(lua.LNumber(s[i]))
		return 1
	}
	return 0
}

func (st *state) rep(l *lua.LState) int {
	s, n := text(l, 1), max(l.CheckInt(2), 0)
	if len(s) > 0 && n > maxString/len(s) {
		l.RaiseError("string longer than %d bytes", maxString)
	}
	if s == "" {
		n = 0
	}
	return st.give(strings.Repeat(s, n))
}

// format knows %s, %d, %x, %q and %%, without widths.
func (st *state) format(l *lua.LState) int {
	format, arg := text(l, 1), 1
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		if format[i] != '%' {
			arg++
		}
		switch format[i] {
		case '%':
			b.WriteByte('%')
		case 's':
			b.WriteString(plain(l.CheckAny(arg)))
		case 'd':
			fmt.Fprintf(&b, "%d", l.CheckInt64(arg))
		case 'x':
			fmt.Fprintf(&b, "%x", l.CheckInt64(arg))
		case 'q':
			fmt.Fprintf(&b, "%q", text(l, arg))
		default:
			l.RaiseError("format %%%c is not possible: %%s, %%d, %%x, %%q", format[i])
		}
		if b.Len() > maxString {
			l.RaiseError("string longer than %d bytes", maxString)
		}
	}
	return st.give(b.String())
}

func (st *state) find(l *lua.LState) int {
	s, pattern := text(l, 1), text(l, 2)
	from := max(position(l.OptInt(3, 1), len(s)), 0)
	if from > len(s) {
		l.Push(lua.LNil)
		return 1
	}
	if l.ToBool(4) || !strings.ContainsAny(pattern, "^$*+?.([%-") {
		i := strings.Index(s[from:], pattern)
		if i < 0 {
			l.Push(lua.LNil)
			return 1
		}
		l.Push(lua.LNumber(from + i + 1))
		l.Push(lua.LNumber(from + i + len(pattern)))
		return 2
	}
	m := st.search(s, pattern, from, 1)
	if len(m) == 0 {
		l.Push(lua.LNil)
		return 1
	}
	l.Push(lua.LNumber(m[0].Capture(0) + 1))
	l.Push(lua.LNumber(m[0].Capture(1)))
	return 2 + st.captures(s, m[0], 2)
}

func (st *state) match(l *lua.LState) int {
	s := text(l, 1)
	from := max(position(l.OptInt(3, 1), len(s)), 0)
	if from > len(s) {
		l.Push(lua.LNil)
		return 1
	}
	m := st.search(s, text(l, 2), from, 1)
	if len(m) == 0 {
		l.Push(lua.LNil)
		return 1
	}
	if m[0].CaptureLength() == 2 {
		return st.captures(s, m[0], 0)
	}
	return st.captures(s, m[0], 2)
}

// captures pushes those of a match from an index on; 0 is the whole.
func (st *state) captures(s string, m *pm.MatchData, from int) int {
	n := 0
	for i := from; i < m.CaptureLength(); i += 2 {
		if m.IsPosCapture(i) {
			st.lua.Push(lua.LNumber(m.Capture(i)))
		} else {
			st.give(s[m.Capture(i):m.Capture(i+1)])
		}
		n++
	}
	return n
}

// gsub replaces by a string, in which % has no meaning.
func (st *state) gsub(l *lua.LState) int {
	s, with := text(l, 1), text(l, 3)
	matches := st.search(s, text(l, 2), 0, l.OptInt(4, -1))
	var b strings.Builder
	last := 0
	for _, m := range matches {
		b.WriteString(s[last:m.Capture(0)])
		b.WriteString(with)
		if last = m.Capture(1); b.Len() > maxString {
			l.RaiseError("string longer than %d bytes", maxString)
		}
	}
	b.WriteString(s[last:])
	st.give(b.String())
	l.Push(lua.LNumber(len(matches)))
	return 2
}

// search finds a pattern. One that would try too many ways is paid for by what it may take at worst.
func (st *state) search(s, pattern string, from, limit int) []*pm.MatchData {
	st.work(effort(len(s)-from, pattern))
	m, err := pm.Find(pattern, []byte(s), from, limit)
	if err != nil {
		st.lua.RaiseError("%s", err.Error())
	}
	return m
}

const perInstruction = 32 // steps of a pattern for an instruction

// effort is how many instructions a pattern may be worth: the length to the power of its repetitions.
func effort(length int, pattern string) int {
	steps := 1
	if !strings.HasPrefix(pattern, "^") {
		steps = length + 1
	}
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '%':
			i++
		case '*', '+', '-', '?':
			if steps > 1<<40 {
				return -1
			}
			if steps *= length + 1; pattern[i] == '?' {
				steps = steps / (length + 1) * 2
			}
		}
	}
	return (steps + length + len(pattern)) / perInstruction
}
