package script

import (
	"crypto/tls"
	"net/netip"
	"slices"

	lua "github.com/yuin/gopher-lua"

	"sslo/policy"
)

// maxLines is how much one event may log.
const maxLines = 4

// openConn makes the object that hooks are given. There is one an interpreter: it shows the event at hand.
func (st *state) openConn() *lua.LUserData {
	methods := map[string]*lua.LFunction{}
	for name, f := range map[string]lua.LGFunction{
		"chain":       st.setChain,
		"server_pool": st.setServerPool,
		"intercept":   st.setAction(policy.Intercept),
		"bypass":      st.setAction(policy.Bypass),
		"reject":      st.setAction(policy.Reject),
		"drop":        st.setAction(policy.Drop),
		"log":         st.log,
		"count":       st.count,
		"within":      st.within,
	} {
		methods[name] = st.lua.NewFunction(f)
	}
	u := st.lua.NewUserData()
	meta := st.lua.NewTable()
	meta.RawSetString("__index", st.lua.NewFunction(func(l *lua.LState) int {
		name := text(l, 2)
		if m := methods[name]; m != nil {
			l.Push(m)
			return 1
		}
		l.Push(st.field(st.current(), name))
		return 1
	}))
	meta.RawSetString("__newindex", st.lua.NewFunction(func(l *lua.LState) int {
		l.RaiseError("the fields of a connection can not be set")
		return 0
	}))
	u.Metatable = meta
	return u
}

func (st *state) current() *Event {
	if st.event == nil {
		st.lua.RaiseError("%s", errExpired.Error())
	}
	return st.event
}

// field reads one. What is not known yet, or not there, is nil; a name that no field has is an error.
func (st *state) field(e *Event, name string) lua.LValue {
	in := &e.Input
	switch name {
	case "client":
		return st.string(in.Source.Addr().String())
	case "client_port":
		return lua.LNumber(in.Source.Port())
	case "server":
		return st.string(in.Destination.Addr().String())
	case "server_port":
		return lua.LNumber(in.Destination.Port())
	case "link":
		return st.string(in.Link)
	case "virtual_server":
		return st.string(e.VirtualServer)
	case "rule":
		return orNil(e.Rule)
	case "sni":
		return orNil(in.SNI)
	case "alpn":
		return st.list(in.ALPN)
	case "tls_version":
		return orNil(versionName(policy.HighestVersion(in.TLSVersions)))
	case "tls_versions":
		var names []string
		for _, v := range in.TLSVersions {
			if n := versionName(v); n != "" {
				names = append(names, n)
			}
		}
		return st.list(names)
	}
	st.lua.RaiseError("a connection has no field %q", name)
	return lua.LNil
}

func (st *state) string(s string) lua.LString {
	st.pay(len(s) + stringCost)
	return lua.LString(s)
}

func orNil(s string) lua.LValue {
	if s == "" {
		return lua.LNil
	}
	return lua.LString(s)
}

func (st *state) list(words []string) lua.LValue {
	st.pay(tableCost + elementCost*len(words))
	t := st.lua.CreateTable(len(words), 0)
	for _, w := range words {
		t.Append(lua.LString(w))
	}
	return t
}

var versions = map[uint16]string{tls.VersionTLS10: "1.0", tls.VersionTLS11: "1.1", tls.VersionTLS12: "1.2", tls.VersionTLS13: "1.3"}

func versionName(v uint16) string { return versions[v] }

// argument is that of a method: conn:method(argument).
func (st *state) argument(l *lua.LState, method string) string {
	if l.Get(1) != st.conn {
		l.RaiseError("call it as conn:%s(...)", method)
	}
	st.current()
	return text(l, 2)
}

func (st *state) setChain(l *lua.LState) int {
	name := st.argument(l, "chain")
	if name != policy.NoChain && !slices.Contains(st.script.cfg.Chains, name) {
		l.RaiseError("there is no chain %q", name)
	}
	st.event.Verdict.Chain = name
	return 0
}

func (st *state) setServerPool(l *lua.LState) int {
	name := st.argument(l, "server_pool")
	if !slices.Contains(st.script.cfg.ServerPools, name) {
		l.RaiseError("there is no server pool %q", name)
	}
	st.event.Verdict.ServerPool = name
	return 0
}

func (st *state) setAction(a policy.Action) lua.LGFunction {
	return func(l *lua.LState) int {
		if l.Get(1) != st.conn {
			l.RaiseError("call it as conn:%s()", a)
		}
		v := &st.current().Verdict
		v.HasAction, v.Action = true, a
		return 0
	}
}

func (st *state) log(l *lua.LState) int {
	line := st.argument(l, "log")
	if st.lines++; st.lines > maxLines {
		l.RaiseError("more than %d lines", maxLines)
	}
	st.event.Lines = append(st.event.Lines, clean(line))
	return 0
}

func (st *state) count(l *lua.LState) int {
	if !st.script.counts.add(clean(st.argument(l, "count"))) {
		l.RaiseError("more than %d counters", maxCounters)
	}
	return 0
}

func (st *state) within(l *lua.LState) int {
	if l.Get(1) != st.conn {
		l.RaiseError("call it as conn:within(prefix)")
	}
	l.Push(lua.LBool(contains(l, 2, st.current().Input.Source.Addr())))
	return 1
}

// table is a read-only table of the configuration.
type table struct {
	name     string
	entries  map[string]lua.LString
	prefixes []entry // those of the keys that are addresses or prefixes, the longest first
}

type entry struct {
	netip.Prefix
	value lua.LString
}

func newTable(name string, entries map[string]string) *table {
	t := &table{name: name, entries: make(map[string]lua.LString, len(entries))}
	for k, v := range entries {
		t.entries[k] = lua.LString(v)
		p, err := netip.ParsePrefix(k)
		if a, errAddr := netip.ParseAddr(k); errAddr == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err == nil {
			t.prefixes = append(t.prefixes, entry{p, lua.LString(v)})
		}
	}
	slices.SortFunc(t.prefixes, func(a, b entry) int { return b.Bits() - a.Bits() })
	return t
}

// match finds the longest prefix that has an address.
func (t *table) match(a netip.Addr) (lua.LString, bool) {
	for _, e := range t.prefixes {
		if e.Contains(a.Unmap()) {
			return e.value, true
		}
	}
	return "", false
}

// openTables makes tables.NAME[key] and tables.NAME:match(address).
func (st *state) openTables() lua.LValue {
	byName := map[string]lua.LValue{}
	for name, t := range st.script.tables {
		byName[name] = st.openTable(t)
	}
	return st.readOnly("tables", func(key string) lua.LValue {
		if t := byName[key]; t != nil {
			return t
		}
		st.lua.RaiseError("there is no table %q", key)
		return lua.LNil
	})
}

func (st *state) openTable(t *table) lua.LValue {
	match := st.lua.NewFunction(func(l *lua.LState) int {
		addr, err := netip.ParseAddr(text(l, 2))
		if err != nil {
			l.ArgError(2, "not an IP address")
		}
		st.work(len(t.prefixes) / perInstruction)
		if v, ok := t.match(addr); ok {
			l.Push(v)
		} else {
			l.Push(lua.LNil)
		}
		return 1
	})
	return st.readOnly("tables."+t.name, func(key string) lua.LValue {
		if v, ok := t.entries[key]; ok {
			return v
		}
		if key == "match" {
			return match
		}
		return lua.LNil
	})
}

func (st *state) readOnly(name string, get func(key string) lua.LValue) lua.LValue {
	u := st.lua.NewUserData()
	meta := st.lua.NewTable()
	meta.RawSetString("__index", st.lua.NewFunction(func(l *lua.LState) int {
		l.Push(get(text(l, 2)))
		return 1
	}))
	meta.RawSetString("__newindex", st.lua.NewFunction(func(l *lua.LState) int {
		l.RaiseError("%s can not be changed", name)
		return 0
	}))
	u.Metatable = meta
	return u
}
