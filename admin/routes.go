package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/pprof"
	"strconv"

	"sslo/admin/api"
	"sslo/session"
)

// Most events that one answer carries.
const maxEvents = 1000

// handler answers one request or says why not.
type handler func(w http.ResponseWriter, r *http.Request) error

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]handler{
		"GET /v1/status":                   func(w http.ResponseWriter, _ *http.Request) error { return write(w, s.State.Status()) },
		"GET /v1/sessions":                 s.listSessions,
		"GET /v1/sessions/{id}":            s.showSession,
		"DELETE /v1/sessions/{id}":         s.killSession,
		"GET /v1/devices":                  func(w http.ResponseWriter, _ *http.Request) error { return write(w, s.State.Devices()) },
		"GET /v1/devices/{name}":           s.showDevice,
		"POST /v1/devices/{name}/{action}": s.operate,
		"GET /v1/chains":                   func(w http.ResponseWriter, _ *http.Request) error { return write(w, s.State.Chains()) },
		"GET /v1/links":                    func(w http.ResponseWriter, _ *http.Request) error { return write(w, s.State.Links()) },
		"GET /v1/counters":                 func(w http.ResponseWriter, _ *http.Request) error { return write(w, s.State.Counters()) },
		"GET /v1/ledger":                   s.ledger,
		"GET /v1/connections":              s.connections,
		"GET /v1/events":                   s.events,
		"GET /v1/explain":                  s.explain,
		"GET /v1/trace":                    s.trace,
		"GET /v1/servers":                  func(w http.ResponseWriter, _ *http.Request) error { return write(w, s.State.ServerPools()) },
		"GET /v1/virtual-servers":          func(w http.ResponseWriter, _ *http.Request) error { return write(w, s.State.VirtualServers()) },
		"GET /v1/debug/{profile}":          profile,
		"POST /v1/reload":                  s.reload,
		"/":                                unknown,
	} {
		mux.Handle(pattern, s.answer(h))
	}
	return mux
}

func unknown(_ http.ResponseWriter, r *http.Request) error {
	return &api.Problem{Status: http.StatusNotFound, Title: "No such resource",
		Detail: fmt.Sprintf("the admin API has no %s %s", r.Method, r.URL.Path)}
}

// answer turns the error of a handler into a problem document.
func (s *Server) answer(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil {
			return
		}
		p := problem(err)
		if p.Status >= 500 {
			s.Logger.Warn("admin request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		}
		w.Header().Set("Content-Type", api.ProblemType)
		w.WriteHeader(p.Status)
		json.NewEncoder(w).Encode(p)
	})
}

func problem(err error) *api.Problem {
	var p *api.Problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, ErrNotFound):
		return &api.Problem{Status: http.StatusNotFound, Title: "Not found", Detail: err.Error()}
	}
	return &api.Problem{Status: http.StatusInternalServerError, Title: "It failed", Detail: err.Error()}
}

func badRequest(format string, args ...any) error {
	return &api.Problem{Status: http.StatusBadRequest, Title: "Bad request", Detail: fmt.Sprintf(format, args...)}
}

func write(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}

func (s *Server) showDevice(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	for _, d := range s.State.Devices() {
		if d.Name == name {
			return write(w, d)
		}
	}
	return fmt.Errorf("device %q: %w", name, ErrNotFound)
}

func (s *Server) operate(w http.ResponseWriter, r *http.Request) error {
	action := r.PathValue("action")
	switch action {
	case "enable", "disable", "bypass":
	default:
		return unknown(w, r)
	}
	if err := s.Control.Operate(r.Context(), r.PathValue("name"), action, peer(r.Context())); err != nil {
		return err
	}
	return s.showDevice(w, r)
}

func (s *Server) ledger(w http.ResponseWriter, _ *http.Request) error {
	entries, err := s.State.Ledger()
	if err != nil {
		return err
	}
	return write(w, entries)
}

func (s *Server) explain(w http.ResponseWriter, r *http.Request) error {
	q, err := api.ParseQuestion(r.URL.Query().Get)
	if err != nil {
		return badRequest("%v", err)
	}
	if q.Link != "" {
		if err := known("link", q.Link, func() []string { return names(s.State.Links(), func(l api.Link) string { return l.Name }) }); err != nil {
			return err
		}
	}
	x, err := s.State.Explain(q)
	if err != nil {
		return err
	}
	return write(w, x)
}

func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	after, err := number(r, "after", 0)
	if err != nil {
		return err
	}
	limit, err := number(r, "limit", maxEvents)
	if err != nil {
		return err
	}
	return write(w, s.State.Events(after, int(min(limit, maxEvents))))
}

// profile is one of the runtime's own (goroutine, heap ...), as text.
func profile(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("profile")
	p := pprof.Lookup(name)
	if p == nil {
		return fmt.Errorf("profile %q: %w", name, ErrNotFound)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	return p.WriteTo(w, 1)
}

// connections that match client and server (what the client connected to).
func (s *Server) connections(w http.ResponseWriter, r *http.Request) error {
	var client, server endpoint
	limit, err := number(r, "limit", 0)
	if err := errors.Join(err, parseEndpoint("client", r.URL.Query().Get("client"), &client),
		parseEndpoint("server", r.URL.Query().Get("server"), &server)); err != nil {
		return err
	}
	list := api.ConnectionList{Connections: []api.Connection{}}
	for _, c := range s.State.Connections() {
		if !client.match(c.Client) || !server.match(c.Listen) {
			continue
		}
		if list.Total++; limit == 0 || len(list.Connections) < int(limit) {
			list.Connections = append(list.Connections, c)
		}
	}
	return write(w, list)
}

func (s *Server) reload(w http.ResponseWriter, r *http.Request) error {
	result, err := s.Control.Reload(r.Context())
	if err != nil {
		return err
	}
	return write(w, result)
}

func (s *Server) killSession(w http.ResponseWriter, r *http.Request) error {
	id, err := sessionID(r)
	if err != nil {
		return err
	}
	if err := s.Sessions.Kill(id); err != nil {
		return err
	}
	s.Logger.Info("session killed", "session", api.ID(id).String(), "by", peer(r.Context()))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func sessionID(r *http.Request) (session.ID, error) {
	id, err := api.ParseID(r.PathValue("id"))
	if err != nil {
		return 0, badRequest("%v", err)
	}
	return session.ID(id), nil
}

func number(r *http.Request, key string, otherwise uint64) (uint64, error) {
	text := r.URL.Query().Get(key)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, badRequest("%s: %q is not a number", key, text)
	}
	return n, nil
}
