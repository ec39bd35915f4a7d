// Package rules keeps the rules of operators for mail in a file in the data directory, and answers which apply to
// mail. It neither stops nor resumes mail: its callers do, by two hooks.
//
// Its only goroutine is that of [Rules.Run].
package rules

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/hours"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/route"
	"example.org/mta/internal/settings"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
	"example.org/mta/router"
)

// Most is how many rules there may be. So many more may suspend as mostPauses has: the rules of a program keep no
// operator from a pause.
const (
	Most       = 1000
	mostPauses = 100
)

// Rules bounce, hold, suspend, reroute or slow mail. What is suspended waits in the queue, in a line for each rule, and
// expires as always.
//
// They have a separate file in data_dir, written before a rule is in force: destdb has only what the relay learned, and
// may lose it; the configuration is the operator's text, which no command changes.
type Rules struct {
	path   string
	now    func() time.Time
	format func() int
	log    *slog.Logger
	policy func() *wiring.Policy
	// Changed has delivery ask for limits anew, and give back jobs that may not leave now; Resumed has mail taken up
	// that waited for the end of a rule. Neither may be nil.
	Changed func()
	Resumed func(parking.Key)
	// Note is called with the key of [Shared] before a rule begins or ends that is not only this relay's, and what it
	// returns after it. Nil: nobody shares the rules. Where follows the names of operators, as " at node 2".
	Note  func(keys []string) (done func(), err error)
	Where string
	Paces SharedPaces // of campaigns; nil: they are this relay's alone, as are rules that slow
	Lost  bool        // neither the file nor its copy could be read

	mu    sync.Mutex // one change at a time; guards last
	last  int        // number of a rule
	inUse atomic.Pointer[Set]

	started time.Time
	paces   paces

	zones  hours.Zones
	shutMu sync.Mutex               // guards shut
	shut   map[parking.Key]struct{} // windows for which mail may wait
}

// Set is the rules in use. It is not changed once it is; nil is none.
type Set struct {
	all  []api.Rule                // the strictest first
	by   map[[2]string][]int       // where in all: those whose first term this is; the zero term is of all mail
	keys map[parking.Key]*api.Rule // those that suspend, by what their mail waits for
	does map[api.RuleAction]bool   // what any of them does
}

// Mail is what rules select by. What is not known yet, or does not apply, is "".
type Mail struct{ Tenant, Campaign, Domain, Provider, Pool, Source string }

// MailOf returns what rules select the mail of a message to a domain by. Without a route, pool and provider are not
// known.
func MailOf(m *envelope.Message, domain string, pol *wiring.Policy, rt *route.Route) Mail {
	mail := Mail{Tenant: m.Tenant, Campaign: m.Campaign, Domain: domain}
	if rt != nil {
		mail.Provider, mail.Pool = rt.Provider, pol.PoolOf(m, rt).Name
	}
	return mail
}

// In is the mail when it leaves from a pool.
func (m Mail) In(pool *config.Pool) Mail {
	m.Pool = pool.Name
	return m
}

// terms are what a rule may have as its first term to be for the mail.
func (m *Mail) terms() [7][2]string {
	return [...][2]string{{}, {"tenant", m.Tenant}, {"pool", m.Pool}, {"source", m.Source}, {"provider", m.Provider},
		{"domain", m.Domain}, {"campaign", m.Campaign}}
}

// fits reports whether a selection is for the mail.
func (m *Mail) fits(s *api.Selection) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(s.Tenant, m.Tenant) && is(s.Pool, m.Pool) && is(s.Source, m.Source) && is(s.Provider, m.Provider) &&
		is(s.Domain, m.Domain) && is(s.Campaign, m.Campaign)
}

// Key is what the mail that a rule suspends waits for.
func Key(s api.Selection) parking.Key { return parking.Key{Kind: parking.Pause, Name: s.String()} }

// Read reads the rules in force when the relay stopped: see file.go for a file that is damaged. Format is that in which
// the file is written.
func Read(dir string, now func() time.Time, format func() int, policy func() *wiring.Policy,
	log *slog.Logger) (*Rules, error) {
	r := &Rules{path: filepath.Join(dir, FileName), now: now, format: format, policy: policy, log: log,
		Changed: func() {}, Resumed: func(parking.Key) {}, shut: make(map[parking.Key]struct{}), started: now(),
		paces: paces{by: make(map[parking.Key]*pace), ofTenant: make(map[string]int)}}
	c, err := r.read()
	if err != nil {
		return nil, fmt.Errorf("reading the rules: %w", err)
	}
	r.last = c.Last
	r.use(c.Rules)
	return r, nil
}

func (r *Rules) use(list []api.Rule) {
	if len(list) == 0 {
		r.inUse.Store(nil)
		return
	}
	slices.SortFunc(list, func(a, b api.Rule) int { return a.Compare(&b) })
	s := &Set{all: list, by: make(map[[2]string][]int), keys: make(map[parking.Key]*api.Rule),
		does: make(map[api.RuleAction]bool)}
	for i := range list {
		x, first := &list[i], [2]string{}
		if terms := x.Terms(); len(terms) > 0 {
			first = terms[0]
		}
		s.by[first] = append(s.by[first], i)
		if s.does[x.Action] = true; x.Action == api.RuleSuspend {
			s.keys[Key(x.Selection)] = x
		}
	}
	r.inUse.Store(s)
}

// Current is the set in use, to see whether it has changed; nil without rules.
func (r *Rules) Current() *Set {
	if r == nil {
		return nil
	}
	return r.inUse.Load()
}

// For lists the rules in force for mail that do one of some things, or anything, the strictest first.
func (r *Rules) For(m Mail, actions ...api.RuleAction) (list []*api.Rule) {
	s := r.Current()
	if s == nil || len(actions) > 0 && !slices.ContainsFunc(actions, func(a api.RuleAction) bool { return s.does[a] }) {
		return nil
	}
	for i, term := range m.terms() {
		if i > 0 && term[1] == "" {
			continue
		}
		for _, at := range s.by[term] {
			x := &s.all[at]
			if (len(actions) == 0 || slices.Contains(actions, x.Action)) && m.fits(&x.Selection) && !r.over(x) {
				list = append(list, x)
			}
		}
	}
	slices.SortFunc(list, (*api.Rule).Compare)
	return list
}

// first is the strictest of some rules, nil without any.
func first(list []*api.Rule) *api.Rule {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// Stops returns the rule that keeps mail from leaving: the strictest of those that bounce, hold or suspend it. Mail
// that waits, or was released, is not held again: tried.
func (r *Rules) Stops(m Mail, tried bool) *api.Rule {
	list := r.For(m, api.RuleBounce, api.RuleHold, api.RuleSuspend)
	if tried {
		list = slices.DeleteFunc(list, func(x *api.Rule) bool { return x.Action == api.RuleHold })
	}
	return first(list)
}

// RouteOf returns the name of the route by which a rule has mail take another way; "" without one.
func (r *Rules) RouteOf(m Mail) string {
	if x := first(r.For(m, api.RuleReroute)); x != nil {
		return router.Via(m.Domain, x.Host)
	}
	return ""
}

// Rates returns the rates to which rules slow a tenant's mail from a source along a route.
func (r *Rules) Rates(rt *route.Route, source, tenant string) (rates []delivery.RuleRate) {
	m := Mail{Tenant: tenant, Domain: rt.Domain, Provider: rt.Provider, Source: source}
	for _, x := range r.For(m, api.RuleSlow) {
		var rate settings.Rate
		if err := rate.UnmarshalText([]byte(x.Rate)); err != nil { // it was checked when it was added
			r.log.Error("a rule has no rate", "rule", x.ID, "error", err)
			continue
		}
		one := delivery.RuleRate{Rule: x.ID, Tenant: x.Tenant, Source: x.Source, Why: x.InWords(),
			Rate: gcra.Rate{Events: rate.Count, Per: rate.Per}}
		if r.Paces != nil && x.By != ByRelay {
			one.Shared = "rule for " + x.Selection.String() // numbers are each node's own
			bare := strings.TrimSuffix(one.Why, ": "+x.Reason)
			one.Why = bare + delivery.OfAllRelays + one.Why[len(bare):]
		}
		rates = append(rates, one)
	}
	return rates
}

// over reports whether a rule has ended by itself.
func (r *Rules) over(x *api.Rule) bool { return !x.Until.IsZero() && !r.now().Before(x.Until) }

// Get gives the rule that suspends mail under a key, if it is in force.
func (r *Rules) Get(key parking.Key) (x api.Rule, on bool) {
	if s := r.Current(); s != nil {
		if p := s.keys[key]; p != nil && !r.over(p) {
			return *p, true
		}
	}
	return x, false
}

// Has reports whether mail under a key is suspended, or its window is closed.
func (r *Rules) Has(key parking.Key) bool {
	if _, on := r.Get(key); on {
		return true
	}
	block, _ := r.closed(key)
	return block != nil
}

// List gives those in force, the strictest first.
func (r *Rules) List() []api.Rule {
	return slices.DeleteFunc(r.all(), func(x api.Rule) bool { return r.over(&x) })
}

// all is list with those whose end has come and whose mail is yet to be taken up.
func (r *Rules) all() []api.Rule {
	if s := r.Current(); s != nil {
		return slices.Clone(s.all)
	}
	return []api.Rule{}
}

// Source reports whether a source is suspended.
func (r *Rules) Source(name string) bool {
	return r.Current() != nil && r.Has(Key(api.Selection{Source: name}))
}

// SourceOf gives the key of a suspended source of a pool, zero when none is.
func (r *Rules) SourceOf(pool *config.Pool) parking.Key {
	if r.Current() == nil {
		return parking.Key{}
	}
	for _, name := range pool.Sources() {
		if r.Source(name) {
			return Key(api.Selection{Source: name})
		}
	}
	return parking.Key{}
}

// Suspends returns the key of the rule that suspends mail, zero without one. Sources are checked when one is chosen.
func (r *Rules) Suspends(m Mail) parking.Key {
	if x := first(r.For(m, api.RuleSuspend)); x != nil {
		return Key(x.Selection)
	}
	return parking.Key{}
}

// Keeps returns the key of the rule that suspends the mail of a pool from any of its sources, zero without one.
func (r *Rules) Keeps(m Mail, pool *config.Pool) parking.Key {
	if r.Current() == nil || pool == nil {
		return parking.Key{}
	}
	key := r.Suspends(m.In(pool))
	sources := pool.Sources()
	if len(sources) > 0 && !slices.ContainsFunc(sources, func(name string) bool { return !r.Source(name) }) {
		key = cmp.Or(key, Key(api.Selection{Source: sources[0]}))
	}
	return key
}

// Why returns why and until when mail under a key waits. ok is false if the key is none of a rule, a
// window or a pace.
func (r *Rules) Why(key parking.Key) (why string, until time.Time, ok bool) {
	switch key.Kind {
	case parking.Hours:
		return r.opens(key)
	case parking.Pace:
		return r.paced(key)
	case parking.Pause:
	default:
		return "", until, false
	}
	x, in := r.Get(key)
	if !in {
		return "the pause has ended: it is taken up now", until, true
	}
	return x.InWords(), x.Until, true
}

// First describes what suspends the first selection of some that is suspended, or everything; "" without any.
func (r *Rules) First(selections ...api.Selection) string {
	for _, s := range append([]api.Selection{{All: true}}, selections...) {
		if x, on := r.Get(Key(s)); on {
			return x.InWords()
		}
	}
	return ""
}

// change puts another list in force. It is durable first. Those whose end has come leave by expire only, which
// takes up their mail.
func (r *Rules) change(list []api.Rule) error {
	if err := r.write(contents{Rules: list, Last: r.last}); err != nil {
		return fmt.Errorf("writing down the rules: %w", err)
	}
	r.use(list)
	return nil
}

// ByRelay is who has begun a rule that the relay makes by itself. Those are for itself alone.
const ByRelay = "the relay"

// noted changes the list by a rule, of which those that share the rules hear.
func (r *Rules) noted(x *api.Rule, list []api.Rule) error {
	if r.Note != nil && x.By != ByRelay {
		done, err := r.Note([]string{nameOf(x)})
		if err != nil {
			return err
		}
		defer done()
	}
	return r.change(list)
}

// Find returns the rule in force of a number, or, of number 0, with an action and a selection.
func (r *Rules) Find(id int, action api.RuleAction, s api.Selection) (x api.Rule, found bool) {
	list := r.List()
	at := slices.IndexFunc(list, func(x api.Rule) bool {
		return x.ID == id || id == 0 && x.Action == action && x.Selection == s
	})
	if at < 0 {
		return x, false
	}
	return list[at], true
}

// Begin puts a rule in force, in the place of one that does the same with the same mail. With dryRun it only gives it
// its number.
func (r *Rules) Begin(x api.Rule, dryRun bool) (api.Rule, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.all()
	at := slices.IndexFunc(list, func(o api.Rule) bool { return o.Action == x.Action && o.Selection == x.Selection })
	if x.By != ByRelay {
		x.By += r.Where
	}
	switch _, old := pauseOf(&x); {
	case r.format() == 1 && !old:
		return x, errOld
	case at >= 0:
		x.ID = list[at].ID
		list[at] = x
	case len(list) >= Most && (x.Action != api.RuleSuspend || len(list) >= Most+mostPauses):
		return x, api.Invalid("what holds for good belongs into the configuration",
			"there are %d rules, which is the most", len(list))
	default:
		x.ID = r.last + 1
		list = append(list, x)
	}
	if dryRun {
		return x, nil
	}
	last := r.last
	r.last = max(last, x.ID)
	if err := r.noted(&x, list); err != nil {
		r.last = last
		return x, err
	}
	r.begun(&x)
	return x, nil
}

// begun has mail follow a rule that has begun.
func (r *Rules) begun(x *api.Rule) {
	if r.Changed(); x.Action == api.RuleBounce || x.Action == api.RuleHold {
		r.lookAgain()
	}
}

// lookAgain has mail taken up that waits for a window or a pace: a rule bounces or holds some of it now.
func (r *Rules) lookAgain() {
	r.shutMu.Lock()
	defer r.shutMu.Unlock()
	for key := range r.shut {
		r.Resumed(key)
	}
	r.Resumed(parking.Key{Kind: parking.Pace})
}

// End ends a rule; false when there is none of that number.
func (r *Rules) End(id int) (found bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x, found := r.Find(id, "", api.Selection{})
	if !found {
		return false, nil
	}
	if err := r.noted(&x, slices.DeleteFunc(r.all(), func(o api.Rule) bool { return o.ID == id })); err != nil {
		return true, err
	}
	r.ended(&x)
	return true, nil
}

// ended takes up the mail of a rule that has ended. A pool's mail waits for the first of its sources that was
// suspended, and any other will do.
func (r *Rules) ended(x *api.Rule) {
	if x.Action == api.RuleSlow {
		r.Changed()
	}
	if x.Action != api.RuleSuspend {
		return
	}
	if r.Resumed(Key(x.Selection)); x.Source != "" {
		r.SourceFree()
	}
}

// SourceFree takes up the mail that waits for suspended sources, after another source has become free.
func (r *Rules) SourceFree() {
	for _, s := range r.policy().Config.Sources {
		r.Resumed(Key(api.Selection{Source: s.Name}))
	}
}

// Run ends what has an end, until ctx does.
func (r *Rules) Run(ctx context.Context) {
	each := time.NewTicker(time.Second)
	defer each.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-each.C:
			r.expire()
			r.open()
		}
	}
}

func (r *Rules) expire() {
	if r.Current() == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ended := slices.DeleteFunc(r.all(), func(x api.Rule) bool { return !r.over(&x) })
	if len(ended) == 0 {
		return
	}
	if err := r.change(r.List()); err != nil {
		r.log.Error("writing down that a rule has ended", "error", err)
		r.use(r.List()) // it has, whatever the file says: its time is in there
	}
	for i := range ended {
		r.log.Info("a rule has ended", "rule", ended[i].ID, "does", ended[i].Does())
		r.ended(&ended[i])
	}
}

// Stays reports whether a job that waits in delivery may leave the way that it was to take.
func (r *Rules) Stays(j *delivery.Job) bool {
	if r.Current() == nil {
		return true
	}
	pol := r.policy()
	for _, i := range j.Recipients {
		m := MailOf(j.Message, j.Message.Recipients[i].Address.Domain(), pol, j.Route)
		slows, _ := r.slows(j.Message)
		if slows != nil || r.Stops(m, true) != nil {
			return false
		}
		other := r.RouteOf(m)
		if other != "" && j.Message.Detour.Route == "" && !strings.HasSuffix(other, "://"+j.Route.Site) {
			return false
		}
	}
	return !r.Source(j.Source)
}

// Trouble is the alarm while everything is suspended.
func (r *Rules) Trouble() string {
	x, on := r.Get(Key(api.Selection{All: true}))
	if !on {
		return ""
	}
	return x.InWords() + "; to go on: mta resume everything"
}
