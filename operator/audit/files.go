package audit

import (
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

// Format is what this program knows of the log's formats. Fields may be added to lines without a new one.
var Format = format.Store{Name: "audit log", Reads: 1, Writes: 1, Unstated: 1}

// The audit log is a directory of files whose names have the time that they were begun at. The newest is written to.
const (
	namePrefix = "audit-"
	nameLayout = "20060102T150405"
	nameSuffix = ".jsonl"
)

type logFile struct {
	path  string
	begun time.Time // to the second, UTC
}

func fileAt(dir string, begun time.Time) logFile {
	begun = begun.UTC().Truncate(time.Second)
	return logFile{filepath.Join(dir, namePrefix+begun.Format(nameLayout)+nameSuffix), begun}
}

// listFiles returns the files of a log, oldest first. Other files in the directory are not ours.
func listFiles(dir string) (files []logFile, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing audit files: %w", err)
	}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), namePrefix)
		if name, whole := strings.CutSuffix(name, nameSuffix); ok && whole && e.Type().IsRegular() {
			if t, err := time.Parse(nameLayout, name); err == nil {
				files = append(files, logFile{filepath.Join(dir, e.Name()), t})
			}
		}
	}
	slices.SortFunc(files, func(a, b logFile) int { return a.begun.Compare(b.begun) })
	return files, nil
}

// sweep deletes files all of whose lines are older than keep, and while there is more than most, the oldest. The newest
// file stays.
func sweep(dir string, now time.Time, keep time.Duration, most int64) error {
	files, err := listFiles(dir)
	if err != nil {
		return err
	}
	var total int64
	sizes := make([]int64, len(files))
	for i, f := range files {
		if info, err := os.Stat(f.path); err == nil {
			sizes[i] = info.Size()
			total += sizes[i]
		}
	}
	for i := 0; i+1 < len(files); i++ {
		if !files[i+1].begun.Before(now.Add(-keep)) && total <= most {
			return nil
		}
		if err := os.Remove(files[i].path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("deleting an old audit file: %w", err)
		}
		total -= sizes[i]
	}
	return nil
}
