package store

import (
	"log/slog"
	"time"

	"example.org/mta/internal/faultlog"
)

// Failures are the failures that repeat while a disk is full or broken, each message or each
// second. The janitor looks whether they are over.
type Failures struct {
	Journal    *faultlog.Kind // a group could not be written
	Stalled    *faultlog.Kind // nothing can be
	Spare      *faultlog.Kind // a segment in advance
	Deleting   *faultlog.Kind // of needless segments
	Finishing  *faultlog.Kind // sealed segments
	Compacting *faultlog.Kind
	Leftover   *faultlog.Kind // content of a refused message that can't be removed
	Space      *faultlog.Kind // free disk space isn't known
}

// NewFailures makes those of a queue.
func NewFailures(log *slog.Logger, now func() time.Time) Failures {
	kind := func(level slog.Level, began, ended string) *faultlog.Kind {
		return faultlog.New(log, now, level, "queue: "+began, "queue: "+ended)
	}
	return Failures{
		Journal: kind(slog.LevelError,
			"writing the journal failed; what fails is not accepted, and its segment is closed and its end void",
			"writing the journal has stopped failing"),
		Stalled: kind(slog.LevelError,
			"the journal can't be written; mail is neither accepted nor handed out until it can",
			"the journal can be written again"),
		Spare: kind(slog.LevelWarn, "making the next journal segment in advance; it is tried again",
			"journal segments are made in advance again"),
		Deleting: kind(slog.LevelWarn, "deleting journal segments; it is tried again",
			"journal segments are deleted again"),
		Finishing: kind(slog.LevelWarn, "finishing a journal segment; it is tried again",
			"journal segments are finished again"),
		Compacting: kind(slog.LevelWarn, "compacting a journal segment; it is left as it is for now",
			"journal segments are compacted again"),
		Leftover: kind(slog.LevelWarn,
			"removing the file of a message that was not accepted; the next start tries again",
			"files of messages that were not accepted are removed again"),
		Space: kind(slog.LevelError, "asking for free disk space; none is assumed", "free disk space is known again"),
	}
}

// Look looks whether failures are over.
func (t *Failures) Look() {
	for _, k := range []*faultlog.Kind{t.Journal, t.Stalled, t.Spare, t.Deleting, t.Finishing, t.Compacting,
		t.Leftover, t.Space} {
		k.Check()
	}
}
