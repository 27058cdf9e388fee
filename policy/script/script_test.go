package script

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sslo/policy"
)

func event() *Event {
	return &Event{VirtualServer: "shop", Rule: "staff", Input: policy.Input{
		Source: netip.MustParseAddrPort("10.1.2.3:50000"), Destination: netip.MustParseAddrPort("192.0.2.10:443"), Link: "ext",
		SNI: "www.bank.test", ALPN: []string{"h2", "http/1.1"}, TLSVersions: []uint16{0x2a2a, 0x0304, 0x0303}}}
}

func config(source string) Config {
	return Config{Name: "shop.lua", Source: source, Chains: []string{"inspect", "light"}, ServerPools: []string{"web", "second"},
		Tables: map[string]map[string]string{
			"names": {"www.bank.test": "light", "match": "a key like a method"},
			"nets":  {"10.0.0.0/8": "inside", "10.1.0.0/16": "office", "10.1.2.3": "me", "2001:db8::/32": "six", "word": "none"}}}
}

func hello(body string) string { return "function on_client_hello(conn)\n" + body + "\nend" }

func mustCompile(t testing.TB, source string) *Script {
	t.Helper()
	s, err := Compile(config(source))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestVerdicts(t *testing.T) {
	for source, want := range map[string]policy.Verdict{
		`conn:chain("light")`:                                 {Chain: "light"},
		`conn:chain("none")`:                                  {Chain: policy.NoChain},
		`conn:server_pool("second") conn:chain("light")`:      {Chain: "light", ServerPool: "second"},
		`conn:reject()`:                                       {HasAction: true, Action: policy.Reject},
		`conn:drop()`:                                         {HasAction: true, Action: policy.Drop},
		`conn:bypass() conn:intercept()`:                      {HasAction: true, Action: policy.Intercept},
		`conn:chain(tables.names[conn.sni])`:                  {Chain: "light"},
		`if tables.names.unknown == nil then conn:drop() end`: {HasAction: true, Action: policy.Drop},
		`if false then conn:drop() end`:                       {},
	} {
		e := event()
		if err := mustCompile(t, hello(source)).Run(OnClientHello, e); err != nil || e.Verdict != want {
			t.Errorf("%s: %+v, %v, want %+v", source, e.Verdict, err, want)
		}
	}
}

// Each expression must be true.
func TestExpressions(t *testing.T) {
	for _, expression := range []string{
		`conn.client == "10.1.2.3" and conn.client_port == 50000`,
		`conn.server == "192.0.2.10" and conn.server_port == 443`,
		`conn.link == "ext" and conn.virtual_server == "shop" and conn.rule == "staff"`,
		`conn.sni == "www.bank.test"`,
		`#conn.alpn == 2 and conn.alpn[1] == "h2"`,
		`conn.tls_version == "1.3" and #conn.tls_versions == 2 and conn.tls_versions[2] == "1.2"`,
		`conn:within("10.0.0.0/8") and not conn:within("10.2.0.0/16") and conn:within("10.1.2.3")`,
		`ip.within("2001:db8::1", "2001:db8::/32") and not ip.within("10.0.0.1", "2001:db8::/32")`,
		`tables.nets:match(conn.client) == "me" and tables.nets:match("10.1.9.9") == "office"`,
		`tables.nets:match("10.9.9.9") == "inside" and tables.nets:match("192.0.2.1") == nil`,
		`tables.names["match"] == "a key like a method"`,
		`conn.sni:match("^(%w+)%.") == "www" and conn.sni:find("bank", 1, true) == 5`,
		`("a.b"):gsub("%.", "-") == "a-b" and ("x"):rep(3) == "xxx" and ("AbC"):lower() == "abc"`,
		`("hello"):sub(2, -2) == "ell" and ("hello"):sub(10) == "" and ("hello"):sub(-100, 2) == "he"`,
		`string.format("%s:%d %x %q%%", conn.sni, 5, 255, "a") == 'www.bank.test:5 ff "a"%'`,
		`conn.sni:ends(".bank.test") and conn.sni:starts("www.")`,
		`("é"):byte() == 195 and ("abc"):byte(-1) == 99`,
		`1 .. "" == "1" and "a" .. 1 .. "b" == "a1b"`,
		`math.floor(2.5) == 2 and math.max(1, 2) == 2`,
		`tostring(nil) == "nil" and tostring({}) == "table" and tonumber("0x10") == 16`,
		`select("#", 1, nil, 3) == 3 and (pcall(error, "x")) == false`,
		`(function() local t = {} for i = 1, 100 do t[i] = i * 2 end return #t == 100 and t[50] == 100 end)()`,
		`(function() local t = {[443] = "https", x = 1} t[60000] = 1 return t[443] == "https" and t[60000] == 1 end)()`,
		`(function() local n = 0 for _, v in ipairs({1, 2, 3}) do n = n + v end for k, v in pairs({a = 1}) do n = n + v end return n == 7 end)()`,
	} {
		e := event()
		err := mustCompile(t, hello("assert("+expression+")")).Run(OnClientHello, e)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	for source, want := range map[string]string{
		"function on_connect(c)\n  x = = 1\nend": "shop.lua:2: syntax error near =",
		"function on_connect(c)\n":               "shop.lua:1: the script ends where more is expected",
		"local x = 1":                            "shop.lua: defines none of on_connect, on_client_hello",
		"local t = nil\nlocal y = t.x":           "shop.lua:2: attempt to index a non-table object(nil) with key 'x'",
		"on_connect = 5":                         "shop.lua: defines none of",
		"while true do end":                      "shop.lua:1: instruction budget used up",
		"\nerror('too bad')":                     "shop.lua:2: too bad",
		"function on_connect(c) break end":       "shop.lua:1: ",
		"local x <const> = 1":                    "shop.lua:1: syntax error near <",
	} {
		_, err := Compile(config(source))
		var at *Error
		if !errors.As(err, &at) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", source, err, want)
		}
	}
}

// What a script must not do ends it, with its place, and the event is as before.
func TestRuntimeErrors(t *testing.T) {
	for body, want := range map[string]string{
		`conn:chain("nope")`:                         `there is no chain "nope"`,
		`conn:server_pool("nope")`:                   `there is no server pool "nope"`,
		`conn.chain("light")`:                        "call it as conn:chain(...)",
		`conn.reject()`:                              "call it as conn:reject()",
		`conn.colour = 1`:                            "the fields of a connection can not be set",
		`local x = conn.colour`:                      `a connection has no field "colour"`,
		`tables.names["x"] = 1`:                      "tables.names can not be changed",
		`tables.names = {}`:                          "tables can not be changed",
		`local x = tables.none`:                      `there is no table "none"`,
		`count = 1`:                                  `global "count" can only be set when the script is loaded`,
		`on_client_hello = nil`:                      `global "on_client_hello" can only be set`,
		`for i = 1, 5 do conn:log("x") end`:          "more than 4 lines",
		`for i = 1, 100 do conn:count("c" .. i) end`: "more than 64 counters",
		`while true do end`:                          "instruction budget used up",
		`while true do pcall(function() while true do end end) end`:                    "instruction budget used up",
		`local function f() return 1 + f() end f()`:                                    "stack overflow",
		`local s = "x" while true do s = s .. s end`:                                   "string longer than 65536 bytes",
		`local t = {} local s = ("x"):rep(60000) for i = 1, 1000 do t[i] = s .. i end`: "memory budget used up",
		`local t = {} for i = 1, 1e6 do t[i] = {} end`:                                 "memory budget used up",
		`local t = {} for i = 1, 1e6 do t = {[1000] = t} end`:                          "memory budget used up",
		`local t = {} for i = 1, 1e6 do t["k" .. i] = i end`:                           "memory budget used up",
		`local s = ("x"):rep(1e9)`:                                                     "string longer than 65536 bytes",
		`local s = ("a"):rep(5000):find(".-.-.-.-.-b")`:                                "instruction budget used up",
		`local s = ("%s"):rep(10):format(unpack({1}))`:                                 "bad argument",
		`local s = string.format("%100000000d", 1)`:                                    "format %1 is not possible",
		`unpack({}, 1, 1e7)`:                                                           "overflow",
		`io.open("/etc/passwd")`:                                                       "attempt to index a non-table object(nil) with key 'open'",
		`os.execute("x")`:                                                              "attempt to index a non-table object(nil) with key 'execute'",
		`require("os")`:                                                                "attempt to call a non-function object",
		`loadstring("x")()`:                                                            "attempt to call a non-function object",
		`dofile("/etc/passwd")`:                                                        "attempt to call a non-function object",
		`setmetatable({}, {})`:                                                         "attempt to call a non-function object",
		`coroutine.create(1)`:                                                          "attempt to index a non-table object(nil)",
		`print("x")`:                                                                   "attempt to call a non-function object",
		`local x = _G.io`:                                                              "attempt to index a non-table object(nil)",
		`error({})`:                                                                    "",
	} {
		s, err := Compile(config(hello("conn:chain('light')\n" + body)))
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		e := event()
		e.Verdict.ServerPool = "web"
		begin := time.Now()
		err = s.Run(OnClientHello, e)
		var at *Error
		if !errors.As(err, &at) || !strings.Contains(at.Msg, want) {
			t.Errorf("%s: %v, want %q", body, err, want)
			continue
		}
		if at.Line != 3 && want != "stack overflow" && want != "" && at.Msg != ErrBudget.Error() {
			t.Errorf("%s: on line %d: %v", body, at.Line, err)
		}
		if e.Verdict != (policy.Verdict{ServerPool: "web"}) {
			t.Errorf("%s: %+v", body, e.Verdict)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("%s: took %v", body, took)
		}
		if n := s.Stats().Errors[at.Where()]; n != 1 {
			t.Errorf("%s: errors %v", body, s.Stats().Errors)
		}
		if err := s.Run(OnClientHello, event()); err == nil {
			t.Errorf("%s: no error the second time", body)
		}
	}
}

// A connection leaves nothing for the next, and an object that was kept is of no use.
func TestNothingIsKept(t *testing.T) {
	s := mustCompile(t, `
local kept
function on_connect(conn) kept = conn end
function on_client_hello(conn) assert(kept == nil or kept.sni) ; conn:chain("light") end`)
	e := event()
	if err := errors.Join(s.Run(OnConnect, e), s.Run(OnClientHello, e)); err != nil || e.Verdict.Chain != "light" {
		t.Fatalf("%+v %v", e, err)
	}
	// What a script hoards goes with its interpreter.
	s = mustCompile(t, "local hoard = {}\n"+hello(`for i = 1, 50 do hoard[#hoard + 1] = ("x"):rep(10000) .. i end`))
	for range 500 {
		if err := s.Run(OnClientHello, event()); err != nil {
			t.Fatal(err)
		}
	}
	if mb := heap(); mb > 100 {
		t.Errorf("%d MB in use", mb)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc >> 20
}

func TestLogAndCount(t *testing.T) {
	s := mustCompile(t, hello(`conn:log("seen " .. conn.sni .. "\n\27[31m") conn:count("seen") conn:count(conn.link)`))
	e := event()
	for range 3 {
		e.Lines = nil
		if err := s.Run(OnClientHello, e); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(e.Lines, []string{"seen www.bank.test??[31m"}) {
		t.Errorf("%q", e.Lines)
	}
	if st := s.Stats(); st.Runs != 3 || fmt.Sprint(st.Counters) != "map[ext:3 seen:3]" || len(st.Errors) != 0 {
		t.Errorf("%+v", st)
	}
}

func TestHooks(t *testing.T) {
	s := mustCompile(t, `function on_connect(conn) assert(conn.sni == nil and #conn.alpn == 0 and conn.tls_version == nil) conn:server_pool("web") end`)
	e := event()
	e.Input.SNI, e.Input.ALPN, e.Input.TLSVersions = "", nil, nil
	if err := errors.Join(s.Run(OnConnect, e), s.Run(OnClientHello, e)); err != nil || e.Verdict.ServerPool != "web" {
		t.Errorf("%+v %v", e.Verdict, err)
	}
	if !s.Handles(OnConnect) || s.Handles(OnClientHello) || (*Script)(nil).Handles(OnConnect) {
		t.Error("hooks")
	}
}

func TestConcurrent(t *testing.T) {
	s := mustCompile(t, hello(`conn:chain(conn.client_port % 2 == 0 and "light" or "inspect")`))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				e := event()
				e.Input.Source = netip.AddrPortFrom(e.Input.Source.Addr(), uint16(1000+g*200+i))
				want := []string{"light", "inspect"}[i%2]
				if err := s.Run(OnClientHello, e); err != nil || e.Verdict.Chain != want {
					t.Errorf("%+v %v", e.Verdict, err)
				}
			}
		})
	}
	wg.Wait()
}

// Whatever the text, it compiles or not, ends soon, and stays inside.
func FuzzScript(f *testing.F) {
	f.Add(hello(`local t = {} for i = 1, 10 do t[i] = {i, x = "a" .. i} end conn:chain("light")`))
	f.Add(hello(`conn:log(("x"):rep(10):gsub("x+", "y")) repeat local n = (n or 0) + 1 until n > 3`))
	f.Add("local a, b = {}, nil\nfunction on_connect(c) a[#a+1], b = c.client, (pcall(error)) ; goto x ; ::x:: end")
	f.Fuzz(func(t *testing.T, source string) {
		cfg := config(source)
		cfg.Instructions, cfg.Memory = 5000, 100_000
		begin := time.Now()
		s, err := Compile(cfg)
		if err == nil {
			for h := range hooks {
				e := event()
				s.Run(h, e)
				if c := e.Verdict.Chain; c != "" && c != policy.NoChain && !slices.Contains(cfg.Chains, c) {
					t.Fatalf("chain %q", c)
				}
			}
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Fatalf("took %v", took)
		}
	})
}

func BenchmarkRun(b *testing.B) {
	for name, body := range map[string]string{
		"empty":              "",
		"usual":              `if tables.nets:match(conn.client) == "me" and conn.sni:ends(".bank.test") then conn:chain("light") conn:server_pool("second") end`,
		"loop of a thousand": "for i = 1, 1000 do end",
	} {
		b.Run(name, func(b *testing.B) {
			s := mustCompile(b, hello(body))
			e := event()
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Run(OnClientHello, e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
