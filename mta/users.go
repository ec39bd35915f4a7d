package mta

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"slices"

	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/submission"
	"example.org/mta/submission/auth"
)

// openShared opens the users and keys that the nodes of a cluster share.
func (r *mailIn) openShared(cfg *config.Config, _ *undoer) (err error) {
	r.shared, err = wiring.OpenShared(cfg, r.known, r.now, r.log)
	return err
}

// openUsers begins to check logins, when the configuration has a users file.
func (r *mailIn) openUsers(cfg *config.Config, undo *undoer) error {
	logins, err := r.newLogins(cfg)
	if err == nil {
		r.logins.Store(logins)
		undo.add(func() { r.logins.Load().Close() })
	}
	return err
}

// newLogins gives the service for a configuration's users: the one that there is, when they are the same;
// nil without any.
func (r *mailIn) newLogins(cfg *config.Config) (*auth.Service, error) {
	before := r.policy.Load().Config.Users
	if there := r.logins.Load(); there != nil && before.File == cfg.Users.File && before.Scheme == cfg.Users.Scheme {
		return there, nil
	}
	if cfg.Users.File == "" {
		return nil, nil
	}
	secret, err := r.loginSecret()
	if err != nil {
		return nil, err
	}
	return auth.New(auth.Config{
		File: cfg.Users.File, Shared: r.shared.Users, Scheme: cfg.Users.Scheme, Secret: secret,
		Known: filepath.Join(cfg.DataDir, "known-networks.json"),
		Now:   r.now, Log: r.log,
	}), nil
}

// loginSecret is what the salts of users that don't exist are made from. It outlives restarts, and is the same at all
// nodes of a cluster, so that no two of them can be compared: the least.
func (r *mailIn) loginSecret() (func() []byte, error) {
	const name = "login-secret"
	own, err := r.data.Secret(name, "the hashes of users that don't exist change").Octets()
	if err != nil {
		return nil, err
	}
	err = r.secrets.Join(name, func(others [][]byte) error {
		r.salts.Store(new(slices.MinFunc(append(others, own), bytes.Compare)))
		return nil
	}, own)
	return func() []byte { return *r.salts.Load() }, err
}

// loginsOf puts into a server's settings who may log in at a listener.
func (r *mailIn) loginsOf(l *config.Listener, logins *auth.Service, sc *submission.Config) error {
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

// loginTrouble returns what an operator should look at, "" when there is nothing: of users, else of API keys.
func (r *operators) loginTrouble() string {
	if logins := r.logins.Load(); logins != nil {
		if text := logins.Problem(); text != "" {
			return text
		}
	}
	if logins := r.consoleLogins(); logins != nil {
		if text := logins.Problem(); text != "" {
			return "console: " + text
		}
	}
	if book := r.keys.Load(); book != nil {
		return book.Problem()
	}
	return ""
}

// openKeys begins to check API keys, when the configuration has a keys file.
func (r *mailIn) openKeys(cfg *config.Config, undo *undoer) error {
	r.keys.Store(r.newKeys(cfg))
	undo.add(func() { r.keys.Load().Close() })
	return nil
}

// newKeys gives the keys of a configuration: those that there are, when their file is the same; nil without
// a file.
func (r *mailIn) newKeys(cfg *config.Config) *auth.Keys {
	if there := r.keys.Load(); there != nil && r.policy.Load().Config.Keys.File == cfg.Keys.File {
		return there
	}
	if cfg.Keys.File == "" {
		return nil
	}
	return auth.OpenKeys(auth.KeyConfig{
		File: cfg.Keys.File, Use: cfg.KeysUsed(), Shared: r.shared.Keys, Now: r.now, Log: r.log,
		Tenant: func(name string) bool { return r.policy.Load().Config.Tenant(name) != nil },
	})
}
