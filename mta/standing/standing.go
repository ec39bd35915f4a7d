// Package standing takes sources out whose standing with receivers is bad: those that a block list has, and those that
// half of the networks block that answer them.
package standing

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
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

	mu    sync.Mutex
	until map[string]time.Time // of the relay's pauses of sources, also of those that an operator has ended
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

// What makes a source blocked: so many networks, and half of all that answer it. To be paused, these need a part of the
// mail, too: strangers can have many networks with little mail.
const (
	fewestBlocks = 5
	leastMail    = 5             // a fifth
	blockedFor   = 4 * time.Hour // is it paused
	haveBlocked  = "have blocked it within the hour"
)

func blocked(v *tally.Votes) bool { return v.Block >= fewestBlocks && 2*v.Block >= v.Networks }

// enough returns why the networks that block a source don't speak for all, nil if they do.
func enough(v *tally.Votes) error {
	switch {
	case !blocked(v):
		return fmt.Errorf("these were %d of %d networks", v.Block, v.Networks)
	case leastMail*v.Blocked < v.Mail:
		return fmt.Errorf("these had %d of %d recipients", v.Blocked, v.Mail)
	}
	return nil
}

// Blocked returns which sources receivers block, "" for none. It pauses them first where the configuration wants
// that.
func (s *Standing) Blocked() string {
	var reasons []string
	standings := s.Tally.Standings(s.Now())
	for _, name := range slices.Sorted(maps.Keys(standings)) {
		n := standings[name]
		v, shared := n.Several, s.Config().Shared(name)
		err := enough(&v)
		if !blocked(&v) {
			if v, err = n.Any, enough(&n.Any); shared {
				err = errors.New("these had mail of one tenant each, and others may use it")
			}
		}
		if !blocked(&v) && n.First.Block == n.First.Networks {
			v, err = n.First, errors.New("these have answered too seldom")
		}
		if !blocked(&v) || s.Rules.Source(name) {
			continue
		}
		for _, tenant := range slices.Sorted(maps.Keys(n.Without)) {
			if w := n.Without[tenant]; shared && err == nil && enough(&w) != nil {
				err = fmt.Errorf("without the mail of tenant %q %w", tenant, enough(&w))
			}
		}
		why := fmt.Sprintf("%d of %d networks %s", v.Block, v.Networks, haveBlocked)
		if s.Config().Checks.Refused == "pause" {
			if err == nil {
				err = s.pause(name, why, blockedFor)
			}
			if err == nil {
				continue
			}
			why += fmt.Sprintf(", and it isn't paused: %v", err)
		}
		why = fmt.Sprintf("source %s: %s; the replies: mta log --source %[1]s --class SpamBlock", name, why)
		if !s.last(name) {
			why += "; to pause it: mta pause source " + name
		}
		reasons = append(reasons, why)
	}
	for _, x := range s.Rules.List() {
		if x.By == rules.ByRelay && !s.ended(&x) {
			reasons = append(reasons, fmt.Sprintf("%s; to end that: mta rule end %d", x.InWords(), x.ID))
		}
	}
	return strings.Join(reasons, "; ")
}

// ended ends a pause of the relay that the configuration no longer wants. It notes until when the others last.
func (s *Standing) ended(x *api.Rule) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	wants := s.Config().Checks.Listed
	if strings.HasSuffix(x.Reason, haveBlocked) {
		wants = s.Config().Checks.Refused
	}
	if wants == "pause" {
		if s.until == nil {
			s.until = make(map[string]time.Time)
		}
		s.until[x.Source] = x.Until
		return false
	}
	if _, err := s.Rules.End(x.ID); err != nil {
		s.Log.Error("ending the pause of a source", "source", x.Source, "error", err)
		return false
	}
	delete(s.until, x.Source)
	if err := s.record("rule end", x.Source, "the configuration no longer wants the pause"); err != nil {
		s.Log.Error("recording the end of a pause", "source", x.Source, "error", err)
	}
	return true
}

// pause pauses a source for some time from now on, or prolongs that. An operator's own pause stays as it is, and
// a pool keeps its last source.
func (s *Standing) pause(name, why string, long time.Duration) error {
	p, on := s.Rules.Get(rules.Key(api.Selection{Source: name}))
	s.mu.Lock()
	until := s.until[name]
	s.mu.Unlock()
	switch {
	case on && (p.By != rules.ByRelay || !p.Until.After(s.Now())):
		return nil
	case !on && s.last(name):
		return errors.New("it is the last one of a pool")
	case !on && until.After(s.Now()):
		return errors.New("an operator has ended its pause")
	}
	p = api.Rule{Action: api.RuleSuspend, Selection: api.Selection{Source: name}, Reason: why, By: rules.ByRelay,
		Since: cmp.Or(p.Since, s.Now()), Until: s.Now().Add(long)}
	if _, err := s.Rules.Begin(p, false); err != nil || on {
		return err
	}
	s.Log.Warn("source is paused", "source", name, "reason", why)
	return s.record("rule add", name, why)
}

// last reports whether a pool has no other source that can send.
func (s *Standing) last(name string) bool {
	return slices.ContainsFunc(s.Config().Pools, func(pool *config.Pool) bool {
		all, weight := pool.Sources(), s.Weights.In(pool)
		used := func(source string) bool { return weight == nil || weight(source) > 0 }
		return slices.Contains(all, name) && used(name) && !slices.ContainsFunc(all, func(other string) bool {
			return other != name && used(other) && !s.Missing(other)
		})
	})
}

// record puts a change of the relay itself into the audit log.
func (s *Standing) record(action, source, why string) error {
	return s.Audit(audit.Line{Actor: audit.Actor{Kind: audit.ByRelay}, Action: action,
		Subject: "action=suspend source=" + source, Reason: why, Outcome: audit.Done})
}
