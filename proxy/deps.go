package proxy

import (
	"log/slog"
	"net/netip"
	"syscall"
	"time"

	"sslo/chain"
	"sslo/session"
)

// Deps is what the proxy is given. Nothing of it is owned by the proxy.
type Deps struct {
	Logger *slog.Logger
	Chains Chains
	Health Health // nil: every member is healthy
	Hops   Hops   // nil: timeouts do not name the device

	// FrontLink and BackLink are the virtual links of the inner connection. Both empty: the box's
	// plumbing is not there (tests), and inner connections go by loopback to InnerAddr.
	FrontLink, BackLink string
	// RegisterBack makes a listener the one that gets every connection coming in on the back link.
	RegisterBack func(syscall.Conn) error
	// InnerAddr is where back listens when FrontLink is empty, and InnerVia what front dials, if something
	// stands between the two.
	InnerAddr, InnerVia netip.AddrPort
}

// Chains tells which way a new connection goes. It is asked once a connection and must be fast.
type Chains interface {
	// Mark is the socket mark that names the chain to the session plane.
	Mark(chain string) (mark uint32, ok bool)
	// Outlook is what a new connection through the chain would meet now.
	Outlook(chain string) chain.Outlook
}

// Health tells whether new connections may go to a member of a server pool.
type Health interface {
	Healthy(serverPool, member string) bool
	// Since is when it came into service; zero: it was when the first connections came.
	Since(serverPool, member string) time.Time
}

// Hops tells where a connection was seen last, for the message when it does not come back.
type Hops interface {
	// LastHop is the last device that got the connection's packets without returning them; "" unknown.
	LastHop(inner session.Tuple) string
}
