package queue

import (
	"cmp"
	"slices"
	"time"

	"example.org/mta/internal/linelog"
	"example.org/mta/queue/store"
)

// Records is the log of records about what happens in the queue, of which the journal carries the lines: those that
// were added before an outcome are written and synced with it, or earlier. The log itself can follow later, from memory
// or, after a crash, from the journal. Its functions are called by the queue alone and, but for Begin, Taken and End,
// don't block.
type Records interface {
	// Begin is called by Open: it gives the lines that the journal has, and the end of those that the log has durably,
	// as far as the journal knows.
	Begin(j linelog.Journal, done linelog.Position) error
	// Waiting returns how many octets wait to be taken, and since when.
	Waiting() (octets int, since time.Time)
	// Take returns the lines that wait, with their positions. They are valid until Taken.
	Take() []linelog.Lines
	// Taken is called when they are durable in the journal or, with false, can't be: then it returns when they are
	// durable in the log, or that takes too long.
	Taken(journaled bool)
	// Done is the end of what the log has durably: the journal needs those lines no longer.
	Done() linelog.Position
	// Kept is called now and then with the octets of the segments that are there for their lines alone. short says that
	// the disk is wanted for other things.
	Kept(octets int64, short bool)
	// End is called when no more is taken. It returns when all is in the log, or that takes too long.
	End()
}

// noRecords is the log of a queue that has none.
type noRecords struct{}

func (noRecords) Begin(linelog.Journal, linelog.Position) error { return nil }
func (noRecords) Waiting() (int, time.Time)                     { return 0, time.Time{} }
func (noRecords) Take() []linelog.Lines                         { return nil }
func (noRecords) Taken(bool)                                    {}
func (noRecords) Done() linelog.Position                        { return linelog.Position{} }
func (noRecords) Kept(int64, bool)                              {}
func (noRecords) End()                                          {}

// journal is the queue as its Records know it.
type journal struct{ q *Queue }

// Wake implements linelog.Journal.
func (j journal) Wake() { j.q.nudge(j.q.w.kick) }

// Lines implements linelog.Journal.
func (j journal) Lines(from linelog.Position, each func(linelog.Lines) error) error {
	type part struct {
		id  store.SegmentID
		end int64
	}
	var parts []part
	q := j.q
	q.mu.Lock()
	for seg := range q.segs.All {
		if seg.Lines.Compare(from) > 0 {
			parts = append(parts, part{seg.ID, seg.Size})
		}
	}
	q.mu.Unlock()
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.id.Number, b.id.Number) })
	for _, p := range parts {
		_, err := q.dir.ReadLines(p.id, p.end, func(l linelog.Lines) error {
			end := l.End()
			if end.Compare(from) <= 0 {
				return nil
			}
			if l.At.Compare(from) < 0 { // of the same file
				l.At, l.Text = from, l.Text[from.Offset-l.At.Offset:]
			}
			from = end // a record that a failed group has left is there once more
			return each(l)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// findLines notes where the segments of a start have lines, and returns the end of what their log has, as far as they
// say.
func (q *Queue) findLines(list []store.Found, segs []*store.Segment) (done linelog.Position) {
	end := linelog.Position{} // of the lines so far
	for i := range list {
		o := &list[i].Open
		if o.Done.Compare(done) > 0 {
			done = o.Done
		}
		if i > 0 && o.Lines.Compare(end) > 0 {
			segs[i-1].Lines, end = o.Lines, o.Lines
		}
	}
	if n := len(list); n > 0 {
		newest := segs[n-1]
		at, err := q.dir.ReadLines(newest.ID, newest.Size, func(l linelog.Lines) error {
			newest.Lines = l.End()
			return nil
		})
		if err != nil {
			q.log.Warn("queue: the records in a journal segment can't be read", "file",
				q.dir.SegmentPath(newest.ID), "error", err)
		}
		if at.Compare(done) > 0 {
			done = at
		}
		if newest.Lines.Compare(end) > 0 {
			end = newest.Lines
		}
	}
	q.files.lines = end
	return done
}

// keepsLines reports whether a segment is still needed for its lines.
func (q *Queue) keepsLines(seg *store.Segment, done linelog.Position) bool {
	return q.cfg.Records != Records(noRecords{}) && seg.Lines.Compare(done) > 0
}

// reportKept reports the segments that are there for their lines alone.
func (q *Queue) reportKept() {
	done, octets := q.cfg.Records.Done(), int64(0)
	q.mu.Lock()
	for seg := range q.segs.All {
		if seg.Needless() && q.keepsLines(seg, done) {
			octets += seg.Size
		}
	}
	q.mu.Unlock()
	q.cfg.Records.Kept(octets, octets > 0 && q.room(0) != nil)
}
