package check

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/shared"
)

// usersWarnings returns what is wrong with the users file. The relay starts all the same, so that it can be
// mended while mail goes on.
func usersWarnings(cfg *config.Config) []string {
	path := cfg.Users.File
	if path == "" {
		return nil
	}
	at := place("users", cfg.Users.Origin("file"))
	table, err := loaded(cfg, path, usersIn(cfg, auth.UserEntries))
	if err != nil {
		return []string{shut(at, path, err, "nobody can log in", "'mta user add NAME' makes it")}
	}
	var out []string
	for _, u := range table.Users() {
		if u.Tenant != "" && cfg.Tenant(u.Tenant) == nil {
			out = append(out,
				fmt.Sprintf("%s: user %q of %s is of the tenant %q, which has no block", at, u.Name, path, u.Tenant))
		}
	}
	return append(out, signedWarnings(cfg, table)...)
}

// signedWarnings lists the listeners at which users without a tenant, whose senders are limited, are signed as the
// operator: whatever their From.
func signedWarnings(cfg *config.Config, table *auth.UserTable) (out []string) {
	for _, l := range cfg.Listeners {
		if !l.Logins() || l.Tenant != "" || l.CheckFrom {
			continue
		}
		for _, u := range table.Users() {
			signs := slices.IndexFunc(cfg.DKIMs, func(d *config.DKIM) bool {
				own := func(s auth.Sender) bool { return s.Domain() == d.Domain }
				return slices.Contains(cfg.DKIMFor("", d.Domain), d) && !u.Senders.Cover(d.Domain) &&
					!slices.ContainsFunc(u.Senders, own)
			})
			if u.Tenant == "" && len(u.Senders) > 0 && signs >= 0 {
				out = append(out,
					fmt.Sprintf("%s: user %q, who may send as %s only, gets a DKIM signature of %s with that domain "+
						"in From: write check_from = true, or give the user a tenant",
						place(fmt.Sprintf("listener %q", l.Name), l.Origin("address")), u.Name, u.Senders,
						cfg.DKIMs[signs].Domain))
				break // the others have the same remedy
			}
		}
	}
	return out
}

// consoleWarnings returns what is wrong with the users file of the console. The relay starts all the same.
func consoleWarnings(cfg *config.Config) []string {
	if cfg.Console.Address == "" {
		return nil
	}
	path, at := cfg.Console.Users, place("console", cfg.Console.Origin("users"))
	table, err := loaded(cfg, path, usersIn(cfg, wiring.ConsoleUsers(cfg)))
	if err != nil {
		return []string{shut(at, path, err, "nobody can log in at the console",
			"'mta console user add NAME --role admin' makes it")}
	}
	for _, u := range table.Users() {
		if u.Role != "" {
			return nil
		}
	}
	return []string{
		fmt.Sprintf("%s: no user of %s has a role, so that nobody can log in at the console: 'mta console user add "+
			"NAME --role admin' adds one", at, path)}
}

// keysWarnings returns what is wrong with the keys file. The relay starts all the same, so that it can be
// fixed while mail goes on.
func keysWarnings(cfg *config.Config) (out []string) {
	path := cfg.Keys.File
	if path == "" {
		return nil
	}
	at := place("keys", cfg.Keys.Origin("file"))
	table, err := loaded(cfg, path, auth.LoadKeys)
	if err != nil {
		return []string{shut(at, path, err, "nobody can submit by HTTP", "'mta key add' makes it")}
	}
	for _, k := range table.Keys() {
		if cfg.Tenant(k.Tenant) == nil {
			out = append(out,
				fmt.Sprintf("%s: API key %q of %s is of the tenant %q, which has no block: its requests are refused",
					at, k.Name, path, k.Tenant))
		}
	}
	return out
}

// usersIn reads a file, whose users are shared as entries of a kind if at all.
func usersIn(cfg *config.Config, of *shared.Entries[string, auth.User]) func(path string) (*auth.UserTable, error) {
	return func(path string) (*auth.UserTable, error) {
		shared, _ := shared.Read(cfg.Cluster.SharedPath(of.Kind), of) // else those of the file alone
		return auth.UsersOver(shared, path)
	}
}

// usersTenants lists the tenants of users.
func usersTenants(cfg *config.Config) []string {
	return tenantsIn(cfg.Users.File, usersIn(cfg, auth.UserEntries), (*auth.UserTable).Users,
		func(u *auth.User) string { return u.Tenant })
}

// keysTenants lists the tenants of API keys, those of a cluster, too.
func keysTenants(cfg *config.Config) []string {
	return tenantsIn(cfg.Keys.File, auth.LoadKeys, func(t *auth.KeyTable) []*auth.Key {
		of := auth.KeyEntries
		shared, _ := shared.Read(cfg.Cluster.SharedPath(of.Kind), of) // else those of the file alone
		return shared.Over(t.Keys())
	}, func(k *auth.Key) string { return k.Tenant })
}

// tenantsIn lists the tenants in a file. That it can't be read is complained of elsewhere.
func tenantsIn[T, E any](file string, load func(string) (*T, error), all func(*T) []E, tenant func(E) string,
) (names []string) {
	if file == "" {
		return nil
	}
	table, err := load(file)
	if err != nil {
		return nil
	}
	for _, e := range all(table) {
		names = append(names, tenant(e))
	}
	return names
}

// loaded reads a file of users or keys, which the relay's user must be able to read, too: root, who checks, always is.
func loaded[T any](cfg *config.Config, path string, load func(string) (T, error)) (none T, err error) {
	if fault := Unreadable(cfg, path); fault != "" {
		return none, errors.New(fault)
	}
	return load(path)
}

// shut puts into words that a file of users or keys can't be read, with the consequence and the remedy.
func shut(at, path string, err error, consequence, remedy string) string {
	var mode *smallfile.ModeError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%s: %s is not there, so that %s: %s", at, path, consequence, remedy)
	case errors.As(err, &mode):
		return fmt.Sprintf("%s: %v, so that %s: %s", at, err, consequence, mode.Remedy())
	}
	return fmt.Sprintf("%s: %s: %v", at, consequence, err)
}
