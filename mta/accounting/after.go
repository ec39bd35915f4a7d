package accounting

import "time"

// After calls f when all records that were added before are durable: the outcome that they record can then
// be noted where it counts, and no kill or power cut leaves it without its records. A disk that takes no
// records holds nothing up: f is called at once if writing fails or records are dropped, and after longestHold if
// the disk doesn't answer. f runs on the caller's goroutine or on the writer's, and must neither block nor wait for
// the Writer.
func (w *Writer) After(f func()) {
	w.mu.Lock()
	idle := len(w.mu.waiting) == 0 && !w.mu.writing
	if idle || w.mu.stuck || w.mu.lost > 0 {
		w.mu.Unlock()
		f()
		return
	}
	w.mu.after = append(w.mu.after, f)
	first := len(w.mu.after) == 1
	w.mu.Unlock()
	if first {
		signal(w.wake)
	}
}

// release calls what waited for the records that were written last.
func (w *Writer) release() {
	w.mu.Lock()
	all := w.mu.held
	w.mu.held, w.mu.stuck = nil, false
	w.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// watchDisk releases all that waits if the write that begins takes too long. It is stopped when the write
// has ended.
func (w *Writer) watchDisk() *time.Timer {
	w.mu.Lock()
	w.mu.writes++
	this := w.mu.writes
	w.mu.Unlock()
	return time.AfterFunc(longestHold, func() {
		w.mu.Lock()
		late := w.mu.writing && w.mu.writes == this
		w.mu.Unlock()
		if late {
			w.releaseAll()
		}
	})
}

// releaseAll calls all that waits: the disk takes no records.
func (w *Writer) releaseAll() {
	w.mu.Lock()
	all := append(w.mu.held, w.mu.after...)
	w.mu.held, w.mu.after, w.mu.stuck = nil, nil, true
	w.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// Synced returns the end of what is on stable storage, the zero Position while the log has no file. What was read
// beyond can be gone after a power cut, and something else be at its place: readers who pass records on must stop
// there.
func (w *Writer) Synced() Position {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.synced
}

// Watch returns a channel that gets a value after Synced has changed; one value stands for any number of
// changes. stop ends that.
func (w *Writer) Watch() (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.watches[c] = struct{}{}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.mu.watches, c)
	}
}
