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
)

// A log is a directory of files whose names tell when they were begun, so that the order of the
// names is the order of the records. The newest is the one that is written to.
const (
	namePrefix = "mta-"
	nameLayout = "20060102T150405"
	nameSuffix = ".jsonl"

	// currentName is a symbolic link to the newest file, for tail -F.
	currentName = "current" + nameSuffix
)

// logFile is one file of a log.
type logFile struct {
	path  string
	begun time.Time // to the second, UTC
}

func fileAt(dir string, begun time.Time) logFile {
	begun = begun.UTC().Truncate(time.Second)
	return logFile{filepath.Join(dir, namePrefix+begun.Format(nameLayout)+nameSuffix), begun}
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
		if name, ok = strings.CutSuffix(name, nameSuffix); !ok {
			continue
		}
		if t, err := time.Parse(nameLayout, name); err == nil {
			files = append(files, logFile{filepath.Join(dir, e.Name()), t})
		}
	}
	slices.SortFunc(files, func(a, b logFile) int { return cmp.Compare(a.begun.UnixNano(), b.begun.UnixNano()) })
	return files, nil
}

// expired gives the files to delete at now. The newest is never among them.
func expired(files []logFile, sizes []int64, now time.Time, keep time.Duration, keepSize int64) []logFile {
	var total int64
	for _, s := range sizes {
		total += s
	}
	var gone []logFile
	for i, f := range files[:max(0, len(files)-1)] {
		// All records of a file are older than the next file.
		old := keep > 0 && files[i+1].begun.Before(now.Add(-keep))
		if !old && (keepSize <= 0 || total <= keepSize) {
			break
		}
		gone = append(gone, f)
		total -= sizes[i]
	}
	return gone
}

// sweep deletes what is beyond the limits and tells how many files that were.
func sweep(dir string, now time.Time, keep time.Duration, keepSize int64) (int, error) {
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
	for _, f := range expired(files, sizes, now, keep, keepSize) {
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return n, fmt.Errorf("deleting an old accounting file: %w", err)
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
