package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.org/mta/cluster/spool"
	"example.org/mta/internal/smallfile"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/shipping"
)

// sole is how much longer than others a node waits before it goes on by itself: they give all nodes the keys of its
// requests first.
const sole = 30 * time.Second

// regain has an empty directory wait until it may have the log of its node, or begin another: see await. Unless others
// have taken over the log, the next open restores the queue, and the node joins anew.
func (c *Config) regain(ctx context.Context) error {
	m, err := readMark(c.Mark)
	if err != nil || m.Log != 0 || !c.empty() {
		return err
	}
	var l spool.Status // the newest
	err = c.retry(ctx, awaits, func() error {
		all, err := c.Engine.Logs(ctx)
		for _, other := range all {
			if other.Node == c.Node && other.Log > l.Log {
				l = other
			}
		}
		return err
	})
	// An earlier start has begun that log; or it was never another's, or its mail has moved: the node may have no copy.
	if err != nil || l.Log == 0 || l.Session == m.Next || l.Sealed == c.Node || l.Ended {
		return err
	}
	if l, err = c.await(ctx, l.Log, nil); err != nil || l.Sealed != 0 {
		return err
	}
	c.Log.Warn("the queue is restored into an empty directory; what a client sends again with its Idempotency-Key is "+
		"taken as new", "log", l.Log)
	return smallfile.WriteObject(c.Mark, 0o600, &mark{l.Log, l.Session, l.Session})
}

// await waits until this node may begin anew: another one has its log and has forgotten it; or nobody has written to
// the log for so long that nobody can, and that others would have taken it over: then it has itself forgotten. refused
// is the error for the database of another cluster.
func (c *Config) await(ctx context.Context, log uint64, refused error) (l spool.Status, err error) {
	wait := max(silent, c.Takeover) + sole
	var since, looked time.Time
	err = c.retry(ctx, "the start waits for the copy of the queue", func() error {
		all, err := c.Engine.Logs(ctx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(all, func(l spool.Status) bool { return l.Log == log && l.Node == c.Node })
		if at < 0 {
			return refused
		}
		was := l
		if l = all[at]; l.Sealed != 0 {
			if forgotten, err := c.fits(ctx); err != nil || forgotten {
				return err
			}
		}
		// By the clock of this machine: after a failover another server has the database's.
		now := c.Now()
		if l.Beat != was.Beat || now.Sub(looked) > shipping.Beat {
			since = now
		}
		switch looked = now; {
		case now.Sub(since) >= wait:
			return c.Forget(ctx)
		case l.Sealed != 0:
			return fmt.Errorf("node %d has sealed log %d, and not forgotten this node yet: 'mta cluster takeover %d' "+
				"there goes on; once it has written nothing for %s, this node goes on by itself", l.Sealed, l.Log,
				c.Node, wait)
		}
		return fmt.Errorf("the queue was written with another directory, and this one is empty: log %d is restored "+
			"here once nobody has written to it for %s, unless another node takes it over", l.Log, wait)
	})
	return l, err
}

// empty reports whether the directory has nothing of a node or queue.
func (c *Config) empty() bool {
	for _, path := range c.Files {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	names := store.Shipped()
	for _, sub := range names.Dirs {
		files, err := c.FS.List(filepath.Join(c.Dir, sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) ||
			slices.ContainsFunc(files, func(f vfs.Info) bool { return !names.Local(f.Name) && !names.Void(f.Name) }) {
			return false
		}
	}
	return true
}
