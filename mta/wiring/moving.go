package wiring

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"time"

	"example.org/mta/cluster/link"
	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/moving"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/postgres"
	"example.org/mta/mta/config"
)

// Mover moves a queue to the other nodes of the cluster, nil without one; then no mail may be on its way.
func Mover(
	cfg *config.Config, m *membership.Membership, mail moving.Mail, refuses func() string,
	drains, frozen func() bool, now func() time.Time, log *slog.Logger,
) (*moving.Mover, error) {
	path := cfg.Cluster.Path + "-moving"
	if m == nil {
		return nil, moving.Nothing(path)
	}
	c := moves(m, mail, func(row postgres.Member) bool { return m.Own(row.Number) }, now, log)
	c.Node, c.Name, c.Path, c.Refuses, c.Drains = m.Status().Number, cfg.NodeID, path, refuses, drains
	if frozen != nil { // what leaves now would leave from the copy of the queue, too
		c.May = func() bool { return m.Node() != nil && !frozen() }
	}
	mover, err := moving.Open(c)
	if err == nil {
		m.OnTalk(moving.Purpose, mover.Serve)
	}
	return mover, err
}

// moves is what all movers have. The mail is that of a member whose row is the own one.
func moves(
	m *membership.Membership, mail moving.Mail, own func(postgres.Member) bool, now func() time.Time, log *slog.Logger,
) moving.Config {
	return moving.Config{
		Mail: mail, May: func() bool { return m.Node() != nil }, Open: m.Talk, Now: now, Log: log,
		Nodes: func() (all []moving.Node) {
			for _, row := range m.Status().Members {
				if !own(row) {
					all = append(all, moving.Node{Number: row.Number, Forgotten: row.Forgotten,
						Away: m.Away(row.Number)})
				}
			}
			return all
		},
	}
}

// Adopting is this relay's part in a cluster as package adopting asks it.
type Adopting struct {
	*membership.Membership
	Own *moving.Mover // takes what comes to this relay
	Now func() time.Time
	Log *slog.Logger
}

// Takes reports whether this relay takes part.
func (d Adopting) Takes() bool { return d.Node() != nil }

// Hears reports whether the database acknowledges what this node writes.
func (d Adopting) Hears() bool {
	s := d.Status()
	return s.Takes && !s.Failing && s.Silent <= owner.Patience
}

// Number is that of this node.
func (d Adopting) Number() uint16 { return d.Status().Number }

// Gone reports whether a node is no member any more.
func (d Adopting) Gone(node uint16) bool {
	return !slices.ContainsFunc(d.Status().Members, func(m postgres.Member) bool {
		return m.Number == node && !m.Forgotten
	})
}

// Leave is Gone of the membership.
func (d Adopting) Leave(ctx context.Context, node uint16, off bool, incarnation uint64) (
	func(path string) error, uint64, error,
) {
	return d.Membership.Gone(ctx, node, off, incarnation)
}

// Mover makes what moves the mail of a dead node to all other members, also to one that has its number now. cfg is of
// its data directory.
func (d Adopting) Mover(dead membership.Dead, cfg *config.Config, mail moving.Mail) (*moving.Mover, error) {
	c := moves(d.Membership, mail, dead.Is, d.Now, d.Log)
	c.Node = dead.Number
	c.Name, c.Path, c.Drains = cfg.NodeID, cfg.Cluster.Path+"-moving", func() bool { return true }
	c.Open = func(ctx context.Context, node uint16, purpose link.Purpose) (net.Conn, error) {
		if !d.Membership.Own(node) {
			return d.Talk(ctx, node, purpose)
		}
		here, there := net.Pipe()
		go func() { // ended by the mover, which closes the other end
			defer there.Close()
			d.Own.Serve(context.WithoutCancel(ctx), node, there)
		}()
		return here, nil
	}
	return moving.Open(c)
}
