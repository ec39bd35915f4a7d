package store

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"example.org/mta/queue/journal"
)

// OnDisk returns the format in which the newest segment of a queue was begun: the newest that the program knows which has
// written there last. It is 0 if there is no segment that can be read.
func OnDisk(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	var segments []journal.Segment
	for _, e := range entries {
		if id, suffix, ok := ParseSegmentName(e.Name()); ok && suffix == SegmentSuffix {
			segments = append(segments, id)
		}
	}
	slices.SortFunc(segments, func(a, b journal.Segment) int { return cmp.Compare(b.Number, a.Number) })
	for _, id := range segments {
		f, err := os.Open(filepath.Join(dir, SegmentBase(id)+SegmentSuffix))
		if err != nil {
			return 0, err
		}
		start, err := io.ReadAll(io.LimitReader(f, 1<<20))
		f.Close()
		if err != nil {
			return 0, err
		}
		if rec, ok := journal.Parse(start, id, 0); ok && rec.Kind == KindOpened && len(rec.Payload) > 0 {
			return int(rec.Payload[0]), nil
		}
	}
	return 0, nil
}
