package delivery

import (
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/delivery/smtpclient"
	"example.org/mta/destdb"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
)

// Rule says what a reply leads to besides its own recipient's fate. The first rule that matches
// decides.
type Rule struct {
	Name     string
	Provider string         // of the site; "" is any
	Codes    []int          // empty is any that is no success
	Classes  []bounce.Class // what the reply is about; empty is anything
	Pattern  *regexp.Regexp // on "code enhanced text"; nil is any
	Session  bool           // only when the session was refused: connect, greeting, EHLO, TLS, AUTH

	// Fewer halves the connections to the site, and lets them not grow for so long. 0: no.
	Fewer time.Duration
	// Suspend sends nothing for so long. 0: no.
	Suspend time.Duration
	// Slow keeps to Rate, or RateFactor of the rate at which the site took mail of late, and to Connections, until
	// there was no such refusal for so long; then both double, until they limit nothing (see destdb.Slow). 0: no.
	Slow        time.Duration
	Rate        gcra.Rate
	RateFactor  float64
	Connections int
	// BySource: Suspend and Slow are for this source only.
	BySource bool
	// After is how many refusals of a source by a site within which time it takes; until then later rules may apply.
	// Zero: each refusal.
	After gcra.Rate
}

// source is what actions of the rule are about: a source, or "" for all.
func (r *Rule) source(c *connection) string {
	if r.BySource {
		return c.source.Name
	}
	return ""
}

// What automatic actions are called.
const (
	suspended        = "suspended"
	slowed           = "slowed"
	fewerConnections = "fewer connections"
)

// What the built-in rules are about.
var (
	tooMuch  = []bounce.Class{bounce.SpamBlock, bounce.RateLimited, bounce.TooManyConnections}
	tooFast  = tooMuch[1:]
	temp     = []int{421, 450, 451, 452}
	forGood  = []int{550, 553, 554}
	anything = []bounce.Class{bounce.SpamBlock, bounce.RateLimited, bounce.PolicyRelated, bounce.SpamContent}
)

// DefaultRules are for what well-known providers answer, and what hosts answer by RFC 5321 when
// there is too much at a time. Package bounce knows the words.
func DefaultRules() []Rule {
	const sourceWaits = 10 * time.Minute
	slowly := gcra.Rate{Events: 10, Per: time.Minute}
	rules := []Rule{
		// Google takes some mail while it answers 421 to most: a source that none is taken of waits.
		{Name: "google-block", Provider: "google", Codes: []int{421}, Classes: anything, Suspend: sourceWaits,
			BySource: true, After: gcra.Rate{Events: 60, Per: time.Hour}},
		{Name: "google-rate", Provider: "google", Codes: []int{421}, Classes: anything, Slow: sourceWaits, Rate: slowly,
			BySource: true},
		{Name: "google-recipient-rate", Provider: "google", Classes: []bounce.Class{bounce.MailboxBusy}},
		{Name: "microsoft-throttle", Provider: "microsoft", Codes: temp, Classes: tooFast, Slow: sourceWaits,
			Rate: slowly, BySource: true},
		{Name: "microsoft-block", Provider: "microsoft", Codes: forGood, Classes: []bounce.Class{bounce.SpamBlock},
			Suspend: time.Hour, BySource: true},
		{Name: "yahoo-deferred", Provider: "yahoo", Classes: tooMuch, Suspend: 15 * time.Minute, BySource: true},
		{Name: "orange-rate", Provider: "orange",
			Classes: []bounce.Class{bounce.TooManyConnections, bounce.RateLimited}, Fewer: 10 * time.Minute},
	}
	for _, provider := range []string{"apple", "comcast", "gmx", "mail.ru", "mimecast", "proofpoint"} {
		rules = append(rules, Rule{Name: provider + "-rate", Provider: provider, Codes: temp, Classes: tooFast,
			Slow: sourceWaits, Rate: slowly, BySource: true})
	}
	return append(rules,
		Rule{Name: "blocked", Classes: []bounce.Class{bounce.SpamBlock}, Suspend: 15 * time.Minute, BySource: true},
		Rule{Name: "too-many-connections", Codes: temp, Classes: []bounce.Class{bounce.TooManyConnections},
			Fewer: time.Minute},
		Rule{Name: "rate", Codes: temp, Classes: []bounce.Class{bounce.RateLimited}, Fewer: time.Minute},
		Rule{Name: "busy", Codes: []int{421}, Session: true, Fewer: time.Minute},
		Rule{Name: "greeting-timeout", Session: true, Pattern: regexp.MustCompile(`(?i)timed out|time-out|timeout`),
			Fewer: time.Minute},
	)
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
func (r *Rule) matches(x *refusal) bool {
	switch {
	case r.Provider != "" && r.Provider != x.provider, r.Session && !x.session:
		return false
	case len(r.Codes) > 0 && !slices.Contains(r.Codes, x.code),
		len(r.Classes) > 0 && !slices.Contains(r.Classes, x.class):
		return false
	}
	return r.Pattern == nil || r.Pattern.MatchString(x.line)
}

// refusal is what rules look at.
type refusal struct {
	provider string
	session  bool // the session was refused as a whole
	code     int
	class    bounce.Class
	line     string // "code enhanced text"
}

func refusalOf(classes *bounce.Classifier, provider string, session bool, r reply.Reply) refusal {
	return refusal{provider, session, r.Code, classes.Of(&r, provider), strings.ReplaceAll(r.String(), " / ", " ")}
}

// judge applies the rules to a refusal. What this relay says by itself counts only where it stands for
// a host that doesn't answer: else an action could feed on its own results.
func (s *Scheduler) judge(c *connection, r reply.Reply, session bool, now time.Time) {
	if r.Local && !session {
		return
	}
	x := refusalOf(s.cfg.Classes, c.route.Provider, session, r)
	for i := range s.cfg.Backoff {
		rule := &s.cfg.Backoff[i]
		if !rule.matches(&x) || !s.reached(rule, c, now) {
			continue
		}
		reason := rule.Name + ": " + c.host.Name + " answered " + r.String()
		if rule.Suspend > 0 {
			s.act(c.rec.Site, destdb.Action{What: suspended, Source: rule.source(c), Reason: reason, Begin: now,
				End: now.Add(rule.Suspend), Waits: x.class.Waits(&r)}, now)
		}
		if rule.Slow > 0 {
			s.slow(c, rule, reason, now)
		}
		// A lone connection that is turned away is the retry record's business.
		if rule.Fewer > 0 && c.rec.Site.Live() > 1 &&
			s.act(c.rec.Site,
				destdb.Action{What: fewerConnections, Reason: reason, Begin: now, End: now.Add(rule.Fewer)}, now) {
			s.fewer(c.rec.Site, now)
		}
		return
	}
}

// ofSession are the words of a reply that only ends a session, after so many messages.
var ofSession = regexp.MustCompile(`(?i)session|connection|channel`)

// judgeEnd applies the rules to a 421 that ended a connection which had had mail. No message has it as its result: what
// was on its way goes to another connection, which a site that refuses because of the rate may let pass, so that it
// would be asked for too much for ever.
func (s *Scheduler) judgeEnd(c *connection, err error, now time.Time) {
	var end *smtpclient.Error
	if c.given == 0 || !errors.As(err, &end) || end.Reply.Local || end.Reply.Text == c.said.Text ||
		ofSession.MatchString(end.Reply.Text) {
		return
	}
	if class := s.cfg.Classes.Of(&end.Reply, c.route.Provider); class == bounce.RateLimited ||
		class == bounce.SpamBlock {
		s.judge(c, end.Reply, false, now)
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
	s.countAction(a)
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

// Suspended reports whether mail from a source must not be sent to a site now. That may be so for hours.
func (s *Scheduler) Suspended(site, source string) bool {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.db.Site(site)
	return len(at.Actions) > 0 && s.action(at, now, suspended, source) != nil
}

// Suspend sends nothing to a site for a while, from one source or, with "", from any. What is under
// way ends.
func (s *Scheduler) Suspend(site, source, reason string, until time.Time) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	at, a := s.db.Site(site), destdb.Action{What: suspended, Source: source, Reason: reason, Begin: now, End: until}
	at.Actions = a.AddTo(at.Actions)
	s.db.Touched(at, now)
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
	s.heedSuspensions(now)
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

// Resume ends all suspensions and slow-downs of a site, automatic ones too. It returns how many there were.
func (s *Scheduler) Resume(site string) int {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	d := s.db.Site(site)
	for i := range d.Actions {
		if a := &d.Actions[i]; a.What != fewerConnections && now.Before(a.End) {
			a.End = now
			n++
		}
	}
	s.db.Touched(d, now)
	for _, l := range s.lanes {
		if l.site == d {
			l.slowDown(now)
			l.run(now)
		}
	}
	return n
}

// Order is what an operator has ordered at another relay: the suspension of a site or a host.
type Order struct {
	Site         string
	Host         route.Host // instead of a site
	Source       string     // "": from any
	End          bool       // the suspension ends
	Reason       string
	Begin, Until time.Time
}

// in returns actions with what was ordered in place of operators' suspensions for the same source. An end is of all.
func (o *Order) in(actions []destdb.Action, now time.Time) []destdb.Action {
	a := destdb.Action{What: suspended, Source: o.Source, Reason: o.Reason, Begin: o.Begin, End: o.Until}
	next := make([]destdb.Action, 0, len(actions)+1)
	for _, x := range actions {
		if x.What == suspended && x.Source == o.Source && now.Before(x.End) && (o.End || x.Waits == a.Waits) {
			x.End = now
		}
		next = append(next, x)
	}
	if o.End {
		return next
	}
	return append(next, a)
}

// Order carries out orders of other relays.
func (s *Scheduler) Order(orders []Order) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range orders {
		o := &orders[i]
		if !o.Host.Addr.IsValid() {
			at := s.db.Site(o.Site)
			at.Actions = o.in(at.Actions, now)
			s.db.Touched(at, now)
			continue
		}
		h := s.db.Known(o.Host.Addr)
		if h == nil {
			h = s.db.Host(o.Host.Addr, o.Host.Name)
		}
		h.Suspensions = o.in(h.Suspensions, now)
		s.db.Taught(h, now)
	}
	s.heedSuspensions(now)
}

// heedSuspensions ends connections to hosts that are suspended, and looks at all that waits anew.
func (s *Scheduler) heedSuspensions(now time.Time) {
	for c := range s.conns {
		if c.session != nil && c.rec.Path.Suspension(now) != nil {
			c.retire()
		}
	}
	s.runLanes(now)
}
