// Package queue keeps accepted messages on stable storage until each recipient has a final
// outcome, and knows at any time what each of them is doing. It knows no SMTP and no network.
//
// The way of a message: Begin gives a Draft that takes the content, Draft.Commit returns when
// message and envelope are durable. Next hands out Leases: what is due, expired, to be bounced or
// to be warned about. A leased recipient comes back by Settle (it is done), Defer (a later
// attempt), Park (it waits under a key until Take asks for that key) or Return (due again).
// Change and Stats are the operator's, and so is all of View: listings, summaries, counts.
//
// On disk is a journal of segments (package store); in memory is a table of 44 octets for each recipient that waits
// (package schedule). docs/queue.md has the format, and a table of what happens at start for each state that the disk
// can be in.
//
// Long-lived goroutines, all started by Open, stopped and waited for by Close:
//
//	writer   owns the active segment; writes what waits as one group, syncs once, answers all
//	clock    moves what is due from the timer wheel to the due list; sweeps for what expired
//	janitor  owns the sealed segments: trims, indexes, compacts and deletes them
//
// Locks, outer first: Queue.mu (schedule, accounts of the segments, counters), writer.mu (what
// waits to be written), fileCache.mu. None is held while the disk works.
package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/fair"
	"example.org/mta/internal/reply"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/view"
)

// form is the version to write records in.
func (q *Queue) form() uint8 {
	if q.cfg.Format == nil {
		return store.CodecVersion
	}
	return uint8(q.cfg.Format())
}

// Errors that Commit and others wrap. All of them are this relay's own trouble: the client is to try again later.
var (
	ErrClosed   = errors.New("queue is closed")
	ErrDiskFull = store.ErrDiskFull
	ErrStorage  = store.ErrStorage
	// ErrUnknown is returned for a message, or a recipient, that is not in the queue or not in the state that the call
	// is for.
	ErrUnknown = view.ErrUnknown
	// ErrDamaged is returned for what is in the queue and can't be read.
	ErrDamaged = store.ErrDamaged
	// ErrLocked is returned by Open when another process has the directory.
	ErrLocked = store.ErrLocked
)

// Attempt is what is remembered of an attempt that failed.
type Attempt = store.Attempt

// Config is what a queue is made from. Dir is the only field that must be set.
type Config struct {
	Dir string
	FS  vfs.FS           // nil: the operating system's
	Now func() time.Time // nil: time.Now
	Log *slog.Logger     // nil: nothing is logged

	// Format returns the version to write records in, of those in [Format]. It is asked for each record. Nil: the
	// newest.
	Format func() int

	SegmentSize int64 // octets of a journal segment, up to 128 MiB; 0: 64 MiB
	LargeBody   int64 // contents above this have their own file; 0: 256 KiB
	CacheBytes  int64 // memory for envelopes and contents of what is due; 0: 64 MiB
	// MinFree is octets of the disk that no message may take, 0: two segments. Half as many again are
	// kept free of contents that have their own file, so that they leave room for small mail.
	MinFree int64

	// MaxAge returns how long any mail may stay; 0 is for ever. What may not stay so long is the affair of
	// who takes it, see Park. It is called again and again, so a change takes effect at once. It must not
	// call the queue. Nil: nothing expires.
	MaxAge func() time.Duration
	// Frozen reports whether nothing may be delivered now, since what becomes of it would not be known elsewhere. Nil:
	// nobody else needs that.
	Frozen func() bool
	// ReadOnly leaves each octet of the directory as it is, damage included. Nothing may be handed out, and what would
	// change the queue fails.
	ReadOnly bool
	// Leaving is given for a queue that is open for its mail to leave: nobody calls Next, nothing expires, and
	// recipients that an operator has bounced leave like others, with this as their last reply. May be nil.
	Leaving *reply.Reply
	// OnRemoved is called with the recipients that an operator's Remove or Transfer, or their sender's Cancel, takes
	// out, with that in Asked: at once or, for leased ones, when they come back; and at Open for those that had not
	// come back. They are handed out no more, but stay in the queue until recorded is called, soon and on any
	// goroutine: a crash before that leaves them in the queue, or has OnRemoved called again. No lock is held. Nil:
	// they go at once.
	OnRemoved func(items []Item, recorded func())
	// OnUnreadable is called when the envelope of a message turns out to be damaged: there is no sender
	// to notify, only the operator. recipients is how many are still in the queue. No lock is held. May
	// be nil.
	OnUnreadable func(id envelope.ID, recipients int, err error)
	// IdempotencyKeys is how many keys of requests are remembered, and how many of imports, up to 16,777,214; 0: a
	// million. When there are more the oldest is forgotten.
	IdempotencyKeys int
	// DelayAfter returns the least age at which any sender is notified of a delay; 0: never. See WarnAt for those
	// of a greater age. Nil: 0.
	DelayAfter func() time.Duration
}

func (c *Config) setDefaults() error {
	if c.Dir == "" {
		return errors.New("queue: no directory is given")
	}
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	if c.ReadOnly {
		c.FS = vfs.ReadOnly(c.FS)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.SegmentSize == 0 {
		c.SegmentSize = 64 << 20
	}
	if c.SegmentSize < minSegmentSize || c.SegmentSize > schedule.MaxOffset {
		return fmt.Errorf("queue: segment size of %d octets: want %d to %d", c.SegmentSize, minSegmentSize,
			schedule.MaxOffset)
	}
	if c.LargeBody == 0 {
		c.LargeBody = 256 << 10
	}
	c.LargeBody = min(c.LargeBody, c.SegmentSize/4)
	if c.CacheBytes == 0 {
		c.CacheBytes = 64 << 20
	}
	if c.MinFree == 0 {
		c.MinFree = 2 * c.SegmentSize
	}
	if c.IdempotencyKeys == 0 {
		c.IdempotencyKeys = 1_000_000
	}
	if c.IdempotencyKeys < 0 || c.IdempotencyKeys > schedule.MaxKeys {
		return fmt.Errorf("queue: %d idempotency keys: want 1 to %d", c.IdempotencyKeys, schedule.MaxKeys)
	}
	return nil
}

const minSegmentSize = 4 << 10

// OfNode has the ids of messages from now on end with the number of a cluster's node.
func (q *Queue) OfNode(number uint16) { q.ids.OfNode(number) }

// Queue is an open queue. Its methods are safe for use by many goroutines.
type Queue struct {
	cfg      Config
	log      *slog.Logger
	failures store.Failures
	now      func() time.Time
	lock     io.Closer
	dir      *store.Dir
	w        *writer
	ids      envelope.IDs

	largeSeq atomic.Uint64 // the last number given to a content's file
	free     freeSpace
	scratch  sync.Pool // of *scratch

	stop    context.CancelFunc // ends clock and janitor
	stopped sync.WaitGroup     // clock and janitor
	kick    struct{ clock, janitor chan struct{} }

	due *sync.Cond // with mu: there may be something for Next

	*view.View // of what is queued

	mu     sync.Mutex         // guards all below
	closed bool               // nothing is handed out any more
	ended  bool               // no outcome is taken any more
	s      *schedule.Schedule // all that waits
	ready  ready
	cache  cache
	rcpts  rcpts
	few    few
	clock  clockWatch
	// keyTables are the keys of clients' requests, those of imported messages, and those that imports have stored under
	// the key of a tenant: a whole queue that comes in, and the keys of another relay, push out nothing that clients
	// and operators rely on. The request of an import is named by its key.
	keyTables [3]*schedule.KeyTable
	segs      store.Segments
	files     files
	health    health
	count     counters
}

// ready is what Next hands out, and in which order.
type ready struct {
	fresh     [envelope.TierCount]schedule.List // due, never attempted; by tier
	backlog   [envelope.TierCount]schedule.List // due again; by tier
	tiers     envelope.TierTurns                // whose turn of those it is
	ending    schedule.List                     // expired, or bounced by an operator
	wasEnding bool                              // what was handed out last
	turn      bool                              // something fresh was handed out last, and not of the backlog
	thawing   bool                              // Next looks again in a second
	warnings  []warning                         // for Next to hand out
	unsent    []warning                         // that could not be sent, for another try
	early     []warning                         // that are not to be sent before their time
}

// rcpts is what is in memory alone of some recipients.
type rcpts struct {
	replies  map[recipientKey]Attempt  // of deferrals that are not written yet
	detours  map[recipientKey]detour   // of leased recipients
	followed map[recipientKey]*Outcome // of recipients that were leased when they were cancelled
}

// few is what few living messages have, by id.
type few struct {
	moves    map[uint64]store.Plan // another release than their records have
	large    map[uint64]largeBody  // a content with its own file
	broken   map[uint64]bool       // a content that is damaged; true when they were handed out as that
	expiries expiries              // a time at which they are given up
	waits    waits                 // until when they wait in lines
	recalled waits                 // until when they wait to leave for another relay
}

// files is which files may be removed.
type files struct {
	done      []uint64               // contents that can be removed
	void      []uint64               // contents that can be removed once the journal can be written
	snapshots map[*Snapshot]struct{} // open ones; while there are any no file is deleted
}

// health is whether the journal can be written.
type health struct {
	stalled chan struct{} // closed when it can be again; nil while it can be
	fault   error         // why it can't, or couldn't last
}

type recipientKey struct {
	id   uint64
	rcpt uint16
}

type largeBody struct {
	number uint64
	size   int64
}

// Open opens the queue in a directory, which it makes if need be, and brings back what was in
// it. Damage is logged, counted in Stats and no error.
func Open(cfg Config) (*Queue, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	q := &Queue{
		cfg: cfg, log: cfg.Log, now: cfg.Now,
		cache: cache{hot: map[uint64]*hot{}, limit: cfg.CacheBytes},
		rcpts: rcpts{map[recipientKey]Attempt{}, map[recipientKey]detour{}, map[recipientKey]*Outcome{}},
		few:   few{moves: map[uint64]store.Plan{}, large: map[uint64]largeBody{}, broken: map[uint64]bool{}},
		files: files{snapshots: map[*Snapshot]struct{}{}},
	}
	for i := range q.keyTables {
		q.keyTables[i] = schedule.NewKeyTable(cfg.IdempotencyKeys)
	}
	q.failures = store.NewFailures(q.log, q.now)
	q.scratch.New = newScratch
	q.due = sync.NewCond(&q.mu)
	q.kick.clock, q.kick.janitor = make(chan struct{}, 1), make(chan struct{}, 1)
	q.dir = store.NewDir(cfg.Dir, cfg.FS, q.inUse)
	q.resetSchedule()
	q.View = view.New(looks{q}, q.dir, q.now, &q.mu, q.s)
	if err := q.lockDir(); err != nil {
		return nil, err
	}
	q.free.promised = fair.NewPool[fair.Party](0)
	q.freeOctets() // so that nobody finds the answer missing
	last, err := q.recover()
	if err != nil {
		q.lock.Close()
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	q.stop = stop
	q.w = newWriter(q, last)
	go q.w.run()
	if cfg.ReadOnly {
		return q, nil
	}
	q.stopped.Go(func() { q.runClock(ctx) })
	q.stopped.Go(func() { q.runJanitor(ctx) })
	q.finishRemovals()
	return q, nil
}

func (q *Queue) resetSchedule() {
	q.s = schedule.NewSchedule(q.passed())
	q.ready.ending = q.s.NewList()
	for tier := range q.ready.fresh {
		q.ready.fresh[tier], q.ready.backlog[tier] = q.s.NewList(), q.s.NewList()
	}
}

func (q *Queue) lockDir() (err error) {
	for _, dir := range []string{q.cfg.Dir, q.dir.Path(store.LargeDir), q.dir.Path(store.DamagedDir)} {
		if err := q.dir.FS.MkdirAll(dir); err != nil {
			return fmt.Errorf("queue: making directory: %w", err)
		}
	}
	q.lock, err = q.dir.FS.Lock(q.dir.Path(store.LockName))
	if errors.Is(err, ErrLocked) {
		return fmt.Errorf("queue: %s is in use by another relay: stop that one, or set another data_dir: %w", q.cfg.Dir,
			err)
	}
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	return nil
}

// Close writes what waits to be written, stops the goroutines and gives the directory free.
// Nexts and Commits under way end with ErrClosed. Leased recipients should have come back before:
// from now on Settle and Defer fail, and those recipients are due again at the next Open. An
// error says what a new start will not know.
func (q *Queue) Close() error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return ErrClosed
	}
	q.closed = true
	q.due.Broadcast()
	q.mu.Unlock()
	q.stop()
	q.stopped.Wait()
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	err := q.w.close()
	q.dir.Files.Close()
	if lerr := q.lock.Close(); err == nil {
		err = lerr
	}
	return err
}

// seconds is the time as the schedule has it.
func (q *Queue) seconds() uint32 { return store.SecondsOf(q.now()) }

// passed is the last whole second: what is due by then may be handed out.
func (q *Queue) passed() uint32 { return uint32(q.now().Unix()) }

func (q *Queue) nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Writable waits while the journal can't be written: what is handed out then is done once more if the
// process ends before. Next waits by itself; it is for who takes from under a key. The error is the
// context's.
func (q *Queue) Writable(ctx context.Context) error {
	q.mu.Lock()
	stalled := q.health.stalled
	q.mu.Unlock()
	if stalled == nil {
		return ctx.Err()
	}
	select {
	case <-stalled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
