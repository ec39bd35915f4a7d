package accounting

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

	"example.org/mta/internal/format"
)

// Format is what this program knows of the log's formats. Fields and types may be added to records without a new one.
var Format = format.Store{Name: "accounting log", Reads: 1, Writes: 1, Unstated: 1}

// A log is a directory of files whose names tell when they were begun, so that the order of the
// names is the order of the records. The newest is the one that is written to.
const (
	namePrefix = "mta-"
	nameLayout = "20060102T150405"
	nameSuffix = ".jsonl"
	// compressedSuffix is added to the name of a compressed file.
	compressedSuffix = ".zst"
	indexSuffix      = ".idx"

	// currentName is a symbolic link to the newest file, for tail -F.
	currentName = "current" + nameSuffix
)

// logFile is one file of a log.
type logFile struct {
	path       string
	begun      time.Time // to the second, UTC
	compressed bool
}

// plain is the name of the file while it is not compressed.
func (f logFile) plain() string { return strings.TrimSuffix(f.path, compressedSuffix) }

// index is the name of the file's index.
func (f logFile) index() string { return strings.TrimSuffix(f.plain(), nameSuffix) + indexSuffix }

// id names the file in positions.
func (f logFile) id() int64 { return f.begun.Unix() }

func fileAt(dir string, begun time.Time) logFile {
	begun = begun.UTC().Truncate(time.Second)
	return logFile{path: filepath.Join(dir, namePrefix+begun.Format(nameLayout)+nameSuffix), begun: begun}
}

// listFiles gives the files of a log, oldest first. Other files in the directory are not ours.
func listFiles(dir string) ([]logFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing accounting files: %w", err)
	}
	var files []logFile
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), namePrefix)
		if !ok || !e.Type().IsRegular() {
			continue
		}
		name, compressed := strings.CutSuffix(name, compressedSuffix)
		if name, ok = strings.CutSuffix(name, nameSuffix); !ok {
			continue
		}
		if t, err := time.Parse(nameLayout, name); err == nil {
			files = append(files, logFile{filepath.Join(dir, e.Name()), t, compressed})
		}
	}
	slices.SortFunc(files, func(a, b logFile) int {
		return cmp.Or(cmp.Compare(a.begun.UnixNano(), b.begun.UnixNano()), strings.Compare(a.path, b.path))
	})
	// Both forms are there if a crash came while the plain one was being removed.
	return slices.CompactFunc(files, func(a, b logFile) bool { return a.begun.Equal(b.begun) }), nil
}

// expired gives the files to delete at now. The newest is never among them, nor is what is needed: the file
// with the id needed and later ones; 0 is none.
func expired(files []logFile, sizes []int64, now time.Time, keep time.Duration, keepSize, needed int64) []logFile {
	var total int64
	for _, s := range sizes {
		total += s
	}
	var gone []logFile
	for i, f := range files[:max(0, len(files)-1)] {
		// All records of a file are older than the next file.
		old := keep > 0 && files[i+1].begun.Before(now.Add(-keep))
		if !old && (keepSize <= 0 || total <= keepSize) || needed > 0 && f.id() >= needed {
			break
		}
		gone = append(gone, f)
		total -= sizes[i]
	}
	return gone
}

// sweep deletes what is beyond the limits and not needed, and returns how many files that were.
func sweep(dir string, now time.Time, keep time.Duration, keepSize, needed int64) (int, error) {
	files, err := listFiles(dir)
	if err != nil {
		return 0, err
	}
	sizes := make([]int64, len(files))
	for i, f := range files {
		if info, err := os.Stat(f.path); err == nil {
			sizes[i] = info.Size()
		}
	}
	n := 0
	for _, f := range expired(files, sizes, now, keep, keepSize, needed) {
		for _, name := range []string{f.plain(), f.plain() + compressedSuffix, f.index()} {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return n, fmt.Errorf("deleting an old accounting file: %w", err)
			}
		}
		n++
	}
	return n, nil
}

// point makes the symbolic link lead to f, at no instant to nothing.
func point(dir string, f logFile) error {
	fresh := filepath.Join(dir, currentName+".new")
	_ = os.Remove(fresh) // left by a crash
	if err := os.Symlink(filepath.Base(f.path), fresh); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(dir, currentName))
}
