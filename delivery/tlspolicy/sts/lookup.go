package sts

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"
)

// call gives the look-up of a domain that is under way, or begins one. p.mu is held.
func (p *Policies) call(domain string) *call {
	c := p.mu.calls[domain]
	if c == nil {
		c = &call{domain: domain}
		if p.mu.closed {
			return c // it comes to nothing
		}
		p.mu.calls[domain] = c
		p.lookups.do(func() { p.discover(c) })
	}
	return c
}

// discover is the first step of a look-up: the DNS says whether there is a policy, and by its id whether it has
// changed.
func (p *Policies) discover(c *call) {
	ctx, cancel := context.WithTimeout(p.ctx, dnsTimeout)
	defer cancel()
	records, err := p.cfg.Resolver.TXT(ctx, "_mta-sts."+c.domain)
	if err != nil {
		p.failed(c, DNS, timedOut(ctx, err, "looking up the MTA-STS record"))
		return
	}
	id, err := ParseRecord(records)
	if err != nil {
		p.failed(c, kindOfRecord(err), err)
		return
	}
	if p.unchanged(c, id) {
		return
	}
	p.mu.Lock()
	next := &p.renewals
	if c.urgent {
		next = &p.fetches
	}
	p.mu.Unlock()
	next.do(func() { p.fetch(c, id) })
}

// unchanged ends a look-up when the policy that is cached is the one that is published, and was fetched not long ago.
func (p *Policies) unchanged(c *call, id string) bool {
	now := p.now()
	p.mu.Lock()
	e := p.mu.policies.get(c.domain)
	if e == nil || c.force || e.id != id || !e.fresh(now) {
		p.mu.Unlock()
		return false
	}
	p.mu.counts.Unchanged++
	e.next, e.failure, e.failures = now.Add(min(checkAfter, e.lifetime()/2)), nil, 0
	p.end(c, e.demand(), false)
	return true
}

// fetch is the second step.
func (p *Policies) fetch(c *call, id string) {
	ctx, cancel := context.WithTimeout(p.ctx, fetchTimeout)
	defer cancel()
	policy, err := fetch(ctx, p.cfg.Transport, c.domain)
	if err != nil {
		p.failed(c, kindOfFetch(err), timedOut(ctx, err, "fetching the policy"))
		return
	}
	now := p.now()
	p.mu.Lock()
	e := &entry{domain: c.domain, policy: policy, id: id, fetched: now, used: now}
	e.next = now.Add(min(checkAfter, e.lifetime()/2))
	before := p.find(c.domain)
	if before != nil {
		e.used = before.used
	}
	p.mu.counts.Fetched++
	p.mu.absent.drop(c.domain)
	for _, gone := range p.mu.policies.put(e) {
		p.touch(gone.domain)
	}
	p.touch(c.domain)
	p.notify(before, e)
	p.end(c, policy, before != nil && !before.demand().same(policy))
}

// announce logs what a domain has changed. p.mu is held.
func (p *Policies) notify(before, now *entry) {
	switch {
	case before == nil || before.policy == nil:
		p.log.Debug("MTA-STS policy found", "domain", now.domain, "mode", now.policy.Mode, "id", now.id)
	case before.policy.Mode != now.policy.Mode:
		p.log.Info("MTA-STS policy changed", "domain", now.domain, "mode", now.policy.Mode, "before",
			before.policy.Mode, "id", now.id)
	case before.failure != nil && before.failure.Kind != Absent:
		p.log.Info("MTA-STS policy can be renewed again", "domain", now.domain, "mode", now.policy.Mode, "id", now.id)
	}
}

// failed ends a look-up without a policy. One that is cached stands until it expires (RFC 8461, 5.1): who can keep us
// from renewing it must not be able to make us do without.
func (p *Policies) failed(c *call, kind Kind, err error) {
	if p.ctx.Err() != nil {
		return // Close notifies those who wait
	}
	f := &Failure{Kind: kind, At: p.now(), err: err}
	p.cfg.Failed(c.domain, f)
	p.mu.Lock()
	p.mu.counts.Failed[kind]++
	e := p.mu.policies.get(c.domain)
	if e != nil && e.holds(f.At) {
		e.fail(f)
		if e.failures == 1 && e.policy.Mode != None {
			p.log.Warn("MTA-STS policy can't be renewed; the cached one stands", "domain", c.domain, "until",
				e.expires(), "error", err)
		}
		p.end(c, e.policy, false)
		return
	}
	changed := e != nil && e.policy.Mode != None
	if e != nil {
		p.log.Warn("MTA-STS policy has expired and can't be renewed; mail is sent without it", "domain",
			c.domain, "error", err)
		p.mu.policies.drop(c.domain)
		p.touch(c.domain)
	}
	a := p.mu.absent.get(c.domain)
	if a == nil {
		a = &entry{domain: c.domain, used: f.At}
		p.mu.absent.put(a)
	}
	a.fail(f)
	p.end(c, none, changed)
}

// end hands out the result of a look-up, and says whether it is another than before. It is called with p.mu held, and
// unlocks it.
func (p *Policies) end(c *call, policy *Policy, changed bool) {
	if p.mu.calls[c.domain] == c {
		delete(p.mu.calls, c.domain)
	}
	waiting := c.waiting
	c.waiting = nil
	p.mu.Unlock()
	if changed {
		p.cfg.Changed(c.domain)
	}
	for _, done := range waiting {
		done(policy, nil)
	}
}

const (
	renewMost = 200             // renewals that are begun in a minute
	saveAfter = 2 * time.Second // changes are written together
)

// touch notes that a domain's record has to be written. p.mu is held.
func (p *Policies) touch(domain string) {
	p.mu.dirty[domain] = true
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Run renews policies ahead of their expiry, and writes what has changed to the store, until ctx ends.
func (p *Policies) Run(ctx context.Context) {
	renewing := time.NewTicker(time.Minute)
	defer renewing.Stop()
	var saving <-chan time.Time // nil while nothing has changed
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
			saving = time.After(saveAfter)
		case <-saving:
			p.save()
			saving = nil
		case <-renewing.C:
			p.renew()
			p.save() // what could not be written before
		}
	}
}

// renew begins to look up policies that should be fetched again, and drops those that have expired unused.
func (p *Policies) renew() {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	begun := 0
	for e := range p.mu.policies.all() {
		idle := now.Sub(e.used) >= forgetAfter
		switch {
		case e.holds(now) && !idle && begun < renewMost && !e.fresh(now) && !now.Before(e.next) &&
			p.mu.calls[e.domain] == nil:
			p.call(e.domain)
			begun++
		case !e.holds(now) && now.Sub(e.expires()) > checkAfter:
			p.mu.policies.drop(e.domain)
			p.touch(e.domain)
		}
	}
}

// load takes up what the store has.
func (p *Policies) load() {
	if p.cfg.Store == nil {
		return
	}
	values, err := p.cfg.Store.Load()
	if err != nil {
		p.log.Error("MTA-STS policies can't be read from the store; they are fetched anew", "error", err)
		return
	}
	now := p.now()
	for domain, value := range values {
		e, err := decode(domain, value, now)
		if err != nil || !e.holds(now) {
			p.touch(domain)
			continue
		}
		for _, gone := range p.mu.policies.put(e) {
			p.touch(gone.domain)
		}
	}
}

// save writes what has changed.
func (p *Policies) save() {
	p.mu.Lock()
	values := make(map[string][]byte, len(p.mu.dirty))
	for domain := range p.mu.dirty {
		values[domain] = nil
		if el := p.mu.policies.entries[domain]; el != nil { // this does not count as use of it
			value, err := el.Value.(*entry).encode()
			if err != nil {
				panic(fmt.Sprintf("sts: a policy can't be encoded: %v", err)) // it has strings and numbers only
			}
			values[domain] = value
		}
	}
	clear(p.mu.dirty)
	p.mu.Unlock()
	if len(values) == 0 || p.cfg.Store == nil {
		return
	}
	err := p.cfg.Store.Save(values)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		for domain := range values {
			p.touch(domain)
		}
		if !p.mu.unsaved {
			p.log.Error("MTA-STS policies can't be written to the store", "error", err)
		}
	}
	p.mu.unsaved = err != nil
}

// Close ends look-ups, gives ErrClosed to those who wait, and writes what has changed. Run must have ended.
func (p *Policies) Close() {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
	p.cancel()
	for _, g := range []*gate{&p.lookups, &p.fetches, &p.renewals} {
		g.close()
	}
	p.running.Wait()
	p.mu.Lock()
	var waiting []func(*Policy, error)
	for _, c := range p.mu.calls {
		waiting = append(waiting, c.waiting...)
	}
	clear(p.mu.calls)
	p.mu.Unlock()
	for _, done := range waiting {
		done(nil, ErrClosed)
	}
	p.save()
}

// gate runs a limited number of functions at once, each on a goroutine. The others stand in line, and cost no goroutine
// there.
type gate struct {
	running *sync.WaitGroup

	mu     sync.Mutex // guards the rest
	free   int
	line   []func()
	closed bool
}

// do runs f when its turn comes. After close it does nothing.
func (g *gate) do(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
	case g.free == 0:
		g.line = append(g.line, f)
	default:
		g.free--
		g.running.Go(func() { g.work(f) })
	}
}

// work runs f and then those in line.
func (g *gate) work(f func()) {
	for f != nil {
		f()
		f = g.next()
	}
}

// next takes the first in line, nil when there is none: then the goroutine's place is free.
func (g *gate) next() (f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.line) == 0 || g.closed {
		g.free++
		g.line = nil
		return nil
	}
	f = g.line[0]
	g.line[0] = nil
	g.line = g.line[1:]
	return f
}

// close drops the line. What runs goes on.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.line = true, nil
}

// maxPolicySize is the most that is read of a policy, in octets (RFC 8461, 3.3 suggests it).
const maxPolicySize = 64 << 10

// fetch gets the policy of a domain over HTTPS, as RFC 8461, 3.3 says: no redirects, no cache, text/plain only. What
// the certificate must be is the transport's to know.
func fetch(ctx context.Context, transport http.RoundTripper, domain string) (*Policy, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"https://mta-sts."+domain+"/.well-known/mta-sts.txt", nil)
	if err != nil {
		return nil, fmt.Errorf("fetching the policy: %w", err)
	}
	req.Header.Set("User-Agent", "mta (MTA-STS)")
	res, err := transport.RoundTrip(req) // not by a Client, which would follow redirects
	if err != nil {
		return nil, fmt.Errorf("fetching the policy: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetching the policy: the web server answered %s", statusOf(res))
	}
	if media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err != nil || media != "text/plain" {
		return nil, fmt.Errorf("fetching the policy: its media type is %.40q, not text/plain",
			res.Header.Get("Content-Type"))
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxPolicySize+1))
	if err == nil {
		err = ctx.Err() // a server may end its answer because it sees us go
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("fetching the policy: %w", err)
	case len(text) > maxPolicySize:
		return nil, fmt.Errorf("fetching the policy: it has more than %d octets", maxPolicySize)
	}
	policy, err := Parse(text)
	if err != nil {
		return nil, &policyError{err}
	}
	return policy, nil
}

// statusOf is the status in our words: those of the server are anybody's.
func statusOf(res *http.Response) string {
	if 300 <= res.StatusCode && res.StatusCode < 400 {
		return fmt.Sprintf("%d, a redirect, which must not be followed", res.StatusCode)
	}
	return fmt.Sprintf("%d %s", res.StatusCode, http.StatusText(res.StatusCode))
}
