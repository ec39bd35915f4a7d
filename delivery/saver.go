package delivery

import (
	"log/slog"

	"example.org/mta/destdb"
)

// saver writes what was learned behind, from the clock's goroutine.
type saver struct {
	store destdb.Store
	log   *slog.Logger
}

func newSaver(store destdb.Store, log *slog.Logger) *saver { return &saver{store: store, log: log} }

// saveAtOnce bounds a batch: it is copied with the lock held.
const saveAtOnce = 1000

// save writes a batch of what has changed, or all of it. What fails is tried again with the next.
func (s *Scheduler) save(all bool) {
	if s.saver.store == nil {
		return
	}
	for {
		s.mu.Lock()
		batch := s.db.Changed(saveAtOnce)
		s.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		if err := s.saver.store.Save(batch); err != nil {
			s.saver.log.Warn("saving what is known of destinations", "error", err)
			s.mu.Lock()
			s.db.Again(batch)
			s.mu.Unlock()
			return
		}
		if !all {
			return
		}
	}
}
