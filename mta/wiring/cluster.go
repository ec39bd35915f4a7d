package wiring

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"example.org/mta/cluster/exchange"
	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/ordering"
	"example.org/mta/cluster/postgres"
	"example.org/mta/cluster/secrets"
	"example.org/mta/delivery"
	"example.org/mta/delivery/outages"
	"example.org/mta/internal/certificates"
	"example.org/mta/internal/settings"
	"example.org/mta/mta/config"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/request"
	"example.org/mta/submission/shared"
)

// Changes opens what is exchanged in the cluster of a configuration, nil without one. What is left of an earlier one is
// deleted: changes are not noted meanwhile.
func Changes(cfg *config.Config, now func() time.Time, log *slog.Logger) (*exchange.Exchange, error) {
	path := cfg.Cluster.Path + "-changes"
	if !cfg.Cluster.On() {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, nil
	}
	return exchange.Open(exchange.Config{Path: path, Now: now, Log: log})
}

// Secrets opens the secrets by which all nodes of the cluster make tokens. Those of other nodes are accepted without a
// cluster, too: what was sent before the relay left one is good.
func Secrets(cfg *config.Config, c *exchange.Exchange, now func() time.Time, log *slog.Logger) (*secrets.Store, error) {
	sc := secrets.Config{Path: cfg.Cluster.SecretsPath(), Now: now, Log: log}
	keys, err := secretsKey(cfg)
	if err != nil {
		return nil, err
	}
	if keys == nil {
		return secrets.Open(sc)
	}
	sc.Keys, sc.Note = keys, c.Of("secret")
	s, err := secrets.Open(sc)
	if err != nil {
		return nil, err
	}
	return s, c.Add("secret", s, s.Empty())
}

// secretsKey reads the key under which secrets are shared, nil where they are not.
func secretsKey(cfg *config.Config) (*secrets.Keys, error) {
	if !cfg.Cluster.SharesSecrets() {
		return nil, nil
	}
	keys, err := secrets.ReadKeys(cfg.Cluster.SecretsKey)
	if err != nil {
		err = fmt.Errorf("secrets_key: %w", err)
	}
	return keys, err
}

// Shared are the API keys, users and stored templates that the nodes of a cluster share.
type Shared struct {
	Keys                *auth.SharedKeys
	Users, ConsoleUsers *auth.SharedUsers
	Templates           *request.SharedTemplates
}

// OpenShared opens them. Those that were shared count without a cluster, too.
func OpenShared(
	cfg *config.Config, c *exchange.Exchange, now func() time.Time, log *slog.Logger,
) (s Shared, err error) {
	keys, err := secretsKey(cfg)
	if err == nil {
		s.Keys, err = opened(cfg, c, keys, auth.KeyEntries, now, log)
	}
	if err == nil {
		s.Users, err = opened(cfg, c, keys, auth.UserEntries, now, log)
	}
	if err == nil {
		s.ConsoleUsers, err = opened(cfg, c, keys, auth.ConsoleUserEntries, now, log)
	}
	if err == nil {
		s.Templates, err = opened(cfg, c, keys, request.TemplateEntries, now, log)
	}
	return s, err
}

// opened opens entries of a kind, which are shared under keys; nil: not at all.
func opened[K comparable, E any](
	cfg *config.Config, c *exchange.Exchange, keys *secrets.Keys, of *shared.Entries[K, E], now func() time.Time,
	log *slog.Logger,
) (*shared.Store[K, E], error) {
	sc := shared.Config{Path: cfg.Cluster.SharedPath(of.Kind), Now: now, Log: log}
	if keys == nil {
		return shared.Open(sc, of)
	}
	sc.Sealer, sc.Note = keys, c.Of(of.Kind)
	s, err := shared.Open(sc, of)
	if err != nil {
		return nil, err
	}
	return s, c.Add(of.Kind, s, s.Empty())
}

// OfConsole are the shared users of a configuration's console.
func (s Shared) OfConsole(cfg *config.Config) *auth.SharedUsers {
	if ConsoleUsers(cfg) == auth.UserEntries {
		return s.Users
	}
	return s.ConsoleUsers
}

// ConsoleUsers are as what the users of the console are shared: where one file has them and those of listeners, they
// are the same.
func ConsoleUsers(cfg *config.Config) *shared.Entries[string, auth.User] {
	if cfg.Console.Users == cfg.Users.File {
		return auth.UserEntries
	}
	return auth.ConsoleUserEntries
}

// Certificates shares the certificates of acme, nil where nothing secret is shared. A node without names reads them,
// too: what all have read is deleted from the database.
func Certificates(
	cfg *config.Config, c *exchange.Exchange, now func() time.Time, log *slog.Logger,
) (certificates.Cluster, error) {
	keys, err := secretsKey(cfg)
	if keys == nil {
		return nil, err
	}
	s := ordering.New(ordering.Config{
		Node: cfg.NodeID, Directory: cfg.ACME.Directory, Names: cfg.ACME.Names, Keys: keys, Note: c.Of("acme"),
		Behind: func(ctx context.Context) string { return c.Behind(ctx, "acme") }, Now: now, Log: log,
	})
	return s, c.Add("acme", s, true) // which is in memory
}

// Outages shares which hosts can't be reached, nil without a cluster.
func Outages(c *exchange.Exchange, now func() time.Time, log *slog.Logger) *outages.Store {
	if c == nil {
		return nil
	}
	return outages.New(outages.Config{Note: c.Of("host"), Age: c.Age, Waiting: c.Waiting, Now: now, Log: log})
}

// Cluster takes part in the cluster of a configuration, nil without one.
func Cluster(
	cfg *config.Config, version string, c *exchange.Exchange, now func() time.Time, log *slog.Logger,
) (*membership.Membership, error) {
	k := &cfg.Cluster
	if !k.On() {
		return nil, nil
	}
	return membership.Open(membership.Config{
		Database: postgres.Config{Database: string(k.Database), Replicated: k.Replicated}, Name: cfg.NodeID,
		Address: k.Address,
		Pair:    k.Pair(), CA: k.CA, Path: k.Path, Changes: c, Version: version, Now: now, Log: log,
		Part: k.OnLoss == "part",
	})
}

// Sums are sums of what all nodes of a cluster need: settings, and the certificate of the authority.
func Sums(cfg *config.Config) map[string]string {
	sums := cfg.Sums()
	if text, err := os.ReadFile(cfg.Cluster.CA); err == nil { // nodes of two authorities don't talk
		sums["ca of cluster"] = fmt.Sprintf("%s%.6x", settings.Some, sha256.Sum256(bytes.TrimSpace(text)))
	}
	return sums
}

// SharedSums are sums of the users, nil for none, and stored templates in force, which change without a reload.
func SharedSums(smtp, console *auth.Service, templates *request.Stored) map[string]string {
	stored := make(map[string]string)
	for tenant, sum := range templates.Sums() {
		stored[fmt.Sprintf("templates of %q", tenant)] = sum
	}
	sums := settings.Few("templates", stored)
	for name, of := range map[string]*auth.Service{"users": smtp, "users of the console": console} {
		if sum := of.Sum(); sum != "" {
			sums[name] = settings.Some + sum
		}
	}
	return sums
}

// Divider has delivery's limits divided among the members, nil without a cluster.
func Divider(m *membership.Membership) delivery.Divider {
	if m == nil {
		return nil
	}
	return Parts(m.Node)
}
