package mta

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"sync/atomic"

	"example.org/mta/internal/network"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
	"example.org/mta/operator/web"
	"example.org/mta/submission/auth"
)

// console is the server of the console block, with its users.
type console struct {
	server *web.Server
	socket net.Listener
	users  string // the file that logins reads
	logins atomic.Pointer[auth.Service]
}

// openConsole opens the console's socket, when the configuration has one. It asks by a client of the API in this
// process, as it would by the socket.
func (r *operators) openConsole(cfg *config.Config, undo *undoer) error {
	c := &cfg.Console
	if c.Address == "" {
		return nil
	}
	logins, err := r.newConsoleLogins(cfg)
	if err != nil {
		return err
	}
	undo.add(logins.Close)
	opened := &console{users: c.Users}
	opened.logins.Store(logins)
	wc := web.Config{
		Relay: api.NewLocalClient(r.control.Handler()), Logins: consoleLogins{opened, r}, Access: consoleAccess(cfg),
		BasePath: c.BasePath, Log: r.log.With("console", c.Address), Now: r.now, Audit: r.auditLogin,
	}
	if wc.TLS, err = r.tlsOf(c.TLS); err != nil {
		return err
	}
	if opened.server, err = web.New(wc); err != nil {
		return err
	}
	socket, err := net.Listen("tcp", c.Address)
	if err != nil {
		return err
	}
	undo.add(func() { socket.Close() })
	opened.socket = socket
	r.console = opened
	return nil
}

// consoleAccess is what a reload can change of the console, its users apart.
func consoleAccess(cfg *config.Config) web.Access {
	c := &cfg.Console
	return web.Access{Hosts: c.Names(cfg.Hostname), TrustedProxies: c.TrustedProxies, UserHeader: c.UserHeader}
}

// newConsoleLogins reads the console's users, unless they are in the file that is in force.
func (r *operators) newConsoleLogins(cfg *config.Config) (*auth.Service, error) {
	c := &cfg.Console
	if r.console != nil && r.console.users == c.Users {
		return r.console.logins.Load(), nil
	}
	secret, err := r.loginSecret()
	if err != nil {
		return nil, err
	}
	return auth.New(auth.Config{
		File: c.Users, Scheme: auth.Argon2id, Secret: secret,
		Known: filepath.Join(cfg.DataDir, "known-networks-console.json"),
		Now:   r.now, Log: r.log.With("console", c.Address),
	}), nil
}

// reloadConsole brings another configuration into force. Sessions of users in another file end.
func (r *operators) reloadConsole(cfg *config.Config, logins *auth.Service) {
	if r.console == nil {
		return
	}
	r.console.server.Set(consoleAccess(cfg))
	r.console.users = cfg.Console.Users
	swap(&r.console.logins, logins)
}

// auditLogin writes a login at the console down, before it counts.
func (r *operators) auditLogin(_ context.Context, l web.Login) error {
	line := audit.Line{Actor: audit.Actor{Kind: api.ByConsole, User: l.User}, Action: "login", Subject: "how=" + l.How,
		Outcome: audit.Done}
	if l.Address.IsValid() {
		line.Address = l.Address.String()
	}
	if l.Refused != "" {
		line.Outcome, line.Error = audit.Refused, l.Refused
	}
	return r.audit.Add(line)
}

func (r *operators) serveConsole() {
	r.log.Info("serving the console", "address", r.console.socket.Addr().String())
	if err := r.console.server.Serve(r.console.socket); err != nil {
		r.log.Error("console ended", "error", err)
	}
}

func (r *operators) closeConsole(ctx context.Context) error {
	if r.console == nil {
		return nil
	}
	defer r.console.logins.Load().Close()
	return r.console.server.Shutdown(ctx)
}

// consoleLogins are the users of the console.
type consoleLogins struct {
	of    *console
	relay *operators
}

// stamp is how an identity was established: a login says nothing about the users of another file.
type stamp struct {
	login   auth.Login
	service *auth.Service
}

// Login implements web.Logins. A right password of a user without a role is no login, and looks like none.
func (l consoleLogins) Login(ctx context.Context, from netip.Addr, user, password string) (web.Identity, error) {
	began := l.relay.now()
	service := l.of.logins.Load()
	login, err := service.Password(ctx,
		auth.Client{Peer: netip.AddrPortFrom(from, 0), Network: network.Of(from)}, user, password)
	if err == nil {
		if id, ok := identityOf(login, service); ok {
			return id, nil
		}
		auth.Late(ctx, l.relay.now().Sub(began))
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

// Known implements web.Logins.
func (l consoleLogins) Known(user string) (web.Identity, bool) {
	service := l.of.logins.Load()
	login := service.Vouched(user)
	if login == nil {
		return web.Identity{}, false
	}
	return identityOf(login, service)
}

// Still implements web.Logins.
func (l consoleLogins) Still(id web.Identity) bool {
	by, ok := id.Stamp.(stamp)
	if !ok || by.service != l.of.logins.Load() || !by.service.Still(&by.login) {
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
