package kept

import (
	"context"
	"slices"

	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/moving"
	"example.org/mta/operator/api"
)

// Cluster answers about the cluster, and drains nodes; it implements api.Clusters.
type Cluster struct {
	Part   *membership.Membership // nil without a block
	Mover  *moving.Mover          // likewise
	Relay  Relay
	Queued func() int64 // recipients in the queue
	// Copy returns how far the copy of the queue is, nil for none, and what is wrong with it, "": nothing.
	Copy func() (*api.QueueCopy, string)
}

// Relay takes new mail, or not.
type Relay interface {
	Drain(context.Context, api.Intent) (api.Drained, error)
	Undrain(context.Context, api.Intent) (api.Drained, error)
}

func (c Cluster) Cluster(context.Context) (api.Cluster, error) {
	s := c.Part.Status()
	part, database, standby, certificate := c.Part.Trouble()
	copied, late := c.Copy()
	out := api.Cluster{On: c.Part != nil, Node: int(s.Number), Takes: s.Takes, Shards: len(s.Shards),
		Silent: s.Silent.Seconds(), Waiting: s.Waiting, OnLoss: s.OnLoss, Part: s.Reserve,
		Members: make([]api.ClusterMember, len(s.Members)), Copy: copied,
		Trouble: slices.DeleteFunc([]string{late, part, database, standby, certificate},
			func(why string) bool { return why == "" })}
	if moves := c.Mover.Status(); moves.On || moves.Waiting > 0 {
		is := c.moving()
		out.Moving = &is
	}
	if s.Lost != nil {
		out.Lost = s.Lost.Error()
	}
	for i, m := range s.Members {
		// of a node that has just joined again the row is an earlier one
		m.Forgotten = m.Forgotten && !(s.Takes && m.Number == s.Number)
		out.Members[i] = api.ClusterMember{Node: int(m.Number), Address: m.Address, Version: m.Version,
			Incarnation: m.Incarnation, Seen: m.Ago, Forgotten: m.Forgotten, Differ: s.Differ[m.Number]}
	}
	return out, nil
}
