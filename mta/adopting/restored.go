package adopting

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"example.org/mta/cluster/membership"
	"example.org/mta/mta/datadir"
	"example.org/mta/mta/replica"
	"example.org/mta/operator/api"
)

// restoredDir is the folder, in the data directory of this relay, of those that were restored.
const restoredDir = "taken-over"

// restore makes a data directory of the copy that the database has of a node's queue, has c name that, and returns the
// number of the log. Nobody else takes the queue, nor has the node accept or deliver any more, unless it is a dry run.
func (a *Adopter) restore(ctx context.Context, c *api.Adopt) (log uint64, err error) {
	t := a.cfg.Copies
	l, err := t.Find(ctx, uint16(c.Node), c.Dead)
	if err != nil {
		return 0, refused(err)
	}
	// The node was looked at before its log was sealed.
	leave, err := a.cfg.Cluster.Leave(ctx, l.Node, c.Dead || l.Sealed != 0)
	if err != nil {
		return 0, refused(err)
	}
	take := t.Take
	c.Dir = filepath.Join(a.cfg.InForce().DataDir, restoredDir, fmt.Sprintf("node-%d-log-%d", l.Node, l.Log))
	if c.DryRun {
		take, c.Dir = t.Look, c.Dir+"-dry-run"
		defer func() {
			if err != nil {
				os.RemoveAll(c.Dir)
			}
		}()
	}
	if mark, err := datadir.ReadAdopted(c.Dir); err != nil || mark.By != 0 { // its mail is moving
		return l.Log, err
	}
	queue := filepath.Join(c.Dir, "queue")
	if err := os.MkdirAll(queue, 0o700); err != nil {
		return 0, api.Unavailable(remedy(err), "%v", err)
	}
	if err := take(ctx, l, queue); err != nil {
		return 0, refused(err)
	}
	if err := leave(filepath.Join(c.Dir, clusterFile)); err != nil {
		return 0, api.Unavailable(remedy(err), "%v", err)
	}
	return l.Log, nil
}

// refused is an error for the operator.
func refused(err error) error {
	if errors.As(err, new(replica.Refusal)) || errors.As(err, new(membership.Refusal)) {
		return conflict("", "%v", err)
	}
	return api.Unavailable("'mta cluster status' has how the database is", "%v", err)
}

// discard removes what a directory was restored from, and the directory: its mail is elsewhere.
func (a *Adopter) discard(d *directory) error {
	if err := a.cfg.Copies.Discard(a.ctx, d.log); err != nil {
		return err
	}
	return os.RemoveAll(d.cfg.DataDir)
}
