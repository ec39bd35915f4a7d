package store

import (
	"example.org/mta/internal/linelog"
	"example.org/mta/queue/vfs"
)

// AppendLines makes the payload of a record with lines. done is the end of what the log has, durably.
func AppendLines(b []byte, form uint8, l *linelog.Lines, done linelog.Position) []byte {
	e := encoder{b, form}
	e.byte(form)
	e.position(done)
	e.position(l.At)
	return append(e.b, l.Text...)
}

// linesHead is more than a record with lines has beside them, in octets.
const linesHead = 64

// LinesSize is what a record with lines takes at most.
func LinesSize(l *linelog.Lines) int64 { return RecordSize(linesHead + len(l.Text)) }

// decodeLines is the inverse of AppendLines. The text is a part of b.
func decodeLines(b []byte) (l linelog.Lines, done linelog.Position, err error) {
	d := decoder{s: string(b[:min(len(b), linesHead)])}
	d.version()
	done, l.At = d.position(), d.position()
	if d.err == nil {
		l.Text = b[min(len(b), linesHead)-len(d.s):]
	}
	return l, done, d.err
}

// AppendSynced makes the payload of a synced record.
func AppendSynced(b []byte, form uint8, done linelog.Position) []byte {
	e := encoder{b, form}
	e.byte(form)
	if form >= WithLines {
		e.position(done)
	}
	return e.b
}

func decodeSynced(b []byte) (done linelog.Position, err error) {
	d := decoder{s: string(b)}
	if d.version(); d.form >= WithLines {
		done = d.position()
	}
	return done, d.err
}

func (e *encoder) position(p linelog.Position) {
	e.uint(uint64(p.File))
	e.uint(uint64(p.Offset))
}

func (d *decoder) position() linelog.Position {
	return linelog.Position{File: int64(d.uint()), Offset: int64(d.uint())}
}

// ReadLines calls each with the lines in the first end octets of a segment, which are valid until it returns, and
// returns the end of what the log had, by the last record that says so. What is damaged is passed over.
func (d *Dir) ReadLines(id SegmentID, end int64, each func(linelog.Lines) error) (done linelog.Position, err error) {
	var f vfs.File
	if f, err = d.FS.Open(d.SegmentPath(id)); err != nil {
		return done, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return done, err
	}
	note := func(p linelog.Position) {
		if p.Compare(done) > 0 {
			done = p
		}
	}
	_, err = ScanRecords(f, size, id, end, func(rec Record) error {
		switch rec.Kind {
		case KindLines:
			l, at, err := decodeLines(rec.Payload)
			if note(at); err != nil || len(l.Text) == 0 {
				return nil
			}
			return each(l)
		case KindSynced:
			at, _ := decodeSynced(rec.Payload)
			note(at)
		}
		return nil
	})
	return done, err
}
