// Package replica keeps a copy of the queue in the database of the cluster, so that the queue outlives its machine: see
// packages shipping and spool. Take restores the queue of a node that is gone.
//
// A directory and a log belong together by a mark in the directory: the session of the last process that had both. So a
// log is never continued from an empty or an old directory, and a directory whose mail another node has starts with an
// empty queue: see supersede.
package replica

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"example.org/mta/cluster/ca"
	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/node"
	"example.org/mta/cluster/postgres"
	"example.org/mta/cluster/spool"
	"example.org/mta/internal/format"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/operator/api"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/shipping"
)

const (
	// late is for how long changes may wait for the database before that is an alarm.
	late = 5 * time.Second
	// frozen is for how long they may wait before nothing more is handed out: what is delivered meanwhile would be
	// delivered twice if another node took over now.
	frozen = time.Second
	// silence is for how long nothing may have been written, likewise. A node that another one takes over for its
	// silence has been frozen for long.
	silence = 2 * shipping.Beat
	// look is between two looks whether the mail is another node's.
	look = 2 * time.Second
)

// Engine is the database.
type Engine interface {
	spool.Sealer
	Close()
}

// Config is a Replica's.
type Config struct {
	Dir    string // the queue's
	Mark   string // the file that names the directory's log
	FS     vfs.FS // nil: the operating system's
	Node   uint16
	Zone   string               // where this machine is
	Engine Engine               // closed with the Replica
	Clock  func() time.Duration // goes on while the machine sleeps; nil: one that does not
	// Fit returns, by the database, whether the node was forgotten, and why the directory is not its newest. Nil: it
	// was, and the directory is.
	Fit func(context.Context) (forgotten bool, err error)
	// Forget has the node of a lost directory take no part any more. It is an error while that answers.
	Forget func(context.Context) error
	Aside  string   // the folder of a queue whose mail another node has taken over
	Files  []string // what is kept of the node, and goes there, too
	Now    func() time.Time
	Log    *slog.Logger
	// After how long in silence another node takes the queue over by itself. 0: none does.
	Takeover time.Duration
}

// Replica is an open copy; nil is that of a queue without one. It has the lock of the queue's directory.
//
// Goroutines: the one of its file system, which ends with Close.
type Replica struct {
	fs     *shipping.FS
	log    *spool.Log
	engine Engine
	lock   io.Closer
	slog   *slog.Logger
	until  time.Duration // for how long in silence no other node can have the queue
	gone   atomic.Bool   // another one has, as far as Watch knows
}

// Open brings the directory and its log together. While the database does not answer it waits, until ctx ends. An error
// that is format.ErrRefused stays until an operator acts.
func Open(ctx context.Context, c Config) (r *Replica, err error) {
	r = &Replica{engine: c.Engine, slog: c.Log, until: silent / 2}
	if c.Takeover > 0 { // the command does it, too
		r.until = min(c.Takeover, silent) / 2
	}
	defer func() {
		if err != nil {
			r.Close()
			r = nil
		}
	}()
	if r.lock, err = c.lock(); err != nil {
		return r, err
	}
	if err = c.regain(ctx); err != nil {
		return r, err
	}
	if r.log, err = c.open(ctx); err != nil {
		if err = c.supersede(ctx, err); err == nil {
			r.log, err = c.open(ctx)
		}
	}
	if err != nil {
		return r, err
	}
	is := r.log.Opened()
	defer alive(ctx, func(ctx context.Context) error {
		_, err := c.Engine.OpenLog(ctx, spool.Claim{Node: c.Node, Log: is.Log, Session: is.Session, Next: is.Session,
			Zone: c.Zone})
		return err
	})()
	image, err := r.log.Read(ctx)
	if err != nil {
		return r, err
	}
	began := time.Now()
	r.fs, err = shipping.Open(ctx, shipping.Config{FS: held{c.FS}, Dir: c.Dir, Names: store.Shipped(), Log: r.log,
		Clock: c.Clock, Slog: c.Log}, image)
	if err == nil {
		c.Log.Info("the queue has a copy in the database of the cluster", "log", is.Log,
			"entries", image.Entry(), "took", time.Since(began).Round(time.Millisecond))
	}
	return r, err
}

// lock takes the lock of the queue's directory, before anything is done to its log.
func (c *Config) lock() (io.Closer, error) {
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	if err := c.FS.MkdirAll(c.Dir); err != nil {
		return nil, err
	}
	return c.FS.Lock(filepath.Join(c.Dir, store.LockName))
}

// held is a file system in which the lock is already there.
type held struct{ vfs.FS }

func (held) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// Under is the file system for the queue: that of the copy, or fs without one.
func (r *Replica) Under(fs vfs.FS) vfs.FS {
	if r == nil {
		return fs
	}
	return r.fs
}

// Close puts into the database what waits, for a few seconds. The queue was closed before.
func (r *Replica) Close() error {
	if r == nil {
		return nil
	}
	var errs []error
	if r.fs != nil {
		errs = append(errs, r.fs.Close())
	}
	r.engine.Close()
	if r.lock != nil {
		errs = append(errs, r.lock.Close())
	}
	return errors.Join(errs...)
}

// Status returns how far the copy is, nil for none, and why it is not up to date, so that no mail is accepted and
// delivered; "" if it is.
func (r *Replica) Status() (is *api.QueueCopy, trouble string) {
	if r == nil {
		return nil, ""
	}
	s := r.fs.Status()
	oldest, silent, broken := r.fs.Lag()
	switch {
	case broken != nil:
		trouble = "the copy of the queue in the database has ended: " + broken.Error()
	case oldest > late || silent > min(silence, r.until):
		trouble = fmt.Sprintf("for %s the database has not taken what the queue writes: mail is neither accepted nor "+
			"delivered", max(oldest, silent).Round(time.Second))
		if err := r.log.Fault(); err != nil {
			trouble += ": " + err.Error()
		}
	}
	return &api.QueueCopy{Log: r.log.Opened().Log, Entry: s.Entry, Octets: s.Octets, Waiting: s.Waiting,
		Lag: oldest.Seconds()}, trouble
}

// Frozen returns a function that reports whether nothing may be handed out now, since the database does not know what
// becomes of it; nil for a queue without a copy.
func (r *Replica) Frozen() func() bool {
	if r == nil {
		return nil
	}
	return func() bool {
		oldest, silent, broken := r.fs.Lag()
		return oldest > frozen || silent > min(silence, r.until) || broken != nil
	}
}

// MayEnd returns a function that reports whether the content of a message may still be ended, since no other node can
// have the queue yet; nil for a queue without a copy.
func (r *Replica) MayEnd() func() bool {
	if r == nil {
		return nil
	}
	return func() bool {
		_, silent, broken := r.fs.Lag()
		return silent <= r.until && broken == nil && !r.gone.Load()
	}
}

// Watch returns why this relay is to end, nil once ctx has ended: the mail in its data directory is another node's, or
// its node was forgotten for the reason that ousted returns. With a copy the next start decides what is left of the
// queue; else the error is format.ErrRefused, as for a directory that was adopted. cut is called then, and while no
// content may be ended, again and again: it closes the connections that have mail, and returns how many.
func (r *Replica) Watch(ctx context.Context, dir string, ousted func() error, cut func() int) error {
	for {
		err := r.lost(dir, ousted())
		if r != nil && (err != nil || !r.MayEnd()()) {
			r.gone.Store(err != nil)
			if n := cut(); n > 0 {
				r.slog.Warn("connections are cut amid mail: the database has taken nothing of this node's queue for "+
					"so long that another node may go on with it", "connections", n)
			}
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return nil
		}
	}
}

// Ended returns why nothing will be in the copy any more, such as that another node has the mail; nil while it goes on.
func (r *Replica) Ended() error {
	_, _, broken := r.fs.Lag()
	return broken
}

func (r *Replica) lost(dir string, ousted error) error {
	if r == nil {
		return datadir.StillOwn(dir, ousted)
	}
	_, _, broken := r.fs.Lag()
	if ousted != nil {
		ousted = fmt.Errorf("the next start decides whether this relay goes on: %v", ousted) // no refusal
	}
	return cmp.Or(datadir.StillOwn(dir, nil), broken, ousted)
}

// ShareSecret gives all nodes the secret by which this relay knows requests with a key: who goes on with the log knows
// repeats by it. join is that of secrets.Store.
func (r *Replica) ShareSecret(
	secret []byte, join func(name string, accept func([][]byte) error, own ...[]byte) error,
) error {
	if r == nil {
		return nil
	}
	return join(secretOf(r.log.Opened().Log), func([][]byte) error { return nil }, secret)
}

// secretOf is the name of that secret among those of the cluster.
func secretOf(log uint64) string { return fmt.Sprintf("requests-of-log-%d", log) }

// mark is what the directory has of its log.
type mark struct {
	Log     uint64 // 0: none yet
	Session uint64 // the newest that is known to have been begun
	Next    uint64 // one that may have been
}

func readMark(path string) (m mark, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		_, err = smallfile.Unmarshal(text, &m)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return m, err
}

// open begins a session of the log.
func (c *Config) open(ctx context.Context) (*spool.Log, error) {
	m, err := readMark(c.Mark)
	if err != nil {
		return nil, err
	}
	if m.Next == m.Session {
		m.Next = after(m.Session, c.Now())
		if err = smallfile.WriteObject(c.Mark, 0o600, &m); err != nil {
			return nil, err
		}
	}
	var l *spool.Log
	err = c.retry(ctx, awaits, func() (err error) {
		if _, err = c.fits(ctx); err == nil {
			l, err = spool.Open(ctx, c.Engine, spool.Claim{Node: c.Node, Log: m.Log, Session: m.Session, Next: m.Next,
				Zone: c.Zone})
		}
		return err
	})
	if taken := (*spool.Taken)(nil); errors.As(err, &taken) {
		if m.Log == 0 { // the directory has no log
			err = errors.Join(err, os.Remove(c.Mark))
		}
		return nil, refusal{err}
	}
	if err != nil {
		return nil, err
	}
	m = mark{l.Opened().Log, m.Next, m.Next}
	return l, smallfile.WriteObject(c.Mark, 0o600, &m)
}

const awaits = "the queue waits for the database of the cluster, which has its copy"

// retry repeats what fails, unless that is final, and logs now and then what waits.
func (c *Config) retry(ctx context.Context, what string, do func() error) error {
	for said := (time.Time{}); ; {
		err := do()
		if err == nil || errors.As(err, new(*spool.Taken)) || errors.Is(err, format.ErrRefused) ||
			postgres.Unfit(err) || ctx.Err() != nil {
			return err
		}
		if now := c.Now(); now.Sub(said) >= 10*time.Second {
			said = now
			c.Log.Warn(what, "error", err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

func (c *Config) fits(ctx context.Context) (forgotten bool, err error) {
	if c.Fit == nil {
		return true, nil
	}
	return c.Fit(ctx)
}

// refusal is format.ErrRefused.
type refusal struct{ error }

func (r refusal) Unwrap() error      { return r.error }
func (refusal) Is(target error) bool { return target == format.ErrRefused }

// Database opens that of a configuration's cluster.
func Database(cfg *config.Config) (*postgres.Engine, error) {
	return postgres.Open(postgres.Config{Database: string(cfg.Cluster.Database), Replicated: cfg.Cluster.Replicated,
		Most: connections})
}

// connections to the database are two: one whose host is gone is closed after ten seconds only.
const connections = 2

// MarkOf is the file that names the log of a configuration's queue. Without it the directory has none.
func MarkOf(cfg *config.Config) string { return cfg.Cluster.Path + "-copy" }

// Of opens the copy of a configuration's queue, nil if there is to be none: then one that was is ended. The queue
// stands on the file system fs, nil: the operating system's. ctx may be nil.
func Of(ctx context.Context, cfg *config.Config, fs vfs.FS, now func() time.Time, log *slog.Logger) (*Replica, error) {
	k := &cfg.Cluster
	c := Config{Dir: datadir.Queue(cfg), Mark: MarkOf(cfg), FS: fs, Now: now, Log: log,
		Zone: k.Zone, Takeover: k.Takeover, Aside: filepath.Join(cfg.DataDir, "superseded"),
		Files: []string{k.Path, k.Path + "-moving"}}
	m, err := readMark(c.Mark)
	switch {
	case err != nil || m.Next == 0 && !k.Replicate:
		return nil, err
	case !k.On():
		return nil, refusal{fmt.Errorf("the queue in %s has a copy in the database of a cluster, from which another "+
			"node could deliver it, too: start this relay once with the cluster block, without 'replicate'", c.Dir)}
	}
	own, err := tls.LoadX509KeyPair(k.Certificate, k.Key)
	if err == nil {
		_, c.Node, err = ca.Identity(own.Leaf)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.Certificate, err)
	}
	e, err := Database(cfg)
	if err != nil {
		return nil, err
	}
	c.Engine, c.Fit = e, func(ctx context.Context) (bool, error) { return membership.Newest(ctx, e, k.Path, c.Node) }
	c.Forget = func(ctx context.Context) error { return membership.Forget(ctx, e, c.Node) }
	if c.Clock, _, err = node.Boot(); err != nil {
		return nil, err
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if k.Replicate {
		return Open(ctx, c)
	}
	defer c.Engine.Close()
	return nil, End(ctx, c)
}
