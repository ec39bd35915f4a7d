package delivery

// saveAtOnce bounds a batch: it is copied with the lock held.
const saveAtOnce = 1000

// save writes a batch of what has changed, or all of it. What fails is tried again with the next.
func (s *Scheduler) save(all bool) {
	if s.cfg.Store == nil {
		return
	}
	for {
		s.mu.Lock()
		batch := s.db.Changed(saveAtOnce)
		s.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		if err := s.cfg.Store.Save(batch); err != nil {
			s.cfg.Log.Warn("saving what is known of destinations", "error", err)
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
