package admin

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sslo/admin/api"
	"sslo/session"
)

// filter selects sessions; each condition that is set must hold.
type filter struct {
	client, server             endpoint
	link, device, chain, state string
	names                      *nameTables
}

// endpoint is an address, a prefix, either with a port, or a port alone.
type endpoint struct {
	prefix netip.Prefix
	port   uint16
}

// bypassed is a state that operators ask for and the table does not have: going past its device.
const bypassed = "bypassed"

func stateNames() []string {
	var list []string
	for s := session.New; s <= session.Closed; s++ {
		list = append(list, s.String())
	}
	return append(list, bypassed)
}

func newFilter(r *http.Request, state State, tables *nameTables) (*filter, error) {
	query := r.URL.Query()
	f := &filter{names: tables, link: query.Get("link"), device: query.Get("device"),
		chain: query.Get("chain"), state: query.Get("state")}
	checks := []error{
		known("link", f.link, func() []string { return names(state.Links(), func(l api.Link) string { return l.Name }) }),
		known("device", f.device, func() []string { return names(state.Devices(), func(d api.Device) string { return d.Name }) }),
		known("chain", f.chain, func() []string { return names(state.Chains(), func(c api.Chain) string { return c.Name }) }),
		known("state", f.state, stateNames),
		parseEndpoint("client", query.Get("client"), &f.client),
		parseEndpoint("server", query.Get("server"), &f.server),
	}
	for _, err := range checks {
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// known refuses a name that nothing has: an empty listing would look like an answer.
func known(what, name string, all func() []string) error {
	if name == "" {
		return nil
	}
	list := all()
	if slices.Contains(list, name) {
		return nil
	}
	return badRequest("there is no %s %q; there are: %s", what, name, strings.Join(list, ", "))
}

func (f *filter) match(s *session.Session) bool {
	return f.client.match(s.Orig.Src) && f.server.match(s.Orig.Dst) &&
		(f.link == "" || f.link == f.names.links.get(s.Orig.Link).plain || f.link == f.names.links.get(s.Reply.Link).plain) &&
		(f.device == "" || f.device == f.names.devices.get(s.Device).plain) &&
		(f.chain == "" || f.chain == f.names.chains.get(s.Chain).plain) &&
		(f.state == "" || f.matchState(s))
}

func (f *filter) matchState(s *session.Session) bool {
	if f.state == bypassed {
		return s.Flags&session.BypassOut != 0
	}
	return f.state == s.State.String()
}

func (e endpoint) match(a netip.AddrPort) bool {
	return (e.port == 0 || e.port == a.Port()) && (!e.prefix.IsValid() || e.prefix.Contains(a.Addr()))
}

func parseEndpoint(what, text string, e *endpoint) error {
	if text == "" {
		return nil
	}
	if port, ok := strings.CutPrefix(text, ":"); ok {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return badRequest("%s: %q is not a port", what, port)
		}
		e.port = uint16(n)
		return nil
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		e.prefix = p.Masked()
		return nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		ap, err := netip.ParseAddrPort(text)
		if err != nil {
			return badRequest("%s: %q is not an address, a prefix, address:port or :port", what, text)
		}
		addr, e.port = ap.Addr(), ap.Port()
	}
	e.prefix = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen())
	return nil
}
