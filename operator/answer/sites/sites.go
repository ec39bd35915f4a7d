// Package sites answers about where mail goes: sites and hosts, and why the mail of a domain, or a message, is where it
// is.
package sites

import (
	"cmp"
	"context"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/delivery/tlspolicy/sts"
	"example.org/mta/destdb"
	"example.org/mta/dispatch/rules"
	"example.org/mta/dispatch/weights"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/mta/tally"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/answer/blocks"
	"example.org/mta/operator/answer/messages"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/router"
)

// Sites answers about sites and hosts, and suspends them; it implements api.Destinations.
type Sites struct {
	Policy     func() *wiring.Policy // in force
	Now        func() time.Time
	Queue      *queue.Queue
	Delivery   Delivery
	Router     Router
	Tally      *tally.Tallies
	Messages   *messages.Messages
	Suppressed func(tenant string, a envelope.Address) (why string, yes bool) // since when, too
	TLSA       tlspolicy.Records
	STS        *sts.Policies
	Missing    func(source string) bool // whether this machine lacks the source's address
	Weights    *weights.Weights
	Files      int // that the process may have open
	// Behind waits for the other nodes of a cluster, and returns which don't know of a suspension yet; "": all do.
	Behind func(context.Context) string
}

// Delivery has the sites and hosts that mail went to.
type Delivery interface {
	Site(name string) (delivery.SiteInfo, bool)
	Sites(after string, n int) []delivery.SiteInfo
	Hosts(after destdb.HostKey, n int) []destdb.HostInfo
	HostsAt(netip.Addr) []destdb.HostInfo
	Whereabouts(envelope.ID) (delivery.Whereabouts, bool)
	Forget(hosts []netip.AddrPort) int
	Suspend(site, source, reason string, until time.Time) error
	Resume(site string) (ended int, err error)
	SuspendHosts(hosts []netip.AddrPort, source, reason string, until time.Time) (int, error)
	ResumeHosts(hosts []netip.AddrPort) (known, ended int, err error)
}

// Router knows the ways of domains.
type Router interface {
	messages.Router
	Lookup(ctx context.Context, domain string) router.Result
	Known(domain string) (*route.Route, *reply.Reply, bool)
	DomainsOf(site string) []string
}

func (d *Sites) Sites(ctx context.Context, f api.SiteFilter) (l api.SiteList, err error) {
	if f.Order == api.BySize || f.Order == api.ByWorst {
		return d.sitesBySize(ctx, f)
	}
	now, queued := d.Now(), d.queuedByKey()
	known := withQueued(knownSites(d.Delivery, f.Names, f.After), waitingKeys(queued, f.Names, f.After))
	l.Sites, l.Next, err = pageOf(ctx, known, f.Limit, func(s *delivery.SiteInfo) (api.Site, bool) {
		site := d.shown(s, queued[s.Name], now)
		return site, f.Fits(&site)
	}, func(s *delivery.SiteInfo) string { return s.Name })
	return l, err
}

// pageOf gives the first limit rows that fit, with 0 all, and the cursor of the last if there are more.
func pageOf[T, Row any](
	ctx context.Context, all iter.Seq[T], limit int, show func(*T) (row Row, fits bool), cursor func(*T) string,
) (rows []Row, next string, _ error) {
	var last T
	for x := range all {
		if err := ctx.Err(); err != nil {
			return rows, "", err
		}
		row, fits := show(&x)
		if fits && limit > 0 && len(rows) == limit {
			return rows, cursor(&last), nil
		}
		if fits {
			rows, last = append(rows, row), x
		}
	}
	return rows, "", nil
}

// shown puts all that is known of a site in words.
func (d *Sites) shown(s *delivery.SiteInfo, k *queue.Count, now time.Time) api.Site {
	out := siteOf(&s.SiteInfo, now)
	out.Provider, _ = d.Messages.Providers.Provider(parking.Parse(s.Name))
	out.addLanes(s.Lanes)
	out.addQueued(k)
	out.addReason(d)
	out.WaitsFor = d.Messages.Waits.Picture().ByKey[parking.Parse(s.Name)]
	c := d.Tally.Get(tally.Site, s.Name)
	out.Tally, out.Failing = blocks.TallyOf(&c), c.Failing()
	return out.Site
}

// waitingKeys are those behind a name for which there is mail in the queue, by name. After a start nothing is known of
// a site to which no mail has gone, and the queue may have much for it, though all be held. Mail without a route waits
// for its domain, and is listed under that; mail that waits for a warm-up, under that.
func waitingKeys(queued map[string]*queue.Count, patterns []string, after string) []string {
	var keys []string
	for key, k := range queued {
		if key > after && api.Names(patterns, key) && k.Total > 0 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// isPlace reports whether a key is for a listing of sites. Those of paces and windows are not: a tenant may have
// thousands of campaigns, and a client can name 600 zones.
func isPlace(key parking.Key) bool { return key.Kind != parking.Pace && key.Kind != parking.Hours }

// queuedByKey counts what is in the queue by what it waits for, as far as that is a place.
func (d *Sites) queuedByKey() map[string]*queue.Count {
	counts := d.Queue.CountKeys()
	by := make(map[string]*queue.Count, len(counts))
	for key, c := range counts {
		if isPlace(key) {
			by[key.String()] = c
		}
	}
	return by
}

// site is a site that is being put into words.
type site struct{ api.Site }

func siteOf(s *destdb.SiteInfo, now time.Time) site {
	return site{Site: api.Site{
		Name: s.Name, Connections: s.Live, SlowStart: max(int(s.Allowed), 1), Usual: s.Usual, LastGood: s.LastGood,
		Actions: actionsOf(s.Actions, now),
	}}
}

// actionsOf gives the actions that are in force.
func actionsOf(all []destdb.Action, now time.Time) []api.SiteAction {
	var list []api.SiteAction
	for _, a := range all {
		if now.Before(a.End) {
			shown := api.SiteAction{What: a.What, Source: a.Source, Reason: a.Reason, Begin: a.Begin, End: a.End}
			if a.Slow != nil {
				shown.Rate, shown.Connections = a.Slow.Allows(now)
			}
			list = append(list, shown)
		}
	}
	return list
}

func (s *site) addLanes(lanes []delivery.LaneInfo) {
	for _, l := range lanes {
		s.Running += l.Carried
	}
	s.Why, s.Until = messages.WhyIn(lanes)
}

func (s *site) addQueued(k *queue.Count) {
	if k != nil {
		s.Parked, s.Deferred = k.States[queue.StateParked], k.States[queue.StateDeferred]
		s.Waiting = max(k.States[queue.StateLeased]-s.Running, 0)
		s.Queued = k.Total
	}
}

// addReason adds why mail waits if delivery has none of it.
func (s *site) addReason(r *Sites) {
	if s.Why == "" && s.Parked+s.Waiting > 0 {
		if key := parking.Parse(s.Name); key.Kind != parking.Site {
			p := r.Messages.LookOut().Parked(&queue.ItemRecipient{Line: parking.Line{Key: key}})
			s.Why, s.Until = p.Why, p.Next
			if why, until, paused := r.Messages.Rules.Why(
				r.Messages.Rules.Keeps(rules.Mail{}, r.Policy().Config.Pool(key.Name))); paused {
				s.Why, s.Until = why, until
			}
			s.Why = strings.TrimPrefix(s.Why, "waits for ") // what it is that it waits for
		} else if r.Queue.Parked(parking.Line{Key: parking.Key{Name: s.Name}, Route: true}) > 0 ||
			r.Router.LookingUp(s.Name) {
			s.Why = r.Messages.LookUp(s.Name)
		}
	}
}

func (d *Sites) Hosts(ctx context.Context, f api.HostFilter) (l api.HostList, err error) {
	now, waits := d.Now(), d.Messages.Waits.Picture().ByHost
	show := func(h *destdb.HostInfo) (api.Host, bool) {
		host := hostOf(h, now)
		host.WaitsFor = waits[h.Key()]
		return host, f.Fits(&host)
	}
	if f.Order == api.BySize || f.Order == api.ByWorst {
		return d.hostsBySize(ctx, f, waits, show)
	}
	l.Hosts, l.Next, err = pageOf(ctx, knownHosts(d.Delivery, f.Names, hostCursor(f.After)), f.Limit, show,
		func(h *destdb.HostInfo) string { return cursorOf(h.Key()) })
	return l, err
}

// hostOf puts a host in words. Paths of one source that differ in what they demand of the
// connection (TLS, credentials) are shown as one.
func hostOf(h *destdb.HostInfo, now time.Time) api.Host {
	out := api.Host{
		Name: h.Name, Address: h.Addr.String(), Broken: brokenOf(&h.Broken), Mode: h.Facts.Mode,
		Window:     h.Facts.WindowMessages,
		Extensions: h.Facts.Extensions, MaxRcpt: h.Facts.RcptMax, MaxMail: h.Facts.MailMax, TLS: hostTLS(h.Facts.TLS),
		Actions: actionsOf(h.Suspensions, now),
	}
	if now.Before(h.Facts.PlainUntil) {
		out.PlainUntil = h.Facts.PlainUntil
	}
	for i := range h.Paths {
		p := &h.Paths[i]
		last := len(out.Paths) - 1
		if last < 0 || out.Paths[last].Source != p.Source {
			out.Paths = append(out.Paths, api.HostPath{Source: p.Source, State: api.HostUnused})
			last++
		}
		addPath(&out.Paths[last], p)
	}
	out.State = api.HostUnused
	if out.Broken != nil {
		out.State = api.HostRetry
	}
	for _, p := range out.Paths {
		out.State = moreAlive(out.State, p.State)
		out.Connections += p.Connections
		out.Backlog += p.Backlog
	}
	return out
}

func addPath(out *api.HostPath, p *destdb.PathInfo) {
	out.State = moreAlive(out.State, api.HostState(p.State.String()))
	out.Connections += p.Connections
	out.Backlog += p.Backlog
	if b := brokenOf(&p.Broken); b != nil && (out.Broken == nil || b.RetryAt.After(out.Broken.RetryAt)) {
		out.Broken = b
	}
	if p.Made.After(out.LastMade) {
		out.LastMade = p.Made
	}
}

// moreAlive gives the state that comes first in api.HostStates.
func moreAlive(a, b api.HostState) api.HostState {
	if slices.Index(api.HostStates, b) < slices.Index(api.HostStates, a) {
		return b
	}
	return a
}

func brokenOf(b *destdb.Broken) *api.Broken {
	if b.Failures == 0 {
		return nil
	}
	out := &api.Broken{Failures: b.Failures, Since: b.Since, RetryAt: b.RetryAt}
	if r := api.ReplyOf(b.Why); r != nil {
		out.Reply = *r
	}
	return out
}

func (d *Sites) Forget(_ context.Context, f api.Forget) (done api.Forgotten, err error) {
	done.Hosts, err = d.change(f.Hosts, f.DryRun, func(named []netip.AddrPort) (int, error) {
		return d.Delivery.Forget(named), nil
	})
	done.Count = done.Hosts
	return done, err
}

func (d *Sites) SuspendHosts(ctx context.Context, s api.SuspendHosts) (api.SuspendedHosts, error) {
	if err := d.checkSource(s.Source); err != nil {
		return api.SuspendedHosts{}, err
	}
	until := d.Now().Add(time.Duration(s.For))
	n, err := d.change(s.Hosts, s.DryRun, func(named []netip.AddrPort) (int, error) {
		return d.Delivery.SuspendHosts(named, s.Source, reason(ctx, s.Reason), until)
	})
	return api.SuspendedHosts{Effect: d.effect(ctx, n, s.DryRun, err), Hosts: n, Until: until}, err
}

// effect is what a change of suspensions has done.
func (d *Sites) effect(ctx context.Context, count int, dry bool, err error) api.Effect {
	done := api.Effect{Count: count}
	if err == nil && !dry {
		done.Behind = d.Behind(ctx)
	}
	return done
}

// checkSource returns an error if a source is named that there is not.
func (d *Sites) checkSource(name string) error {
	if name == "" {
		return nil
	}
	return blocks.Check(d.Policy().Config, "source", name)
}

// reason is why something is suspended.
func reason(ctx context.Context, given string) string {
	return cmp.Or(given, api.ReasonOf(ctx), "by an operator")
}

func (d *Sites) ResumeHosts(ctx context.Context, s api.ResumeHosts) (done api.ResumedHosts, err error) {
	for h := range knownHosts(d.Delivery, s.Hosts, destdb.HostKey{}) {
		done.Ended += len(actionsOf(h.Suspensions, d.Now()))
	}
	done.Hosts, err = d.change(s.Hosts, s.DryRun, func(named []netip.AddrPort) (known int, err error) {
		known, done.Ended, err = d.Delivery.ResumeHosts(named)
		return known, err
	})
	done.Effect = d.effect(ctx, done.Ended, s.DryRun, err)
	return done, err
}

// change changes the hosts with the given names or addresses, or only counts them. It is an error if there are none.
func (d *Sites) change(names []string, dry bool, do func([]netip.AddrPort) (int, error)) (int, error) {
	var named []netip.AddrPort
	for h := range knownHosts(d.Delivery, names, destdb.HostKey{}) {
		named = append(named, h.Addr)
	}
	n := len(named)
	var err error
	if !dry {
		n, err = do(named)
	}
	if err != nil {
		return n, err
	}
	if n == 0 {
		return 0, api.NotFound("those that are known: mta hosts", "no host is known by the name or address %s",
			strings.Join(names, ", "))
	}
	return n, nil
}

func (d *Sites) Suspend(ctx context.Context, s api.Suspend) (api.Suspended, error) {
	if err := d.checkSource(s.Source); err != nil {
		return api.Suspended{}, err
	}
	name, err := d.siteNamed(ctx, s.Site)
	if err != nil {
		return api.Suspended{}, err
	}
	until := d.Now().Add(time.Duration(s.For))
	if !s.DryRun {
		err = d.Delivery.Suspend(name, s.Source, reason(ctx, s.Reason), until)
	}
	domains := d.Router.DomainsOf(name)
	return api.Suspended{
		Effect: d.effect(ctx, 1, s.DryRun, err), Site: name, Until: until, Domains: len(domains),
		Some: domains[:min(len(domains), 10)],
	}, err
}

func (d *Sites) Resume(ctx context.Context, s api.Resume) (api.Resumed, error) {
	name, err := d.siteNamed(ctx, s.Site)
	if err != nil {
		return api.Resumed{}, err
	}
	done := api.Resumed{Site: name}
	if s.DryRun {
		info, _ := d.Delivery.Site(name)
		for _, a := range actionsOf(info.Actions, d.Now()) {
			if a.What == api.SiteSuspended {
				done.Ended++
			}
		}
	} else {
		done.Ended, err = d.Delivery.Resume(name)
	}
	done.Effect = d.effect(ctx, done.Ended, s.DryRun, err)
	return done, err
}

// siteNamed gives the site that is called so, or that a domain of that name has.
func (d *Sites) siteNamed(ctx context.Context, name string) (string, error) {
	name = strings.ToLower(name)
	if _, known := d.Delivery.Site(name); known {
		return name, nil
	}
	unknown := api.NotFound("those that are known: mta sites",
		"no site is known by the name %s, and no domain of that name has a route", name)
	domain, err := envelope.ToASCII(name)
	if err != nil {
		return "", unknown
	}
	if res := d.Router.Lookup(ctx, domain); res.Route != nil {
		return res.Route.Site, nil
	}
	return "", unknown
}

func (d *Sites) Recent(ctx context.Context, site string) (api.Recent, error) {
	name, err := d.siteNamed(ctx, site)
	if err != nil {
		return api.Recent{}, err
	}
	tries, errors := d.Tally.Recent(name)
	return api.Recent{Site: name, Outcomes: recentOf(tries), Errors: recentOf(errors)}, nil
}

func recentOf(tries []tally.Try) (list []api.RecentOutcome) {
	for i := range tries {
		t := &tries[i]
		o := api.RecentOutcome{
			Time: t.At, Outcome: t.Outcome(), Message: t.Message.String(), Source: t.Source, Host: t.Host.Name,
			Address: api.AddressOf(t.Host.Addr),
			Session: t.Session, Attempted: t.Attempted, Class: t.ClassName(),
		}
		if r := api.ReplyOf(t.Reply); r != nil {
			o.Reply = *r
		}
		list = append(list, o)
	}
	return list
}
