package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"example.org/mta/cluster/postgres"
	"example.org/mta/cluster/spool"
)

// seal ends a log as it was found: nobody goes on with it.
func seal(ctx context.Context, e spool.Sealer, l spool.Status, by uint16, now time.Time) error {
	is, err := e.TakeLog(ctx, spool.Take{Log: l.Log, By: by, Session: l.Session, Last: l.Last,
		Next: after(l.Session, now), Ends: true})
	if err == nil && !is.Done {
		err = changed(l.Node)
	}
	return err
}

func changed(node uint16) error {
	return Refusal(fmt.Sprintf("node %d has just written to its log, or another node has taken it over: stop node "+
		"%[1]d, and give the command again", node))
}

// Discard forgets what a log has that this node has taken, or of a node whose directory it has adopted: the mail is
// elsewhere. Nobody goes on with it, also if this ends half way.
func (t *Taker) Discard(ctx context.Context, log uint64, node uint16) error {
	return t.with(func(e Engine) error {
		all, err := e.Logs(ctx)
		for _, l := range all {
			if l.Log != log || l.Sealed != t.Node && l.Sealed != node {
				continue
			}
			if !l.Ended {
				err = seal(ctx, e, l, t.Node, t.Now())
			}
			if err == nil {
				err = e.ClearLog(ctx, log, l.Sealed)
			}
		}
		return err
	})
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
			case l.Log != m.Log || l.Ended && !l.Empty && l.Sealed == l.Node:
			case l.Sealed != 0 && (l.Sealed != t.Node || l.Ended || l.Session > max(m.Session, m.Next)):
				return Refusal(fmt.Sprintf("node %d has taken over the mail of node %d from its copy: what is here "+
					"would leave twice", l.Sealed, node))
			default:
				return seal(ctx, e, l, node, t.Now())
			}
		}
		return nil
	})
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
	if err := Abandon(ctx, c.Engine, c.Node, c.Now()); err != nil {
		return fmt.Errorf("ending the copy of the queue in the database: %w", err)
	}
	c.Log.Info("the queue has no copy in the database of the cluster any more")
	return os.Remove(c.Mark)
}

// Elsewhere is a Refusal if the database has a queue of a node, and the directory of the mark nothing of it.
func Elsewhere(ctx context.Context, e Engine, mark string, node uint16) error {
	m, err := readMark(mark)
	if err != nil || m.Next != 0 {
		return err
	}
	all, err := e.Logs(ctx)
	if postgres.Unfit(err) { // the schema is older than logs
		return nil
	}
	for _, l := range all {
		if l.Node == node && l.Sealed == 0 && !l.Empty {
			return Refusal(fmt.Sprintf("the database has the queue of node %d, and %s nothing of it: start the relay "+
				"with an empty data_dir, which restores it, or give 'mta cluster takeover %d' at another node first",
				node, filepath.Dir(mark), node))
		}
	}
	return err
}

// Abandon ends the logs of a node, which goes on without them: its queue is to have no copy, was changed, or is older.
func Abandon(ctx context.Context, e Engine, node uint16, now time.Time) error {
	all, err := e.Logs(ctx)
	if postgres.Unfit(err) { // the schema is older than logs
		return nil
	}
	for _, l := range all {
		if l.Node != node || l.Sealed != 0 && l.Sealed != node {
			continue
		}
		if !l.Ended {
			if err := seal(ctx, e, l, node, now); err != nil {
				return err
			}
		}
		if err := e.ClearLog(ctx, l.Log, node); err != nil {
			return err
		}
	}
	return err
}
