package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"time"

	"sslo/admin/api"
)

// TraceFilter selects connections; the zero value selects all.
type TraceFilter struct {
	client, server endpoint
	sni, link      string
}

// Match says whether a connection is wanted. One whose name is not known yet is not, when a name is asked for.
func (f TraceFilter) Match(client, listen netip.AddrPort, link, sni string) bool {
	return f.client.match(client) && f.server.match(listen) && (f.link == "" || f.link == link) && (f.sni == "" || f.sni == sni)
}

func (s *Server) traceFilter(r *http.Request) (f TraceFilter, err error) {
	q := r.URL.Query()
	f.sni, f.link = q.Get("sni"), q.Get("link")
	for _, err := range []error{parseEndpoint("src", q.Get("src"), &f.client), parseEndpoint("dst", q.Get("dst"), &f.server),
		known("link", f.link, func() []string { return names(s.State.Links(), func(l api.Link) string { return l.Name }) })} {
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

// trace streams events, a line of JSON each, until the client goes or the server stops.
func (s *Server) trace(w http.ResponseWriter, r *http.Request) error {
	f, err := s.traceFilter(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	c := http.NewResponseController(w)
	if err := c.SetReadDeadline(time.Time{}); err != nil { // that of the request would end the answer
		return err
	}
	defer context.AfterFunc(s.stopping, func() {
		_ = c.SetWriteDeadline(time.Now()) // a reader that reads nothing must not hold up the end
		cancel()
	})()
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines := json.NewEncoder(w)
	_ = s.State.Trace(ctx, f, func(e api.TraceEvent) error {
		if err := lines.Encode(e); err != nil {
			return err
		}
		return c.Flush()
	}) // the status is long gone, and so is the reader
	return nil
}
