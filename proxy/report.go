package proxy

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sslo/tls/term"
)

// perSecond log lines of one kind of failure at most; the rest is told as a number.
const perSecond = 5

// limiter keeps an attack from becoming a log flood.
type limiter struct {
	mu    sync.Mutex
	kinds map[string]*window
}

type window struct {
	since      time.Time
	n, skipped int
}

// allow reports whether to log now, and how many were not since the last time.
func (l *limiter) allow(kind string, now time.Time) (bool, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds == nil {
		l.kinds = map[string]*window{}
	}
	w := l.kinds[kind]
	if w == nil {
		w = &window{since: now}
		l.kinds[kind] = w
	}
	if now.Sub(w.since) >= time.Second {
		w.since, w.n = now, 0
	}
	if w.n >= perSecond {
		w.skipped++
		return false, 0
	}
	w.n++
	skipped := w.skipped
	w.skipped = 0
	return true, skipped
}

func (l *limiter) warn(log *slog.Logger, msg string, args ...any) {
	if ok, skipped := l.allow(msg, time.Now()); ok {
		log.Warn(msg, append(args, "skipped", skipped)...)
	}
}

// level of a reason: what is normal on the Internet is for debugging only.
func (r Reason) level() slog.Level {
	switch r {
	case ReasonOK, ReasonClientReset, ReasonClientGone, ReasonShutdown, ReasonIdle:
		return slog.LevelDebug
	case ReasonHelloTimeout, ReasonHelloGarbage, ReasonHelloTooLarge, ReasonHandshakeFailed, ReasonHandshakeTimeout,
		ReasonPolicyReject, ReasonPolicyDrop, ReasonReplaced, ReasonAborted, ReasonServerReset, ReasonServerTruncated:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// report logs the end of a flow.
func (p *Proxy) report(f *flow) {
	r := f.ended()
	level := r.level()
	if !p.log.Enabled(context.Background(), level) {
		return
	}
	skipped := 0
	if level > slog.LevelDebug {
		ok := false
		if ok, skipped = p.limiter.allow(r.String(), time.Now()); !ok {
			return
		}
	}
	p.log.LogAttrs(context.Background(), level, "connection ended", f.attrs(r, skipped)...)
}

func (f *flow) attrs(r Reason, skipped int) []slog.Attr {
	f.mu.Lock()
	seen, cause := f.seen, f.cause
	f.mu.Unlock()
	a := []slog.Attr{slog.String("reason", r.String()), slog.String("virtual_server", f.vs.cfg.Name),
		slog.String("client", f.client.String()), slog.String("link", f.link), slog.String("sni", f.server),
		slog.String("chain", f.route.chain), slog.String("server", seen.Member), slog.String("stage", seen.Stage),
		slog.Uint64("bytes_up", f.up.Load()), slog.Uint64("bytes_down", f.down.Load()),
		slog.Duration("duration", time.Since(f.started))}
	if f.tuple.Src.IsValid() {
		a = append(a, slog.String("session", f.tuple.String()))
	}
	a = append(a, tlsAttr("tls", seen.ToClient)...)
	a = append(a, tlsAttr("server_tls", seen.ToServer)...)
	if f.route.rule != "" {
		a = append(a, slog.String("rule", f.route.rule))
	}
	if cause != nil {
		a = append(a, slog.Any("err", cause))
	}
	if skipped > 0 {
		a = append(a, slog.Int("skipped", skipped))
	}
	return a
}

// tlsAttr tells what was spoken on one side; of a handshake that failed, what was tried.
func tlsAttr(key string, s term.State) []slog.Attr {
	if s.Family == 0 {
		return nil
	}
	return []slog.Attr{slog.String(key, s.String())}
}
