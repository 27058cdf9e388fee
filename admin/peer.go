package admin

import (
	"context"
	"fmt"
	"net"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

type peerKey struct{}

// withPeer notes who is at the other end, so that a decision can be shown with its author.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return ctx
	}
	var cred *unix.Ucred
	raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil || cred == nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, cred)
}

// peer names the caller: the user's name, or the uid when it has none.
func peer(ctx context.Context) string {
	cred, ok := ctx.Value(peerKey{}).(*unix.Ucred)
	if !ok {
		return "unknown"
	}
	id := strconv.FormatUint(uint64(cred.Uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return fmt.Sprintf("uid %s", id)
}
