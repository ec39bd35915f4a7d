// Package history keeps figures of the relay over time, so that plots need no other program: a value for each 2 s
// of 15 minutes, each 30 s of 12 hours, and each 10 min of 14 days. There are figures of the relay as a whole, of
// providers and sources, and of the busiest sites and tenants; all others of a kind have figures together. Memory is
// bounded, whatever there is ([MaxBytes]).
//
// Long-lived goroutines, both ended by the context of [History.Run], which waits for them:
//
//	Run    takes a sample every 2 s
//	saver  writes the values of 12 hours and 14 days to a file each 10 minutes, so that they outlive a restart
package history

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// MaxBytes is what a History takes of memory at most.
const MaxBytes = 16 << 20

// Kind is a kind of subject that has figures.
type Kind uint8

// The kinds.
const (
	Relay Kind = iota // there is one, called ""
	Provider
	Source
	Site
	Tenant
	kinds int = iota
)

// Other is the name of all subjects of a kind without figures of their own, and of those who are called so.
const Other = "other"

// most is how many subjects of a kind have figures of their own. It makes MaxBytes.
var most = [kinds]int{Provider: 40, Source: 80, Site: 50, Tenant: 50}

var kindNames = [kinds]string{"relay", "provider", "source", "site", "tenant"}

func (k Kind) String() string { return kindNames[k] }

// Reading is what is known of a subject at a time.
type Reading struct {
	Counts [numCounts]int64   // since the start of the relay
	Delays Histogram          // of deliveries since then
	Levels [numLevels]float64 // NaN: nothing is known
}

// Meter is where figures come from.
type Meter interface {
	// Busy calls each with the names of a kind that had recipients since it was called last, and how many. Subjects
	// that should have figures though they are idle have none.
	Busy(k Kind, each func(name string, recipients int64))
	// Read reads subjects of a kind; the relay's name is "".
	Read(k Kind, names []string) []Reading
	// Drop ends what it takes to read a subject.
	Drop(k Kind, name string)
}

// Config is what a History works with. All but Path is needed.
type Config struct {
	Meter Meter
	Path  string // of the file; "": there is none
	Now   func() time.Time
	Log   *slog.Logger
}

// History is all figures. It is safe for concurrent use.
type History struct {
	Config

	mu      sync.RWMutex    // guards what follows
	heads   [numSpans]int64 // the step that is under way, counted from 1970
	rings   [kinds]map[string]*subject
	ranks   [kinds]ranking
	sampled time.Time // when the last sample was taken
}

// subject is what has figures.
type subject struct {
	kind  Kind
	spans [numSpans]span
	last  Reading // what was read last
	begun bool    // whether last was read
}

// Open makes a History, with what the file has of one before.
func Open(c Config) *History {
	h := &History{Config: c}
	h.reset()
	if c.Path != "" {
		h.load()
	}
	return h
}

// mainName is the subject that a kind has always.
func mainName(k Kind) string {
	if k == Relay {
		return ""
	}
	return Other
}

func (h *History) add(k Kind, name string) *subject {
	s := &subject{kind: k}
	for i := range s.spans {
		s.spans[i] = newSpan(Span(i), len(figuresOf[k]))
	}
	h.rings[k][name] = s
	return s
}

// Sample reads all figures at a time. There is one caller.
func (h *History) Sample(now time.Time) {
	h.choose()
	names, readings := h.read()

	h.mu.Lock()
	defer h.mu.Unlock()
	step := now.Sub(h.sampled)
	h.sampled = now
	h.advance(now)
	relay := h.rings[Relay][""]
	whole := relay.follow(&readings[Relay][0], step)
	h.write(relay, &whole)
	for k := Provider; int(k) < kinds; k++ {
		rest := whole
		for i, name := range names[k] {
			s := h.rings[k][name]
			d := s.follow(&readings[k][i], step)
			rest.subtract(&d)
			h.write(s, &d)
		}
		h.write(h.rings[k][Other], &rest)
	}
}

// read asks for all subjects that have figures of their own. Nobody else changes who they are.
func (h *History) read() (names [kinds][]string, readings [kinds][]Reading) {
	for k := range kinds {
		for name := range h.rings[k] {
			if name != Other {
				names[k] = append(names[k], name)
			}
		}
		readings[k] = h.Meter.Read(Kind(k), names[k])
	}
	return names, readings
}

// follow gives what happened since the last sample, and remembers this one.
func (s *subject) follow(r *Reading, step time.Duration) delta {
	d := s.since(r, step)
	s.last, s.begun = *r, true
	return d
}

// choose gives figures of their own to the busiest.
func (h *History) choose() {
	for k := Provider; int(k) < kinds; k++ {
		for _, name := range h.chooseOf(k) {
			h.Meter.Drop(k, name)
		}
	}
}

func (h *History) chooseOf(k Kind) (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ranks := &h.ranks[k]
	h.Meter.Busy(k, func(name string, n int64) {
		if name != "" && name != Other {
			ranks.add(name, n)
		}
	})
	in, out := ranks.choose(most[k])
	for _, name := range out {
		delete(h.rings[k], name)
	}
	for _, name := range in {
		h.add(k, name)
	}
	return out
}

// Run takes samples until ctx ends, each when a step ends. It saves when ten minutes do and, after a sample, when it
// ends.
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
	if h.began() {
		save()
	}
}

// began reports whether there was a sample: before it the file has all that is known.
func (h *History) began() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return !h.sampled.IsZero()
}
