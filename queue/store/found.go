package store

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"example.org/mta/queue/vfs"
)

// Found is a segment as the start finds it.
type Found struct {
	ID    SegmentID
	Size  int64 // of the file
	end   int64 // what of it is to be trusted, or UnknownEnd
	used  bool  // its first group was synced
	empty bool  // it was dropped while no record could say so: its octets are gone on purpose
	Index bool  // there is a file with its index
	Run   *Run
	Open  Opening
}

// files lists the directory: the segments in order of number, and what else is there.
func (d *Dir) files() (segments []Found, others []vfs.Info, err error) {
	all, err := d.FS.List(d.root)
	for _, f := range all {
		if id, suffix, ok := ParseSegmentName(f.Name); ok && suffix == SegmentSuffix {
			segments = append(segments, Found{ID: id, Size: f.Size, end: UnknownEnd})
		} else {
			others = append(others, f)
		}
	}
	slices.SortFunc(segments, func(a, b Found) int { return cmp.Compare(a.ID.Number, b.ID.Number) })
	return segments, others, err
}

// ListSegments finds the segments, in order of number, and the largest number that was ever given to one. aside counts
// the damaged segments that were set aside, strays are the indexes of segments that are not there. What else a crash
// has left is removed.
func (d *Dir) ListSegments() (list []Found, strays []vfs.Info, last uint32, aside int, err error) {
	list, others, err := d.files()
	if err != nil {
		return nil, nil, 0, 0, fmt.Errorf("queue: reading directory: %w", err)
	}
	indexes := map[SegmentID]vfs.Info{}
	for _, f := range others {
		if strings.HasSuffix(f.Name, tmpSuffix) || strings.HasSuffix(f.Name, SpareSuffix) {
			d.FS.Remove(d.Path(f.Name)) // was being written, or never used; if it stays it does no harm
		} else if id, suffix, ok := ParseSegmentName(f.Name); ok {
			last = max(last, id.Number)
			if suffix == IndexSuffix {
				indexes[id] = f
			}
		}
	}
	for i := range list {
		last = max(last, list[i].ID.Number)
		list[i].Index = indexes[list[i].ID].Size > 0
		delete(indexes, list[i].ID)
	}
	damaged, err := d.FS.List(d.Path(DamagedDir))
	if err != nil {
		return nil, nil, 0, 0, fmt.Errorf("queue: reading directory: %w", err)
	}
	for _, f := range damaged {
		if id, _, ok := ParseSegmentName(f.Name); ok {
			last = max(last, id.Number)
			aside++
		}
	}
	return list, slices.Collect(maps.Values(indexes)), last, aside, nil
}

// Opener gives the segments of a directory their indexes.
type Opener struct {
	*Dir
	Log        *slog.Logger
	Damage     func(err error, consequence string) // reports it
	Unreadable []SegmentID                         // segments that can't be read at all
}

// ReadIndexes opens the index of each segment, or makes it. Files in which nothing was ever
// synced are deleted; those that can't be read at all are left alone and out of the list.
func (o *Opener) ReadIndexes(list []Found) ([]Found, error) {
	kept := list[:0]
	for i := range list {
		f := list[i]
		if f.Index {
			r, err := OpenIndex(o.FS, o.IndexPath(f.ID), f.ID)
			format := (*FormatError)(nil)
			switch {
			case err == nil:
				f.Run = r
			case errors.As(err, &format):
				format.file = o.IndexPath(f.ID)
				return nil, fmt.Errorf("queue: %w", format)
			default:
				o.Log.Warn("queue: an index can't be used and is made again from its segment", "file",
					o.IndexPath(f.ID), "error", err)
			}
		}
		use := true
		if f.Run == nil {
			var err error
			if use, err = o.scanSegment(&f); err != nil {
				return nil, err
			}
		}
		if use {
			kept = append(kept, f)
		}
	}
	return kept, nil
}

// UsedMark is how many octets a segment's file is longer than its room, from when its first group is durable on. No
// sync waits for that: a power cut that takes it away takes only the proof that records were there.
const UsedMark = Align

// FindEnds reads, from the opened records, where the segments before end. made is what a new segment is made with, 0
// where that is not known.
func (d *Dir) FindEnds(list []Found, made int64) {
	ends := map[uint32]int64{}
	trimmed, newest := make([]bool, len(list)), Opening{}
	for i := range list {
		f := &list[i]
		f.used = made > 0 && f.Size == made+UsedMark || made == 0 && f.Size%1024 == UsedMark
		rec, err := d.ReadRecord(Place{ID: f.ID, Off: 0, Size: NoteGuess})
		switch {
		case err == nil && rec.Kind == KindOpened:
			f.Open, _ = DecodeOpening(rec.Payload)
			trimmed[i] = f.Size < f.Open.Allocated
		case made > 0: // a file has its room before it has the name of a segment
			trimmed[i] = f.Size != made && !f.used
		default:
			trimmed[i] = f.Size%1024 != 0 && !f.used
		}
		for _, e := range f.Open.Ends {
			ends[e.Number] = e.End
		}
		if len(f.Open.Numbers) > 0 {
			newest = f.Open
		}
	}
	for i := range list {
		f := &list[i]
		f.empty = f.Size == Void && newest.names(f.ID.Number)
		if end, ok := ends[f.ID.Number]; ok {
			f.end = end
		} else if trimmed[i] && f.Size != Void {
			f.end = f.Size
		}
	}
}

// scan reads a segment. One without an octet has lost them: a file has its room before it has the name of a segment,
// and void octets when it is trimmed. So has one that was used and has no record.
func (d *Dir) scan(f *Found) (*Index, ScanResult, error) {
	if f.empty {
		ix := NewIndex(f.ID)
		ix.End = Void
		return ix, ScanResult{End: Void}, nil
	}
	if f.Size == 0 {
		return nil, ScanResult{}, errors.New("file has no octets any more")
	}
	ix, res, err := ScanIndex(d.FS, d.SegmentPath(f.ID), f.ID, f.end)
	if err == nil && f.used && res.End == 0 && len(ix.Damaged) == 0 {
		return nil, res, errors.New("file has no sound record any more")
	}
	return ix, res, err
}

// scanSegment makes the index of a segment from its records. It reports false when the segment
// is not to be used. An error says that a newer program has written it.
func (o *Opener) scanSegment(f *Found) (use bool, _ error) {
	name := o.SegmentPath(f.ID)
	ix, res, err := o.scan(f)
	if format := (*FormatError)(nil); errors.As(err, &format) {
		return false, fmt.Errorf("queue: %w", format)
	}
	if err != nil {
		o.Damage(&DamageError{File: name, Off: 0, Err: err},
			"a journal segment can't be read at all; it is left where it is, and what is in it is not served")
		o.Unreadable = append(o.Unreadable, f.ID)
		return false, nil
	}
	if res.Torn > 0 {
		o.Log.Info("queue: the end of a journal segment was never synced, so that nothing in it was promised; it is "+
			"void", "file", name, "offset", res.End, "octets", res.Torn)
	}
	o.ReportDamage(f.ID, ix.Damaged, o.Damage)
	if res.End == 0 && len(ix.Damaged) == 0 {
		o.FS.Remove(name) // a segment that was made and never used; if it stays it does no harm
		return false, nil
	}
	f.Run = ix.Run()
	if len(ix.Damaged) > 0 {
		f.Index = true // there must be none
		o.FS.Remove(o.IndexPath(f.ID))
	} else if err := ix.Write(o.FS, o.IndexPath(f.ID)); err == nil {
		f.Index = true
	} else if !errors.Is(err, vfs.ErrReadOnly) {
		o.Log.Warn("queue: writing an index; it is tried again", "file", o.IndexPath(f.ID), "error", err)
	}
	return true, nil
}

// ErrMissing is wrapped when a segment is not there that should be.
var ErrMissing = errors.New("journal segments are missing")

// Roll is the segments that a directory has.
type Roll struct {
	there  map[uint32]bool // by number
	strays []SegmentID     // without a segment, and with an index that was made when one is kept for each
}

// NewRoll takes what ListSegments has found.
func (d *Dir) NewRoll(list []Found, strays []vfs.Info) Roll {
	r := Roll{there: map[uint32]bool{}}
	for i := range list {
		r.there[list[i].ID.Number] = true
	}
	for _, f := range strays {
		id, _, _ := ParseSegmentName(f.Name)
		ix, err := OpenIndex(d.FS, d.Path(f.Name), id)
		if err == nil {
			ix.Close()
		}
		if f.Size == 0 || err == nil && ix.Form >= withNumbers {
			r.strays = append(r.strays, id)
		}
	}
	return r
}

// Missing returns the segments that are lost, given those that were read, in order, and those that can't be. The salt
// is 0 where it is not known.
//
// The newest segment names all that there were when it began; what was dropped since was buried first. Itself it is
// named by its index, which is there from its first group on.
func (r Roll) Missing(list []Found, unreadable []SegmentID) (lost []SegmentID) {
	var newest Found
	dropped := map[uint32]bool{}
	for i := range list {
		newest = list[i]
		for _, g := range newest.Run.Buried {
			dropped[g.Segment] = dropped[g.Segment] || slices.Equal(g.Stretches, Dropped(g.Segment).Stretches)
		}
	}
	last := newest.ID.Number
	for _, id := range unreadable {
		if id.Number > last {
			newest.Open.Numbers, last = nil, id.Number
		}
	}
	salts := map[uint32]uint32{}
	for _, id := range r.strays {
		salts[id.Number] = id.Salt
		if id.Number > last {
			lost, newest.Open.Numbers = append(lost, id), nil
		}
	}
	for _, n := range newest.Open.Numbers {
		for number := n.From; number <= n.To && number < newest.ID.Number; number++ {
			if !r.there[number] && !dropped[number] {
				lost = append(lost, SegmentID{number, salts[number]})
			}
		}
	}
	return lost
}

// ReportDamage reports the damage in a segment.
func (d *Dir) ReportDamage(id SegmentID, damaged []Damage, report func(err error, consequence string)) {
	for _, at := range damaged {
		report(&DamageError{File: d.SegmentPath(id), Off: at.Offset, Err: errors.New(at.String())},
			"part of a journal segment; a message there whose envelope is sound is reported to its sender, one whose "+
				"envelope is not is named when it is due; the file is set aside and not deleted when it is no longer "+
				"needed")
	}
}

// ListLarge gives the sizes of the contents that have their own file, by their numbers.
func (d *Dir) ListLarge() (map[uint64]int64, error) {
	files, err := d.FS.List(d.Path(LargeDir))
	if err != nil {
		return nil, fmt.Errorf("queue: reading directory: %w", err)
	}
	sizes := map[uint64]int64{}
	for _, f := range files {
		if n, ok := ParseLargeName(f.Name); ok {
			sizes[n] = f.Size
		}
	}
	return sizes, nil
}

// Void is the size of the file, in octets, of a trimmed segment in which nothing was ever synced.
const Void = 1

// Trim cuts a segment off at its end, durably. So that one that has lost its octets can be told from one that never had
// any, Void are left of it at least.
func (d *Dir) Trim(id SegmentID, size int64) error {
	size = max(size, Void)
	f, err := d.FS.OpenWrite(d.SegmentPath(id))
	if err != nil {
		return err
	}
	err = f.Truncate(size)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// SizeOf is the size of a file, 0 where that is not known.
func (d *Dir) SizeOf(name string) int64 {
	f, err := d.FS.Open(name)
	if err != nil {
		return 0
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return 0
	}
	return n
}
