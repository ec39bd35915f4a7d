package store

import (
	"errors"
	"fmt"
	"io"
)

// UnknownEnd is given to ScanRecords as the end of a segment whose end nobody wrote down.
const UnknownEnd = -1

// Damage is a part of a segment that had been synced and can't be read any more.
type Damage struct {
	Offset int64 // of its first octet
	End    int64 // of the sound record behind it, or the end of the segment
	Err    error // what reading said; nil when the octets were read and are wrong
}

// String names the place and the trouble.
func (d Damage) String() string {
	what := "octets are not what was written"
	if d.Err != nil {
		what = d.Err.Error()
	}
	return fmt.Sprintf("offset %d to %d: %s", d.Offset, d.End, what)
}

// ScanResult is what a scan found besides records.
type ScanResult struct {
	End     int64    // behind the last record that is to be trusted
	Torn    int64    // octets behind End that were written and never synced; they are void
	Damaged []Damage // in order
}

// ScanRecords visits the records of a segment in order. size is the length of the file, end what is
// known to have been synced, or UnknownEnd. An error of visit ends the scan; nothing in the file
// does.
func ScanRecords(r io.ReaderAt, size int64, seg SegmentID, end int64, visit func(Record) error) (ScanResult, error) {
	s := scanner{seg: seg, limit: size, end: end, win: window{r: r, size: size}}
	if end != UnknownEnd {
		s.limit = min(size, end)
	}
	return s.run(visit)
}

type scanner struct {
	seg   SegmentID
	limit int64 // no record goes beyond
	end   int64
	win   window
	res   ScanResult
}

func (s *scanner) run(visit func(Record) error) (ScanResult, error) {
	off := int64(0)
	for {
		rec, err := s.record(off)
		if err == nil {
			if err := visit(rec); err != nil {
				return s.res, err
			}
			off += RecordSize(len(rec.Payload))
			s.res.End = min(off, s.limit)
			continue
		}
		if s.end != UnknownEnd && off >= s.end {
			break // the whole segment was read
		}
		next, torn, ok := s.resume(off)
		if !ok {
			s.res.Torn = torn
			s.finish(off, err)
			break
		}
		s.damage(off, next, err)
		off = next
	}
	if s.end != UnknownEnd {
		s.res.End = s.end
	}
	return s.res, nil
}

// finish judges the rest of the segment, in which no sound record is left where it may be.
func (s *scanner) finish(off int64, err error) {
	if s.end != UnknownEnd && off < s.end {
		s.damage(off, s.end, err)
		return
	}
	if readErr := (*readError)(nil); errors.As(err, &readErr) || s.displaced(off) {
		s.damage(off, s.limit, err)
		s.res.Torn = 0
	}
}

// displaced reports whether a record that had been synced stands behind off where none may be: octets before it are
// missing, or were inserted. That shows in the size of the file, too.
func (s *scanner) displaced(off int64) bool {
	if s.end != UnknownEnd || s.win.size%Align == 0 {
		return false
	}
	for by := int64(1); by < Align; by++ {
		for at := off + by; ; at += Align {
			if at = s.win.seek(at, s.limit, s.seg.Salt); at+HeaderSize > s.limit {
				break
			}
			b, err := s.win.at(at, HeaderSize)
			if err != nil {
				continue
			}
			h, ok := claim(b, s.seg)
			if !ok || h.group <= off || at+HeaderSize+int64(h.length) > s.limit {
				continue
			}
			if b, err = s.win.at(at, HeaderSize+int(h.length)); err != nil {
				continue
			}
			if _, ok := ParseRecord(b, s.seg, max(at, h.group)); ok {
				return true
			}
		}
	}
	return false
}

func (s *scanner) damage(off, end int64, err error) {
	d := Damage{Offset: off, End: end}
	if readErr := (*readError)(nil); errors.As(err, &readErr) {
		d.Err = readErr.err
	}
	s.res.Damaged = append(s.res.Damaged, d)
}

// NextRecord gives the first place from off on, and before limit, at which a record of seg may begin; limit when
// there is none.
func NextRecord(r io.ReaderAt, seg SegmentID, off, limit int64) int64 {
	w := window{r: r, size: limit}
	return w.seek(off, limit, seg.Salt)
}

var errBroken = errors.New("not a sound record")

// record reads the record at off.
func (s *scanner) record(off int64) (Record, error) {
	if off+HeaderSize > s.limit {
		return Record{}, errBroken
	}
	b, err := s.win.at(off, HeaderSize)
	if err != nil {
		return Record{}, err
	}
	h, ok := parseHeader(b, s.seg, off, s.limit)
	if !ok {
		return Record{}, errBroken
	}
	if b, err = s.win.at(off, HeaderSize+int(h.length)); err != nil {
		return Record{}, err
	}
	rec, ok := ParseRecord(b, s.seg, off)
	if !ok {
		return Record{}, errBroken
	}
	return rec, nil
}

// resume looks for the next sound record behind a broken place at off. Without a known end it
// must be proven that off had been synced, by a record somewhere behind whose group begins
// behind off: without such a one, all may be of the group that was being written when the power
// went, and torn says how much of that there is.
func (s *scanner) resume(off int64) (next, torn int64, ok bool) {
	first := int64(-1)
	for at := off + Align; at+HeaderSize <= s.limit; {
		at = s.win.seek(at, s.limit, s.seg.Salt)
		rec, err := s.record(at)
		if err != nil {
			at += Align
			continue
		}
		if first < 0 {
			first = at
		}
		if s.end != UnknownEnd || rec.Group > off {
			return first, 0, true
		}
		at += RecordSize(len(rec.Payload))
		torn = at - off
	}
	return 0, torn, false
}
