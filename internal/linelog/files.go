// Package linelog keeps a log: a directory of files of lines, whose names have the time that they were begun at, so
// that the order of the names is the order of the lines. The newest file is the one that is written to.
//
// Output appends to it (output.go), Compress makes a finished file smaller (compress.go), Dir lists and deletes files
// (files.go). A Reader reads them from a Position on (reader.go, stream.go) or from the end (backward.go, newest.go).
// Nothing here knows more of a line than its end: sealed ones have a sum and their position (sealed.go). The package
// starts no goroutines.
package linelog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Layout is the time of a file's beginning in its name, in UTC.
const Layout = "20060102T150405"

const (
	suffix = ".jsonl"
	// compressedSuffix is added to the name of a compressed file.
	compressedSuffix = ".zst"
	partSuffix       = ".part"
)

// Dir is a log.
type Dir struct {
	Path       string
	Name       string // for errors: accounting, audit
	Prefix     string // of the names of its files
	Compressed bool   // its files may be compressed
	Longest    int    // octets of a line; what is longer is passed over
}

// File is one file of a log.
type File struct {
	Path       string
	Begun      time.Time // to the second, UTC
	Compressed bool
}

// Plain is the name of the file while it is not compressed.
func (f File) Plain() string { return strings.TrimSuffix(f.Path, compressedSuffix) }

// Beside is the name of a file that belongs to this one, with another suffix.
func (f File) Beside(other string) string { return strings.TrimSuffix(f.Plain(), suffix) + other }

// ID names the file in positions.
func (f File) ID() int64 { return f.Begun.Unix() }

// At is the file that was begun at a time.
func (d Dir) At(begun time.Time) File {
	begun = begun.UTC().Truncate(time.Second)
	return File{Path: filepath.Join(d.Path, d.Prefix+begun.Format(Layout)+suffix), Begun: begun}
}

// Files gives the files of a log, oldest first; none when the directory is not there. Other files in it are not ours.
func (d Dir) Files() ([]File, error) {
	entries, err := os.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s files: %w", d.Name, err)
	}
	var files []File
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), d.Prefix)
		if !ok || !e.Type().IsRegular() {
			continue
		}
		name, compressed := strings.CutSuffix(name, compressedSuffix)
		if name, ok = strings.CutSuffix(name, suffix); !ok || compressed && !d.Compressed {
			continue
		}
		if t, err := time.Parse(Layout, name); err == nil {
			files = append(files, File{filepath.Join(d.Path, e.Name()), t, compressed})
		}
	}
	slices.SortFunc(files, func(a, b File) int {
		return cmp.Or(a.Begun.Compare(b.Begun), strings.Compare(a.Path, b.Path))
	})
	// Both forms are there if a crash came while the plain one was being removed.
	return slices.CompactFunc(files, func(a, b File) bool { return a.Begun.Equal(b.Begun) }), nil
}

// Limits say which files are deleted. A zero field means no limit.
type Limits struct {
	Keep     time.Duration // age of the youngest line of a file
	KeepSize int64         // octets of all files together
	// Needed is the id of a file that is kept with all later ones, whatever the limits say; 0 means none.
	Needed int64
}

// expired gives the files to delete at now. The newest is never among them.
func (l Limits) expired(files []File, sizes []int64, now time.Time) []File {
	var total int64
	for _, s := range sizes {
		total += s
	}
	var gone []File
	for i, f := range files[:max(0, len(files)-1)] {
		// All lines of a file are older than the next file.
		old := l.Keep > 0 && files[i+1].Begun.Before(now.Add(-l.Keep))
		if !old && (l.KeepSize <= 0 || total <= l.KeepSize) || l.Needed > 0 && f.ID() >= l.Needed {
			break
		}
		gone = append(gone, f)
		total -= sizes[i]
	}
	return gone
}

// Pace returns the octets on disk of the finished files, and the time in which they were written; 0 if there are none.
func (d Dir) Pace() (octets int64, over time.Duration) {
	files, err := d.Files()
	if err != nil || len(files) == 0 {
		return 0, 0
	}
	last := files[len(files)-1]
	for _, f := range files[:len(files)-1] {
		if info, err := os.Stat(f.Path); err == nil {
			octets += info.Size()
		}
	}
	return octets, last.Begun.Sub(files[0].Begun)
}

// Sweep deletes the files beyond the limits, with what is beside them under other suffixes, and returns how many files
// that were.
func (d Dir) Sweep(now time.Time, l Limits, beside ...string) (int, error) {
	files, err := d.Files()
	if err != nil {
		return 0, err
	}
	sizes := make([]int64, len(files))
	for i, f := range files {
		if info, err := os.Stat(f.Path); err == nil {
			sizes[i] = info.Size()
		}
	}
	n := 0
	for _, f := range l.expired(files, sizes, now) {
		names := []string{f.Plain(), f.Plain() + compressedSuffix}
		for _, other := range beside {
			names = append(names, f.Beside(other))
		}
		for _, name := range names {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return n, fmt.Errorf("deleting an old %s file: %w", d.Name, err)
			}
		}
		n++
	}
	return n, nil
}

// Octets is about how many octets of lines are between two positions.
func (d Dir) Octets(from, to Position) int64 {
	const compressed = 8 // times smaller, about
	sum := to.Offset - from.Offset
	if from.File >= to.File {
		return max(0, sum)
	}
	files, _ := d.Files()
	for _, f := range files {
		if f.ID() < from.File || f.ID() >= to.File {
			continue
		}
		info, err := os.Stat(f.Path)
		switch {
		case err != nil:
		case f.Compressed:
			sum += compressed * info.Size()
		default:
			sum += info.Size()
		}
	}
	return max(0, sum)
}

// Leftovers gives what a crash has left of a compression, and what is beside files that are gone under a suffix.
func (d Dir) Leftovers(files []File, beside string) (names []string) {
	there := make(map[string]bool)
	for _, f := range files {
		there[f.Beside(beside)] = true
	}
	all, _ := filepath.Glob(filepath.Join(d.Path, d.Prefix+"*"))
	for _, name := range all {
		if strings.HasSuffix(name, beside) && !there[name] ||
			strings.HasSuffix(name, suffix+compressedSuffix+partSuffix) {
			names = append(names, name)
		}
	}
	return names
}
