package events

import (
	"context"
	"errors"
	"sync"
	"time"

	"example.org/mta/internal/legible"
)

const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// longestAfter bounds how long a receiver can ask to be left alone.
	longestAfter = time.Hour
	// heldBytes bounds the windows that streams keep while they wait to send them again. The others are read again.
	heldBytes = 8 << 20
	// maxReason bounds what is kept of a receiver's answer, in octets.
	maxReason = 300
)

// errAbandoned ends the work on a window that is not to be sent any more: by an operator's wish, or since its
// events have waited for too long.
var errAbandoned = errors.New("the events are not to be sent any more")

// errReread ends the work on a window for which there is no memory while it waits.
var errReread = errors.New("the events are read again")

// deliver sends a window and moves the cursor to its end.
func (s *stream) deliver(ctx, hard context.Context, w *window) error {
	s.take(w)
	d := delivery{s: s, hard: hard, window: w}
	defer d.release()
	var lanes []*Batch
	for _, b := range w.batches {
		if len(b.Events) > 0 {
			lanes = append(lanes, b.of(s.Name))
		}
	}
	errs := make([]error, max(1, len(lanes)))
	var wg sync.WaitGroup
	for i := 1; i < len(lanes); i++ {
		wg.Go(func() { errs[i] = d.send(ctx, lanes[i]) })
	}
	if len(lanes) > 0 {
		errs[0] = d.send(ctx, lanes[0])
	}
	wg.Wait()
	err := errors.Join(errs...)
	switch {
	case err == nil:
		s.answered(w)
		return nil
	case errors.Is(err, errReread) && !errors.Is(err, errAbandoned):
		return errReread
	}
	return errAbandoned
}

// delivery is a window on its way.
type delivery struct {
	s      *stream
	hard   context.Context // ends requests that are under way
	window *window

	mu    sync.Mutex
	asked bool // whether the window can be kept while it waits
	kept  bool
}

// send sends a batch until it is taken, in halves if it is refused.
func (d *delivery) send(ctx context.Context, b *Batch) error {
	for wait := time.Duration(0); ; {
		if err := d.wait(ctx, wait); err != nil {
			return err
		}
		err := d.s.once(d.hard, b)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var rejected *Rejected
		if errors.As(err, &rejected) {
			if len(b.Events) > 1 {
				return d.halve(ctx, b)
			}
			d.s.setAside(&b.Events[0], rejected.Reason)
			return nil
		}
		b.body = new(body) // it is encoded again when it is needed
		wait = d.s.failed(err)
		switch {
		case d.window.gap:
			return errReread // the gap may grow while it waits
		case !d.keep():
			return errReread
		}
	}
}

// once sends a batch, and gives its receiver up when that takes too long.
func (s *stream) once(ctx context.Context, b *Batch) error {
	if s.Timeout == 0 {
		return s.sink.Send(ctx, b)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, errors.New("the receiver did not answer in time"))
	defer cancel()
	err := s.sink.Send(ctx, b)
	if err != nil && ctx.Err() == context.DeadlineExceeded && errors.Is(err, context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	return err
}

// halve sends one half of a batch after the other.
func (d *delivery) halve(ctx context.Context, b *Batch) error {
	middle := len(b.Events) / 2
	for _, part := range [][]Event{b.Events[:middle], b.Events[middle:]} {
		half := &Batch{Events: part, body: new(body)}
		if err := d.send(ctx, half.of(d.s.Name)); err != nil {
			return err
		}
	}
	return nil
}

// wait waits before a batch is sent, and while the stream is paused. It ends with errAbandoned when the events
// have waited for too long, or an operator wants others.
func (d *delivery) wait(ctx context.Context, wait time.Duration) error {
	var due <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	for over, was := wait <= 0, false; ; {
		changed, paused, jump := d.s.wishes()
		over, was = over || was && !paused, paused // who ends a pause wants the next attempt now
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case jump != nil || d.window.first.Before(d.s.floor()):
			return errAbandoned
		case over && !paused:
			return nil
		}
		select {
		case <-ctx.Done():
		case <-due:
			over = true
		case <-changed:
		}
	}
}

// keep reports whether there is memory for the window while it waits.
func (d *delivery) keep() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.asked {
		d.asked = true
		size := int64(d.window.size)
		if d.kept = d.s.of.held.Add(size) <= heldBytes; !d.kept {
			d.s.of.held.Add(-size)
		}
	}
	return d.kept
}

func (d *delivery) release() {
	if d.kept {
		d.s.of.held.Add(-int64(d.window.size))
	}
}

// setAside notes an event that the receiver refuses, and goes on without it.
func (s *stream) setAside(e *Event, reason string) {
	now := s.of.now()
	r := Refused{Event: e.ID, Type: e.Type, Message: e.Message, Reason: legible.Line(reason, maxReason), At: now}
	s.of.out.Error("an event was set aside: its receiver refuses it", "stream", s.Name, "event_id", e.ID, "type",
		e.Type, "id", e.Message, "reason", r.Reason)
	if err := s.of.cursors.refuse(s.Name, r); err != nil {
		s.of.out.Error("the list of refused events can't be written", "stream", s.Name, "error", err)
	}
	s.mu.Lock()
	s.counts.refused++
	s.counts.refusedAt = now
	s.mu.Unlock()
}
