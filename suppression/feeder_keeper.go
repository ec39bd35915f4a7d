package suppression

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

const (
	// delay is how long the keeper waits for more to do at once.
	delay = 100 * time.Millisecond
	// retry is how long it rests after an error.
	retry = time.Second
	// lookEvery is how often guards look whether a flood is over.
	lookEvery = time.Minute
	// learnEvery is how often what is usual is written.
	learnEvery = 10 * time.Minute
	// writeBatch is how many values are written at once.
	writeBatch = 10_000
)

// keep does what Report and Delivered leave to it, until ctx ends.
func (f *Feeder) keep(ctx context.Context) {
	defer close(f.ended)
	work, look := time.NewTimer(time.Hour), time.NewTicker(lookEvery)
	learn, sweep := time.NewTicker(learnEvery), time.NewTicker(sweepEvery)
	work.Stop()
	for _, t := range []interface{ Stop() }{look, learn, sweep} {
		defer t.Stop()
	}
	defer work.Stop()
	waiting := false
	soon := func(after time.Duration) {
		if !waiting {
			waiting = true
			work.Reset(after)
		}
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-f.kick:
			soon(delay)
		case <-work.C:
			waiting = false
			err = f.work(ctx)
		case <-look.C:
			f.providers.look(f.Now(), &f.Settings().Flood)
			soon(delay)
		case <-learn.C:
			err = f.providers.flush()
		case <-sweep.C:
			err = f.counters.sweep(f.Now())
			soon(delay)
		}
		if err != nil && ctx.Err() == nil {
			f.Log.Error("what feeds the suppression list could not be written; it is tried again", "error", err)
			soon(retry)
		}
	}
}

// work does all that waits.
func (f *Feeder) work(ctx context.Context) error {
	return errors.Join(f.setAside(ctx), f.clear(ctx), f.counters.flush(),
		f.complaints.flush(ctx, f.Now(), f.Complained))
}

// setAside sets the entries aside that were made at the beginning of a flood, before it was one.
func (f *Feeder) setAside(ctx context.Context) error {
	f.mu.Lock()
	floods := f.floods
	f.floods = nil
	f.mu.Unlock()
	var errs []error
	for _, p := range floods {
		p.mu.Lock()
		since := p.guard.rise.Began.Add(-young)
		p.mu.Unlock()
		n, err := f.pending.move(ctx, f.List, Query{Provider: p.name, ByHost: true, Since: since})
		if n > 0 {
			f.Log.Warn("entries from the beginning of the flood are set aside", "provider", p.name, "since",
				since, "entries", n)
		}
		p.mu.Lock()
		p.guard.moved, p.dirty = err == nil, true
		p.mu.Unlock()
		if err != nil {
			errs = append(errs, err)
			f.mu.Lock()
			f.floods = append(f.floods, p)
			f.mu.Unlock()
		}
	}
	if len(floods) > 0 {
		errs = append(errs, f.providers.flush())
	}
	return errors.Join(errs...)
}

// clear takes the addresses of which more is known from those set aside.
func (f *Feeder) clear(ctx context.Context) error {
	f.mu.Lock()
	known := f.certain
	f.certain = make(map[string]struct{})
	f.mu.Unlock()
	for some := range slices.Chunk(slices.Sorted(maps.Keys(known)), 1000) {
		n, err := f.pending.clear(ctx, some)
		if err != nil {
			f.mu.Lock()
			maps.Copy(f.certain, known)
			f.mu.Unlock()
			return err
		}
		f.Log.Info("entries are no longer set aside: mail has shown whether their addresses exist", "entries", n)
	}
	return nil
}

// Close writes what is left, and closes FeederConfig.Pending.
func (f *Feeder) Close() error {
	f.stop()
	<-f.ended
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := f.work(ctx)
	f.providers.look(f.Now(), &f.Settings().Flood)
	return errors.Join(err, f.providers.flush(), f.Pending.Close())
}
