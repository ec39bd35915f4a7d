package wiring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"example.org/mta/cluster/asking"
	"example.org/mta/cluster/link"
	"example.org/mta/cluster/membership"
	"example.org/mta/internal/network"
	"example.org/mta/operator/api"
	"example.org/mta/operator/web"
	"example.org/mta/submission/auth"
)

// Consoles has the nodes of a cluster ask each other about the sessions of their consoles, by a handler; nil without a
// cluster.
func Consoles(m *membership.Membership, handler http.HandlerFunc, log *slog.Logger) api.Members {
	if m == nil {
		return nil
	}
	return consoles{nodes(m, log, &asking.Asker{Most: 4 << 10, AtOnce: 8,
		Purpose: link.Purpose{Name: "sessions of the console", Since: 5}},
		func(int) http.Handler { return handler })}
}

// consoles are the nodes for browsers that anybody can have: a number of no member has nobody look for it.
type consoles struct{ *Nodes }

// Ask implements api.Members.
func (c consoles) Ask(ctx context.Context, node int, r *http.Request) (*http.Response, error) {
	if others, _ := c.Others(); !slices.Contains(others, node) {
		return nil, fmt.Errorf("node %d is not a member, or has just joined", node)
	}
	return c.Nodes.Ask(ctx, node, r)
}

// ConsoleLogins are the users of the console. It implements web.Logins.
type ConsoleLogins struct {
	Users func() *auth.Service // in force
	Now   func() time.Time
}

// stamp is how an identity was established: a login says nothing about the users of another file.
type stamp struct {
	login   auth.Login
	service *auth.Service
}

// Login checks a password. A right password of a user without a role is no login, and looks like none.
func (l ConsoleLogins) Login(ctx context.Context, from netip.Addr, user, password string) (web.Identity, error) {
	began := l.Now()
	service := l.Users()
	login, err := service.Password(ctx,
		auth.Client{Peer: netip.AddrPortFrom(from, 0), Network: network.Of(from)}, user, password)
	if err == nil {
		if id, ok := identityOf(login, service); ok {
			return id, nil
		}
		auth.Late(ctx, l.Now().Sub(began))
		err = auth.ErrDenied
	}
	switch {
	case errors.Is(err, auth.ErrTooMany), errors.Is(err, auth.ErrBusy):
		return web.Identity{}, &api.Error{Status: 429, Message: err.Error(), Hint: "wait a minute"}
	case errors.Is(err, auth.ErrNoUsers):
		return web.Identity{}, api.Unavailable("see the relay's log", "%v", err)
	case errors.Is(err, auth.ErrMalformed):
		return web.Identity{}, auth.ErrDenied
	}
	return web.Identity{}, err
}

// Known returns a user who has a role.
func (l ConsoleLogins) Known(user string) (web.Identity, bool) {
	service := l.Users()
	login := service.Vouched(user)
	if login == nil {
		return web.Identity{}, false
	}
	return identityOf(login, service)
}

// Still reports whether an identity is as it was.
func (l ConsoleLogins) Still(id web.Identity) bool {
	by, ok := id.Stamp.(stamp)
	if !ok || by.service != l.Users() || !by.service.Still(&by.login) {
		return false
	}
	now, ok := identityOf(&by.login, by.service)
	return ok && now.Role == id.Role
}

// identityOf gives who has logged in, if that has a role.
func identityOf(l *auth.Login, by *auth.Service) (web.Identity, bool) {
	role, err := web.ParseRole(l.Role)
	return web.Identity{User: l.User, Role: role, Stamp: stamp{*l, by}}, err == nil
}
