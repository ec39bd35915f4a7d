// Package router turns recipients' domains into routes, many at once: mail exchangers by the
// DNS, smarthosts by configuration, address literals; and it names sites and finds providers.
//
// Order of use: New, then Submit and Verify by any number of goroutines; Reload when the
// configuration changes; Close. Lookup is for people who ask how a domain is routed.
//
// Long-lived goroutines: none. Each look-up that has been given one of the Workers runs in a
// goroutine, which takes further jobs as long as there are any that may run; Close cancels them
// and waits.
package router

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/router/resolver"
)

// Resolver is what the router wants of the DNS; *resolver.Resolver has it. Errors are
// *resolver.Error, others count as temporary.
type Resolver interface {
	MX(ctx context.Context, domain string) (*resolver.Answer, error)
	A(ctx context.Context, host string) (*resolver.Answer, error)
	AAAA(ctx context.Context, host string) (*resolver.Answer, error)
}

// Policies finds the MTA-STS policies of domains that are routed by the DNS.
type Policies interface {
	// STS gives the policy that counts for mail along a route; zero means none. It answers from its memory where it
	// can, and otherwise waits for the DNS and a web server, within bounds of its own. An error says that ctx has
	// ended, or the policies have been closed, before anybody knew.
	STS(context.Context, *route.Route) (route.STS, error)
}

// Config is what a Router is made from. Every zero field has a default.
type Config struct {
	Settings
	Routes int              // kept in the cache, the refusals too; 50,000
	Now    func() time.Time // time.Now
	Rand   *rand.Rand       // orders hosts of equal preference; seeded by chance
	// Policies adds to each route what the domain publishes. Nil: nothing.
	Policies Policies
	Log      *slog.Logger // nil: nowhere
}

// Request asks for the routes of a message's domains.
type Request struct {
	Message envelope.ID
	Tenant  string // on whose behalf; tenants share the workers by their weights
	Weight  int    // of the tenant, 0 is 1
	Tier    uint8  // of the message: a tenant's tiers go first to last, each with a share
	// Domains are distinct, in A-label form and lower case, or address literals in brackets, as
	// envelope.Address.Domain gives them. Left alone by the caller from Submit on.
	Domains []string
	// Done is called once for each domain, with a route or with the reply that says why there is
	// none; both are shared and must be left alone. It is called by several goroutines at once,
	// without any lock held, and for what is known already by Submit itself, before that
	// returns. It should not block: it has a worker.
	Done func(domain string, rt *route.Route, err *reply.Reply)
	// Wanted is asked when a domain's turn has come, which can be long after Submit. When it returns
	// false the domain is not looked up, and Done is not called for it. It is called as Done is. Nil:
	// all domains are wanted.
	Wanted func(domain string) bool
}

// Router finds routes. It is safe for use by many goroutines.
type Router struct {
	resolver Resolver
	policies Policies
	now      func() time.Time
	log      *slog.Logger
	routes   int
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	workers  sync.WaitGroup // the goroutines of work

	hits, lookups atomic.Uint64

	chance struct { // guards rand
		sync.Mutex
		rand *rand.Rand
	}
	mu struct { // guards what waits, what runs and what is known
		sync.Mutex
		closed   bool
		settings *settings
		known    *resolver.Cache[string, routed]
		schedule *schedule
		patience patience
		verify   *verifications
		running  int               // workers that have a job
		finding  map[string]*quest // domains being looked up
	}
}

// routed is what Done gets.
type routed struct {
	route   *route.Route
	failure *reply.Reply
}

// quest is a look-up under way, and who else wants to know. Those have no worker meanwhile. It is guarded
// by Router.mu.
type quest struct {
	job     *job
	waiting []*job
	over    bool // it has an end
	cut     bool // it was cut off, for others to have the worker
}

// New makes a router. The settings must be valid, see Settings.Validate: it panics otherwise.
func New(cfg Config, r Resolver) *Router {
	s, err := cfg.compile()
	if err != nil {
		panic("router: settings were not validated: " + err.Error())
	}
	cfg.Routes = cmp.Or(cfg.Routes, 50_000)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	rt := &Router{resolver: r, policies: cfg.Policies, now: cfg.Now, log: cfg.Log, routes: cfg.Routes}
	rt.ctx, rt.cancel = context.WithCancel(context.Background())
	rt.chance.rand = cfg.Rand
	rt.mu.schedule, rt.mu.patience = newSchedule(s.allowance(), s.guarding()), newPatience(s)
	rt.mu.verify = newVerifications()
	rt.mu.verify.request.Done = rt.verified
	rt.use(s)
	return rt
}

// use puts settings in force. What was found under others is forgotten; look-ups under way answer
// those who asked before, and nobody else. r.mu is held, or nobody knows r yet.
func (r *Router) use(s *settings) {
	r.mu.settings = s
	r.mu.known = resolver.NewCache[string, routed](r.routes)
	r.mu.finding = make(map[string]*quest)
	for _, each := range []*schedule{r.mu.schedule, r.mu.patience.waiting} {
		each.allowance, each.guard = s.allowance(), s.guarding()
	}
	r.mu.verify.most = s.VerifyWorkers
}

// Reload puts other settings in force, all of them, or none and says why. All that is submitted
// from now on, and what waits for a worker, is routed by the new ones.
func (r *Router) Reload(s Settings) error {
	c, err := s.compile()
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.use(c)
	jobs := r.take()
	r.mu.Unlock()
	r.start(jobs)
	return nil
}

// ForgetAll is Forget for all domains, and for those that are being looked up.
func (r *Router) ForgetAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	again := *r.mu.settings
	r.use(&again)
}

// Submit asks for routes. It returns at once; Request says when Done is called. Submit keeps
// what it is given until then: the caller bounds how much that is.
func (r *Router) Submit(req Request) {
	var unknown []string
	for i, d := range req.Domains {
		if v, ok := r.recall(d); ok {
			r.hits.Add(1)
			req.Done(d, v.route, v.failure)
			continue
		}
		if unknown == nil {
			unknown = make([]string, 0, len(req.Domains)-i)
		}
		unknown = append(unknown, d)
	}
	if len(unknown) > 0 {
		r.enqueue(&entry{request: req, waiting: unknown, arrived: r.now()})
	}
}

// Known gives the route of a domain, or the reply that says why there is none, if it is known: then
// Submit would find it at once. Both are shared and must be left alone.
func (r *Router) Known(domain string) (rt *route.Route, err *reply.Reply, known bool) {
	v, ok := r.recall(domain)
	if ok {
		r.hits.Add(1)
	}
	return v.route, v.failure, ok
}

// Forget has a domain looked up anew the next time, since something has changed that its route was made from.
func (r *Router) Forget(domain string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.known.Drop(domain)
}

// DomainsOf lists the domains whose routes are known and lead to a site, the latest used first. It
// goes through all that is known, for the time of which nobody gets a route: it is for operators.
func (r *Router) DomainsOf(site string) (domains []string) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for domain, v := range r.mu.known.All(now) {
		if v.route != nil && v.route.Site == site {
			domains = append(domains, DomainOf(domain))
		}
	}
	return domains
}

// LookingUp reports whether a domain's look-up is under way. One that is neither known nor under way
// waits for a worker, if anybody has asked for it.
func (r *Router) LookingUp(domain string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.finding[domain] != nil
}

// recall gives what is known of a domain. After Close that is a refusal.
func (r *Router) recall(domain string) (routed, bool) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return routed{failure: stopping()}, true
	}
	return r.mu.known.Get(domain, now)
}

// enqueue has a message's domains looked up as the schedule allows.
func (r *Router) enqueue(e *entry) {
	r.mu.Lock()
	if r.mu.closed {
		r.mu.Unlock()
		e.refuse()
		return
	}
	r.mu.schedule.add(e)
	jobs := r.take()
	r.mu.Unlock()
	r.start(jobs)
}

// take gives the jobs that may run now, each with a worker. r.mu is held.
func (r *Router) take() []*job {
	var jobs []*job
	for !r.mu.closed {
		free := r.mu.settings.Workers - r.mu.running
		j, ok := r.mu.patience.next(r.now(), r.mu.settings, free)
		if !ok {
			j, ok = r.mu.schedule.next(r.now(), free)
		}
		if !ok {
			break
		}
		r.mu.running++
		r.workers.Add(1) // under the lock: Close sets closed before it waits
		jobs = append(jobs, &j)
	}
	return jobs
}

func (r *Router) start(jobs []*job) {
	for _, j := range jobs {
		go r.work(j)
	}
}

// work does a job, and further ones as long as there are any for its worker.
func (r *Router) work(j *job) {
	for {
		r.do(j)
		r.mu.Lock()
		j.schedule.done(*j)
		r.mu.running--
		if j.patient {
			r.mu.patience.running--
		}
		jobs := r.take()
		r.mu.Unlock()
		if len(jobs) == 0 {
			r.workers.Done()
			return
		}
		j = jobs[0]
		r.start(jobs[1:])
		r.workers.Done() // of the job that is done; j has its own
	}
}

// do finds one domain's route, or leaves that to the worker that is at it already, or to a later one.
func (r *Router) do(j *job) {
	done := j.entry.request.Done
	if w := j.entry.request.Wanted; w != nil && !w(j.domain) {
		return
	}
	r.mu.Lock()
	if !r.wanted(j) {
		r.mu.Unlock()
		return
	}
	s := r.mu.settings
	if v, ok := r.mu.known.Get(j.domain, r.now()); ok {
		r.mu.Unlock()
		done(j.domain, v.route, v.failure)
		return
	}
	if q := r.mu.finding[j.domain]; q != nil {
		q.waiting = append(q.waiting, j)
		r.mu.Unlock()
		return
	}
	if r.waitsItsTurn(j) {
		r.mu.patience.postpone(j, r.now())
		r.mu.Unlock()
		return
	}
	q := &quest{job: j}
	r.mu.finding[j.domain] = q
	r.mu.Unlock()
	r.answer(q, s, r.try(q, s))
}

// try looks a quest's domain up, which is cut off when it takes long and enough others do.
func (r *Router) try(q *quest, s *settings) Result {
	ctx, cut := context.WithCancel(r.ctx)
	defer cut()
	if !q.job.patient {
		defer time.AfterFunc(s.FirstTry, func() { r.tookLong(q, cut) }).Stop()
	}
	return r.find(ctx, s, q.job.domain)
}

// answer notifies all who wait for a quest's domain.
func (r *Router) answer(q *quest, s *settings, res Result) {
	j, v := q.job, routed{res.Route, res.Failure}
	failed := v.failure != nil && v.failure.Temporary()
	if failed && r.ctx.Err() != nil {
		v.failure = stopping() // we cut the look-up off ourselves
	}
	r.mu.Lock()
	q.over = true
	if r.mu.finding[j.domain] == q {
		delete(r.mu.finding, j.domain)
	}
	r.mu.patience.learn(j.domain, failed && (j.patient || q.cut), r.now())
	if q.cut && failed && !r.mu.closed {
		r.postpone(q)
		r.mu.Unlock()
		return
	}
	if !r.mu.closed && r.mu.settings == s && res.Expires.After(r.now()) {
		r.mu.known.Put(j.domain, v, res.Expires)
	}
	waiting := q.waiting
	q.waiting = nil
	r.mu.Unlock()
	for _, j := range append(waiting, j) {
		j.entry.request.Done(j.domain, v.route, v.failure)
	}
}

// find looks a domain up.
func (r *Router) find(ctx context.Context, s *settings, domain string) Result {
	r.lookups.Add(1)
	if domain == "" {
		return Result{Failure: badDomain(), Expires: r.now().Add(s.MaxRouteAge)}
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	q := search{Result: Result{Domain: domain}, settings: s, resolver: r.resolver, rand: r.intN, now: r.now()}
	res := q.run(ctx)
	if res.Route != nil && !res.Route.Configured && r.policies != nil {
		r.addPolicy(ctx, &res)
	}
	if res.Failure != nil {
		r.log.Debug("no route", "domain", domain, "reply", res.Failure.String())
	} else {
		r.log.Debug("route found", "domain", domain, "site", res.Route.Site, "provider", res.Route.Provider, "hosts",
			res.Route.Hosts())
	}
	return res
}

// addPolicy adds the domain's MTA-STS policy to its route. There is no route while that is not known: mail must not go
// without a policy because its look-up was cut off.
func (r *Router) addPolicy(ctx context.Context, res *Result) {
	sts, err := r.policies.STS(ctx, res.Route)
	if err != nil {
		res.Route, res.Failure, res.Expires = nil, policyFailure(res.Domain), r.now()
		return
	}
	res.Route.STS = sts
}

func (r *Router) intN(n int) int {
	r.chance.Lock()
	defer r.chance.Unlock()
	return r.chance.rand.IntN(n)
}

// Lookup finds a domain's route anew, with all that is known of how it came about. It does not
// wait for a worker. The DNS answers may be cached ones.
func (r *Router) Lookup(ctx context.Context, domain string) Result {
	r.mu.Lock()
	s := r.mu.settings
	r.mu.Unlock()
	return r.find(ctx, s, domain)
}

// Stats are counters since the start, and sizes now.
type Stats struct {
	Hits     uint64 // domains answered from the cache by Submit
	Lookups  uint64 // domains looked up
	Routes   int    // routes and refusals in the cache
	Messages int    // with domains that wait for a worker
	Running  int    // workers busy
	// Verifying is how many of those verify recipients; Verifications are the domains that wait for
	// one of them.
	Verifying, Verifications int
}

// Stats gives the counters.
func (r *Router) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{
		Hits: r.hits.Load(), Lookups: r.lookups.Load(), Routes: r.mu.known.Len(),
		Messages: r.mu.schedule.messages() + r.mu.patience.waiting.messages(), Running: r.mu.running,
		Verifying: r.mu.verify.running, Verifications: len(r.mu.verify.waiting),
	}
}

// Close cancels the look-ups and waits until all who asked have been notified: 451 4.3.2, where there
// is no route.
func (r *Router) Close() {
	r.mu.Lock()
	r.mu.closed = true
	left := append(r.mu.schedule.drain(), r.mu.patience.waiting.drain()...)
	r.mu.verify.refuse(r.mu.schedule)
	r.mu.Unlock()
	r.cancel()
	for _, e := range left {
		e.refuse()
	}
	r.workers.Wait()
}

// refuse answers a message that it will not get routes any more.
func (e *entry) refuse() {
	for _, d := range e.waiting {
		e.request.Done(d, nil, stopping())
	}
}
