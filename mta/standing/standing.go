// Package standing takes sources out whose standing with receivers is bad: those that a block list has, and those that
// half of their sites block.
package standing

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/mta/dispatch/rules"
	"example.org/mta/dispatch/weights"
	"example.org/mta/internal/dnscheck"
	"example.org/mta/mta/config"
	"example.org/mta/mta/tally"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
)

// Standing is what it takes to judge sources. All fields are needed.
type Standing struct {
	Config  func() *config.Config // in force
	Tally   *tally.Tallies
	Rules   *rules.Rules
	Weights *weights.Weights
	Missing func(source string) bool // whether nothing can or may leave from a source
	Audit   func(audit.Line) error
	Now     func() time.Time
	Log     *slog.Logger
}

// listedFor is how long a source is paused that a block list has. The next check, an hour later, prolongs it.
const listedFor = 2 * time.Hour

// Listed pauses the sources that a check has found on a block list, where the configuration wants that.
func (s *Standing) Listed(found []dnscheck.Finding) {
	if s.Config().Checks.Listed != "pause" {
		return
	}
	why := make(map[string]string)
	for _, f := range found {
		if f.Check == dnscheck.CheckList && f.Result == dnscheck.Failed {
			why[f.Source] = f.Text
		}
	}
	for _, name := range slices.Sorted(maps.Keys(why)) {
		if err := s.pause(name, why[name], listedFor); err != nil {
			s.Log.Error("source is on a block list, and not paused", "source", name, "reason", why[name], "error", err)
		}
	}
}

// What makes a source blocked: so many sites, and half of all, within so long.
const (
	blockedWithin = time.Hour
	fewestBlocks  = 5
	blockedFor    = 4 * time.Hour // is it paused
)

// Blocked returns which sources receivers block, "" for none. It pauses them first where the configuration wants
// that.
func (s *Standing) Blocked() string {
	var reasons []string
	now := s.Now()
	standings := s.Tally.Standings(now.Add(-blockedWithin))
	for _, name := range slices.Sorted(maps.Keys(standings)) {
		n := standings[name]
		if n.Block < fewestBlocks || 2*n.Block < n.Sites || s.Rules.Source(name) {
			continue
		}
		why := fmt.Sprintf("%d of %d sites have blocked it within the hour", n.Block, n.Sites)
		if s.Config().Checks.Refused == "pause" {
			err := s.pause(name, why, blockedFor)
			if err == nil {
				continue
			}
			why += fmt.Sprintf(", and it can't be paused: %v", err)
		}
		reasons = append(reasons, fmt.Sprintf("source %s: %s", name, why))
	}
	for _, x := range s.Rules.List() {
		if x.By == byRelay {
			reasons = append(reasons, x.InWords())
		}
	}
	return strings.Join(reasons, "; ")
}

const byRelay = "the relay" // as it is shown

// pause pauses a source for some time from now on, or prolongs that. An operator's own pause stays as it is, and
// a pool keeps its last source.
func (s *Standing) pause(name, why string, long time.Duration) error {
	p, on := s.Rules.Get(rules.Key(api.Selection{Source: name}))
	last := func(pool *config.Pool) bool {
		all, weight := pool.Sources(), s.Weights.In(pool)
		used := func(source string) bool { return weight == nil || weight(source) > 0 }
		return slices.Contains(all, name) && used(name) && !slices.ContainsFunc(all, func(other string) bool {
			return other != name && used(other) && !s.Missing(other)
		})
	}
	switch {
	case on && (p.By != byRelay || !p.Until.After(s.Now())):
		return nil
	case !on && slices.ContainsFunc(s.Config().Pools, last):
		return errors.New("it is the last one of a pool")
	}
	p = api.Rule{Action: api.RuleSuspend, Selection: api.Selection{Source: name}, Reason: why, By: byRelay,
		Since: cmp.Or(p.Since, s.Now()), Until: s.Now().Add(long)}
	if _, err := s.Rules.Begin(p, false); err != nil || on {
		return err
	}
	s.Log.Warn("source is paused", "source", name, "reason", why)
	return s.Audit(audit.Line{Actor: audit.Actor{Kind: audit.ByRelay}, Action: "rule add",
		Subject: "action=suspend source=" + name, Reason: why, Outcome: audit.Done})
}
