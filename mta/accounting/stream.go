package accounting

import (
	"bytes"
	"context"
	"time"

	"example.org/mta/internal/linelog"
)

// MissingError is returned by ReadFrom when records are no longer there, or can't be read.
type MissingError = linelog.MissingError

// ReadFrom calls each with the lines in dir from a position on, oldest first: at is the position of a line,
// next the one that follows it. It ends before to (usually Writer.Synced; zero: all that is there), with the
// error of each, or with that of ctx, and returns the position to go on from. The lines are what the
// writer wrote, without their line ends, and good until each returns; what a crash has cut off is left out, and none is
// parsed.
//
// A zero from is the oldest record. The error is a *MissingError if the records that come next were deleted or
// are damaged: the caller may go on from its To.
func ReadFrom(ctx context.Context, dir string, from, to Position,
	each func(at, next Position, line []byte) error) (Position, error) {
	return readFrom(ctx, dir, nil, func(Position) {}, from, to, each)
}

// ReadFrom is as the function ReadFrom, but also misses files that were deleted from the middle of the log since
// the Writer was opened.
func (w *Writer) ReadFrom(ctx context.Context, from, to Position,
	each func(at, next Position, line []byte) error) (Position, error) {
	return readFrom(ctx, w.cfg.Dir, w.keeper.files(), w.spoiled, from, to, each)
}

// readFrom reads the files that are there, and those of the known ones that are not older. spoiled hears of damaged
// records.
func readFrom(ctx context.Context, dir string, known []linelog.File, spoiled func(Position), from, to Position,
	each func(at, next Position, line []byte) error) (Position, error) {
	r := linelog.Reader{Ctx: ctx, Dir: logDir(dir)}
	var chain linelog.Chain
	last := from // the end of what was read
	missing := func(place, from, to Position) error {
		spoiled(place)
		return &MissingError{From: from, To: to, Moved: chain.Shift()}
	}
	// ended returns what is missing at the end of what was read, which something follows elsewhere or nothing yet.
	ended := func(to Position, complete bool) error {
		if at, looks := chain.Cut(); looks {
			from := Position{File: last.File, Offset: at}
			return missing(from, from, to)
		}
		f := r.Dir.At(time.Unix(last.File, 0))
		if place, end := lostEnd(r.Dir, f); complete && end > last.Offset {
			return missing(Position{File: last.File, Offset: place}, last, to)
		}
		return nil
	}
	end, err := r.From(known, from, to, func(at, next Position, line []byte) error {
		before := last
		another := before.File != at.File && before != (Position{})
		if another {
			if err := ended(at, true); err != nil {
				return err
			}
		}
		last = next
		switch {
		case at == from && len(line) == 0: // here a reading has found that lines are missing
			chain.Gap(next)
			return nil
		case at == from && restOf(line, at): // was missing already
			return nil
		}
		ok, place, damaged := chain.Line(line, at)
		switch {
		case damaged && !ok:
			return missing(place, place, next)
		case damaged && place != at:
			return missing(place, place, at)
		case damaged && at.Offset > 0: // they are missing between the line end and what follows it
			return missing(place, Position{File: at.File, Offset: at.Offset - 1}, at)
		case damaged && another:
			return missing(place, before, at)
		case damaged: // nobody has read what was before
			spoiled(place)
		}
		if ok {
			return each(at, next, line)
		}
		return nil
	})
	if err == nil {
		err = ended(end, false)
	}
	return end, err
}

// restOf reports whether a line at a position is the end of a record that began before it.
func restOf(line []byte, at Position) bool {
	_, p, err := ParseEventID(linelog.EventID(line))
	return err == nil && p.Compare(at) < 0 && !bytes.HasPrefix(line, []byte(`{"type":`))
}

// Gap returns the record, without a line end, that stands in a stream for those from a position to another that
// were deleted before they could be sent; count is their number, 0 if it is not known. Its event_id is that
// of the first of them, so it is the same each time.
func (w *Writer) Gap(from, to Position, count int64) []byte {
	var e encoder
	b := append([]byte(nil), `{"type":"Gap"`...)
	b = appendString(b, "from", from.String())
	b = appendString(b, "to", to.String())
	if count > 0 {
		b = appendInt(b, "count", count)
	}
	b = e.event.append(b, "timestamp", "event_time", w.cfg.Now())
	b = append(appendKey(b, "nodeid"), w.node...)
	b = linelog.AppendSeal(b, w.node)
	linelog.Stamp(from, b)
	return bytes.TrimSuffix(b, []byte("\n"))
}

// PositionAt returns a position before which all records in dir are older than t, as near to t as the files
// allow.
func PositionAt(dir string, t time.Time) (Position, error) {
	files, err := logDir(dir).Files()
	if err != nil {
		return Position{}, err
	}
	m := matcher{Query: Query{Since: t}}
	if files = m.within(files); len(files) == 0 {
		return Position{}, nil
	}
	return Position{File: files[0].ID()}, nil
}

// Since is as PositionAt for the log that w writes.
func (w *Writer) Since(t time.Time) (Position, error) { return PositionAt(w.cfg.Dir, t) }

// Octets is about how many octets of records are between two positions.
func (w *Writer) Octets(from, to Position) int64 { return w.dir.Octets(from, to) }
