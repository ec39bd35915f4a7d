package events

import (
	"context"
	"time"

	"example.org/mta/mta/accounting"
)

// Position is a place between two records of a log.
type Position = accounting.Position

// Log is what streams read: the accounting log of a relay (accounting.Writer).
type Log interface {
	// Synced is the end of the records that are on stable storage; zero while there is none.
	Synced() Position
	// Watch returns a channel that gets a value after Synced has moved, and what ends that.
	Watch() (changed <-chan struct{}, stop func())
	// ReadFrom calls each with the records from one position to another: their position, that of the next record, and
	// the line, which is valid until each returns. It returns where to go on, and the error of each, if there is one.
	// The error is a *accounting.MissingError if the file of from was deleted.
	ReadFrom(ctx context.Context, from, to Position, each func(at, next Position, line []byte) error) (Position, error)
	// Since is a position before all records since a time. Of the zero time it is the first that can be read.
	Since(time.Time) (Position, error)
	// Octets is about how many octets are between two positions.
	Octets(from, to Position) int64
}
