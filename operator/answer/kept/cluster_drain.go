package kept

import (
	"context"
	"net/http"
	"time"

	"example.org/mta/cluster/moving"
	"example.org/mta/operator/api"
)

// DrainNode implements api.Clusters.
func (c Cluster) DrainNode(ctx context.Context, in api.Intent) (done api.DrainedNode, err error) {
	switch {
	case c.Mover == nil:
		return done, errAlone
	case c.Part.Node() == nil:
		return done, &api.Error{Status: http.StatusConflict, Message: "this node takes no part in its cluster now",
			Hint: "'mta cluster status' has the reason; 'mta drain' has it take no new mail, and deliver what it has"}
	}
	relay, err := c.Relay.Drain(ctx, in)
	if err == nil && !in.DryRun {
		c.Mover.Drain()
	}
	done.Effect, done.Moving = relay.Effect, c.moving()
	return done, err
}

// untilStopped is how long the end of a move is waited for, so that the answer has all that has moved: a node that
// another one asks has five seconds.
const untilStopped = 3 * time.Second

// UndrainNode implements api.Clusters.
func (c Cluster) UndrainNode(ctx context.Context, in api.Intent) (done api.DrainedNode, err error) {
	if c.Mover == nil {
		return done, errAlone
	}
	relay, err := c.Relay.Undrain(ctx, in)
	if err == nil && !in.DryRun {
		end, cancel := context.WithTimeout(ctx, untilStopped)
		defer cancel()
		c.Mover.Stop(end)
	}
	done.Effect, done.Moving = relay.Effect, c.moving()
	return done, err
}

// Moving implements api.Clusters.
func (c Cluster) Moving(context.Context) (api.Moving, error) {
	if c.Mover == nil {
		return api.Moving{}, errAlone
	}
	return c.moving(), nil
}

// errAlone is the error of a relay without a cluster.
var errAlone = &api.Error{Status: http.StatusConflict,
	Message: "this relay is in no cluster: its configuration has no cluster block",
	Hint:    "'mta drain' has it take no new mail, and deliver what it has"}

func (c Cluster) moving() api.Moving {
	return Moving(int(c.Part.Status().Number), c.Mover, c.Queued())
}

// Moving puts into words how far a mover has moved the mail of a node, of which recipients are left.
func Moving(node int, m *moving.Mover, left int64) api.Moving {
	return progress(node, m.Status(), left)
}

// progress is Moving of a status, whose Busy is of the last pass: fewer may be left by now.
func progress(node int, s moving.Status, left int64) api.Moving {
	out := api.Moving{Node: node, On: s.On, Since: s.Since, Messages: s.Messages,
		Recipients: s.Recipients, Left: left, Busy: int(min(int64(s.Busy), left)),
		Waiting: s.Waiting, Declined: s.Declined, Rests: s.Rests, To: make([]api.MovingNode, len(s.Nodes))}
	for i, n := range s.Nodes {
		out.To[i] = api.MovingNode{Node: int(n.Node), Messages: n.Messages, Recipients: n.Recipients, LeftOut: n.Why}
	}
	return out
}
