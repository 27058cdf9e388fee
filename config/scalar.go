package config

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"sslo/chain"
	"sslo/policy"
	"sslo/session"
)

// enums are the values of types with few of them, as they are written in the file. The index is
// the number, unless numbers gives it.
var enums = map[reflect.Type][]string{
	reflect.TypeFor[chain.DeviceType](): {"l2", "l3", "one-arm", "tap"},
	reflect.TypeFor[ControlProtocol]():  {"any", "icmp", "tcp", "udp"},
	reflect.TypeFor[MonitorType]():      {"path", "icmp", "tcp", "http", "https", "udp", "dns", "exec"},
	reflect.TypeFor[ScriptError]():      {"next", "reject"},
	reflect.TypeFor[SNI]():              {"original", "configured"},
	reflect.TypeFor[ServerType]():       {"https", "tls"},
	reflect.TypeFor[Protocol]():         {"tls", "tlcp", "tls13-sm"},
	reflect.TypeFor[ServerProtocol]():   {"auto", "tls", "tlcp", "tls13-sm"},
	reflect.TypeFor[SMMode]():           {"strict", "tolerant"},
	reflect.TypeFor[SMSuite](): {"ECC_SM4_GCM_SM3", "ECC_SM4_CBC_SM3", "ECDHE_SM4_GCM_SM3", "ECDHE_SM4_CBC_SM3",
		"TLS_SM4_GCM_SM3", "TLS_SM4_CCM_SM3"},
	reflect.TypeFor[ClientCertificates](): {"none", "optional", "required"},
	reflect.TypeFor[Role]():               {"server", "client", "device"},
	reflect.TypeFor[LogFormat]():          {"text", "json"},
	reflect.TypeFor[LogLevel]():           {"debug", "info", "warn", "error"},
	reflect.TypeFor[TLSVersion]():         {"1.0", "1.1", "1.2", "1.3"},
	reflect.TypeFor[chain.Method]():       {"round-robin", "weighted", "source-hash", "least-sessions", "active-standby"},
	reflect.TypeFor[chain.Action]():       {"bypass", "reset", "drop"},
	reflect.TypeFor[chain.Return]():       {"new-sessions", "never", "at-request-boundary", "immediate"},
	reflect.TypeFor[policy.Match]():       {"all", "any"},
	reflect.TypeFor[policy.Action]():      {"intercept", "bypass", "reject", "drop"},
	reflect.TypeFor[policy.OnFailure]():   {"reset", "drop", "next-rule"},
	reflect.TypeFor[session.Protocol]():   {"tcp", "udp"},
	reflect.TypeFor[DNSRecord]():          {"a", "aaaa", "cname", "mx", "ns", "soa", "txt"},
}

var numbers = map[reflect.Type][]int64{
	reflect.TypeFor[LogLevel]():         {-4, 0, 4, 8},
	reflect.TypeFor[Protocol]():         {1, 2, 3},
	reflect.TypeFor[SMSuite]():          {0xe053, 0xe013, 0xe051, 0xe011, 0x00c6, 0x00c7},
	reflect.TypeFor[TLSVersion]():       {0x0301, 0x0302, 0x0303, 0x0304},
	reflect.TypeFor[session.Protocol](): {6, 17},
	reflect.TypeFor[DNSRecord]():        {1, 28, 5, 15, 2, 6, 16},
}

// Values are the words of a type that has a fixed set of them, nil for other types.
func Values(t reflect.Type) []string { return enums[t] }

// Word is how a value of such a type is written in the file.
func Word(v any) string {
	rv := reflect.ValueOf(v)
	n := int64(0)
	if rv.CanInt() {
		n = rv.Int()
	} else {
		n = int64(rv.Uint())
	}
	if nums := numbers[rv.Type()]; nums != nil {
		n = int64(slices.Index(nums, n))
	}
	if words := enums[rv.Type()]; n >= 0 && n < int64(len(words)) {
		return words[n]
	}
	return fmt.Sprint(v)
}

// parsers are the types with a text form of their own.
var parsers = map[reflect.Type]func(string) (any, error){
	reflect.TypeFor[time.Duration]():    func(s string) (any, error) { return parseDuration(s) },
	reflect.TypeFor[Size]():             func(s string) (any, error) { return parseSize(s) },
	reflect.TypeFor[netip.Addr]():       func(s string) (any, error) { return parseAddr(s) },
	reflect.TypeFor[netip.AddrPort]():   func(s string) (any, error) { return parseAddrPort(s) },
	reflect.TypeFor[netip.Prefix]():     func(s string) (any, error) { return parsePrefix(s) },
	reflect.TypeFor[HostPrefix]():       func(s string) (any, error) { return parseHostPrefix(s) },
	reflect.TypeFor[policy.PortRange](): func(s string) (any, error) { return parsePortRange(s) },
	reflect.TypeFor[StatusRange]():      func(s string) (any, error) { return parseStatusRange(s) },
	reflect.TypeFor[Require]():          func(s string) (any, error) { return parseRequire(s) },
}

func isScalar(t reflect.Type) bool {
	return parsers[t] != nil || enums[t] != nil ||
		t.Kind() != reflect.Struct && t.Kind() != reflect.Slice && t.Kind() != reflect.Pointer && t.Kind() != reflect.Map
}

func parseScalar(s string, v reflect.Value) error {
	if parse := parsers[v.Type()]; parse != nil {
		x, err := parse(s)
		if err == nil {
			v.Set(reflect.ValueOf(x))
		}
		return err
	}
	if words := enums[v.Type()]; words != nil {
		return parseEnum(s, words, v)
	}
	switch v.Kind() {
	case reflect.Bool:
		return parseBool(s, v)
	case reflect.Int:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return fmt.Errorf("must be a whole number, not %q", s)
		}
		v.SetInt(n)
	case reflect.String:
		v.SetString(s)
	}
	return nil
}

func parseEnum(s string, words []string, v reflect.Value) error {
	i := slices.Index(words, s)
	if i < 0 {
		return notOneOf(s, words)
	}
	n := int64(i)
	if nums := numbers[v.Type()]; nums != nil {
		n = nums[i]
	}
	if v.CanInt() {
		v.SetInt(n)
	} else {
		v.SetUint(uint64(n))
	}
	return nil
}

func notOneOf(s string, words []string) error {
	return fmt.Errorf("must be one of %s, not %q", strings.Join(words, ", "), s)
}

// parseBool takes on and off too: YAML 1.1 did, and that is what operators write.
func parseBool(s string, v reflect.Value) error {
	switch strings.ToLower(s) {
	case "true", "on", "yes":
		v.SetBool(true)
	case "false", "off", "no":
		v.SetBool(false)
	default:
		return fmt.Errorf("must be on or off, not %q", s)
	}
	return nil
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil {
		return d, nil
	}
	if _, numErr := strconv.ParseFloat(s, 64); numErr == nil {
		return 0, fmt.Errorf("needs a unit, such as %ss or %sms", s, s)
	}
	return 0, fmt.Errorf("must be a duration such as 500ms, 10s or 1h, not %q", s)
}

var sizeUnits = []struct {
	name  string
	bytes float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}

func parseSize(s string) (Size, error) {
	for _, u := range sizeUnits {
		if digits, ok := strings.CutSuffix(s, u.name); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
			if err == nil && n >= 0 && n*u.bytes < 1<<62 {
				return Size(n * u.bytes), nil
			}
		}
	}
	return 0, fmt.Errorf("must be a size in KiB, MiB, GiB or TiB, such as 256MiB, not %q", s)
}

// String is the size as it would be written in the file.
func (s Size) String() string {
	for i := len(sizeUnits) - 1; i > 0; i-- {
		if u := sizeUnits[i]; float64(s) >= u.bytes {
			return strconv.FormatFloat(float64(s)/u.bytes, 'g', 4, 64) + u.name
		}
	}
	return strconv.FormatFloat(float64(s)/sizeUnits[0].bytes, 'g', 4, 64) + sizeUnits[0].name
}

func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return a, fmt.Errorf("must be an IP address, not %q", s)
	}
	return a.Unmap(), nil
}

func parseAddrPort(s string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(s)
	switch {
	case err != nil:
		return a, fmt.Errorf("must be an IP address with a port, such as 192.0.2.1:443 or [2001:db8::1]:443, not %q", s)
	case a.Port() == 0:
		return a, errors.New("port 0 is not possible")
	case a.Addr().Zone() != "":
		return a, errors.New("an address with a zone is not possible; the link says which interface it is")
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("must be a prefix such as 10.0.0.0/8 or an address, not %q", s)
	}
	if p != p.Masked() {
		return p, fmt.Errorf("has bits set after its length; did you mean %s?", p.Masked())
	}
	return p, nil
}

func parseHostPrefix(s string) (HostPrefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return HostPrefix{}, fmt.Errorf("must be an address with the length of its prefix, such as 10.0.0.1/24, not %q", s)
	}
	return HostPrefix{p}, nil
}

func parsePortRange(s string) (policy.PortRange, error) {
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	a, errA := strconv.ParseUint(strings.TrimSpace(from), 10, 16)
	b, errB := strconv.ParseUint(strings.TrimSpace(to), 10, 16)
	if errA != nil || errB != nil || a == 0 || a > b {
		return policy.PortRange{}, fmt.Errorf("must be a port or a range such as 8000-8100, not %q", s)
	}
	return policy.PortRange{From: uint16(a), To: uint16(b)}, nil
}

func parseStatusRange(s string) (StatusRange, error) {
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	a, errA := strconv.Atoi(strings.TrimSpace(from))
	b, errB := strconv.Atoi(strings.TrimSpace(to))
	if errA != nil || errB != nil || a < 100 || b > 599 || a > b {
		return StatusRange{}, fmt.Errorf("must be a status such as 200 or a range such as 200-399, not %q", s)
	}
	return StatusRange{a, b}, nil
}

func parseRequire(s string) (Require, error) {
	switch s {
	case "all":
		return 0, nil
	case "any":
		return 1, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 100 {
		return 0, fmt.Errorf("must be all, any or a number of monitors, not %q", s)
	}
	return Require(n), nil
}

// String is the number as it would be written in the file.
func (r Require) String() string {
	switch r {
	case 0:
		return "all"
	case 1:
		return "any"
	}
	return strconv.Itoa(int(r))
}
