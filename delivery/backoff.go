package delivery

import (
	"net/netip"
	"regexp"
	"strings"
	"time"

	"mta/destdb"
	"mta/internal/reply"
)

// Rule says what a reply leads to besides its own recipient's fate. The first rule that matches
// decides.
type Rule struct {
	Name     string
	Provider string         // of the site; "" is any
	Codes    []int          // empty is any that is no success
	Pattern  *regexp.Regexp // on "code enhanced text"; nil is any
	Session  bool           // only when the session was refused: connect, greeting, EHLO, TLS, AUTH

	// Fewer halves the connections to the site, and lets them not grow for so long. 0: no.
	Fewer time.Duration
	// Suspend sends nothing for so long. 0: no. BySource: from this source only.
	Suspend  time.Duration
	BySource bool
}

// What automatic actions are called.
const (
	suspended        = "suspended"
	fewerConnections = "fewer connections"
)

// DefaultRules are for what well-known providers answer, and what hosts answer by RFC 5321 when
// there is too much at a time.
func DefaultRules() []Rule {
	p := func(s string) *regexp.Regexp { return regexp.MustCompile(`(?i)` + s) }
	return []Rule{
		// Google: 421-4.7.28 rate of unsolicited mail from this IP; 4.7.0 suspicious.
		{Name: "google-rate", Provider: "google", Codes: []int{421}, Pattern: p(`4\.7\.(0|28)`), Suspend: 10 * time.Minute, BySource: true},
		{Name: "google-recipient-rate", Provider: "google", Codes: []int{450, 452}, Pattern: p(`4\.2\.1|receiving mail (at a rate|too quickly)`)},
		// Microsoft: 451 4.7.500/650/651 server busy, IP throttled; 421 RP-001..003, S775.
		{Name: "microsoft-throttle", Provider: "microsoft", Pattern: p(`^4\d\d.*(4\.7\.(500|650|651)|RP-00\d|S77\d|S3115)`), Suspend: 10 * time.Minute, BySource: true},
		{Name: "microsoft-block", Provider: "microsoft", Pattern: p(`^5\d\d.*(S3140|S3150|block list)`), Suspend: time.Hour, BySource: true},
		// Yahoo: 421 4.7.0 [TSS04] deferred for complaints, [TSS09..] permanently; 4.16.55 [TS01].
		{Name: "yahoo-deferred", Provider: "yahoo", Pattern: p(`\[(TS|TSS)\d+\]|4\.16\.5\d`), Suspend: 15 * time.Minute, BySource: true},
		{Name: "apple-rate", Provider: "apple", Codes: []int{421, 450, 451}, Pattern: p(`too many|rate|\[CS01\]|HM08`), Suspend: 10 * time.Minute, BySource: true},
		{Name: "comcast-rate", Provider: "comcast", Pattern: p(`^4\d\d.*(RL0\d+|too many (sessions|connections))`), Suspend: 10 * time.Minute, BySource: true},
		{Name: "gmx-rate", Provider: "gmx", Pattern: p(`^4\d\d.*(too many|temporarily)`), Suspend: 10 * time.Minute, BySource: true},
		{Name: "mail.ru-rate", Provider: "mail.ru", Pattern: p(`^4\d\d.*(ratelimit|rate limit|too many|try again later)`), Suspend: 10 * time.Minute, BySource: true},
		{Name: "orange-rate", Provider: "orange", Pattern: p(`OFR00[45]_10\d|^4\d\d.*too many`), Fewer: 10 * time.Minute},
		{Name: "mimecast-rate", Provider: "mimecast", Codes: []int{451}, Pattern: p(`ip temporarily blacklisted|too many`), Suspend: 10 * time.Minute, BySource: true},
		{Name: "proofpoint-rate", Provider: "proofpoint", Pattern: p(`^4\d\d.*(ipspike|rate limit|too many)`), Suspend: 10 * time.Minute, BySource: true},

		{Name: "too-many-connections", Pattern: p(`^4\d\d.*(too many|too much|maximum number of|exceed\w*).*(connection|session)`), Fewer: time.Minute},
		{Name: "rate", Pattern: p(`^4\d\d.*(rate.?limit|throttl|too (fast|quickly|many (messages|mails|emails)))`), Fewer: time.Minute},
		{Name: "busy", Codes: []int{421}, Session: true, Fewer: time.Minute},
		{Name: "greeting-timeout", Session: true, Pattern: p(`timed out|time-out|timeout`), Fewer: time.Minute},
	}
}

// SetBackoff puts other rules into force; nil is DefaultRules. Actions that have begun stay until
// their end.
func (s *Scheduler) SetBackoff(rules []Rule) {
	if rules == nil {
		rules = DefaultRules()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.Backoff = rules
}

// matches reports whether a reply meets the rule.
func (r *Rule) matches(provider string, session bool, answer *reply.Reply, line string) bool {
	if r.Provider != "" && r.Provider != provider || r.Session && !session {
		return false
	}
	if len(r.Codes) > 0 {
		found := false
		for _, c := range r.Codes {
			found = found || c == answer.Code
		}
		if !found {
			return false
		}
	}
	return r.Pattern == nil || r.Pattern.MatchString(line)
}

// judge applies the rules to a refusal. What this relay says by itself counts only where it stands for
// a host that doesn't answer: else an action could feed on its own results.
func (s *Scheduler) judge(c *connection, r reply.Reply, session bool, now time.Time) {
	if r.Local && !session {
		return
	}
	line := strings.ReplaceAll(r.String(), " / ", " ")
	for i := range s.cfg.Backoff {
		rule := &s.cfg.Backoff[i]
		if !rule.matches(c.route.Provider, session, &r, line) {
			continue
		}
		reason := rule.Name + ": " + c.host.Name + " answered " + r.String()
		if rule.Suspend > 0 {
			source := ""
			if rule.BySource {
				source = c.source.Name
			}
			s.act(c.rec.Site, destdb.Action{What: suspended, Source: source, Reason: reason, Begin: now, End: now.Add(rule.Suspend)}, now)
		}
		// A lone connection that is turned away is the retry record's business.
		if rule.Fewer > 0 && c.rec.Site.Live() > 1 && s.act(c.rec.Site, destdb.Action{What: fewerConnections, Reason: reason, Begin: now, End: now.Add(rule.Fewer)}, now) {
			s.fewer(c.rec.Site, now)
		}
		return
	}
}

// act begins an automatic action. One of its kind that is in force stays as it is, so that its end is
// certain: it reports false.
func (s *Scheduler) act(site *destdb.Site, a destdb.Action, now time.Time) bool {
	if s.action(site, now, a.What, a.Source) != nil {
		return false
	}
	site.Actions = append(site.Actions, a)
	s.db.Touched(site, now)
	s.handBack(site.Name, now)
	s.cfg.OnAction(site.Name, a)
	return true
}

// action gives the action of that kind that is in force for a source, nil when none is. One for
// all sources counts for each.
func (s *Scheduler) action(site *destdb.Site, now time.Time, what, source string) *destdb.Action {
	for i := range site.Actions {
		a := &site.Actions[i]
		if a.What == what && now.Before(a.End) && (a.Source == "" || a.Source == source) {
			return a
		}
	}
	return nil
}

// suspension is why the lane's mail must not be sent now, nil when it may.
func (l *lane) suspension(now time.Time) *destdb.Action {
	if len(l.site.Actions) == 0 {
		return nil
	}
	return l.s.action(l.site, now, suspended, l.source.Name)
}

// Suspend sends nothing to a site for a while, from one source or, with "", from any. What is under
// way ends.
func (s *Scheduler) Suspend(site, source, reason string, until time.Time) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db.Site(site).Actions = append(s.db.Site(site).Actions, destdb.Action{What: suspended, Source: source, Reason: reason, Begin: now, End: until})
	s.db.Touched(s.db.Site(site), now)
	s.handBack(site, now)
	for _, l := range s.bySite[site] {
		l.run(now)
	}
}

// SuspendHosts sends nothing to hosts, from a source or from all (""), until a time. What is on
// connections to them goes on. It returns how many of the hosts are known.
func (s *Scheduler) SuspendHosts(hosts []netip.AddrPort, source, reason string, until time.Time) (n int) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, addr := range hosts {
		if h := s.db.Known(addr); h != nil {
			s.db.Suspend(h, destdb.Action{What: suspended, Source: source, Reason: reason, Begin: now, End: until}, now)
			n++
		}
	}
	for c := range s.conns {
		if c.session != nil && c.rec.Path.Suspension(now) != nil {
			c.retire()
		}
	}
	s.runLanes(now)
	return n
}

// ResumeHosts ends all suspensions of hosts. It returns how many of the hosts are known, and how many
// suspensions there were.
func (s *Scheduler) ResumeHosts(hosts []netip.AddrPort) (n, ended int) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, addr := range hosts {
		if h := s.db.Known(addr); h != nil {
			n++
			ended += s.db.Resume(h, now)
		}
	}
	s.runLanes(now)
	s.remind(now)
	return n, ended
}

// runLanes looks at all that waits anew.
func (s *Scheduler) runLanes(now time.Time) {
	for _, l := range s.lanes {
		if l.waiting.n > 0 {
			l.run(now)
		}
	}
}

// Resume ends all suspensions of a site, automatic ones too. It returns how many there were.
func (s *Scheduler) Resume(site string) int {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	d := s.db.Site(site)
	for i := range d.Actions {
		if a := &d.Actions[i]; a.What == suspended && now.Before(a.End) {
			a.End = now
			n++
		}
	}
	s.db.Touched(d, now)
	for _, l := range s.lanes {
		if l.site == d {
			l.run(now)
		}
	}
	return n
}
