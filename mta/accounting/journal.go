package accounting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/mta/internal/linelog"
)

// The queue's journal carries the lines (queue.Records): it takes what waits with each group that it writes, and gives
// it back when that is synced. What waits then is written to the files in the background, in large writes, and synced
// now and then. Memory holds what is not synced; when there is no room, or after a crash, it is read from the journal.

const (
	// backlog is how many octets of the journal may be kept for lines that the log lacks. Then records are dropped.
	backlog = 1 << 30
	// readAtOnce is how many octets are read back from the journal at once.
	readAtOnce = 8 << 20
)

// run is lines in memory that follow each other in the journal.
type run struct {
	origin    Position // in the journal
	at        Position // where they are to be in the log: the same, unless a file was taken away, or the like
	octets    int
	journaled bool
}

// appendRun adds a run, to the last one if it can.
func appendRun(runs []run, r run) []run {
	if n := len(runs); n > 0 {
		last := &runs[n-1]
		if after(last.origin, last.octets) == r.origin && after(last.at, last.octets) == r.at &&
			last.journaled == r.journaled {
			last.octets += r.octets
			return runs
		}
	}
	return append(runs, r)
}

// size is a number of lines.
type size struct{ octets, records int64 }

func (s *size) add(t size)  { s.octets += t.octets; s.records += t.records }
func (s *size) less(t size) { s.octets -= t.octets; s.records -= t.records }

func sizeOf(lines []byte) size {
	return size{int64(len(lines)), int64(bytes.Count(lines, []byte{'\n'}))}
}

func after(p Position, octets int) Position {
	return Position{File: p.File, Offset: p.Offset + int64(octets)}
}

// Begin implements queue.Records. The log goes on where it ends; the lines of the journal that it lacks come first.
func (w *Writer) Begin(j linelog.Journal, done Position) error {
	w.journal = j
	lacks, err := w.compare(done)
	if err == nil {
		err = w.resume()
	}
	if err != nil {
		return err
	}
	w.mu.next = w.mu.end
	if lacks.octets > 0 {
		w.mu.behind, w.mu.unwritten, w.mu.stamped = true, lacks, lacks.octets
		signal(w.wake)
	}
	if lacks.octets == 0 || !w.replaces(w.mu.from) {
		w.replan()
	}
	w.start()
	return nil
}

// compare looks which of the journal's lines the log has, from a position on.
func (w *Writer) compare(done Position) (lacks size, err error) {
	w.mu.done, w.mu.end = done, done
	err = w.journal.Lines(done, func(l linelog.Lines) error {
		if w.mu.end = l.End(); lacks.octets == 0 && w.dir.Holds(l.At, l.Text) {
			w.mu.done = w.mu.end
			return nil
		}
		if lacks.octets == 0 {
			w.mu.from = l.At
		}
		lacks.add(sizeOf(l.Text))
		return nil
	})
	return lacks, err
}

// replaces reports whether lines can be written at a position: what the newest file has from there on is a part of them
// that a crash has left, or nothing.
func (w *Writer) replaces(p Position) bool {
	end := w.out.Written()
	if p.File > end.File {
		return p.Offset == 0
	}
	return p.File == end.File && w.out.File() != nil && p.Offset <= end.Offset && w.out.CutTo(p.Offset) == nil
}

// Waiting implements queue.Records.
func (w *Writer) Waiting() (octets int, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.urgent {
		return len(w.mu.waiting), time.Time{}
	}
	return len(w.mu.waiting), w.mu.since
}

// Take implements queue.Records. It gives the lines their positions.
func (w *Writer) Take() []linelog.Lines {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.take()
}

// take is Take with the lock held.
func (w *Writer) take() []linelog.Lines {
	w.mu.urgent = false
	if w.mu.lost > 0 && !w.mu.full {
		var e encoder
		w.mu.waiting = append(w.mu.waiting,
			e.encode(&Record{Type: Lost, Count: w.mu.lost, Time: w.cfg.Now()}, w.node)...)
		w.mu.records++
		w.mu.untold, w.mu.lost = w.mu.untold+w.mu.lost, 0
	}
	if len(w.mu.waiting) == 0 {
		return nil
	}
	lines := w.mu.waiting
	w.mu.inFlight = size{int64(len(lines)), w.mu.records}
	w.mu.unwritten.add(w.mu.inFlight)
	w.mu.stamped += int64(len(lines))
	w.mu.waiting, w.mu.records, w.mu.spare = w.mu.spare[:0], 0, lines
	w.mu.taken = w.mu.taken[:0]
	for len(lines) > 0 {
		part := linelog.Fitting(lines, w.mu.limits.RotateSize, w.mu.next.Offset)
		if len(part) == 0 || w.fileEnded() {
			w.mu.next, w.mu.fresh = w.another(), false
			continue
		}
		fillIn(w.mu.next, part)
		w.mu.taken = append(w.mu.taken, linelog.Lines{At: w.mu.next, Text: part})
		w.mu.next = after(w.mu.next, len(part))
		lines = lines[len(part):]
	}
	w.mu.takenAt = w.mu.taken[0].At
	return w.mu.taken
}

// fileEnded reports whether the next line begins a file: the one before has ended by time, or can't go on.
func (w *Writer) fileEnded() bool {
	if w.mu.fresh {
		return true
	}
	end := linelog.EndOf(time.Unix(w.mu.next.File, 0), w.mu.limits.RotateEvery)
	return w.mu.next.Offset > 0 && !end.IsZero() && !w.cfg.Now().Before(end)
}

// another is the beginning of a file that follows all.
func (w *Writer) another() Position {
	return Position{File: max(w.cfg.Now().Unix(), w.mu.next.File+1, w.mu.end.File+1)}
}

// Taken implements queue.Records.
func (w *Writer) Taken(journaled bool) {
	w.mu.Lock()
	target := w.mu.stamped
	w.put(journaled)
	wait := !journaled && !w.mu.stuck && !w.mu.stats.Failing
	w.mu.Unlock()
	if !wait {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), longestHold)
	defer cancel()
	if w.await(ctx, flushing{target: target}) != nil {
		w.mu.Lock()
		w.mu.stuck = true
		w.mu.Unlock()
	}
}

// put has what was taken written. Without room in memory, the journal has it; what that has not is lost.
func (w *Writer) put(journaled bool) {
	all := w.mu.inFlight
	if all.octets == 0 {
		return
	}
	w.mu.inFlight = size{}
	at, moved := w.mu.takenAt, w.mu.takenAt != w.mu.taken[0].At
	room := w.mu.memory.octets+all.octets <= int64(w.cfg.Buffer)
	if journaled {
		w.mu.end = w.mu.taken[len(w.mu.taken)-1].End()
	}
	switch {
	case journaled && (w.mu.behind || !room):
		if !w.mu.behind {
			w.mu.behind, w.mu.from, w.mu.back = true, w.mu.taken[0].At, at
		}
	case !room && !w.mu.direct:
		w.lose(all)
	default:
		first := len(w.mu.runs) == 0
		for _, l := range w.mu.taken {
			if !moved {
				at = l.At
			}
			w.mu.runs = appendRun(w.mu.runs, run{l.At, at, len(l.Text), journaled})
			w.mu.ready = append(w.mu.ready, l.Text...)
			at = after(at, len(l.Text))
		}
		w.mu.memory.add(all)
		if w.mu.direct { // the goroutine has called
			break
		}
		if first {
			signal(w.wake)
		}
		if !journaled || len(w.mu.ready) >= writeAtOnce {
			signal(w.urgent)
		}
	}
	w.mu.spare = reusable(w.mu.spare)
}

// lose counts lines that were taken and will not be written. Those that follow get other positions.
func (w *Writer) lose(s size) {
	w.mu.unwritten.less(s)
	w.mu.lost += s.records
	w.mu.stats.Lost += s.records
	w.mu.moved = true
}

// Done implements queue.Records.
func (w *Writer) Done() Position {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.done
}

// Kept implements queue.Records. When the queue needs the disk, or too much of it is kept, the log must do without.
func (w *Writer) Kept(octets int64, short bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.full = octets > w.cfg.backlog
	if !short || !w.mu.behind && !w.failing() {
		return
	}
	if w.mu.behind {
		rest := w.mu.unwritten
		rest.less(w.mu.memory)
		rest.less(w.mu.inFlight)
		w.lose(rest)
		w.mu.from = w.mu.end
	}
	w.mu.done = w.mu.end
}

// End implements queue.Records.
func (w *Writer) End() {
	w.mu.Lock()
	w.mu.direct = true
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), longestHold)
	defer cancel()
	_ = w.flush(ctx, true) // if it fails, so does Close
}

// readBack takes lines from the journal that found no room in memory. The goroutine has nothing else to write.
func (w *Writer) readBack() error {
	w.mu.Lock()
	from := w.mu.from
	w.mu.Unlock()
	var runs []run
	err := w.journal.Lines(from, func(l linelog.Lines) error {
		runs = appendRun(runs, run{l.At, l.At, len(l.Text), true})
		w.pending = append(w.pending, l.Text...)
		if len(w.pending)-w.at >= readAtOnce {
			return errEnough
		}
		return nil
	})
	read := sizeOf(w.pending[w.at:])
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && !errors.Is(err, errEnough) || from != w.mu.from {
		w.pending = w.pending[:w.at]
		if err != nil {
			err = fmt.Errorf("reading the queue's journal: %w", err)
		}
		return err // or given up meanwhile
	}
	for i := range runs {
		r := &runs[i]
		if w.mu.back != (Position{}) {
			r.at, w.mu.back = w.mu.back, after(w.mu.back, r.octets)
		}
		from = after(r.origin, r.octets)
	}
	w.runs = append(w.runs, runs...)
	w.mu.from = from
	w.mu.memory.add(read)
	if err == nil && from.Compare(w.mu.end) < 0 || from == w.mu.end {
		w.mu.behind, w.mu.back = false, Position{}
		rest := w.mu.unwritten // of which there should be none
		rest.less(w.mu.memory)
		rest.less(w.mu.inFlight)
		if rest != (size{}) {
			w.lose(rest)
		}
	}
	return nil
}

var errEnough = errors.New("enough was read")

// replan gives all that was taken and is not written its place behind what is written. The lock is held.
func (w *Writer) replan() {
	at := w.out.Written()
	if at.File == 0 && w.mu.unwritten.octets > 0 {
		at = w.another()
	}
	place := func(runs []run) {
		for i := range runs {
			runs[i].at = at
			at = after(at, runs[i].octets)
		}
	}
	start := 0
	for i := range w.runs {
		if start+w.runs[i].octets > w.at {
			at.Offset -= int64(max(0, w.at-start))
			place(w.runs[i:])
			break
		}
		start += w.runs[i].octets
	}
	place(w.mu.runs)
	if w.mu.behind {
		w.mu.back = at
		at = after(at, int(w.mu.unwritten.octets-w.mu.memory.octets-w.mu.inFlight.octets))
	}
	w.mu.takenAt = at
	w.mu.moved = false
	if at = after(at, int(w.mu.inFlight.octets)); at.Compare(w.mu.next) < 0 || at.File == 0 {
		w.mu.fresh = true // positions in the journal only grow
	} else {
		w.mu.next = at
	}
}
