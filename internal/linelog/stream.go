package linelog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// MissingError is returned by From when lines are no longer there, or can't be read.
type MissingError struct {
	From Position // all before was read
	To   Position // where to go on
	// Moved is how far the line at To stands before where it was written.
	Moved int64
}

// Next is the position that the line at To was written at.
func (e *MissingError) Next() Position { return Position{e.To.File, e.To.Offset + max(0, e.Moved)} }

func (e *MissingError) Error() string {
	return fmt.Sprintf("the accounting records from %v to %v were deleted or damaged", e.From, e.To)
}

// From calls each with the lines from a position on, oldest first: at is the position of a line, next the one that
// follows it. It ends before to (zero: all that is there), with the error of each, or with that of the context, and
// returns the position to go on from. The lines are good until each returns; those that are too long are nil.
//
// A zero from is the oldest line. known are files that are missed, if they are not there and not older than those that
// are. The error is a *MissingError if the lines that come next were deleted or are damaged: the caller may go on from
// its To.
func (r *Reader) From(known []File, from, to Position,
	each func(at, next Position, line []byte) error) (Position, error) {
	files, err := r.Dir.Files()
	if err != nil {
		return from, err
	}
	files = withKnown(files, known, to)
	files = slices.DeleteFunc(files, func(f File) bool { return f.ID() < from.File })
	if len(files) > 0 && from == (Position{}) {
		from.File = files[0].ID()
	}
	for i, f := range files {
		if to != (Position{}) && from.Compare(to) >= 0 {
			return from, nil
		}
		start := Position{File: f.ID()}
		if i == 0 && start.File != from.File {
			return from, &MissingError{From: from, To: start}
		}
		if i > 0 {
			from = start
		}
		next := to
		if i+1 < len(files) {
			next = Position{File: files[i+1].ID()}
		}
		from, err = r.stream(f, from, to, each)
		var damage *DamageError
		switch {
		case errors.Is(err, ErrReached):
			return from, nil
		case errors.As(err, &damage) && damage.End > from.Offset:
			return from, &MissingError{From: from, To: Position{from.File, damage.End}}
		case (errors.As(err, &damage) || errors.Is(err, fs.ErrNotExist)) && next != (Position{}):
			return from, &MissingError{From: from, To: next}
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return from, err
		}
	}
	// All before to was written once.
	if from != (Position{}) && from.Compare(to) < 0 {
		return from, &MissingError{From: from, To: to}
	}
	return from, nil
}

// withKnown adds known files that are not listed. Files older than the first one listed have expired.
func withKnown(files, known []File, to Position) []File {
	if len(files) == 0 {
		return files
	}
	first := files[0].Begun
	for _, f := range known {
		i, listed := slices.BinarySearchFunc(files, f, func(a, b File) int { return a.Begun.Compare(b.Begun) })
		if !listed && f.Begun.After(first) && (to == Position{} || f.ID() <= to.File) {
			files = slices.Insert(files, i, f)
		}
	}
	return files
}

// stream reads one file for From. The error is fs.ErrNotExist if it was deleted meanwhile.
func (r *Reader) stream(f File, from, to Position, each func(at, next Position, line []byte) error) (Position, error) {
	at := from
	offset, err := r.Scan(f, from.Offset, func(line []byte, size int64) error {
		if to != (Position{}) && at.Compare(to) >= 0 {
			return ErrReached
		}
		next := Position{at.File, at.Offset + size}
		if err := each(at, next, line); err != nil {
			return err
		}
		at = next
		return nil
	})
	if err == nil && offset == from.Offset {
		_, err = f.Size()
	}
	return Position{from.File, offset}, err
}

// Tail returns the position from which on a log has about so many octets.
func (d Dir) Tail(octets int64) (Position, error) {
	files, err := d.Files()
	if err != nil {
		return Position{}, err
	}
	var at Position
	for i := len(files) - 1; i >= 0 && octets > 0; i-- {
		at = Position{File: files[i].ID()}
		if n, err := files[i].Size(); err == nil {
			at.Offset = max(0, n-octets)
			octets -= n
		}
	}
	return at, nil
}
