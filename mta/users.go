package mta

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"

	"example.org/mta/internal/secretfile"
	"example.org/mta/internal/users"
	"example.org/mta/mta/config"
	"example.org/mta/submission"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/intake"
)

// openUsers begins to check logins, when the configuration has a users file.
func (r *Relay) openUsers(cfg *config.Config, undo *undoer) error {
	logins, err := r.newLogins(cfg)
	if err == nil {
		r.logins.Store(logins)
		undo.add(func() { r.closeUsers() })
	}
	return err
}

// newLogins gives the service for a configuration's users: the one that there is, when they are the same;
// nil without any.
func (r *Relay) newLogins(cfg *config.Config) (*auth.Service, error) {
	before := r.policy.Load().Config.Users
	if there := r.logins.Load(); there != nil && before.File == cfg.Users.File && before.Scheme == cfg.Users.Scheme {
		return there, nil
	}
	if cfg.Users.File == "" {
		return nil, nil
	}
	secret, err := r.loginSecret(cfg)
	if err != nil {
		return nil, err
	}
	return auth.New(auth.Config{
		File: cfg.Users.File, Scheme: cfg.Users.Scheme, Secret: secret, Known: filepath.Join(cfg.DataDir, "known-networks.json"),
		Now: r.now, Log: r.log,
	}), nil
}

func (r *Relay) closeUsers() error {
	if logins := r.logins.Load(); logins != nil {
		logins.Close()
	}
	return nil
}

// loginSecret is what the salts of users that don't exist are made from: it outlives restarts.
func (r *Relay) loginSecret(cfg *config.Config) ([]byte, error) {
	return r.secret(cfg, "login-secret", "the hashes of users that don't exist change").Octets()
}

// loginsOf puts into a server's settings who may log in at a listener.
func (r *Relay) loginsOf(l *config.Listener, logins *auth.Service, sc *submission.Config) error {
	if !l.Logins() || logins == nil {
		return nil
	}
	cas, err := l.TLS.ClientCAs()
	if err != nil {
		return fmt.Errorf("client_ca: %w", err)
	}
	sc.Auth, sc.ClientCAs = logins, cas
	if l.TLS.ClientCertificates && sc.TLS != nil {
		sc.TLS.ClientAuth = tls.RequestClientCert // whether it is good is looked at when it is used
	}
	return nil
}

// tenantOf describes a tenant to submission, by the configuration in force.
func (r *Relay) tenantOf(name string) (intake.Tenant, bool) {
	t := r.policy.Load().Config.Tenant(name)
	if t == nil {
		return intake.Tenant{}, false
	}
	return intake.Tenant{Tier: uint8(t.Tier), Senders: t.Senders}, true
}

// tenantAt gives the tenant of a client's network, by the configuration in force.
func (r *Relay) tenantAt(a netip.Addr) string { return r.policy.Load().Config.TenantAt(a) }

// loginTrouble returns what an operator should look at, "" when there is nothing: of users, else of API keys.
func (r *Relay) loginTrouble() string {
	if logins := r.logins.Load(); logins != nil {
		if text := logins.Trouble(); text != "" {
			return text
		}
	}
	if r.console != nil {
		if text := r.console.logins.Load().Trouble(); text != "" {
			return "console: " + text
		}
	}
	if book := r.keys.Load(); book != nil {
		return book.Trouble()
	}
	return ""
}

// usersWarnings returns what is wrong with the users file. The relay starts all the same, so that it can be
// mended while mail goes on.
func usersWarnings(cfg *config.Config) []string {
	path := cfg.Users.File
	if path == "" {
		return nil
	}
	at := place("users", cfg.Users.Origin("file"))
	table, err := users.Load(path)
	var mode *secretfile.ModeError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []string{fmt.Sprintf("%s: %s is not there, so that nobody can log in: 'mta user add NAME' makes it", at, path)}
	case errors.As(err, &mode):
		return []string{fmt.Sprintf("%s: %v, so that nobody can log in: %s", at, err, mode.Remedy())}
	case err != nil:
		return []string{fmt.Sprintf("%s: nobody can log in: %v", at, err)}
	}
	var out []string
	for _, u := range table.Users() {
		if u.Tenant != "" && cfg.Tenant(u.Tenant) == nil {
			out = append(out, fmt.Sprintf("%s: user %q of %s is of the tenant %q, which has no block", at, u.Name, path, u.Tenant))
		}
	}
	return append(out, signedWarnings(cfg, table)...)
}

// signedWarnings lists the listeners at which users without a tenant, whose senders are limited, are signed as the
// operator: whatever their From.
func signedWarnings(cfg *config.Config, table *users.Table) (out []string) {
	for _, l := range cfg.Listeners {
		if !l.Logins() || l.Tenant != "" || l.CheckFrom {
			continue
		}
		for _, u := range table.Users() {
			signs := slices.IndexFunc(cfg.DKIMs, func(d *config.DKIM) bool {
				own := func(s users.Sender) bool { return s.Domain() == d.Domain }
				return slices.Contains(cfg.DKIMFor("", d.Domain), d) && !u.Senders.Cover(d.Domain) && !slices.ContainsFunc(u.Senders, own)
			})
			if u.Tenant == "" && len(u.Senders) > 0 && signs >= 0 {
				out = append(out, fmt.Sprintf("%s: user %q, who may send as %s only, gets a DKIM signature of %s with that domain in From: write check_from = true, or give the user a tenant",
					place(fmt.Sprintf("listener %q", l.Name), l.Origin("address")), u.Name, u.Senders, cfg.DKIMs[signs].Domain))
				break // the others have the same remedy
			}
		}
	}
	return out
}

// usersTenants lists the tenants of users.
func usersTenants(cfg *config.Config) (names []string) {
	if cfg.Users.File == "" {
		return nil
	}
	table, err := users.Load(cfg.Users.File)
	if err != nil {
		return nil // complained of elsewhere
	}
	for _, u := range table.Users() {
		names = append(names, u.Tenant)
	}
	return names
}

// mayUsePool reports whether a tenant's mail may name a pool, by the configuration in force.
func (r *Relay) mayUsePool(tenant, pool string) bool {
	return r.policy.Load().Config.MayUse(tenant, pool)
}
