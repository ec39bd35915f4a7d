package accounting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"example.org/mta/internal/linelog"
	"example.org/mta/queue/vfs"
)

// Config is how a Writer is made.
type Config struct {
	Dir    string // is made when it is not there
	NodeID string // goes into each record
	Limits Limits
	Buffer int // octets of records that can wait for the disk; 0: 16 MiB
	// AwaitKeep has no file deleted before Keep is called: readers that need files may not be there yet.
	AwaitKeep bool

	Now func() time.Time // nil: time.Now
	Log *slog.Logger     // nil: nowhere

	Open linelog.Opener // of its files; nil: the OS; for tests
}

// Limits say when a file ends and when it is deleted. A zero field is no limit.
type Limits struct {
	RotateSize  int64         // octets of a file
	RotateEvery time.Duration // files end at whole multiples of it, in UTC
	Keep        time.Duration // age of the youngest record of a file
	KeepSize    int64         // octets of all files together
	Compress    bool          // compress finished files
}

const (
	defaultBuffer = 16 << 20
	// writeDelay is how long records are collected for one write and one sync. Outcomes wait as long before
	// they are noted in the queue, so a crash repeats those of that time.
	writeDelay = 50 * time.Millisecond
	// writeAtOnce octets don't wait for writeDelay.
	writeAtOnce = 1 << 20
	// retryDelay is how long a disk that failed is left alone.
	retryDelay = time.Second
	// longestRest is how long the writer sleeps at most while it has nothing to do.
	longestRest = 10 * time.Minute
	// checkEvery is how often the writer looks whether its file was taken away by somebody else.
	checkEvery = time.Second
	// longestHold is how long a disk that doesn't answer can hold up outcomes.
	longestHold = 5 * time.Second
	// mostSpoiled bounds the memory for damaged records.
	mostSpoiled = 10_000
	// complainEvery bounds how often the same trouble is told.
	complainEvery = time.Minute
)

// Writer appends records to a log. It is safe for use by many goroutines. Adding a record never
// waits for the disk: when the disk is slow or full for so long that the buffer is full, records
// are dropped, counted, and reported in the log and by a record of the type Lost. A nil Writer, of a relay
// without a log, drops all, and counts nothing.
type Writer struct {
	cfg  Config
	dir  linelog.Dir
	node string // NodeID as JSON

	mu struct {
		sync.Mutex
		waiting []byte   // whole lines that are not written yet
		records int      // their number
		after   []func() // to be called once what is waiting is durable
		held    []func() // to be called once what is being written is durable
		writing bool     // some lines are being written
		writes  uint64   // counts them
		stuck   bool     // the disk takes longer than outcomes can wait
		synced  Position
		watches map[chan struct{}]struct{}
		spare   []byte // the buffer of the last write, for use again
		lost    int64  // records dropped and not told of
		limits  Limits
		stats   Stats
		spoiled map[Position]struct{} // damaged records that readers have found
		closed  bool
	}
	wake    chan struct{} // has room for one: there is something to write
	urgent  chan struct{} // has room for one: it is much
	changed chan struct{} // has room for one: the limits are others
	flushes chan chan error
	stop    chan struct{}
	ended   chan struct{}
	keeper  *keeper
	// has room for one: somebody counts records, with all cores
	counting chan struct{}
	lock     io.Closer
	failed   error // what Close returns; written before ended is closed

	// What follows is owned by the goroutine.
	out     linelog.Output
	pending []byte    // whole lines that a write has left over; they go before those that wait
	records int       // their number
	retryAt time.Time // after a failure, when to write again
	told    time.Time // when the log last heard of trouble
	untold  int64     // records that were dropped since
}

// Stats is what a Writer has done since it was opened.
type Stats struct {
	Written int64 // records
	Lost    int64 // records
	Waiting int   // octets in the buffer
	Failing bool  // the last write failed
	// Damaged is at how many places readers of the relay have found records damaged on disk, or missing, each counted
	// once, up to 10,000. LastDamage is the last of them.
	Damaged    int64
	LastDamage string
}

// Open begins or goes on with a log.
func Open(cfg Config) (*Writer, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Buffer <= 0 {
		cfg.Buffer = defaultBuffer
	}
	if cfg.Open == nil {
		cfg.Open = linelog.OpenOS
	}
	if err := linelog.MakeDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("making the accounting directory: %w", err)
	}
	w := &Writer{
		cfg: cfg, node: string(quote(nil, cfg.NodeID)),
		wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		counting: make(chan struct{}, 1),
		flushes:  make(chan chan error),
		stop:     make(chan struct{}), ended: make(chan struct{}),
		dir: logDir(cfg.Dir),
	}
	w.out = linelog.Output{Dir: w.dir, Open: cfg.Open, Now: cfg.Now, Stamp: linelog.Stamp, Begun: w.begun,
		CheckEvery: checkEvery}
	w.mu.limits = cfg.Limits
	if err := w.lockDir(); err != nil {
		return nil, err
	}
	w.keeper = newKeeper(w)
	if err := w.resume(); err != nil {
		w.lock.Close()
		return nil, err
	}
	w.mu.synced, w.mu.watches = w.out.Durable(), make(map[chan struct{}]struct{})
	go w.run()
	go w.keeper.run()
	return w, nil
}

// resume goes on with the newest file that is there.
func (w *Writer) resume() error {
	files, err := w.dir.Files()
	if w.keeper.known = files; err != nil || len(files) == 0 {
		return err
	}
	newest := files[len(files)-1]
	end, err := w.dir.EndOf(newest)
	if err != nil {
		return fmt.Errorf("looking at the newest accounting file: %w", err)
	}
	if err := w.out.Resume(newest, end.Size); err != nil {
		return err
	}
	from, to := lostEnd(w.dir, newest)
	switch at := (Position{File: newest.ID(), Offset: end.End}); {
	case from < to:
		w.spoiled(Position{File: newest.ID(), Offset: from})
		return w.out.Leave(end.End) // no position is used again
	case len(end.Rest) > 0 && (!end.Claims(newest) || w.out.EndLine() != nil):
		w.cfg.Log.Warn("the last accounting record is incomplete, as a crash leaves it; the next begins another file",
			"at", placeOf(w.dir, at))
		return w.out.Leave(end.End)
	}
	if err := w.out.Settle(); err != nil {
		return err
	}
	if w.limit(); w.out.Ended() {
		_, err = w.out.Close()
	}
	return err
}

// begun has the newest file looked after, and found.
func (w *Writer) begun(f linelog.File) {
	w.keeper.begun(f)
	if err := point(w.cfg.Dir, f); err != nil {
		w.cfg.Log.Warn("the link to the newest accounting file can't be made", "error", err)
	}
}

// lockDir makes sure that no other process writes to the log: positions would be wrong.
func (w *Writer) lockDir() (err error) {
	w.lock, err = vfs.OS().Lock(filepath.Join(w.cfg.Dir, lockName))
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf(
			"%s is in use by another relay: stop that one, or set another data_dir or accounting { path }: %w",
			w.cfg.Dir, err)
	}
	return err
}

const lockName = "lock"

// encoders keeps encoders for reuse.
var encoders = sync.Pool{New: func() any { return &encoder{line: make([]byte, 0, 2048)} }}

// Add writes r down, soon. It never blocks and does not keep r.
func (w *Writer) Add(r *Record) {
	if w != nil {
		w.add(r)
	}
}

func (w *Writer) add(r *Record) bool {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	return w.enqueue(e.encode(r, w.node))
}

// enqueue reports false if there is no room for the line.
func (w *Writer) enqueue(line []byte) bool {
	w.mu.Lock()
	before := len(w.mu.waiting)
	if w.mu.closed || before+len(line) > w.cfg.Buffer {
		w.mu.lost++
		w.mu.stats.Lost++
		w.mu.Unlock()
		return false
	}
	w.mu.waiting = append(w.mu.waiting, line...)
	w.mu.records++
	after := len(w.mu.waiting)
	w.mu.Unlock()
	if before == 0 {
		signal(w.wake)
	}
	if before < writeAtOnce && after >= writeAtOnce {
		signal(w.urgent)
	}
	return true
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// SetLimits brings other limits into force.
func (w *Writer) SetLimits(l Limits) {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.mu.limits = l
	w.mu.Unlock()
	signal(w.changed)
	signal(w.keeper.changed)
}

// Keep has files kept, whatever the limits say, from the position on that needed returns; false is nothing. It
// is called now and then from another goroutine.
func (w *Writer) Keep(needed func() (Position, bool)) {
	w.keeper.mu.Lock()
	w.keeper.needed = needed
	w.keeper.mu.Unlock()
	signal(w.keeper.changed)
}

// Stats returns what was done so far.
func (w *Writer) Stats() Stats {
	if w == nil {
		return Stats{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.mu.stats
	s.Waiting = len(w.mu.waiting)
	return s
}

// spoiled notes that a record at a position is damaged.
func (w *Writer) spoiled(at Position) {
	place := placeOf(w.dir, at)
	w.mu.Lock()
	_, known := w.mu.spoiled[at]
	if known = known || len(w.mu.spoiled) >= mostSpoiled; !known {
		if w.mu.spoiled == nil {
			w.mu.spoiled = make(map[Position]struct{})
		}
		w.mu.spoiled[at] = struct{}{}
		w.mu.stats.Damaged, w.mu.stats.LastDamage = int64(len(w.mu.spoiled)), place
	}
	w.mu.Unlock()
	if !known {
		w.cfg.Log.Error("DAMAGE: accounting records are missing, or not what was written and left out", "at", place)
	}
}

// placeOf names a position in a log, for people: the octet in the file before it was compressed.
func placeOf(d linelog.Dir, at Position) string {
	return fmt.Sprintf("octet %d of %s", at.Offset, d.At(time.Unix(at.File, 0)).Path)
}

// Flush waits until all that was added before is durable, and what waited for that was called, or until it
// could not be written.
func (w *Writer) Flush(ctx context.Context) error {
	if w == nil {
		return nil
	}
	done := make(chan error, 1)
	select {
	case w.flushes <- done:
	case <-w.ended:
		return w.failed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-w.ended:
		return w.failed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ErrFull is returned by Durable for records that find no room in memory, as the disk takes none.
var ErrFull = errors.New("the memory for accounting records is full")

// Durable adds records and returns when they are on stable storage. After an error some may be there, now or
// later.
func (w *Writer) Durable(ctx context.Context, records ...*Record) error {
	for _, r := range records {
		if !w.add(r) {
			return ErrFull
		}
	}
	return w.Flush(ctx)
}

// Close writes what is waiting and ends the log. The error has what could not be written.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	first := !w.mu.closed
	w.mu.closed = true
	w.mu.Unlock()
	if first {
		close(w.keeper.stop)
		close(w.stop)
	}
	<-w.ended
	<-w.keeper.ended
	if first {
		if err := w.keeper.close(); err != nil {
			w.keeper.complain("the accounting log can't be indexed; finding a message takes longer", err)
		}
		w.lock.Close()
	}
	return w.failed
}
