package admin

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"sslo/admin/api"
	"sslo/session"
)

// chunk is how much of a listing is gathered before it is written.
const chunk = 256 << 10

// listSessions streams the table; nothing but one chunk is held in memory.
func (s *Server) listSessions(w http.ResponseWriter, r *http.Request) error {
	names := newNameTables(s.Sessions.Names())
	f, err := newFilter(r, s.State, names)
	if err != nil {
		return err
	}
	limit, err := number(r, "limit", 0)
	if err != nil {
		return err
	}
	l := newListing(w, s.encoder(names), int(limit))
	if r.URL.Query().Get("tree") == "true" {
		return l.end(s.listTrees(r, l, f))
	}
	return l.end(s.listLegs(r, l, f))
}

func (s *Server) listLegs(r *http.Request, l *listing, f *filter) error {
	for leg, err := range s.Sessions.All(r.Context()) {
		if err != nil {
			return err
		}
		if f.match(leg) && !l.add(leg) {
			return nil
		}
	}
	return nil
}

// listTrees lists, for every session that matches, all of its connection. The limit counts connections.
func (s *Server) listTrees(r *http.Request, l *listing, f *filter) error {
	roots := make(map[session.ID]struct{})
	for leg, err := range s.Sessions.All(r.Context()) {
		if err != nil {
			return err
		}
		if !f.match(leg) {
			continue
		}
		if _, ok := roots[leg.Root]; !ok && l.limit > 0 && len(roots) == l.limit {
			l.truncated = true
			break
		}
		roots[leg.Root] = struct{}{}
	}
	l.limit = 0
	for _, root := range slices.Sorted(maps.Keys(roots)) {
		tree, err := s.Sessions.Tree(root)
		if err != nil {
			continue // it ended meanwhile
		}
		for i := range tree {
			l.add(&tree[i])
		}
	}
	return nil
}

// listing is an api.SessionList on its way.
type listing struct {
	w         http.ResponseWriter
	e         *encoder
	buf       []byte
	limit     int
	count     int
	truncated bool
	err       error

	connection *api.Connection
}

func newListing(w http.ResponseWriter, e *encoder, limit int) *listing {
	w.Header().Set("Content-Type", "application/json")
	l := &listing{w: w, e: e, limit: limit, buf: make([]byte, 0, chunk+4096)}
	l.buf = append(l.buf, `{"sessions":[`...)
	return l
}

// add says whether more is wanted.
func (l *listing) add(s *session.Session) bool {
	if l.limit > 0 && l.count == l.limit {
		l.truncated = true
		return false
	}
	if l.count > 0 {
		l.buf = append(l.buf, ',')
	}
	l.count++
	l.buf = l.e.append(append(l.buf, '\n'), s)
	if len(l.buf) >= chunk {
		l.flush()
	}
	return l.err == nil
}

func (l *listing) flush() {
	_, l.err = l.w.Write(l.buf)
	l.buf = l.buf[:0]
}

// end finishes the document. The status is long gone, so an error goes into it.
func (l *listing) end(err error) error {
	l.buf = append(l.buf, "\n],\"count\":"...)
	l.buf = strconv.AppendInt(l.buf, int64(l.count), 10)
	if l.truncated {
		l.buf = append(l.buf, `,"truncated":true`...)
	}
	if err != nil {
		l.buf = append(append(l.buf, `,"error":`...), quote(err.Error())...)
	}
	if l.connection != nil {
		text, err := json.Marshal(l.connection)
		if err != nil {
			return err
		}
		l.buf = append(append(l.buf, `,"connection":`...), text...)
	}
	l.buf = append(l.buf, "}\n"...)
	l.flush()
	return nil
}

func (s *Server) showSession(w http.ResponseWriter, r *http.Request) error {
	id, err := sessionID(r)
	if err != nil {
		return err
	}
	legs, err := s.Sessions.Tree(id)
	if err != nil {
		return err
	}
	if len(legs) == 0 {
		return fmt.Errorf("session %s: %w", api.ID(id), ErrNotFound)
	}
	l := newListing(w, s.encoder(newNameTables(s.Sessions.Names())), 0)
	for i := range legs {
		l.add(&legs[i])
	}
	l.connection = s.connectionOf(legs[0].Orig.Tuple)
	return l.end(nil)
}

// connectionOf finds what the proxies know of a tree.
func (s *Server) connectionOf(t session.Tuple) *api.Connection {
	for _, c := range s.State.Connections() {
		if c.Client == t.Src && c.Server == t.Dst {
			return &c
		}
	}
	return nil
}

func (s *Server) encoder(names *nameTables) *encoder {
	return &encoder{now: s.Sessions.Now(), names: names, chains: s.State.Chains()}
}
