package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"example.org/mta/cluster/spool"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/shipping"
)

// silent is for how long a log has had no entry when its node counts as gone: a node appends one each 10 s.
const silent = time.Minute

// Refusal is why the copy of a queue can't be taken, with the remedy.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// Taker takes the queues of nodes that are gone, by their copies.
type Taker struct {
	Open func() (Engine, error)
	Node uint16 // this one
	Log  *slog.Logger
}

// Find returns the log of a node whose queue can be taken: one that this node has sealed and not discarded, or the one
// that is not sealed. off: the node is known to be gone.
func (t *Taker) Find(ctx context.Context, node uint16, off bool) (found spool.Status, err error) {
	err = t.with(func(e Engine) error {
		all, err := e.Logs(ctx)
		if err != nil {
			return err
		}
		other := uint16(0)
		for _, l := range all {
			switch {
			case l.Node != node || l.Sealed != 0 && l.Entries == 0:
			case l.Sealed == t.Node, l.Sealed == 0 && found.Log == 0: // what was begun comes first
				found = l
			default:
				other = l.Sealed
			}
		}
		switch ago := time.Duration(found.Ago * float64(time.Second)); {
		case found.Log == 0 && other != 0:
			return Refusal(fmt.Sprintf("node %d has begun to take over the queue of node %d: go on there", other, node))
		case found.Log == 0:
			return Refusal(fmt.Sprintf("the database has no copy of the queue of node %d", node))
		case found.Sealed == 0 && ago < silent && !off:
			return Refusal(fmt.Sprintf("node %d has written %s ago: stop it and wait for %s; --dead if its machine is "+
				"off", node, ago.Round(time.Second), silent))
		}
		return nil
	})
	return found, err
}

// Take seals a log, so that its node accepts and delivers nothing more, and restores the queue into a directory. It can
// be repeated.
func (t *Taker) Take(ctx context.Context, l spool.Status, dir string) error {
	return t.with(func(e Engine) error {
		if err := seal(ctx, e, l, t.Node); err != nil {
			return err
		}
		return t.restore(ctx, e, l, dir)
	})
}

// seal ends a log as it was found, for good. It can be repeated.
func seal(ctx context.Context, e spool.Sealer, l spool.Status, by uint16) error {
	is, err := e.SealLog(ctx, l.Log, by, l.Last)
	if err == nil && !is.Done {
		err = Refusal(fmt.Sprintf("node %d has just written to its log, or another node has taken it over: stop node "+
			"%[1]d, and give the command again", l.Node))
	}
	return err
}

// Look restores the queue as it is now into a directory, and changes nothing else.
func (t *Taker) Look(ctx context.Context, l spool.Status, dir string) error {
	return t.with(func(e Engine) error { return t.restore(ctx, e, l, dir) })
}

// Discard forgets what a sealed log has: the mail is elsewhere.
func (t *Taker) Discard(ctx context.Context, log uint64) error {
	return t.with(func(e Engine) error { return e.ClearLog(ctx, log, t.Node) })
}

// End seals the log of a directory whose mail is to be taken from there, so that nobody takes it from the log, too. It
// returns the number of the log, 0 for a directory without one. mark is the directory's.
func (t *Taker) End(ctx context.Context, mark string, node uint16) (log uint64, err error) {
	m, err := readMark(mark)
	if err != nil || m.Log == 0 {
		return 0, err
	}
	return m.Log, t.with(func(e Engine) error {
		all, err := e.Logs(ctx)
		if err != nil {
			return err
		}
		for _, l := range all {
			switch {
			case l.Log != m.Log:
			case l.Sealed != 0 && l.Sealed != t.Node, l.Sealed != 0 && l.Entries == 0:
				return Refusal(fmt.Sprintf("node %d has taken over the mail of node %d from its copy: what is here "+
					"would leave twice", l.Sealed, node))
			default:
				return seal(ctx, e, l, t.Node)
			}
		}
		return nil
	})
}

func (t *Taker) with(do func(Engine) error) error {
	e, err := t.Open()
	if err != nil {
		return err
	}
	defer e.Close()
	return do(e)
}

func (t *Taker) restore(ctx context.Context, e spool.Engine, l spool.Status, dir string) error {
	began := time.Now()
	log, err := spool.Reader(e, l)
	if err != nil {
		return err
	}
	image, err := log.Read(ctx)
	if err == nil {
		t.Log.Info("the queue of a node is restored from its copy", "node", l.Node, "log", l.Log, "entries",
			image.Entry(), "octets", image.Octets())
		err = shipping.Restore(ctx, shipping.Config{FS: vfs.OS(), Dir: dir, Names: store.Shipped(), Log: log}, image)
	}
	if err == nil {
		err = touch(dir)
	}
	if err == nil {
		t.Log.Info("the queue of a node is restored", "node", l.Node, "log", l.Log,
			"took", time.Since(began).Round(time.Millisecond))
	}
	return err
}

// touch makes the file that a queue locks.
func touch(dir string) error {
	lock, err := vfs.OS().Lock(dir + string(os.PathSeparator) + store.LockName)
	if err != nil {
		return err
	}
	return lock.Close()
}

// End ends the log of a directory whose queue is to have no copy any more; without a mark nothing is done. Nobody can
// take the mail over afterwards.
func End(ctx context.Context, c Config) error {
	if m, err := readMark(c.Mark); m.Next == 0 || err != nil {
		return err
	}
	lock, err := c.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	_, err = c.open(ctx) // that it is the directory's
	taken := (*spool.Taken)(nil)
	if ended := errors.As(err, &taken) && taken.Is.Sealed == c.Node; err != nil && !ended { // by an earlier call
		return c.supersede(ctx, err)
	}
	if err := Abandon(ctx, c.Engine, c.Node); err != nil {
		return fmt.Errorf("ending the copy of the queue in the database: %w", err)
	}
	c.Log.Info("the queue has no copy in the database of the cluster any more")
	return os.Remove(c.Mark)
}
