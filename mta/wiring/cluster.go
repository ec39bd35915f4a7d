package wiring

import (
	"log/slog"
	"time"

	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/parts"
	"example.org/mta/cluster/postgres"
	"example.org/mta/delivery"
	"example.org/mta/mta/config"
)

// Cluster takes part in the cluster of a configuration, nil without one.
func Cluster(
	cfg *config.Config, version string, now func() time.Time, log *slog.Logger,
) (*membership.Membership, error) {
	c := &cfg.Cluster
	if !c.On() {
		return nil, nil
	}
	return membership.Open(membership.Config{
		Database: postgres.Config{Database: string(c.Database), Replicated: c.Replicated}, Address: c.Address,
		Pair: c.Pair(), CA: c.CA, Path: c.Path, Version: version, Now: now, Log: log,
	})
}

// Divider has delivery's limits divided among the members, nil without a cluster.
func Divider(m *membership.Membership) delivery.Divider {
	if m == nil {
		return nil
	}
	return parts.Parts(m.Node)
}
