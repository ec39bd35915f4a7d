package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.org/mta/cluster/node"
	"example.org/mta/cluster/secrets"
	"example.org/mta/cluster/spool"
	"example.org/mta/internal/legible"
	"example.org/mta/internal/smallfile"
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
	Now  func() time.Time
	Log  *slog.Logger

	logs Engine // of Others; nil: not open
}

// Find returns the log of a node whose queue can be taken: one that this node has taken and not discarded, the one that
// is not sealed, or one whose taker is silent. off: the node is known to be gone.
func (t *Taker) Find(ctx context.Context, node uint16, off bool) (found spool.Status, err error) {
	err = t.with(func(e Engine) error {
		all, err := e.Logs(ctx)
		if err != nil {
			return err
		}
		for _, l := range all {
			switch {
			case l.Node != node || l.Empty && l.Sealed != 0 || l.Ended:
			case l.Sealed == t.Node, found.Log == 0, l.Sealed == 0 && found.Sealed != t.Node: // its own comes first
				found = l
			}
		}
		switch ago := time.Duration(found.Ago * float64(time.Second)); {
		case found.Log == 0:
			return Refusal(fmt.Sprintf("the database has no copy of the queue of node %d", node))
		case found.Sealed == t.Node && found.Incarnation == 0:
			return Refusal(fmt.Sprintf("an earlier version has begun to take over the queue of node %d: 'mta cluster "+
				"adopt' its directory in 'taken-over'", node))
		case found.Sealed == t.Node:
		case found.Sealed != 0 && (ago < silent || found.Incarnation == 0):
			return Refusal(fmt.Sprintf("node %d has begun to take over the queue of node %d: go on there", found.Sealed,
				node))
		case found.Sealed == 0 && ago < silent && !off:
			return Refusal(fmt.Sprintf("node %d has written %s ago: stop it and wait for %s; --dead if its machine is "+
				"off", node, ago.Round(time.Second), silent))
		}
		return nil
	})
	return found, err
}

// Others returns the logs that this node could go on with: those of other nodes. It removes what is left of those whose
// mail has moved, in the database and of the directories in a folder. It is not safe for concurrent use.
func (t *Taker) Others(ctx context.Context, dirs string) (found []spool.Status, err error) {
	if t.logs == nil {
		e, err := t.Open()
		if err != nil {
			return nil, err
		}
		t.logs = e
	}
	all, err := t.logs.Logs(ctx)
	for _, l := range all {
		known := l.Sealed == 0 || l.Incarnation != 0 // an earlier version does not go on with what it has sealed
		switch {
		case moved(l) && !l.Empty && err == nil:
			err = t.logs.ClearLog(ctx, l.Log, l.Sealed)
		case l.Node == t.Node && (l.Sealed == 0 || l.Sealed == t.Node): // it is this node's
		case !l.Empty && !l.Ended && known:
			found = append(found, l)
		}
	}
	if err == nil {
		t.tidy(all, dirs)
	}
	return found, err
}

// moved reports whether all mail of a log has moved. One that its own node has ended has a directory with that, and so
// has one of which a directory was adopted.
func moved(l spool.Status) bool { return l.Ended && l.Sealed != l.Node }

// tidy removes directories of logs whose mail has moved, or that another node has gone on with.
func (t *Taker) tidy(all []spool.Status, dirs string) {
	there, _ := os.ReadDir(dirs)
	for _, d := range there {
		dir := filepath.Join(dirs, d.Name())
		m, err := readMark(filepath.Join(dir, copyMark))
		if err == nil && slices.ContainsFunc(all, func(l spool.Status) bool {
			other := l.Sealed != 0 && l.Sealed != t.Node && l.Sealed != l.Node
			return l.Log == m.Log && (moved(l) || other && l.Session > m.Session && l.Session != m.Next)
		}) {
			_ = os.RemoveAll(dir)
		}
	}
}

// Hold is a sign of life of a log that this node has taken, and with which it does not go on just now.
func (t *Taker) Hold(ctx context.Context, l spool.Status) error {
	return t.with(func(e Engine) error {
		_, err := e.TakeLog(ctx, spool.Take{Log: l.Log, By: t.Node, Next: l.Session})
		return err
	})
}

// Close ends what Others has open.
func (t *Taker) Close() error {
	if t.logs != nil {
		t.logs.Close()
		t.logs = nil
	}
	return nil
}

// Take has this node go on with a log as it was found, so that its node, or one that has taken it before, accepts and
// delivers nothing more, and brings the folder queue of a directory to what it has. The queue there goes on with the
// log, too: another node can take it after this one. incarnation is the node's. It can be repeated.
func (t *Taker) Take(ctx context.Context, l spool.Status, incarnation uint64, dir string) (r *Replica, err error) {
	r = &Replica{until: silent / 2}
	if r.engine, err = t.Open(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.Close()
			r = nil
		}
	}()
	log, err := spool.Reader(r.engine, l)
	if err != nil {
		return r, err
	}
	image, err := log.Read(ctx)
	if err != nil {
		return r, err
	}
	claim := spool.Take{Log: l.Log, By: t.Node, Session: l.Session, Last: l.Last, Next: after(l.Session, t.Now()),
		Incarnation: incarnation}
	if err = t.prepare(l, image.Octets(), &claim, dir); err != nil {
		return r, err
	}
	if r.log, err = spool.Go(ctx, r.engine, l, claim); errors.As(err, new(*spool.Taken)) {
		return r, cmp.Or(os.RemoveAll(dir), changed(l.Node))
	} else if err != nil {
		return r, err
	}
	m := mark{l.Log, claim.Next, claim.Next}
	if err = smallfile.WriteObject(filepath.Join(dir, copyMark), 0o600, &m); err != nil {
		return r, err
	}
	defer alive(ctx, func(ctx context.Context) error {
		_, err := r.engine.TakeLog(ctx, claim)
		return err
	})()
	clock, _, err := node.Boot()
	if err != nil {
		return r, err
	}
	began := time.Now()
	t.Log.Info("the queue of a node goes on here from its copy", "node", l.Node, "log", l.Log, "entries", image.Entry(),
		"octets", image.Octets())
	queue := filepath.Join(dir, "queue")
	r.fs, err = shipping.Open(ctx, shipping.Config{FS: held{vfs.OS()}, Dir: queue, Names: store.Shipped(), Log: r.log,
		Clock: clock, Slog: t.Log}, image)
	if err == nil {
		err = touch(queue)
	}
	if err == nil {
		t.Log.Info("the queue of a node is restored", "node", l.Node, "log", l.Log,
			"took", time.Since(began).Round(time.Millisecond))
	}
	return r, err
}

// copyMark is the mark of a directory that was restored.
const copyMark = "cluster-copy"

// prepare makes a directory for a log, unless it has the one of this very log as this node has left it: since another
// has gone on with that, what is there would leave again.
func (t *Taker) prepare(l spool.Status, octets int64, claim *spool.Take, dir string) error {
	path, queue := filepath.Join(dir, copyMark), filepath.Join(dir, "queue")
	m, err := readMark(path)
	switch is := err == nil && m.Log == l.Log; {
	case is && m.Session > l.Session:
		return Refusal(fmt.Sprintf("the database has lost writes: %s has more of the queue of node %d: 'mta cluster "+
			"adopt' that directory", dir, l.Node))
	case is && m.Session == l.Session && m.Next > m.Session: // it may be about to begin
		claim.Next = m.Next
	case is && (m.Session == l.Session || m.Next == l.Session):
	default:
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(queue, 0o700); err != nil {
		return err
	}
	there, err := vfs.OS().List(queue)
	free := int64(0)
	if err == nil {
		free, err = vfs.OS().Free(dir)
	}
	if err != nil {
		return err
	}
	need := octets + spare
	for _, f := range there {
		need -= f.Size
	}
	if free < need {
		return Refusal(fmt.Sprintf("the queue of node %d needs %s in %s, and %s are free: free some space, or take it "+
			"over at another node", l.Node, legible.Size(need), dir, legible.Size(free)))
	}
	return smallfile.WriteObject(path, 0o600, &mark{l.Log, l.Session, claim.Next})
}

// spare is how much is to be free beside what is restored: more than the default of min_free.
const spare = 512 << 20

// after is a session after another: that of a copy of a directory, whatever its clock.
func after(session uint64, now time.Time) uint64 {
	return max(session, uint64(now.UnixMicro())) + 1 + rand.Uint64N(1<<32)
}

// alive has a log count as written to, until stop, while nothing is: a large queue takes long to read.
func alive(ctx context.Context, again func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case <-time.After(shipping.Beat):
				_ = again(ctx) // the next one may come in time
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-over
	}
}

// Secret returns the secret by which the node of a log knows requests with a key, by the file with those of all nodes;
// nil if it is not known here.
func (t *Taker) Secret(l spool.Status, path string) ([]byte, error) {
	all, err := secrets.Existing(path, secretOf(l.Log))
	if err != nil || len(all) != 1 {
		return nil, err
	}
	return all[0], nil
}

// Look restores the queue as it is now into a directory, and changes nothing else.
func (t *Taker) Look(ctx context.Context, l spool.Status, dir string) error {
	return t.with(func(e Engine) error { return t.restore(ctx, e, l, dir) })
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
	log, err := spool.Reader(e, l)
	if err != nil {
		return err
	}
	image, err := log.Read(ctx)
	if err == nil {
		err = shipping.Restore(ctx, shipping.Config{FS: vfs.OS(), Dir: dir, Names: store.Shipped(), Log: log}, image)
	}
	if err == nil {
		err = touch(dir)
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
