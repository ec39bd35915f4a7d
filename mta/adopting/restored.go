package adopting

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/spool"
	"example.org/mta/mta/datadir"
	"example.org/mta/mta/replica"
	"example.org/mta/operator/api"
)

// restoredDir is the folder, in the data directory of this relay, of those that were restored.
const restoredDir = "taken-over"

// restore makes a data directory of the copy that the database has of a node's queue, and has c name that. It returns
// the number of the log, 0 if all had moved at the time that it returns. Nobody else takes the queue, nor has the node
// accept or deliver any more, unless it is a dry run.
func (a *Adopter) restore(ctx context.Context, c *api.Adopt) (log uint64, ended time.Time, err error) {
	t := a.cfg.Copies
	l, err := t.Find(ctx, uint16(c.Node), c.Dead)
	if err != nil {
		return 0, ended, refused(err)
	}
	at := func(l spool.Status) string {
		return filepath.Join(a.cfg.InForce().DataDir, restoredDir, fmt.Sprintf("node-%d-log-%d", l.Node, l.Log))
	}
	if mark, err := datadir.ReadAdopted(at(l)); err == nil && !mark.Ended.IsZero() && !c.DryRun {
		// What the end of this relay kept from being done. The node may have another log since.
		if err := a.discard(ctx, l.Log, at(l)); err != nil {
			return 0, ended, refused(err)
		}
		if l, err = t.Find(ctx, uint16(c.Node), c.Dead); errors.As(err, new(replica.Refusal)) {
			return 0, mark.Ended, nil
		} else if err != nil {
			return 0, ended, refused(err)
		}
	}
	// The node was looked at before its log was sealed.
	leave, err := a.cfg.Cluster.Leave(ctx, l.Node, c.Dead || l.Sealed != 0)
	if err != nil {
		return 0, ended, refused(err)
	}
	take := t.Take
	if c.Dir = at(l); c.DryRun {
		take, c.Dir = t.Look, c.Dir+"-dry-run"
		if err := os.RemoveAll(c.Dir); err != nil {
			return 0, ended, api.Unavailable(remedy(err), "%v", err)
		}
		defer func() {
			if err != nil {
				os.RemoveAll(c.Dir)
			}
		}()
	}
	if mark, err := datadir.ReadAdopted(c.Dir); err != nil || mark.By != 0 { // its mail is moving
		return l.Log, ended, err
	}
	queue := filepath.Join(c.Dir, "queue")
	if err := os.MkdirAll(queue, 0o700); err != nil {
		return 0, ended, api.Unavailable(remedy(err), "%v", err)
	}
	if err := take(ctx, l, queue); err != nil {
		return 0, ended, refused(err)
	}
	if err := leave(filepath.Join(c.Dir, clusterFile)); err != nil {
		return 0, ended, api.Unavailable(remedy(err), "%v", err)
	}
	return l.Log, ended, nil
}

// refused is an error for the operator.
func refused(err error) error {
	if errors.As(err, new(replica.Refusal)) || errors.As(err, new(membership.Refusal)) {
		return conflict("", "%v", err)
	}
	return api.Unavailable("'mta cluster status' has how the database is", "%v", err)
}

// discard removes what a directory was restored from, and the directory: its mail is elsewhere.
func (a *Adopter) discard(ctx context.Context, log uint64, dir string) error {
	if err := a.cfg.Copies.Discard(ctx, log); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
