// Package faultlog logs failures that repeat: one line when they begin and one when they are over,
// with how many there were. A full disk that refuses a thousand messages a second must not fill
// the log, often on the same disk, with them. It has no goroutines: the owner of a Kind calls Check
// now and then.
package faultlog

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Quiet is how long nothing must have failed before a failure is over: failures and successes by turns, as on a
// disk that is nearly full, are one failure.
const Quiet = 10 * time.Second

// Kind is one thing that can fail again and again. It is safe for concurrent use.
type Kind struct {
	log   *slog.Logger
	now   func() time.Time
	level slog.Level
	began string
	ended string
	on    atomic.Bool // written with mu held

	mu    sync.Mutex // guards what follows
	class string
	since time.Time
	last  time.Time
	count int
	well  bool // it has gone well since it failed last
}

// New makes a kind of failure that has not happened yet. began is logged at level, ended as information.
func New(log *slog.Logger, now func() time.Time, level slog.Level, began, ended string) *Kind {
	return &Kind{log: log, now: now, level: level, began: began, ended: ended}
}

// Failed counts a failure. It is logged, with args as in slog, when it is the first, or the first
// of another class: what failures have in common, as "disk full".
func (k *Kind) Failed(class string, args ...any) {
	k.mu.Lock()
	now := k.now()
	report := !k.on.Load() || class != k.class
	if !k.on.Load() {
		k.since, k.count = now, 0
		k.on.Store(true)
	}
	k.class, k.last, k.well = class, now, false
	k.count++
	k.mu.Unlock()
	if report {
		k.log.Log(context.Background(), k.level, k.began, args...)
	}
}

// Well notes that it went well this time.
func (k *Kind) Well() {
	if !k.on.Load() {
		return
	}
	k.mu.Lock()
	k.well = true
	k.mu.Unlock()
	k.Check()
}

// Check logs the end of a failure that is over.
func (k *Kind) Check() {
	if !k.on.Load() {
		return
	}
	k.mu.Lock()
	over := k.on.Load() && k.well && k.now().Sub(k.last) >= Quiet
	count, lasted := k.count, k.last.Sub(k.since)
	if over {
		k.on.Store(false)
	}
	k.mu.Unlock()
	if over {
		k.log.Info(k.ended, "failures", count, "lasted", lasted.Round(time.Millisecond))
	}
}

// Lately reports whether it failed less than d ago, and has not gone well since.
func (k *Kind) Lately(d time.Duration) bool {
	if !k.on.Load() {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.on.Load() && !k.well && k.now().Sub(k.last) < d
}

// Few joins the sentences of an alarm, which are many where many parts fail for the same reason.
func Few(all []string) string {
	const most = 4
	if more := len(all) - most; more > 0 {
		all = append(all[:most:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}
