package adopting

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.org/mta/cluster/spool"
	"example.org/mta/operator/api"
)

const (
	glance = 5 * time.Second // between two looks at the logs of queues
	blink  = 3 * glance      // after which a look without a result before it begins anew
	// neighbour is how much longer a node waits for one in its zone: another zone is the safer place.
	neighbour = 15 * time.Second
	// later is the time until what a take-over has left is tried again.
	later = 10 * time.Minute
)

// watcher is what Watch knows of queues that other nodes have copies of.
type watcher struct {
	*Adopter
	looked time.Time            // when the latest look had a result
	seen   map[uint64]*sighting // by the log
	blind  string               // why looks have none
}

// sighting is the newest sign of life of a log, and when it was seen first. How long ago it came by the clock of the
// database does not count: after a failover another server has the clock, and while commits wait no node can give one.
type sighting struct {
	spool.Status
	since time.Time
	why   string    // the queue was not taken over, or not all of it; "": it was not tried
	again time.Time // when it is to be tried
	known bool      // a later look has met why, too: no other node has it
	left  bool      // why is what a take-over has left here
}

// Watch takes over the queues of nodes that have given no sign of life for the time that the configuration has, and
// goes on with what this node has begun, until ctx ends.
func (a *Adopter) Watch(ctx context.Context) {
	if a.cfg.Cluster == nil {
		return
	}
	defer a.cfg.Copies.Close()
	dry, _ := filepath.Glob(filepath.Join(a.cfg.InForce().DataDir, restoredDir, "*"+drySuffix))
	for _, dir := range dry { // of commands that the end of a process has cut off
		_ = os.RemoveAll(dir)
	}
	w := watcher{Adopter: a, looked: time.Now(), seen: make(map[uint64]*sighting)}
	for {
		select {
		case <-time.After(glance):
		case <-ctx.Done():
			return
		}
		w.look(ctx)
		w.report()
	}
}

// report notes what Trouble returns.
func (w *watcher) report() {
	var words []string
	if w.blind != "" {
		words = append(words, "queues of nodes that are gone are not taken over: "+w.blind)
	}
	for _, log := range slices.Sorted(maps.Keys(w.seen)) {
		if s := w.seen[log]; s.known {
			words = append(words, fmt.Sprintf("the queue of node %d, which has given no sign of life, is not taken "+
				"over: %s", s.Node, s.why))
		}
	}
	w.mu.Lock()
	w.failed = strings.Join(words, "; ")
	w.mu.Unlock()
}

// Trouble is why queues of nodes that are gone are not taken over, "" if they are.
func (a *Adopter) Trouble() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// look begins to take over one queue, unless that of another goes on.
func (w *watcher) look(ctx context.Context) {
	if !w.see(ctx) || w.cfg.Drains() {
		return
	}
	latest, k := w.newest(), &w.cfg.InForce().Cluster
	if latest != nil && latest.running() {
		return
	}
	for _, log := range slices.Sorted(maps.Keys(w.seen)) {
		s, now, wait := w.seen[log], time.Now(), k.Takeover
		if k.Zone != "" && k.Zone == s.Zone {
			wait += neighbour
		}
		own := s.Sealed == w.cfg.Cluster.Number()
		if !own && (k.Takeover == 0 || now.Sub(s.since) < wait) {
			continue
		}
		if own && s.why == "" && latest != nil && latest.copy == log { // it has ended, and not all has left
			is := latest.status()
			s.why = cmp.Or(is.Failed, strings.Join(is.Stays, "; "), "some of it is left")
			s.again, s.left = now.Add(later), true
		}
		if now.Before(s.again) {
			if own && s.left {
				_ = w.cfg.Copies.Hold(ctx, s.Status) // or another node goes on with it, which meets the same
			}
			continue
		}
		if !own {
			w.cfg.Log.Warn("a node has given no sign of life, and this one takes over its queue", "node", s.Node,
				"log", log, "silent", now.Sub(s.since).Round(time.Second))
		}
		s.left = false
		_, err := w.request(ctx, api.Adopt{Node: int(s.Node), Accept: true}, s.Status)
		if err == nil || ctx.Err() != nil {
			s.why, s.known = "", false
			return // the next look has the next one
		}
		// Others can try it before this node does again.
		s.why, s.again = err.Error(), time.Now().Add(k.Takeover+2*neighbour)
		w.cfg.Log.Warn("the queue of a node is not taken over", "node", s.Node, "error", err)
	}
}

// see notes which logs have given a sign of life, and reports whether that is known.
func (w *watcher) see(ctx context.Context) bool {
	all, err := w.cfg.Copies.Others(ctx, filepath.Join(w.cfg.InForce().DataDir, restoredDir))
	now := time.Now()
	if late := now.Sub(w.looked) > blink; late {
		for _, s := range w.seen {
			s.since = now
		}
		if w.blind = ""; err != nil {
			w.blind = err.Error()
		}
	}
	if err != nil || !w.cfg.Cluster.Hears() {
		return false
	}
	was := w.seen
	w.looked, w.blind, w.seen = now, "", make(map[uint64]*sighting)
	for _, l := range all {
		s := was[l.Log]
		if s == nil || l.Sealed != w.cfg.Cluster.Number() && s.Beat != l.Beat { // it lives
			s = &sighting{since: now}
		}
		s.Status, s.known = l, s.why != ""
		w.seen[l.Log] = s
	}
	return true
}
