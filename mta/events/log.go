package events

import (
	"context"
	"os"
	"strings"
	"time"

	"example.org/mta/mta/accounting"
)

// Position is a place between two records of a log.
type Position = accounting.Position

// Log is what streams read. NewLog makes one of an accounting log.
type Log interface {
	// Synced is the end of the records that are on stable storage.
	Synced() Position
	// Watch returns a channel that gets a value after Synced has moved, and what ends that.
	Watch() (changed <-chan struct{}, stop func())
	// Read calls each with the records from one position to another: their position, that of the next
	// record, and the line, which is valid until each returns. It returns where to go on, and the error of each, if
	// there is one. The error is a *accounting.MissingError if the file of from was deleted.
	Read(ctx context.Context, from, to Position, each func(at, next Position, line []byte) error) (Position, error)
	// Since is a position before all records since a time. Of the zero time it is the first that can be read.
	Since(time.Time) (Position, error)
	// Bytes is about how many octets are between two positions.
	Bytes(from, to Position) int64
}

// accountingLog is the log of a relay.
type accountingLog struct {
	*accounting.Writer
	dir string
}

// NewLog returns the log that w writes to a directory.
func NewLog(w *accounting.Writer, dir string) Log { return accountingLog{w, dir} }

// Synced is the zero position while the log has no file: it is before all records, and the writer's is no file's.
func (l accountingLog) Synced() Position {
	if p := l.Writer.Synced(); p.File > 0 {
		return p
	}
	return Position{}
}

func (l accountingLog) Read(ctx context.Context, from, to Position, each func(at, next Position, line []byte) error) (Position, error) {
	return l.ReadFrom(ctx, from, to, each)
}

func (l accountingLog) Since(t time.Time) (Position, error) { return accounting.PositionAt(l.dir, t) }

// compressed is about how many times smaller a compressed file is.
const compressed = 8

func (l accountingLog) Bytes(from, to Position) int64 {
	if from.File == to.File || to.Compare(from) <= 0 {
		return max(0, to.Offset-from.Offset)
	}
	sum := to.Offset - from.Offset
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return max(0, sum)
	}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), "mta-")
		date, ending, _ := strings.Cut(name, ".")
		p, err := accounting.ParsePosition(date + "-000000000000")
		if !ok || err != nil || p.File < from.File || p.File >= to.File {
			continue
		}
		info, err := e.Info()
		switch {
		case err != nil:
		case strings.HasSuffix(ending, "jsonl"):
			sum += info.Size()
		case strings.HasSuffix(ending, "zst"):
			sum += compressed * info.Size()
		}
	}
	return max(0, sum)
}
