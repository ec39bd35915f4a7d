package control

import (
	"context"
	"fmt"
	"net"
	"os/user"
	"syscall"
)

type peerKey struct{}

// withPeer notes whose process is at the other end of a unix socket, where the system says so.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	conn, ok := c.(syscall.Conn)
	if !ok {
		return ctx
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return ctx
	}
	uid, known := uint32(0), false
	if err := raw.Control(func(fd uintptr) { uid, known = peerID(int(fd)) }); err != nil || !known {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, uid)
}

// peerName is the user who has sent a request, "" when the system does not say.
func peerName(ctx context.Context) string {
	uid, known := ctx.Value(peerKey{}).(uint32)
	if !known {
		return ""
	}
	id := fmt.Sprint(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "user id " + id
}
