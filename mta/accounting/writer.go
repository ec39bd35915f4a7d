package accounting

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Config is how a Writer is made.
type Config struct {
	Dir    string // is made when it is not there
	NodeID string // goes into each record
	Limits Limits
	Buffer int // octets of records that can wait for the disk; 0: 16 MiB

	Now func() time.Time // nil: time.Now
	Log *slog.Logger     // nil: nowhere

	open opener // nil: the OS; for tests
}

// Limits say when a file ends and when it is deleted. A zero field is no limit.
type Limits struct {
	RotateSize  int64         // octets of a file
	RotateEvery time.Duration // files end at whole multiples of it, in UTC
	Keep        time.Duration // age of the youngest record of a file
	KeepSize    int64         // octets of all files together
}

const (
	defaultBuffer = 16 << 20
	// writeDelay is how long records are collected for one write. What a crash of the process
	// takes along is what came in that time.
	writeDelay = 20 * time.Millisecond
	// writeAtOnce octets don't wait for writeDelay.
	writeAtOnce = 256 << 10
	// retryDelay is how long a disk that failed is left alone.
	retryDelay = time.Second
	// sweepEvery is how often old files are looked for.
	sweepEvery = 10 * time.Minute
	// complainEvery bounds how often the same trouble is told.
	complainEvery = time.Minute
)

// Writer appends records to a log. It is safe for use by many goroutines. Adding a record never
// waits for the disk: when the disk is slow or full for so long that the buffer is full, records
// are dropped, counted, and told of in the log and by a record of the type Lost.
type Writer struct {
	cfg  Config
	node string // NodeID as JSON

	mu struct {
		sync.Mutex
		waiting []byte // whole lines that are not written yet
		spare   []byte // the buffer of the last write, for use again
		lost    int64  // records dropped and not told of
		limits  Limits
		stats   Stats
		closed  bool
	}
	wake    chan struct{} // has room for one: there is something to write
	urgent  chan struct{} // has room for one: it is much
	changed chan struct{} // has room for one: the limits are others
	flushes chan chan error
	stop    chan struct{}
	ended   chan struct{}
	failed  error // what Close returns; written before ended is closed

	// What follows is owned by the goroutine.
	out     output
	pending []byte    // whole lines that a write has left over; they go before those that wait
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
	if cfg.open == nil {
		cfg.open = openOS
	}
	if err := os.MkdirAll(cfg.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("making the accounting directory: %w", err)
	}
	w := &Writer{
		cfg: cfg, node: string(quote(nil, cfg.NodeID)),
		wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1), changed: make(chan struct{}, 1), flushes: make(chan chan error),
		stop: make(chan struct{}), ended: make(chan struct{}),
		out: output{dir: cfg.Dir, open: cfg.open, log: cfg.Log, now: cfg.Now},
	}
	w.mu.limits = cfg.Limits
	if err := w.out.resume(cfg.Limits); err != nil {
		return nil, err
	}
	go w.run()
	return w, nil
}

// encoders keeps encoders for reuse.
var encoders = sync.Pool{New: func() any { return &encoder{line: make([]byte, 0, 2048)} }}

// Add writes r down, soon. It never blocks and does not keep r.
func (w *Writer) Add(r *Record) {
	e := encoders.Get().(*encoder)
	w.enqueue(e.encode(r, w.node))
	encoders.Put(e)
}

func (w *Writer) enqueue(line []byte) {
	w.mu.Lock()
	before := len(w.mu.waiting)
	if w.mu.closed || before+len(line) > w.cfg.Buffer {
		w.mu.lost++
		w.mu.stats.Lost++
		w.mu.Unlock()
		return
	}
	w.mu.waiting = append(w.mu.waiting, line...)
	after := len(w.mu.waiting)
	w.mu.Unlock()
	if before == 0 {
		signal(w.wake)
	}
	if before < writeAtOnce && after >= writeAtOnce {
		signal(w.urgent)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// SetLimits brings other limits into force.
func (w *Writer) SetLimits(l Limits) {
	w.mu.Lock()
	w.mu.limits = l
	w.mu.Unlock()
	signal(w.changed)
}

// Stats tells what was done so far.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.mu.stats
	s.Waiting = len(w.mu.waiting)
	return s
}

// Flush waits until all that was added before is in the file, or could not be written.
func (w *Writer) Flush(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case w.flushes <- done:
		return <-done
	case <-w.ended:
		return w.failed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close writes what is waiting and ends the log. The error tells what could not be written.
func (w *Writer) Close() error {
	w.mu.Lock()
	first := !w.mu.closed
	w.mu.closed = true
	w.mu.Unlock()
	if first {
		close(w.stop)
	}
	<-w.ended
	return w.failed
}
