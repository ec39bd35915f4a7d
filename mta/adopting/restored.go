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
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/datadir"
	"example.org/mta/mta/replica"
	"example.org/mta/operator/api"
	"example.org/mta/queue/vfs"
)

// restoredDir is the folder, in the data directory of this relay, of those that were restored.
const restoredDir = "taken-over"

// drySuffix is that of the directory of a dry run.
const drySuffix = "-dry-run"

// restored is a data directory that is made of the copy that the database has of a node's queue.
type restored struct {
	dir  string
	log  uint64
	dry  bool // it was to be looked at
	Copy      // nil then
}

// Copy is that of a queue which goes on here; package replica has what the methods do.
type Copy interface {
	Under(vfs.FS) vfs.FS
	Frozen() func() bool
	Ended() error
	Close() error
}

// Taker is package replica's, as Copies.
type Taker struct{ *replica.Taker }

// Take implements Copies.
func (t Taker) Take(ctx context.Context, l spool.Status, incarnation uint64, dir string) (Copy, error) {
	r, err := t.Taker.Take(ctx, l, incarnation, dir)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (a *Adopter) restoredAt(l spool.Status) string {
	return filepath.Join(a.cfg.InForce().DataDir, restoredDir, fmt.Sprintf("node-%d-log-%d", l.Node, l.Log))
}

// restore makes a data directory of the copy that the database has of a node's queue, unless all had moved at the time
// that it returns. Nobody else takes the queue, nor has the node accept or deliver any more, unless it is a dry run.
func (a *Adopter) restore(ctx context.Context, c api.Adopt, l spool.Status) (
	r restored, ended time.Time, err error,
) {
	t, at, found := a.cfg.Copies, a.restoredAt, l.Log != 0
	if !found {
		if l, err = t.Find(ctx, uint16(c.Node), c.Dead); err != nil {
			return r, ended, refused(err)
		}
	}
	if mark, err := datadir.ReadAdopted(at(l)); err == nil && !mark.Ended.IsZero() && !c.DryRun {
		// What the end of this relay kept from being done. The node may have another log since.
		if err := a.discard(ctx, l.Log, l.Node, at(l)); err != nil {
			return r, ended, refused(err)
		}
		if found {
			return r, mark.Ended, nil
		}
		if l, err = t.Find(ctx, uint16(c.Node), c.Dead); errors.As(err, new(replica.Refusal)) {
			return r, mark.Ended, nil
		} else if err != nil {
			return r, ended, refused(err)
		}
	}
	// The node was looked at before its log was sealed.
	leave, incarnation, err := a.cfg.Cluster.Leave(ctx, l.Node, c.Dead || l.Sealed != 0, l.Incarnation)
	if err != nil {
		return r, ended, refused(err)
	}
	if r.log, r.dir, r.dry = l.Log, at(l), c.DryRun; r.dry {
		r.dir += drySuffix
		err = a.lookAt(ctx, l, r.dir)
	} else if r.Copy, err = t.Take(ctx, l, incarnation, r.dir); err != nil {
		r.Copy = nil
	}
	if err == nil {
		if err = errors.Join(leave(filepath.Join(r.dir, clusterFile)), a.secret(l, r.dir)); err != nil {
			err = api.Unavailable(remedy(err), "%v", err)
		}
	}
	if err != nil {
		r.close()
		return r, ended, refused(err)
	}
	return r, ended, nil
}

// secret has a directory know requests with a key that are sent again. Without the secret they are taken as new.
func (a *Adopter) secret(l spool.Status, dir string) error {
	secret, err := a.cfg.Copies.Secret(l, a.cfg.InForce().Cluster.SecretsPath())
	if err != nil || secret == nil {
		return err
	}
	return smallfile.Write(filepath.Join(dir, secretFile), 0o600, fmt.Appendf(nil, "%x\n", secret))
}

// lookAt makes a directory of the queue as it is now, and changes nothing else.
func (a *Adopter) lookAt(ctx context.Context, l spool.Status, dir string) error {
	queue := filepath.Join(dir, "queue")
	err := os.RemoveAll(dir)
	if err == nil {
		err = os.MkdirAll(queue, 0o700)
	}
	if err != nil {
		return api.Unavailable(remedy(err), "%v", err)
	}
	return a.cfg.Copies.Look(ctx, l, queue)
}

// close ends what goes on in the directory, which stays, unless it was for a dry run.
func (r *restored) close() (err error) {
	if r.dry {
		err = os.RemoveAll(r.dir)
	}
	if r.Copy != nil {
		err = r.Copy.Close()
	}
	return err
}

// refused is an error for the operator.
func refused(err error) error {
	if errors.As(err, new(*api.Error)) {
		return err
	}
	if errors.As(err, new(replica.Refusal)) || errors.As(err, new(membership.Refusal)) {
		return conflict("", "%v", err)
	}
	return api.Unavailable("'mta cluster status' has how the database is", "%v", err)
}

// discard removes what a directory was restored from, and the directory: its mail is elsewhere.
func (a *Adopter) discard(ctx context.Context, log uint64, node uint16, dir string) error {
	if err := a.cfg.Copies.Discard(ctx, log, node); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
