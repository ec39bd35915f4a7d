package events

import (
	"context"
	"errors"
	"sync"
	"time"

	"example.org/mta/mta/accounting"
)

// Settings say what a stream sends where.
type Settings struct {
	Name    string
	To      string // for people
	Filter  Filter
	Batch   int // events in a batch, at most
	Lanes   int // batches under way at a time
	Linger  time.Duration
	Timeout time.Duration // of a batch with its answer; 0: the sink sees to it
	Hold    time.Duration // how long events wait for a receiver that takes none
	Format  string        // its name: streams of one format share encoded batches
	Oldest  bool          // a new stream begins with the oldest record, not with the next
	Open    func() (Sink, error)
	// Fingerprint differs when anything else does that Open depends on.
	Fingerprint string
}

func (s *Settings) shape() shape {
	return shape{filter: s.Filter, batch: s.Batch, lanes: s.Lanes, linger: s.Linger, format: s.Format}
}

// equal reports whether a stream can go on as it is. Functions can't be compared.
func (s *Settings) equal(o *Settings) bool {
	a, b := s.shape(), o.shape()
	return s.Fingerprint == o.Fingerprint && s.Timeout == o.Timeout && s.To == o.To && s.Hold == o.Hold &&
		a.key() == b.key()
}

// stream sends events to a receiver: it takes a window, sends its batches, moves the cursor to its end.
//
// One goroutine does so; each lane of a window has another while the window is sent.
type stream struct {
	Settings
	of     *Streams
	sink   Sink
	member *member
	sh     shape
	soft   context.Context // ends waits and new requests of this stream
	hard   context.Context // ends requests that are under way
	stop   context.CancelFunc
	cut    context.CancelFunc
	done   chan struct{}

	// follows: the stream takes its windows from the head. It belongs to the goroutine, as the next two.
	follows bool
	again   Position  // the end of a window that is read again since there was no memory to keep it; zero: none
	looked  time.Time // when events of a paused stream were last looked at for their age

	mu      sync.Mutex
	changed chan struct{} // closed and made anew when the goroutine should look at what is below
	at      Position      // everything before was answered
	gap     *gap
	paused  bool
	jump    *Position // where to go on, by an operator's wish
	since   time.Time // nothing is too old before it has waited since then
	hand    *window   // being sent
	counts  counts
}

// run sends until soft ends. Requests that are under way then may end, until hard ends.
func (s *stream) run() {
	defer close(s.done)
	ctx, hard := s.soft, s.hard
	for ctx.Err() == nil {
		w, err := s.next(ctx)
		if err == nil && w != nil {
			err = s.deliver(ctx, hard, w)
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, errReread):
			s.again = w.to
			w = nil
			s.part()
			s.pause(ctx, s.untilNext())
		case errors.Is(err, errAbandoned) || ctx.Err() != nil:
			s.part()
		default:
			s.part()
			s.pause(ctx, s.failed(err))
		}
	}
}

// part has the stream read files from its cursor on.
func (s *stream) part() {
	s.follows = false
	s.of.head.part(s.member)
	s.take(nil)
}

// state is what is kept of the stream.
func (s *stream) state() state {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := state{At: s.at.String(), Gap: s.gap, Paused: s.paused, Since: s.since}
	if s.jump != nil { // where the stream goes next
		is.At, is.Gap, is.Since = s.jump.String(), nil, s.of.now()
	}
	return is
}

// take notes the window in hand.
func (s *stream) take(w *window) {
	s.mu.Lock()
	s.hand = w
	s.mu.Unlock()
}

// next returns the next window, nil to be asked again.
func (s *stream) next(ctx context.Context) (*window, error) {
	changed, paused, jump := s.wishes()
	switch {
	case jump != nil:
		s.part()
		s.again = Position{}
		s.arrive(*jump)
		return nil, nil
	case paused:
		return nil, s.rest(ctx, changed)
	}
	if s.follows {
		w, err := s.member.take(ctx, s.of.head, s.disturbed)
		if w != nil {
			return s.fresh(w), nil
		}
		if !errors.Is(err, errBehind) {
			return nil, err
		}
		s.follows = false
	}
	w, err := s.fill(ctx)
	if err != nil {
		return nil, err
	}
	if g := s.owed(); g != nil {
		s.part() // what was read is read again behind the gap
		return s.gapWindow(g), nil
	}
	return w, nil
}

// fresh is a window of the head, unless the stream has sent some of it before: after a restart the head begins
// with the cursor that is farthest behind.
func (s *stream) fresh(w *window) *window {
	at, _, _ := s.cursor()
	if w.from.Compare(at) >= 0 {
		return w
	}
	if w.to.Compare(at) > 0 {
		s.part()
	}
	return nil
}

// rest waits while the stream is paused. What is too old meanwhile is left out, so that it keeps no files.
func (s *stream) rest(ctx context.Context, changed <-chan struct{}) error {
	if now := s.of.now(); now.Sub(s.looked) >= time.Minute {
		s.looked = now
		s.part()
		_, err := s.fill(ctx)
		s.part()
		if err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
	case <-changed:
	}
	return nil
}

// fill reads a window from files: a full one, or what there is up to where the head goes on. It is nil if
// there is nothing.
func (s *stream) fill(ctx context.Context) (*window, error) {
	from, _, _ := s.cursor()
	w := newWindow(&s.sh, from)
	for at := from; ; {
		limit, joined := s.of.head.join(s.member, at)
		if s.owed() != nil { // all that is too old is one gap: it is not left to the head
			limit, joined = s.of.log.Synced(), false
		}
		if s.again.Compare(from) > 0 && limit.Compare(s.again) > 0 {
			limit = s.again
		}
		full, next, err := s.read(ctx, at, limit, w)
		if err != nil {
			return nil, err
		}
		if at = next; w.events == 0 {
			s.pass(func() (Position, bool) { return at, true })
		}
		if _, _, jump := s.wishes(); jump != nil {
			return nil, nil
		}
		if full || at == s.again && w.events > 0 {
			s.again = Position{}
			return w, nil
		}
		if at.Compare(limit) < 0 {
			continue
		}
		owed := s.owed() != nil
		if joined && !owed {
			s.follows = true
			w.to = at
		}
		switch {
		case w.events > 0:
			return w, nil
		case joined && !owed, owed && at.Compare(s.of.log.Synced()) >= 0:
			return nil, nil
		}
	}
}

// scanBytes is how much a stream reads before others have a turn.
const scanBytes = 4 << 20

var errEnough = errors.New("enough was read")

// read puts records between two positions into w until it is full, which it reports. next is where to go on.
func (s *stream) read(ctx context.Context, from, limit Position, w *window) (full bool, next Position, err error) {
	if from.Compare(limit) >= 0 {
		return false, from, nil
	}
	if err := s.of.readers.Acquire(ctx, 1); err != nil {
		return false, from, err
	}
	defer s.of.readers.Release(1)
	next = from
	floor, octets := s.floor(), 0
	_, err = s.of.log.ReadFrom(ctx, from, limit, func(at, after Position, line []byte) error {
		r, ok := scan(line)
		switch {
		case !ok || !s.Filter.wants(&r):
		case w.events == 0 && r.time().Before(floor):
			s.lost(&r, at, after)
		case !w.add(&s.sh, &r, at, after, line, s.of.node):
			full, next, w.to = true, at, at
			return errEnough
		default:
			w.to = after
		}
		next = after
		if octets += len(line); octets >= scanBytes {
			return errEnough
		}
		return nil
	})
	var missing *accounting.MissingError
	switch {
	case errors.As(err, &missing) && w.events > 0: // they are sent first
		full, next, w.to, err = true, missing.From, missing.From, nil
	case errors.As(err, &missing):
		next, err = missing.To, nil
		s.missed(missing)
	case errors.Is(err, errEnough):
		err = nil
	case err == nil:
		next = limit
	}
	return full, next, err
}

// floor is the time of the oldest events that still wait; zero: all do.
func (s *stream) floor() time.Time {
	now := s.of.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.since) <= s.Hold {
		return time.Time{}
	}
	return now.Add(-s.Hold)
}

// disturbed reports whether an operator wants something else of the stream than to wait for events.
func (s *stream) disturbed() bool {
	_, paused, jump := s.wishes()
	return jump != nil || paused
}

// notify has the goroutine look at what has changed.
func (s *stream) notify() {
	s.mu.Lock()
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	signal(s.member.wake)
}

// wishes returns what operators want of the stream, and a channel that is closed when that changes.
func (s *stream) wishes() (changed <-chan struct{}, paused bool, jump *Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed, s.paused, s.jump
}

func (s *stream) cursor() (at Position, g *gap, paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at, s.gap, s.paused
}

// owed is the gap that the receiver has to be told of.
func (s *stream) owed() *gap {
	_, g, _ := s.cursor()
	return g
}

// pass moves the cursor over records that the stream doesn't send. to is asked while no operator moves it.
func (s *stream) pass(to func() (Position, bool)) {
	s.mu.Lock()
	at, ok := to()
	moved := ok && s.jump == nil && at.Compare(s.at) > 0
	if moved {
		s.at = at
	}
	s.mu.Unlock()
	if moved {
		s.of.save(s, false)
	}
}

// arrive moves the cursor to where an operator wants it.
func (s *stream) arrive(at Position) {
	s.mu.Lock()
	s.at, s.gap, s.jump, s.since = at, nil, nil, s.of.now()
	s.counts.tries = 0
	s.mu.Unlock()
	s.of.save(s, true)
}

// answered moves the cursor to the end of a window.
func (s *stream) answered(w *window) {
	now := s.of.now()
	s.mu.Lock()
	if w.gap {
		s.gap = nil
	} else {
		s.counts.sent(now, w.events)
	}
	if w.to.Compare(s.at) > 0 && s.jump == nil {
		s.at = w.to
	}
	s.hand = nil
	s.counts.tries, s.counts.next = 0, time.Time{}
	s.mu.Unlock()
	s.of.save(s, true)
}

// pause waits, unless an operator wants something meanwhile.
func (s *stream) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		changed, paused, jump := s.wishes()
		if paused || jump != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			return
		case <-changed:
		}
	}
}
