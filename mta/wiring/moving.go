package wiring

import (
	"log/slog"
	"time"

	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/moving"
	"example.org/mta/mta/config"
)

// Mover moves a queue to the other nodes of the cluster, nil without one; then no mail may be on its way.
func Mover(
	cfg *config.Config, m *membership.Membership, mail moving.Mail, refuses func() string, drains func() bool,
	now func() time.Time, log *slog.Logger,
) (*moving.Mover, error) {
	path := cfg.Cluster.Path + "-moving"
	if m == nil {
		return nil, moving.Nothing(path)
	}
	mover, err := moving.Open(moving.Config{
		Node: m.Status().Number, Name: cfg.NodeID, Path: path, Mail: mail, Refuses: refuses, Drains: drains,
		May: func() bool { return m.Node() != nil }, Open: m.Talk, Now: now, Log: log,
		Nodes: func() (all []moving.Node) {
			for _, row := range m.Status().Members {
				all = append(all, moving.Node{Number: row.Number, Forgotten: row.Forgotten,
					Away: m.Away(row.Number)})
			}
			return all
		},
	})
	if err == nil {
		m.OnTalk(moving.Purpose, mover.Serve)
	}
	return mover, err
}
