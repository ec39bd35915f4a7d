// Package store is what a queue has on its disk: a directory of journal segments with their indexes, and contents that
// have their own files. It knows records, places and messages, and neither what is handed out nor who waits.
//
// A record is read by its place (Dir.ReadRecord, ReadMessage, ReadEnvelope), a segment as a whole by one reader,
// ScanIndex: a start, fsck and compaction go through it, and it salvages the messages of damaged parts. What it finds
// is an Index, which is written beside the segment and read again as a Run; Replay merges the runs of all segments into
// the history of each message. docs/queue.md has the format.
package store

import (
	"fmt"
	"path/filepath"
	"strings"

	"example.org/mta/queue/vfs"
)

// LockName is the file in a queue's directory that is locked while a queue is open.
const LockName = "lock"

// The other names in a queue's directory.
const (
	LargeDir      = "large"   // contents that have their own file
	DamagedDir    = "damaged" // segments that were set aside
	SegmentSuffix = ".seg"
	IndexSuffix   = ".idx"
	SpareSuffix   = ".new" // a segment file to be used next
	tmpSuffix     = ".tmp"
)

// SegmentBase is the name of a segment's files without the suffix. The salt is in it because a
// damaged segment can't be searched for sound records without it.
func SegmentBase(s SegmentID) string { return fmt.Sprintf("%08x-%08x", s.Number, s.Salt) }

// ParseSegmentName gives the segment of a file's name, and the suffix.
func ParseSegmentName(name string) (s SegmentID, suffix string, ok bool) {
	base, suffix, _ := strings.Cut(name, ".")
	n, err := fmt.Sscanf(base, "%08x-%08x", &s.Number, &s.Salt)
	ok = err == nil && n == 2 && base == SegmentBase(s) && s.Number != 0
	return s, "." + suffix, ok
}

func largeName(number uint64) string { return fmt.Sprintf("%016x", number) }

// ParseLargeName gives the number of a content's file.
func ParseLargeName(name string) (uint64, bool) {
	var n uint64
	_, err := fmt.Sscanf(name, "%016x", &n)
	return n, err == nil && name == largeName(n) && n != 0
}

// Dir is the directory of a queue: the names of its files, and reading from them. Its methods are safe for use by many
// goroutines.
type Dir struct {
	root  string
	FS    vfs.FS
	Files *fileCache
	// inUse reports whether a segment is in use. If not, its file may be another one's by now, and that its records
	// can't be read is no damage. Nil: all are.
	inUse func(SegmentID) bool
}

// NewDir makes the directory at root; inUse may be nil.
func NewDir(root string, fs vfs.FS, inUse func(SegmentID) bool) *Dir {
	return &Dir{root: root, FS: fs, Files: newFileCache(fs), inUse: inUse}
}

func (d *Dir) isGone(id SegmentID) bool { return d.inUse != nil && !d.inUse(id) }

// Path is that of a file in the directory.
func (d *Dir) Path(name ...string) string {
	return filepath.Join(append([]string{d.root}, name...)...)
}

// SegmentPath, IndexPath, SparePath and LargePath are those of a segment's files, and of a content's file.
func (d *Dir) SegmentPath(s SegmentID) string { return d.Path(SegmentBase(s) + SegmentSuffix) }
func (d *Dir) IndexPath(s SegmentID) string   { return d.Path(SegmentBase(s) + IndexSuffix) }
func (d *Dir) SparePath(s SegmentID) string   { return d.Path(SegmentBase(s) + SpareSuffix) }
func (d *Dir) LargePath(n uint64) string      { return d.Path(LargeDir, largeName(n)) }
