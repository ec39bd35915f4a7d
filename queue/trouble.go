package queue

import (
	"log/slog"
	"time"

	"example.org/mta/internal/faultlog"
)

// troubles are the failures that repeat while a disk is full or broken, each message or each
// second. The janitor looks whether they are over.
type troubles struct {
	journal    *faultlog.Kind // a group could not be written
	stalled    *faultlog.Kind // nothing can be
	spare      *faultlog.Kind // a segment in advance
	deleting   *faultlog.Kind // of needless segments
	finishing  *faultlog.Kind // sealed segments
	compacting *faultlog.Kind
	leftover   *faultlog.Kind // content of a refused message that can't be removed
	space      *faultlog.Kind // free disk space isn't known
}

func newTroubles(log *slog.Logger, now func() time.Time) troubles {
	kind := func(level slog.Level, began, ended string) *faultlog.Kind {
		return faultlog.New(log, now, level, "queue: "+began, "queue: "+ended)
	}
	return troubles{
		journal: kind(slog.LevelError, "writing the journal failed; what fails is not accepted, and its segment is closed and its end void",
			"writing the journal has stopped failing"),
		stalled: kind(slog.LevelError, "the journal can't be written; mail is neither accepted nor handed out until it can",
			"the journal can be written again"),
		spare:      kind(slog.LevelWarn, "making the next journal segment in advance; it is tried again", "journal segments are made in advance again"),
		deleting:   kind(slog.LevelWarn, "deleting journal segments; it is tried again", "journal segments are deleted again"),
		finishing:  kind(slog.LevelWarn, "finishing a journal segment; it is tried again", "journal segments are finished again"),
		compacting: kind(slog.LevelWarn, "compacting a journal segment; it is left as it is for now", "journal segments are compacted again"),
		leftover:   kind(slog.LevelWarn, "removing the file of a message that was not accepted; the next start tries again", "files of messages that were not accepted are removed again"),
		space:      kind(slog.LevelError, "asking for free disk space; none is assumed", "free disk space is known again"),
	}
}

func (t *troubles) look() {
	for _, k := range []*faultlog.Kind{t.journal, t.stalled, t.spare, t.deleting, t.finishing, t.compacting, t.leftover, t.space} {
		k.Check()
	}
}
