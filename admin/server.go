// Package admin serves the daemon's HTTP API on a unix socket. It owns routes, filters, encodings and
// problem documents, and refuses to know how the state that it shows comes about: that is behind the
// interfaces below.
package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"sslo/admin/api"
	"sslo/session"
)

// Sentinels that implementations of the interfaces wrap.
var (
	ErrNotFound = errors.New("not found")
	ErrInUse    = errors.New("socket is in use by another daemon")
)

// Sessions is the session table.
type Sessions interface {
	// All goes through the table; a session is only valid until the next one.
	All(context.Context) iter.Seq2[*session.Session, error]
	// Tree is the whole connection that the session belongs to, root first.
	Tree(session.ID) ([]session.Session, error)
	// Kill resets the connection that the session belongs to.
	Kill(session.ID) error
	// Names of the ids in sessions, now.
	Names() Names
	// Now is the clock of the times in sessions.
	Now() time.Duration
}

// State is all the rest that can be seen.
type State interface {
	Status() api.Status
	Devices() []api.Device
	Chains() []api.Chain
	Links() []api.Link
	Counters() api.Counters
	Ledger() ([]api.LedgerEntry, error)
	// Connections of the proxies, the newest first.
	Connections() []api.Connection
	Events(after uint64, limit int) []api.Event
	ServerPools() []api.ServerPool
	VirtualServers() []api.VirtualServer
	// Explain tells what would become of a connection.
	Explain(api.Question) (api.Explanation, error)
	// Trace gives emit what becomes of new connections that match, until ctx ends or emit fails. While emit
	// is slow, news is lost and counted.
	Trace(ctx context.Context, f TraceFilter, emit func(api.TraceEvent) error) error
}

// Control is what can be done.
type Control interface {
	// Operate carries out an operator's action: enable, disable or bypass.
	Operate(ctx context.Context, device, action, who string) error
	// Reload reads the configuration again; a *api.Problem says what is wrong with it.
	Reload(context.Context) (api.Reload, error)
}

// Deps are what the server needs.
type Deps struct {
	Logger   *slog.Logger
	Sessions Sessions
	State    State
	Control  Control
}

// Server is the admin API.
type Server struct {
	Deps
	http     http.Server
	stopping context.Context // ends answers that would not end by themselves
}

// Timeouts of one request; a listing of a full table takes a second.
const (
	headerTimeout = 5 * time.Second
	idleTimeout   = 60 * time.Second
	maxHeader     = 16 << 10
	maxBody       = 64 << 10
)

// New returns a server that Serve starts.
func New(deps Deps) *Server {
	stopping, stop := context.WithCancel(context.Background())
	s := &Server{Deps: deps, stopping: stopping}
	s.http = http.Server{
		Handler:           http.MaxBytesHandler(s.routes(), maxBody),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       withPeer,
		ErrorLog:          slog.NewLogLogger(deps.Logger.Handler(), slog.LevelDebug),
	}
	s.http.RegisterOnShutdown(stop)
	return s
}

// Serve answers on l until Shutdown.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown waits for requests under way and removes the socket.
func (s *Server) Shutdown(ctx context.Context) error { return s.http.Shutdown(ctx) }

// Listen makes the socket, for owner and group alone. One that a killed daemon left is replaced, one
// that somebody listens on is not.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, fmt.Errorf("admin socket %s: %w", path, ErrInUse)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		os.Remove(path)
	}
	// With the mask the socket is never open to others, not even between bind and chmod.
	old := unix.Umask(0o117)
	defer unix.Umask(old)
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	return l, nil
}
