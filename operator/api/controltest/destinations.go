package controltest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/mta/operator/api"
)

var (
	_ api.Destinations = (*Relay)(nil)
	_ api.Tracer       = (*Relay)(nil)
)

// Sites gives a page of those of KnownSites that fit.
func (r *Relay) Sites(_ context.Context, f api.SiteFilter, after string, limit int) (l api.SiteList, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []api.Site
	for _, s := range r.KnownSites {
		suspended := slices.ContainsFunc(s.Actions, func(a api.SiteAction) bool { return a.What == "suspended" })
		if api.Names(f.Names, s.Name) && (f.Provider == "" || f.Provider == s.Provider) && (!f.Suspended || suspended) &&
			(!f.Queued || s.Queued > 0) && (!f.Failing || s.Tally.ErrorAt.After(s.LastGood)) && (!f.Busy || s.Connections+s.Waiting+s.Running+s.Parked+s.Deferred > 0) {
			list = append(list, s)
		}
	}
	if f.Order == api.BySize {
		slices.SortStableFunc(list, func(a, b api.Site) int { return cmp.Compare(b.Queued, a.Queued) })
		l.Sites, l.Next = pageOf(list, func(s *api.Site) string { return s.Name }, after, limit)
		return l, nil
	}
	l.Sites, l.Next = page(list, func(s *api.Site) string { return s.Name }, after, limit)
	return l, nil
}

// pageOf cuts a listing that is in order. The cursor is the key of the last one before.
func pageOf[T any](all []T, key func(*T) string, after string, limit int) (some []T, next string) {
	if i := slices.IndexFunc(all, func(x T) bool { return key(&x) == after }); i >= 0 && after != "" {
		all = all[i+1:]
	}
	if len(all) > limit {
		return all[:limit], key(&all[limit-1])
	}
	return all, ""
}

// page puts a listing in order by key and cuts it. The cursor is the key of the last one before.
func page[T any](all []T, key func(*T) string, after string, limit int) (some []T, next string) {
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(key(&a), key(&b)) })
	for i := range all {
		if key(&all[i]) <= after {
			continue
		}
		if len(some) == limit {
			return some, key(&some[limit-1])
		}
		some = append(some, all[i])
	}
	return some, ""
}

// Hosts gives a page of those of KnownHosts that fit.
func (r *Relay) Hosts(_ context.Context, f api.HostFilter, after string, limit int) (l api.HostList, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []api.Host
	for _, h := range r.KnownHosts {
		met := slices.ContainsFunc(h.Paths, func(p api.HostPath) bool { return p.Source == f.Source })
		if api.Names(f.Names, h.Name, h.Address) && (f.State == "" || f.State == h.State) && (f.Source == "" || met) {
			list = append(list, h)
		}
	}
	l.Hosts, l.Next = page(list, func(h *api.Host) string { return h.Name + " " + h.Address }, after, limit)
	return l, nil
}

// Forget takes hosts out of KnownHosts.
func (r *Relay) Forget(_ context.Context, f api.Forget) (api.Forgotten, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var others []api.Host
	for _, h := range r.KnownHosts {
		if !api.Names(f.Hosts, h.Name, h.Address) {
			others = append(others, h)
		}
	}
	n := len(r.KnownHosts) - len(others)
	if n == 0 {
		return api.Forgotten{}, api.NotFound("those that are known: mta hosts", "no host is known by that name")
	}
	if !f.DryRun {
		r.KnownHosts = others
	}
	return api.Forgotten{Hosts: n}, nil
}

// SuspendHosts adds an action to hosts.
func (r *Relay) SuspendHosts(_ context.Context, s api.SuspendHosts) (api.SuspendedHosts, error) {
	until := r.Now.Add(time.Duration(s.For))
	n, err := r.eachHost(s.Hosts, func(h *api.Host) {
		if !s.DryRun {
			h.Actions = append(h.Actions, api.SiteAction{What: "suspended", Source: s.Source, Reason: s.Reason, Begin: r.Now, End: until})
		}
	})
	return api.SuspendedHosts{Hosts: n, Until: until}, err
}

// ResumeHosts takes all actions off hosts.
func (r *Relay) ResumeHosts(_ context.Context, s api.ResumeHosts) (api.ResumedHosts, error) {
	ended := 0
	n, err := r.eachHost(s.Hosts, func(h *api.Host) {
		ended += len(h.Actions)
		if !s.DryRun {
			h.Actions = nil
		}
	})
	return api.ResumedHosts{Hosts: n, Ended: ended}, err
}

// eachHost does something to the hosts of those names, and counts them.
func (r *Relay) eachHost(names []string, f func(*api.Host)) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.KnownHosts {
		if h := &r.KnownHosts[i]; api.Names(names, h.Name, h.Address) {
			f(h)
			n++
		}
	}
	if n == 0 {
		err = api.NotFound("those that are known: mta hosts", "no host is known by that name")
	}
	return n, err
}

// Suspend adds an action to a site.
func (r *Relay) Suspend(_ context.Context, s api.Suspend) (api.Suspended, error) {
	site, err := r.siteNamed(s.Site)
	if err != nil {
		return api.Suspended{}, err
	}
	until := r.Now.Add(time.Duration(s.For))
	if !s.DryRun {
		site.Actions = append(site.Actions, api.SiteAction{What: "suspended", Source: s.Source, Reason: s.Reason, Begin: r.Now, End: until})
	}
	return api.Suspended{Site: site.Name, Until: until, Domains: 61, Some: []string{"slow.example", "slower.example"}}, nil
}

// Resume takes all actions off a site.
func (r *Relay) Resume(_ context.Context, s api.Resume) (api.Resumed, error) {
	site, err := r.siteNamed(s.Site)
	if err != nil {
		return api.Resumed{}, err
	}
	n := len(site.Actions)
	if !s.DryRun {
		site.Actions = nil
	}
	return api.Resumed{Site: site.Name, Ended: n}, nil
}

func (r *Relay) siteNamed(name string) (*api.Site, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.KnownSites {
		if r.KnownSites[i].Name == name {
			return &r.KnownSites[i], nil
		}
	}
	return nil, api.NotFound("those that are known: mta sites", "no site is known by the name %s", name)
}

// Explain gives the explanation of that domain or message.
func (r *Relay) Explain(_ context.Context, q api.ExplainQuery) (api.Explanation, error) {
	e, ok := r.Explanations[q.Domain+q.ID]
	if !ok {
		return e, api.NotFound("it may be done with: look for it with 'mta log --id'", "message %s is not in the queue", q.ID)
	}
	return e, nil
}

// Trace gives Conversation, and then waits for the end.
func (r *Relay) Trace(ctx context.Context, q api.TraceQuery, each func(api.TraceLine) error, flush func()) error {
	flush()
	for _, l := range r.Conversation {
		if q.Site != "" && q.Site != l.Site || q.Tenant != "" && q.Tenant != l.Tenant || l.Content && !q.Content {
			continue
		}
		if err := each(l); err != nil {
			return err
		}
	}
	flush()
	if r.TraceEnds {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// addDestinations makes the sample relay's sites, hosts, explanations and conversation.
func (r *Relay) addDestinations() {
	now := r.Now
	refused := api.Reply{Code: 451, Enhanced: "4.4.1", Text: "connection refused", Command: "connect", Local: true}
	broken := &api.Broken{Failures: 4, Since: now.Add(-20 * time.Minute), RetryAt: now.Add(8 * time.Minute), Reply: refused}
	suspension := api.SiteAction{
		What: "suspended", Source: "out1", Reason: "google-rate: mx.grey.example answered 421 4.7.28 rate limited",
		Begin: now.Add(-2 * time.Minute), End: now.Add(8 * time.Minute),
	}
	r.KnownSites = []api.Site{
		{Name: "big.example", Provider: "big", Connections: 10, SlowStart: 10, Waiting: 2000, Running: 31, Parked: 814, Queued: 2845, Usual: 41.7,
			Tally:    api.Tally{Delivered: 151_203, Deferred: 12, Bounced: 310},
			LastGood: now.Add(-time.Second), Why: "max_message_rate 50/s of site big.example", Until: now.Add(20 * time.Millisecond)},
		{Name: "mx.grey.example", Connections: 0, SlowStart: 3, Deferred: 1, Queued: 1, LastGood: now.Add(-5 * time.Minute), Actions: []api.SiteAction{suspension}},
		{Name: "slow.example", SlowStart: 1, Deferred: 1, Queued: 1, Tally: api.Tally{Deferred: 17, LastError: &refused, ErrorAt: now.Add(-20 * time.Minute)}},
	}
	big := api.Host{
		Name: "mx1.big.example", Address: "192.0.2.10:25", State: api.HostActive, Connections: 10, Backlog: 31, Mode: "chunking", Window: 16,
		Extensions: []string{"PIPELINING", "CHUNKING", "8BITMIME", "STARTTLS", "SIZE"},
		TLS:        &api.HostTLS{Version: "TLSv1.3", Cipher: "TLS_AES_128_GCM_SHA256", VerifiedBy: "STS", Certificate: "mx1.big.example"},
		Paths:      []api.HostPath{{Source: "out1", State: api.HostActive, Connections: 10, Backlog: 31, LastMade: now.Add(-40 * time.Second)}},
	}
	spare := api.Host{Name: "mx2.big.example", Address: "192.0.2.11:25", State: api.HostUnused}
	r.KnownHosts = []api.Host{
		big, spare,
		{Name: "mx.grey.example", Address: "192.0.2.1:25", State: api.HostClosed, Mode: "pipelining", Extensions: []string{"PIPELINING", "SIZE"},
			Paths: []api.HostPath{{Source: "out1", State: api.HostClosed, LastMade: now.Add(-5 * time.Minute)}}},
		{Name: "mx1.slow.example", Address: "192.0.2.7:25", State: api.HostRetry, Broken: broken, Paths: []api.HostPath{{Source: "out1", State: api.HostRetry}}},
	}
	r.Explanations = explanations(r, big, spare, suspension)
	id := r.Messages[3].ID
	said := func(d, text string) api.TraceLine {
		return api.TraceLine{Time: now, Session: "6a1f00010001", Host: "mx1.big.example[192.0.2.10]:25", Site: "big.example", Source: "out1", Direction: d, Text: text}
	}
	r.Conversation = []api.TraceLine{said("<", "220 mx1.big.example ESMTP"), said(">", "EHLO relay.example"), said("<", "250-mx1.big.example"), said("<", "250 CHUNKING")}
	for _, l := range []api.TraceLine{
		said(">", "MAIL FROM:<root@host.example> SIZE=611"), said(">", "RCPT TO:<dave@big.example>"), said(">", "BDAT 611 LAST"),
		{Time: now, Session: "6a1f00010001", Host: "mx1.big.example[192.0.2.10]:25", Site: "big.example", Source: "out1", Direction: ">",
			Text: "From: root@host.example\r\nSubject: disk\r\n\r\nthe disk is full\r\n", Content: true},
		said("<", "250 2.1.0 ok"), said("<", "250 2.1.5 ok"), said("<", "250 2.0.0 queued as 1234"),
	} {
		l.Message = id
		r.Conversation = append(r.Conversation, l)
	}
	last := said(">", "QUIT")
	last.Lost = 12
	r.Conversation = append(r.Conversation, last)
}

func explanations(r *Relay, big, spare api.Host, suspension api.SiteAction) map[string]api.Explanation {
	now := r.Now
	site := "site big.example"
	limits := []api.Limit{
		{Setting: "connection_limit", Value: "10", Scope: site, Origin: "default", Now: "10 in use"},
		{Setting: "max_deliveries_per_connection", Value: "100", Scope: "each connection", Origin: "default"},
		{Setting: "max_message_rate", Value: "50/s", Scope: site, Origin: `domain "big.example" (mta.conf:12)`},
		{Setting: "max_age", Value: "5d", Scope: "each recipient", Origin: "default"},
	}
	sources := []api.DestinationSource{{Name: "out1", Address: "198.51.100.1", EHLO: "out1.relay.example", Reaches: 2}}
	dest := api.Destination{
		Domain: "big.example", Now: "mail from source out1 waits: max_message_rate 50/s of site big.example", Until: now.Add(20 * time.Millisecond),
		Steps:        []string{"MX of big.example: 10 mx1.big.example, 20 mx2.big.example", "mx1.big.example has 192.0.2.10", "mx2.big.example has 192.0.2.11"},
		RouteExpires: now.Add(5 * time.Minute), Site: "big.example", Provider: "big", TLS: "verified", TLSOrigin: "the MTA-STS policy of big.example",
		MTASTS: &r.KnownPolicies[0],
		Hosts:  []api.TierHost{{Tier: 1, Host: big}, {Tier: 2, Host: spare}}, Pool: "default", Sources: sources, Limits: limits,
		Connections: 10, SlowStart: 10,
		Lanes:   []api.Lane{{Source: "out1", Waiting: 2000, Running: 31, Why: "max_message_rate 50/s of site big.example", Until: now.Add(20 * time.Millisecond), Oldest: now.Add(-7 * time.Minute)}},
		Queued:  api.QueuedCounts{Parked: 814, Unsorted: 1},
		Ceiling: api.Ceiling{PerSecond: 50, Binds: "max_message_rate 50/s of site big.example: 50 messages/s", Others: []string{"max_connection_rate 5/s of provider big, 100 messages each: 500 messages/s"}},
	}
	grey := api.Destination{
		Domain: "grey.example", Now: "no mail is sent: suspended (" + suspension.Reason + ")", Until: suspension.End,
		Steps: []string{"MX of grey.example: 10 mx.grey.example", "mx.grey.example has 192.0.2.1"}, RouteExpires: now.Add(time.Minute),
		Site: "mx.grey.example", TLS: "opportunistic", TLSOrigin: "default", Hosts: []api.TierHost{{Tier: 1, Host: r.KnownHosts[2]}}, Pool: "default", Sources: sources,
		Limits:    []api.Limit{{Setting: "connection_limit", Value: "10", Scope: "site mx.grey.example", Origin: "default", Now: "0 in use"}},
		SlowStart: 3, Actions: []api.SiteAction{suspension}, Queued: api.QueuedCounts{Deferred: 1},
		Ceiling: api.Ceiling{Binds: "suspended (" + suspension.Reason + ")"},
	}
	missing := api.Destination{
		Domain: "missing.example", Now: "mail bounces: there is no route", Steps: []string{"MX of missing.example: no such name"},
		Failure: &api.Reply{Code: 550, Enhanced: "5.1.2", Text: "the domain missing.example does not exist", Command: "route", Local: true},
		Hosts:   []api.TierHost{}, Pool: "default", Sources: []api.DestinationSource{}, Limits: []api.Limit{},
	}
	m := r.Messages[1]
	why := []struct {
		text  string
		until time.Time
	}{
		{"2 attempts have failed: it waits for its retry time", m.Recipients[0].Next},
		{"it is held until it is released ('mta queue release') or expires", time.Time{}},
		{"an attempt is in progress on a connection to mx.例え.example[192.0.2.9]:25 from source out1, session 6a1f00010002, with 1 transaction in progress", time.Time{}},
	}
	x := &api.ExplainedMessage{ID: m.ID, Sender: m.Sender, Tenant: m.Tenant, Source: "out1", Received: m.Received}
	for i, rc := range m.Recipients {
		x.Recipients = append(x.Recipients, api.ExplainedRecipient{Status: rc, Why: why[i].text, Until: why[i].until})
	}
	out := map[string]api.Explanation{m.ID: {Message: x, Destinations: []api.Destination{grey}}}
	for _, d := range []api.Destination{dest, grey, missing} {
		out[d.Domain] = api.Explanation{Destinations: []api.Destination{d}}
	}
	if len(out) != 4 {
		panic(fmt.Sprintf("%d explanations", len(out))) // two of one name
	}
	return out
}
