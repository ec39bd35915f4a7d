package accounting

import (
	"os"
	"path/filepath"
	"time"

	"example.org/mta/internal/format"
	"example.org/mta/internal/linelog"
)

// Format is what this program knows of the log's formats. Fields and types may be added to records without a new one.
var Format = format.Store{Name: "accounting log", Reads: 1, Writes: 1, Unstated: 1}

const (
	indexSuffix = ".idx"
	// currentName is a symbolic link to the newest file, for tail -F.
	currentName = "current.jsonl"
	// longestLine is far above any record; what is longer is no record and is passed over.
	longestLine = 1 << 20
)

// logDir is the log in a directory.
func logDir(path string) linelog.Dir {
	return linelog.Dir{Path: path, Name: "accounting", Prefix: "mta-", Compressed: true, Longest: longestLine}
}

// Pace returns the octets that the finished files of a log take, and the time in which they were written.
func Pace(dir string) (octets int64, over time.Duration) { return logDir(dir).Pace() }

// point makes the symbolic link lead to f, at no instant to nothing.
func point(dir string, f linelog.File) error {
	fresh := filepath.Join(dir, currentName+".new")
	_ = os.Remove(fresh) // left by a crash
	if err := os.Symlink(filepath.Base(f.Path), fresh); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(dir, currentName))
}
