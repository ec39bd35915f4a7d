package history

import (
	"context"
	"time"
)

// Run takes samples until ctx ends, each when a step ends, and saves when ten minutes do and when it ends.
func (h *History) Run(ctx context.Context) {
	saves, saved := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(saved)
		h.saver(saves)
	}()
	timer := time.NewTimer(h.untilNext())
	defer timer.Stop()
	for due := stepOf(Days, h.Now()); ; {
		select {
		case <-ctx.Done():
			close(saves)
			<-saved
			return
		case <-timer.C:
		}
		now := h.Now()
		h.Sample(now)
		timer.Reset(h.untilNext())
		if step := stepOf(Days, now); step != due {
			due = step
			select {
			case saves <- struct{}{}:
			default: // the last one is still under way
			}
		}
	}
}

// untilNext is the time until the next step ends. One that ends in less than half a step has its sample.
func (h *History) untilNext() time.Duration {
	now, step := h.Now(), Minutes.Step()
	return now.Add(step / 2).Truncate(step).Add(step).Sub(now)
}

// saver saves when it is asked for, and at the end.
func (h *History) saver(asked <-chan struct{}) {
	failing := false
	save := func() {
		err := h.Save()
		switch {
		case err != nil && !failing:
			h.Log.Warn("the history of figures can't be saved: a restart would lose what is newer than its file",
				"file", h.Path, "error", err)
		case err == nil && failing:
			h.Log.Info("the history of figures is saved again", "file", h.Path)
		}
		failing = err != nil
	}
	for range asked {
		save()
	}
	save()
}
