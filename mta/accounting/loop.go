package accounting

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// run is the writer's goroutine.
func (w *Writer) run() {
	defer close(w.ended)
	alarm := time.NewTimer(0) // the next end of a file, or the next try after a failure
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
		case done := <-w.flushes:
			done <- w.write()
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
	now := w.cfg.Now()
	wait := longestRest
	w.limit()
	if end := w.out.End(); !end.IsZero() {
		wait = min(wait, end.Sub(now))
	}
	if !w.retryAt.IsZero() {
		wait = min(wait, w.retryAt.Sub(now))
	}
	return max(0, wait)
}

func (w *Writer) alarmed() {
	if w.limit(); w.out.Ended() {
		w.out.Close() // all of it was synced
		signal(w.keeper.changed)
	}
	if !w.retryAt.IsZero() {
		w.writeUnlessFailing()
	}
}

// writeUnlessFailing leaves a disk alone that has just failed.
func (w *Writer) writeUnlessFailing() {
	if w.cfg.Now().Before(w.retryAt) {
		return
	}
	_ = w.write() // trouble is told of and tried again
}

// write puts all that is waiting into files. What could not be written stays for the next time.
func (w *Writer) write() error {
	for {
		w.take()
		if len(w.pending) == 0 {
			w.release()
			return nil
		}
		stuck := w.watchDisk()
		w.limit()
		n, err := w.out.Write(w.pending)
		stuck.Stop()
		w.wrote(n, err)
		if err != nil {
			w.releaseAll()
			return err
		}
		w.release()
	}
}

// take makes what is waiting pending, once all that was pending before is written.
func (w *Writer) take() {
	if len(w.pending) > 0 {
		return
	}
	w.mu.Lock()
	if len(w.mu.waiting) > 0 { // else the two buffers stay as they are
		w.pending, w.mu.waiting, w.mu.spare = w.mu.waiting, w.mu.spare[:0], nil
		w.records, w.mu.records = w.mu.records, 0
	}
	w.mu.held, w.mu.after = append(w.mu.held, w.mu.after...), nil
	lost := w.mu.lost
	w.mu.lost = 0
	w.mu.writing = len(w.pending) > 0 || lost > 0
	w.mu.Unlock()
	if lost > 0 {
		var e encoder
		w.pending = append(w.pending, e.encode(&Record{Type: Lost, Count: lost, Time: w.cfg.Now()}, w.node)...)
		w.records++
		w.untold += lost
		w.complain("accounting records were dropped since the disk is too slow")
	}
}

// wrote notes how a write of what is pending went.
func (w *Writer) wrote(n int, err error) {
	now := w.cfg.Now()
	rest := w.pending[n:]
	left := bytes.Count(rest, []byte{'\n'})
	w.mu.Lock()
	w.mu.stats.Written += int64(w.records - left)
	recovered := w.mu.stats.Failing && err == nil
	w.mu.stats.Failing = err != nil
	w.mu.writing = len(rest) > 0
	if at := w.out.Durable(); at != w.mu.synced {
		w.mu.synced = at
		for c := range w.mu.watches {
			signal(c)
		}
	}
	if len(rest) == 0 {
		w.mu.spare = reusable(w.pending)
	}
	w.mu.Unlock()
	w.pending, w.records, w.retryAt = rest, left, time.Time{}
	if len(rest) == 0 {
		w.pending = nil
	}
	switch {
	case err != nil:
		w.retryAt = now.Add(retryDelay)
		w.complain("accounting records can't be written; they are dropped when the buffer is full", "error", err)
	case recovered:
		w.told = time.Time{}
		w.cfg.Log.Info("accounting records are written again", "lost", w.Stats().Lost)
	}
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
	err := w.write()
	w.releaseAll()
	w.mu.Lock()
	left := int64(w.records + w.mu.records)
	w.mu.stats.Lost += left
	left += w.mu.lost
	w.mu.Unlock()
	if err != nil {
		w.failed = fmt.Errorf("closing the accounting log: %d records are lost: %w", left, err)
	}
	_, cerr := w.out.Close()
	w.failed = errors.Join(w.failed, cerr)
}

// limit has the limits that are in force end files.
func (w *Writer) limit() {
	l := w.limits()
	w.out.RotateSize, w.out.RotateEvery = l.RotateSize, l.RotateEvery
}

func (w *Writer) limits() Limits {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.limits
}
