package accounting

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/mta/internal/linelog"
)

// run is the writer's goroutine.
func (w *Writer) run() {
	defer close(w.ended)
	alarm := time.NewTimer(0) // the next end of a file, sync, or try after a failure
	defer alarm.Stop()
	for {
		alarm.Reset(w.untilAlarm())
		select {
		case <-w.wake:
			w.collect()
			w.writeUnlessFailing()
		case <-w.urgent:
			w.writeUnlessFailing()
		case <-alarm.C:
			w.alarmed()
		case f := <-w.flushes:
			w.waiters = append(w.waiters, f)
			_ = w.write(f.sync)
		case <-w.changed:
		case <-w.stop:
			w.finish()
			return
		}
	}
}

// collect lets more records come, so that one write serves many.
func (w *Writer) collect() {
	timer := time.NewTimer(writeDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.urgent:
	case <-w.stop:
	}
}

// untilAlarm is how long nothing needs to be done unasked.
func (w *Writer) untilAlarm() time.Duration {
	next := w.fileEnd()
	switch {
	case !w.retryAt.IsZero():
		next = w.retryAt
	case !w.syncAt.IsZero():
		next = w.syncAt
	case next.IsZero():
		return longestRest
	}
	return min(longestRest, max(0, next.Sub(w.cfg.Now())))
}

// fileEnd is when the file that is written to ends by time, zero for never.
func (w *Writer) fileEnd() time.Time {
	if w.out.File() == nil {
		return time.Time{}
	}
	return linelog.EndOf(w.out.Began(), w.limits().RotateEvery)
}

func (w *Writer) alarmed() {
	now := w.cfg.Now()
	if !w.retryAt.IsZero() || !w.syncAt.IsZero() && !now.Before(w.syncAt) {
		w.writeUnlessFailing()
	}
	if end := w.fileEnd(); !end.IsZero() && !now.Before(end) && len(w.pending) == 0 {
		_, _ = w.out.Close() // all of it was synced
		signal(w.keeper.changed)
	}
}

// writeUnlessFailing leaves a disk alone that has just failed.
func (w *Writer) writeUnlessFailing() {
	if w.cfg.Now().Before(w.retryAt) {
		return
	}
	_ = w.write(false) // trouble is told of and tried again
}

// write puts all that is waiting into files. What could not be written stays for the next time.
func (w *Writer) write(sync bool) error {
	err := w.writeAll(sync)
	w.wrote(err)
	return err
}

func (w *Writer) writeAll(sync bool) error {
	for {
		if err := w.fetch(); err != nil {
			return err
		}
		if w.at == len(w.pending) {
			break
		}
		w.busy(true)
		err := w.append()
		if err == nil && w.mustSync() {
			err = w.sync()
		}
		w.busy(false)
		if err != nil {
			return err
		}
		w.show()
	}
	if len(w.pending) == 0 || !sync && w.cfg.Now().Before(w.syncAt) {
		return nil
	}
	w.busy(true)
	defer w.busy(false)
	if err := w.sync(); err != nil {
		return err
	}
	w.show()
	return nil
}

// busy notes that the disk works from now on, or has ended.
func (w *Writer) busy(is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.busy = (time.Time{}); is {
		w.mu.busy = w.cfg.Now()
	}
}

// fetch has what is to be written next in pending.
func (w *Writer) fetch() error {
	w.mu.Lock()
	if w.mu.direct && w.at == len(w.pending) && len(w.mu.ready) == 0 && !w.mu.behind {
		w.take()
		w.put(false)
	}
	behind := w.mu.behind && w.at == len(w.pending) && len(w.mu.ready) == 0
	w.pending = append(w.pending, w.mu.ready...)
	for _, r := range w.mu.runs {
		w.runs = appendRun(w.runs, r)
	}
	w.mu.ready, w.mu.runs = reusable(w.mu.ready), w.mu.runs[:0]
	if w.mu.moved {
		w.replan()
	}
	w.mu.Unlock()
	if behind {
		return w.readBack()
	}
	return nil
}

// append writes what is pending to files, and notes how much of it was written.
func (w *Writer) append() (err error) {
	for err == nil && w.at < len(w.pending) {
		i, start := 0, 0
		for start+w.runs[i].octets <= w.at {
			start += w.runs[i].octets
			i++
		}
		r, before, n := w.runs[i], w.at, 0
		at := after(r.at, w.at-start)
		switch is := w.out.Written(); {
		case at.File > is.File && at.Offset == 0:
			if n, err = w.out.Close(); err == nil {
				err = w.out.Begin(time.Unix(at.File, 0))
			}
			n = -n
		case at == is && w.out.File() == nil:
			_, err = w.out.Reopen()
		}
		if err == nil {
			n, err = w.out.Append(w.pending[w.at : start+r.octets])
		}
		w.at += n
		w.landed(before, w.out.Written() != after(at, n))
	}
	return err
}

// landed notes that lines were written, or have to be written again. moved says that they are elsewhere than planned.
func (w *Writer) landed(before int, moved bool) {
	if w.syncAt.IsZero() {
		w.syncAt = w.cfg.Now().Add(syncDelay)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at >= before {
		s := sizeOf(w.pending[before:w.at])
		w.mu.unwritten.less(s)
		w.mu.memory.less(s)
		w.mu.stats.Written += s.records
	} else {
		s := sizeOf(w.pending[w.at:before])
		w.mu.unwritten.add(s)
		w.mu.memory.add(s)
		w.mu.stats.Written -= s.records
	}
	if moved {
		w.replan()
	}
}

// mustSync reports whether what was written can't wait for its sync: the journal hasn't got it, or memory is filled.
func (w *Writer) mustSync() bool {
	for i := range w.runs {
		if !w.runs[i].journaled {
			return true
		}
	}
	return len(w.pending) >= syncAtOnce
}

// sync makes durable what was written: memory and journal need it no longer.
func (w *Writer) sync() error {
	lost, err := w.out.Sync()
	if err != nil {
		before := w.at
		w.at -= lost
		w.landed(before, true)
		return err
	}
	done := w.doneTo()
	w.pending = append(w.pending[:0], w.pending[w.at:]...)
	if w.at, w.syncAt = 0, (time.Time{}); len(w.pending) == 0 {
		w.pending = reusable(w.pending)
	}
	w.mu.Lock()
	if w.mu.behind && done.Compare(w.mu.from) > 0 { // what the journal could not take went first
		done = w.mu.from
	}
	if done.Compare(w.mu.done) > 0 {
		w.mu.done = done
	}
	w.mu.Unlock()
	return nil
}

// doneTo drops the runs that are written, and returns where the last of them ends in the journal.
func (w *Writer) doneTo() (done Position) {
	left := w.at
	for left > 0 {
		r := &w.runs[0]
		n := min(left, r.octets)
		r.origin, r.at, r.octets = after(r.origin, n), after(r.at, n), r.octets-n
		done = r.origin
		if left -= n; r.octets == 0 {
			w.runs = w.runs[1:]
		}
	}
	if len(w.runs) == 0 {
		w.runs = nil
	}
	return done
}

// show lets readers have what is written. All of it is in the journal, or synced.
func (w *Writer) show() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := w.out.Written(); at != w.mu.synced {
		w.mu.synced = at
		for c := range w.mu.watches {
			signal(c)
		}
	}
}

// wrote notes how writing went.
func (w *Writer) wrote(err error) {
	w.mu.Lock()
	recovered := w.mu.stats.Failing && err == nil
	w.mu.stats.Failing, w.mu.stuck = err != nil, w.mu.stuck && err != nil
	landed, untold, lost := w.mu.stamped-w.mu.unwritten.octets, w.mu.untold, w.mu.stats.Lost
	w.mu.untold = 0
	w.mu.Unlock()
	w.answer(landed, err)
	w.untold += untold
	w.retryAt = time.Time{}
	switch {
	case err != nil:
		w.retryAt = w.cfg.Now().Add(retryDelay)
		w.complain("accounting records can't be written; they are dropped when there is no space to keep them", "error",
			err)
	case untold > 0:
		w.complain("accounting records were dropped since the disk is too slow")
	case recovered:
		w.told = time.Time{}
		w.cfg.Log.Info("accounting records are written again", "lost", lost)
	}
}

// answer ends the waiting of those whose records are written, or can't be.
func (w *Writer) answer(landed int64, err error) {
	left := w.waiters[:0]
	for _, f := range w.waiters {
		if err != nil || landed >= f.target {
			f.done <- err
		} else {
			left = append(left, f)
		}
	}
	w.waiters = left
}

// reusable keeps a buffer for the next time, unless a burst has made it large.
func reusable(b []byte) []byte {
	if cap(b) > 4*writeAtOnce {
		return nil
	}
	return b[:0]
}

// complain logs trouble for the operator, not more often than is of use.
func (w *Writer) complain(what string, args ...any) {
	now := w.cfg.Now()
	if !w.told.IsZero() && now.Sub(w.told) < complainEvery {
		return
	}
	w.cfg.Log.Error(what, append(args, "directory", w.cfg.Dir, "lost", w.untold)...)
	w.told, w.untold = now, 0
}

// finish makes one last attempt at what is waiting.
func (w *Writer) finish() {
	w.mu.Lock()
	w.mu.direct = true
	w.mu.Unlock()
	err := w.write(true)
	w.mu.Lock()
	left := w.mu.unwritten.records + w.mu.records
	w.mu.stats.Lost += left
	left += w.mu.lost
	w.mu.Unlock()
	if err != nil {
		w.failed = fmt.Errorf("closing the accounting log: %d records are lost: %w", left, err)
	}
	_, cerr := w.out.Close()
	w.failed = errors.Join(w.failed, cerr)
}

func (w *Writer) limits() Limits {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.limits
}

// flushing is one who waits for records.
type flushing struct {
	target int64 // octets, of all that were taken
	sync   bool
	done   chan error
}

// Flush waits until all that was added before is durable and in the files, or until it could not be written.
func (w *Writer) Flush(ctx context.Context) error { return w.flush(ctx, false) }

func (w *Writer) flush(ctx context.Context, sync bool) error {
	w.mu.Lock()
	w.mu.urgent = len(w.mu.waiting) > 0
	f := flushing{target: w.mu.stamped + int64(len(w.mu.waiting)), sync: sync}
	direct := w.mu.direct
	w.mu.Unlock()
	if !direct {
		w.journal.Wake()
	}
	return w.await(ctx, f)
}

func (w *Writer) await(ctx context.Context, f flushing) error {
	f.done = make(chan error, 1)
	select {
	case w.flushes <- f:
	case <-w.ended:
		return w.failed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-f.done:
		return err
	case <-w.ended:
		return w.failed
	case <-ctx.Done():
		return ctx.Err()
	}
}
