package kept

import (
	"context"
	"time"

	"example.org/mta/operator/api"
)

// shareWait is how long a request waits for the keys to be at all nodes. Other nodes wait for 5 s.
const shareWait = 3 * time.Second

// Reset implements api.Clusters.
func (c Cluster) Reset(ctx context.Context, in api.Reset) (done api.WasReset, err error) {
	switch {
	case c.Mover == nil:
		return done, errAlone
	case in.DryRun:
		done.Done = true
	case in.Keys:
		waiting, cancel := context.WithTimeout(ctx, shareWait)
		defer cancel()
		without, ended := c.Mover.Informed(waiting)
		done.Done = ended
		for _, n := range without {
			done.Without = append(done.Without, api.MovingNode{Node: int(n.Node), LeftOut: n.Why})
		}
	default:
		if err := c.Part.Reset(ctx); err != nil {
			return done, api.Unavailable("'mta cluster status' has how the database is; then give the command again",
				"%v", err)
		}
		done.Done, done.Count = true, 1
	}
	return done, nil
}
