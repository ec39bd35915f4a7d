package mta

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"

	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
	"example.org/mta/operator/web"
	"example.org/mta/submission/auth"
)

// console is the server of the console block, with its users.
type console struct {
	server *web.Server
	socket net.Listener
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
	opened := new(console)
	opened.logins.Store(logins)
	wc := web.Config{
		Relay: api.NewLocalClient(r.control.Handler()), Access: consoleAccess(cfg),
		Logins:   wiring.ConsoleLogins{Users: opened.logins.Load, Now: r.now},
		Nodes:    wiring.Consoles(r.cluster, opened.fromNode, r.log),
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

// fromNode answers another node of the cluster.
func (c *console) fromNode(w http.ResponseWriter, r *http.Request) { c.server.FromNode(w, r) }

// consoleLogins are the console's users in force, nil without a console.
func (r *operators) consoleLogins() *auth.Service {
	if r.console == nil {
		return nil
	}
	return r.console.logins.Load()
}

// consoleAccess is what a reload can change of the console, its users apart.
func consoleAccess(cfg *config.Config) web.Access {
	c := &cfg.Console
	return web.Access{Hosts: c.Names(cfg.Hostname), TrustedProxies: c.TrustedProxies, UserHeader: c.UserHeader}
}

// newConsoleLogins reads the console's users, unless they are in the file that is in force.
func (r *operators) newConsoleLogins(cfg *config.Config) (*auth.Service, error) {
	c, shared := &cfg.Console, r.shared.OfConsole(cfg)
	if there := r.consoleLogins(); there != nil {
		if was := there.Users(); was.Path == c.Users && was.Users == shared {
			return there, nil
		}
	}
	secret, err := r.loginSecret()
	if err != nil {
		return nil, err
	}
	return auth.New(auth.Config{
		File: c.Users, Shared: shared, Scheme: auth.Argon2id, Secret: secret,
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
