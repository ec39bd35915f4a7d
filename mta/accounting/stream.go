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
// writer wrote, without their line ends, and good until each returns; torn ones are left out, and none is parsed.
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
	return r.From(known, from, to, func(at, next Position, line []byte) error {
		switch {
		case at == from && restOf(line, at): // was missing already
		case !sound(line):
			spoiled(at)
			return &MissingError{From: at, To: next}
		case isRecord(line):
			return each(at, next, line)
		}
		return nil
	})
}

// restOf reports whether a line at a position is the end of a record that began before it.
func restOf(line []byte, at Position) bool {
	_, p, err := ParseEventID(eventIDOf(line))
	return err == nil && p.Compare(at) < 0 && !bytes.HasPrefix(line, []byte(`{"type":`))
}

// isRecord reports whether a line was written whole.
func isRecord(line []byte) bool {
	return len(line) > 1 && line[0] == '{' && line[len(line)-1] == '}'
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
	b = appendEventID(b, w.node)
	fillIn(from, b)
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
