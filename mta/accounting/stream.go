package accounting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"
)

// MissingError is returned by ReadFrom when records are no longer there, or can't be read.
type MissingError struct {
	From Position // all before was read
	To   Position // where to go on
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("the accounting records from %v to %v were deleted or damaged", e.From, e.To)
}

// ReadFrom calls each with the lines in dir from a position on, oldest first: at is the position of a line,
// next the one that follows it. It ends before to (usually Writer.Synced; zero: all that is there), with the
// error of each, or with that of ctx, and returns the position to go on from. The lines are what the
// writer wrote, without their line ends, and good until each returns; torn ones are left out, and none is parsed.
//
// A zero from is the oldest record. The error is a *MissingError if the records that come next were deleted or
// are damaged: the caller may go on from its To.
func ReadFrom(ctx context.Context, dir string, from, to Position, each func(at, next Position, line []byte) error) (Position, error) {
	return readFrom(ctx, dir, nil, from, to, each)
}

// ReadFrom is as the function ReadFrom, but also misses files that were deleted from the middle of the log since
// the Writer was opened.
func (w *Writer) ReadFrom(ctx context.Context, from, to Position, each func(at, next Position, line []byte) error) (Position, error) {
	return readFrom(ctx, w.cfg.Dir, w.keeper.files(), from, to, each)
}

// readFrom reads the files that are there, and those of the known ones that are not older.
func readFrom(ctx context.Context, dir string, known []logFile, from, to Position, each func(at, next Position, line []byte) error) (Position, error) {
	files, err := listFiles(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return from, err
	}
	files = withKnown(files, known, to)
	files = slices.DeleteFunc(files, func(f logFile) bool { return f.begun.Unix() < from.File })
	if len(files) > 0 && from == (Position{}) {
		from.File = files[0].id()
	}
	r := reader{ctx: ctx, dir: dir}
	for i, f := range files {
		if to != (Position{}) && from.Compare(to) >= 0 {
			return from, nil
		}
		start := Position{File: f.id()}
		if i == 0 && start.File != from.File {
			return from, &MissingError{from, start}
		}
		if i > 0 {
			from = start
		}
		next := to
		if i+1 < len(files) {
			next = Position{File: files[i+1].id()}
		}
		from, err = r.stream(f, from, to, each)
		var damage *damageError
		switch {
		case errors.Is(err, errReached):
			return from, nil
		case errors.As(err, &damage) && damage.end > from.Offset:
			return from, &MissingError{from, Position{from.File, damage.end}}
		case (errors.As(err, &damage) || errors.Is(err, fs.ErrNotExist)) && next != (Position{}):
			return from, &MissingError{from, next}
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return from, err
		}
	}
	// All before to was written once.
	if from != (Position{}) && from.Compare(to) < 0 {
		return from, &MissingError{from, to}
	}
	return from, nil
}

// withKnown adds known files that are not listed. Files older than the first one listed have expired.
func withKnown(files, known []logFile, to Position) []logFile {
	if len(files) == 0 {
		return files
	}
	first := files[0].begun
	for _, f := range known {
		i, listed := slices.BinarySearchFunc(files, f, func(a, b logFile) int { return a.begun.Compare(b.begun) })
		if !listed && f.begun.After(first) && (to == Position{} || f.id() <= to.File) {
			files = slices.Insert(files, i, f)
		}
	}
	return files
}

// errReached ends a scan at the position that it was to end at.
var errReached = errors.New("the end is reached")

// stream reads one file for ReadFrom. The error is fs.ErrNotExist if it was deleted meanwhile.
func (r *reader) stream(f logFile, from, to Position, each func(at, next Position, line []byte) error) (Position, error) {
	at := from
	offset, err := r.scan(f, from.Offset, func(line []byte, size int64) error {
		if to != (Position{}) && at.Compare(to) >= 0 {
			return errReached
		}
		next := Position{at.File, at.Offset + size}
		if isRecord(line) {
			if err := each(at, next, line); err != nil {
				return err
			}
		}
		at = next
		return nil
	})
	if err == nil && offset == from.Offset {
		_, err = f.size()
	}
	return Position{from.File, offset}, err
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
	from.stamp(b)
	return bytes.TrimSuffix(b, []byte("\n"))
}

// PositionAt returns a position before which all records in dir are older than t, as near to t as the files
// allow.
func PositionAt(dir string, t time.Time) (Position, error) {
	files, err := listFiles(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Position{}, err
	}
	m := matcher{Query: Query{Since: t}}
	if files = m.within(files); len(files) == 0 {
		return Position{}, nil
	}
	return Position{File: files[0].begun.Unix()}, nil
}
