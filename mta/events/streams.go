package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"example.org/mta/mta/accounting"
)

const (
	// commitEvery is how often cursors are written, at most. After a kill, what was answered since is sent again.
	commitEvery = 50 * time.Millisecond
	// commitAgain is how long a disk that failed is left alone.
	commitAgain = time.Second
	// checkpointEvery is how often the cursors of streams move that have nothing to send.
	checkpointEvery = 15 * time.Second
	// lookEvery is how often the age of what waits is looked at.
	lookEvery = time.Minute
	// endWithin is how long a request may take whose stream is changed or removed.
	endWithin = 5 * time.Second
	// readersAtOnce is how many streams read files at a time.
	readersAtOnce = 2
	// keepRemoved is how long the cursor of a stream is kept that is no longer configured.
	keepRemoved = 7 * 24 * time.Hour
)

// Config is how Streams are made.
type Config struct {
	Log    Log
	Path   string           // of the file of cursors
	NodeID string           // as in the records
	Now    func() time.Time // nil: time.Now
	Chance func() float64   // 0 to 1, for the time between attempts; nil: math/rand
	Out    *slog.Logger     // nil: nowhere
}

// Streams are all streams of a relay, nil without a log.
//
// Long-lived goroutines: one reads the log, one writes cursors, one for each stream. Close stops them and waits.
type Streams struct {
	log     Log
	node    string
	now     func() time.Time
	chance  func() float64
	out     *slog.Logger
	cursors *cursors
	head    *head
	readers *semaphore.Weighted
	held    atomic.Int64 // octets of windows that wait to be sent again

	soft, hard         context.Context // end waits and new requests; requests that are under way
	stopSoft, stopHard context.CancelFunc
	running            sync.WaitGroup
	began              bool

	saving sync.Mutex // is held, before mu, while the file's part of old is written
	mu     sync.Mutex // is never held while a file is written
	all    map[string]*stream
	old    map[string]state // of streams that are not configured
	fresh  bool             // the file of cursors was lost: streams begin with the oldest record
	dirty  map[string]struct{}
	urgent chan struct{} // has room for one: cursors moved
	broken string        // why cursors can't be written
}

// Open opens the file of cursors. Nothing is sent before Start.
func Open(cfg Config) (*Streams, error) {
	s := &Streams{
		log: cfg.Log, node: cfg.NodeID, now: cfg.Now, chance: cfg.Chance, out: cfg.Out,
		readers: semaphore.NewWeighted(readersAtOnce),
		all:     make(map[string]*stream), dirty: make(map[string]struct{}), urgent: make(chan struct{}, 1),
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.chance == nil {
		s.chance = rand.Float64
	}
	s.out = cmp.Or(s.out, slog.New(slog.DiscardHandler))
	c, err := openCursors(cfg.Path, s.now, s.out)
	if err != nil {
		return nil, err
	}
	if s.old, err = c.load(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	if c.file.Damage() != nil {
		s.fresh = true
		s.out.Error("the cursors of streams were damaged: streams whose cursor is lost begin with the oldest record")
	}
	s.cursors = c
	s.head = newHead(s.log, s.node, s.now, s.chance, s.out)
	s.soft, s.stopSoft = context.WithCancel(context.Background())
	s.hard, s.stopHard = context.WithCancel(context.Background())
	return s, nil
}

// Start begins to send. Streams that Set adds later begin at once.
func (s *Streams) Start() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = true
	s.head.begin(s.nearest())
	s.running.Go(func() { s.head.run(s.soft) })
	s.running.Go(s.commit)
	for _, st := range s.all {
		go st.run()
	}
}

// nearest is the cursor that is farthest behind the head and still near it: the head begins there, so that after a
// restart not each stream reads the same records by itself.
func (s *Streams) nearest() Position {
	head := s.log.Synced()
	first := head
	for _, st := range s.all {
		if at, _, _ := st.cursor(); at.Compare(first) < 0 && s.log.Octets(at, head) <= nearBytes {
			first = at
		}
	}
	return first
}

// Set brings other settings into force: new streams begin, those that are gone end, and those that
// changed go on from their cursors. After an error all is as before.
func (s *Streams) Set(settings []Settings) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	begun, err := s.open(settings)
	if err != nil {
		s.mu.Unlock()
		return err
	}
	var ended []*stream
	keep, anew := make(map[string]bool), make(map[string]bool)
	for i := range settings {
		keep[settings[i].Name] = true
	}
	for _, st := range begun {
		anew[st.Name] = true
	}
	for name, st := range s.all {
		if !keep[name] || anew[name] {
			ended = append(ended, st)
		}
	}
	running := s.began
	s.mu.Unlock()
	if running {
		halt(ended)
	}
	kept := make(map[string]state, len(ended))
	for _, st := range ended {
		kept[st.Name] = s.end(st, !keep[st.Name])
	}
	if err := s.cursors.save(kept); err != nil {
		s.out.Error("the cursors of streams that changed can't be written", "streams", len(kept), "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range begun {
		s.begin(st)
	}
	return nil
}

// Check returns the error with which Set would refuse settings.
func (s *Streams) Check(settings []Settings) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	begun, err := s.open(settings)
	closeSinks(begun)
	return err
}

// open makes the streams that settings have and s has not, all or none. Callers hold s.mu.
func (s *Streams) open(settings []Settings) (begun []*stream, err error) {
	for _, set := range settings {
		if old := s.all[set.Name]; old != nil && old.Settings.equal(&set) {
			continue
		}
		sink, err := set.Open()
		if err != nil {
			closeSinks(begun)
			return nil, fmt.Errorf("stream %q: %w", set.Name, err)
		}
		begun = append(begun, &stream{Settings: set, of: s, sink: sink, sh: set.shape(), changed: make(chan struct{}),
			done: make(chan struct{})})
	}
	return begun, nil
}

func closeSinks(all []*stream) {
	for _, st := range all {
		_ = st.sink.Close()
	}
}

// halt stops streams, all at the same time: their receivers may all hang.
func halt(all []*stream) {
	for _, st := range all {
		st.stop()
	}
	slow := time.AfterFunc(endWithin, func() {
		for _, st := range all {
			st.cut()
		}
	})
	defer slow.Stop()
	for _, st := range all {
		<-st.done
	}
}

// end gives the state of a stream that was stopped.
func (s *Streams) end(st *stream, removed bool) state {
	st.stop()
	st.cut()
	s.settle(st)
	s.head.leave(st.member)
	_ = st.sink.Close()
	kept := st.state()
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	if removed {
		kept.Removed = s.now()
		delete(s.all, st.Name) // else it still needs files, until begin replaces it
		delete(s.dirty, st.Name)
	}
	s.old[st.Name] = kept
	s.mu.Unlock()
	return kept
}

// begin starts a stream where it was, or where a new one begins. It needs the lock.
func (s *Streams) begin(st *stream) {
	kept, known := s.old[st.Name]
	at, err := accounting.ParsePosition(kept.At)
	switch {
	case known && err == nil:
		st.at, st.gap, st.paused, st.since = s.within(st.Name, at), kept.Gap, kept.Paused, kept.Since
	case st.Oldest || s.fresh || known:
		if st.at, err = s.log.Since(time.Time{}); err != nil {
			st.at = s.log.Synced()
		}
		st.since = s.now()
	default:
		st.at, st.since = s.log.Synced(), s.now()
	}
	delete(s.old, st.Name)
	st.counts.sentAt = s.now()
	st.member = s.head.enter(st.sh)
	st.soft, st.stop = context.WithCancel(s.soft)
	st.hard, st.cut = context.WithCancel(s.hard)
	s.all[st.Name] = st
	s.dirty[st.Name] = struct{}{}
	signal(s.urgent)
	if s.began {
		go st.run()
	}
}

// within returns the cursor of a stream, or an earlier position if the log ends before the cursor: the log was
// deleted and the clock set back, or a backup restored. Else nothing would be sent until the log is as long again.
func (s *Streams) within(name string, at Position) Position {
	end := s.log.Synced()
	if at.Compare(end) <= 0 || end == (Position{}) && at.File == 0 {
		return at
	}
	to := end
	if at.File != end.File {
		if oldest, err := s.log.Since(time.Time{}); err == nil {
			to = oldest
		}
	}
	s.out.Error("a stream was ahead of the accounting log, which must have been replaced; it goes back", "stream", name,
		"from", at, "to", to)
	return to
}

// save has a cursor written, soon if it is urgent.
func (s *Streams) save(st *stream, urgent bool) {
	s.mu.Lock()
	s.dirty[st.Name] = struct{}{}
	s.mu.Unlock()
	if urgent {
		signal(s.urgent)
	}
}

// commit writes cursors until the streams end.
func (s *Streams) commit() {
	checkpoint, look := time.NewTicker(checkpointEvery), time.NewTicker(lookEvery)
	defer checkpoint.Stop()
	defer look.Stop()
	for {
		wait := commitEvery
		select {
		case <-s.soft.Done():
			return
		case <-s.urgent:
			if !s.write() {
				wait = commitAgain
			}
		case <-checkpoint.C:
			for _, st := range s.list() {
				s.settle(st)
			}
			s.write()
			s.sweep()
		case <-look.C:
			for _, st := range s.list() {
				st.notify()
			}
		}
		select {
		case <-s.soft.Done():
			return
		case <-time.After(wait):
		}
	}
}

// settle moves the cursor of a stream that has nothing to send to where the head is.
func (s *Streams) settle(st *stream) {
	st.pass(func() (Position, bool) { return s.head.reached(st.member) })
}

// write writes the cursors that moved. It reports whether that went well.
func (s *Streams) write() bool {
	s.mu.Lock()
	states := make(map[string]state, len(s.dirty))
	for name := range s.dirty {
		if st := s.all[name]; st != nil {
			states[name] = st.state()
		}
	}
	clear(s.dirty)
	s.mu.Unlock()
	err := s.cursors.save(states)
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.broken
	if s.broken = ""; err == nil {
		return true
	}
	s.broken = err.Error()
	for name := range states {
		s.dirty[name] = struct{}{}
	}
	signal(s.urgent)
	if was == "" {
		s.out.Error("the cursors of streams can't be written: after a restart, events are sent again", "error", err)
	}
	return false
}

// sweep forgets streams that are gone for long. One that is configured again meanwhile has its cursor written after
// this, by the same goroutine.
func (s *Streams) sweep() {
	s.saving.Lock()
	defer s.saving.Unlock()
	now := s.now()
	marked, gone := make(map[string]state), []string(nil)
	s.mu.Lock()
	for name, st := range s.old {
		switch {
		case st.Removed.IsZero():
			st.Removed = now
			s.old[name], marked[name] = st, st
		case now.Sub(st.Removed) >= keepRemoved:
			gone = append(gone, name)
		}
	}
	s.mu.Unlock()
	if err := s.cursors.save(marked); err != nil {
		s.out.Warn("the cursors of removed streams can't be written; they are kept for longer", "error", err)
	}
	for _, name := range gone {
		if err := s.cursors.forget(name); err != nil {
			continue // at the next time
		}
		s.mu.Lock()
		delete(s.old, name)
		s.mu.Unlock()
	}
}

// list gives the streams by their names.
func (s *Streams) list() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*stream, 0, len(s.all))
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		all = append(all, s.all[name])
	}
	return all
}

// Needed is the oldest position that a stream has yet to read; ok is false without streams. Events that have
// waited for longer than their streams hold them are not needed.
func (s *Streams) Needed() (oldest Position, ok bool) {
	for _, st := range s.list() {
		at, _, _ := st.cursor()
		if to, idle := s.head.reached(st.member); idle && to.Compare(at) > 0 {
			at = to
		}
		if !ok || at.Compare(oldest) < 0 {
			oldest, ok = at, true
		}
	}
	return oldest, ok
}

// Close lets requests that are under way end, until ctx does, and writes the cursors.
func (s *Streams) Close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	s.stopSoft()
	ended := make(chan struct{})
	list := s.list()
	go func() {
		defer close(ended)
		for _, st := range list {
			if s.began {
				<-st.done
			}
		}
		s.running.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	s.stopHard()
	<-ended
	states := make(map[string]state, len(list))
	for _, st := range list {
		s.settle(st)
		states[st.Name] = st.state()
		_ = st.sink.Close()
	}
	return errors.Join(s.cursors.save(states), s.cursors.close())
}

// backoff is how long to wait after so many failures in a row.
func (s *Streams) backoff(tries int, failure error) time.Duration {
	var later *Later
	if errors.As(failure, &later) {
		return max(firstRetry, min(later.After, longestAfter))
	}
	wait := lastRetry
	if tries < 10 {
		wait = firstRetry << (tries - 1)
	}
	return min(lastRetry, wait+time.Duration(s.chance()*float64(wait)/2))
}
