package api

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os/user"
	"syscall"

	"example.org/mta/operator/audit"
)

// The kinds of actors: how a request has reached the relay.
const (
	BySocket  = "socket"  // a process on the control socket
	ByConsole = "console" // a user of the console that runs in the relay
	ByAPI     = "api"     // a caller of another interface that mounts Server.Handler
	BySignal  = audit.BySignal
)

// Actor is who sends a request.
type Actor = audit.Actor

type actorKey struct{}

// WithActor names the actor of the requests that a local client, see NewLocalClient, sends with ctx. Over a socket it
// has no effect: there the system names the process.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// actorOf returns who has sent a request.
func actorOf(ctx context.Context) Actor {
	a, _ := ctx.Value(actorKey{}).(Actor)
	a.Kind = cmp.Or(a.Kind, BySocket)
	if a.User == "" && a.UID != nil {
		if u, err := user.LookupId(fmt.Sprint(*a.UID)); err == nil {
			a.User = u.Username
		}
	}
	return a
}

// withPeer makes the process at the other end of a unix socket the actor of all that it asks, where the system
// names it.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	conn, ok := c.(syscall.Conn)
	if !ok {
		return ctx
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return ctx
	}
	var (
		uid   uint32
		pid   int
		known bool
	)
	if err := raw.Control(func(fd uintptr) { uid, pid, known = peerID(int(fd)) }); err != nil || !known {
		return ctx
	}
	return WithActor(ctx, Actor{Kind: BySocket, UID: &uid, PID: pid})
}
