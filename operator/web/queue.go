package web

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// queuePage is a page of the list of messages.
type queuePage struct {
	Filter api.Filter
	Inputs []input
	Whole  bool // there is no filter
	Table  *table
	Paging paging
	// Same is the filter as fields of a form; without one it means the whole queue.
	Same []field
	Back string
}

// shownRecipients is how many recipients of a message the list shows.
const shownRecipients = 3

var queueParams = paramsOf(new(queueQuery), "after")

// queueQuery is what the page of the queue can ask for.
type queueQuery struct {
	api.Filter
	api.Page `without:"after limit recipients"`
}

func queue(r *request) (any, error) {
	q := queueQuery{Page: api.Page{After: r.get("after"), Limit: api.DefaultLimit, Recipients: shownRecipients}}
	err := r.read(&q)
	if err != nil {
		return nil, err
	}
	if err := q.Check(); err != nil {
		return nil, err
	}
	p := queuePage{Filter: q.Filter, Inputs: inputs(&q, "id"), Back: r.here()}
	if p.Same, p.Whole = r.sameOf(filterParams), q.Empty(); p.Whole {
		p.Same = []field{{"all", "true"}}
	}
	l, err := search(r, api.ListQuery{Filter: q.Filter, Page: q.Page})
	if err != nil {
		return nil, err
	}
	rows := listing.QueueRows(l.Messages)
	p.Table = newTable(r, listing.Queue, rows)
	if p.Table.Empty = "No message in the queue fits the filter."; p.Whole {
		p.Table.Empty = "The queue is empty: " + listing.Queue.Empty + "."
	}
	if !l.Complete {
		p.Table.Empty = "None of the messages looked at fits. The next page looks further."
	}
	p.Table.tick("/queue/hold", "messages", func(i int) string {
		if !rows[i].First() {
			return ""
		}
		return rows[i].Item.ID
	})
	p.Paging = r.paging(l.Next)
	p.Paging.Looked, p.Paging.Complete = l.Looked, l.Complete
	return p, nil
}

// patience bounds the search for the first message that fits.
const patience = 2 * time.Second

// search asks for a page, and for the next ones until one has a message: the relay looks at a part of a large queue
// at a time.
func search(r *request, q api.ListQuery) (l api.List, err error) {
	for begun, looked := time.Now(), 0; ; looked = l.Looked {
		l, err = api.OpList.Call(r.ctx, r.relay, q)
		l.Looked += looked
		if err != nil || len(l.Messages) > 0 || l.Complete || l.Next == "" || time.Since(begun) > patience {
			return l, err
		}
		q.After = l.Next
	}
}

// here gives the page that is shown, for a form that returns to it.
func (r *request) here() string {
	path := r.http.URL.Path
	if q := r.values.Encode(); q != "" {
		path += "?" + q
	}
	return path
}

// filterURL gives the same filter for another page, with further parameters.
func filterURL(same []field, more ...string) string {
	v := url.Values{}
	for _, f := range same {
		if f.Name != "all" {
			v.Add(f.Name, f.Value)
		}
	}
	for i := 0; i+1 < len(more); i += 2 {
		v.Set(more[i], more[i+1])
	}
	if len(v) == 0 {
		return ""
	}
	return "?" + v.Encode()
}

// URL gives the page of a path that has the same filter.
func (p queuePage) URL(more ...string) string { return filterURL(p.Same, more...) }

// changeParams are those of the actions on the queue.
var (
	changeParams  = slices.Concat(filterParams, []string{"all"})
	retryParams   = append(slices.Clip(changeParams), "scheduled", "now")
	rerouteParams = append(slices.Clip(changeParams), "pool", "route", "own")
)

// selection reads what is ticked, or what a filter fits: an empty filter must be asked for.
func (r *request) selection() (api.Change, error) {
	f, err := r.filter()
	if err != nil {
		return api.Change{}, err
	}
	if f.Empty() && !r.flag("all") {
		return api.Change{},
			api.Invalid("tick messages first, or use the buttons for all that fit", "no message is ticked")
	}
	return api.Change{Filter: f, All: r.flag("all")}, nil
}

// change makes an action on what is ticked, or on what a filter fits.
func change(a api.Action) func(*request, api.Intent) (Outcome, error) {
	return func(r *request, in api.Intent) (Outcome, error) {
		c, err := r.selection()
		if err != nil {
			return Outcome{}, err
		}
		c.Action, c.Intent = a, in
		switch a {
		case api.Retry:
			c.Scheduled, c.Now = r.flag("scheduled"), r.flag("now")
		case api.Reroute:
			c.Reroutes, c.Own = r.way()
		}
		done, err := api.OpChange.Call(r.ctx, r.relay, c)
		return Outcome{Count: done.Recipients, Noun: "recipient", Lines: changeLines(done)}, err
	}
}

// way reads where rerouted mail goes: a pool, the route of a domain, or its own way again.
func (r *request) way() (to api.Reroutes, own bool) {
	return api.Reroutes{Pool: strings.TrimSpace(r.get("pool")), Route: strings.TrimSpace(r.get("route"))}, r.flag("own")
}

// wayForm asks for the way of mail, with the pools to choose from; nil when the request has one.
func wayForm(r *request) (any, error) {
	if to, own := r.way(); own || to != (api.Reroutes{}) {
		return nil, nil
	}
	if _, err := r.selection(); err != nil {
		return nil, err
	}
	l, err := api.OpPools.Call(r.ctx, r.relay, api.UnpooledFilter{})
	return l.Pools, err
}

// changeLines are what the operator should know beside the count.
func changeLines(c api.Changed) (lines []string) {
	if c.Later > 0 {
		lines = append(lines, "On connections: "+count(c.Later)+
			". It is done when their attempts end, unless those deliver or bounce them.")
	}
	if c.Scheduled > 0 {
		lines = append(lines, plural(c.Scheduled, "recipient")+" scheduled by the sender: no retry before that time")
	}
	for _, o := range c.Obstacles {
		text := plural(o.Recipients, "recipient") + " kept: " + o.Why
		if o.Remedy != "" {
			text += "; '" + o.Remedy + "' ends it"
		}
		lines = append(lines, text)
	}
	if c.Ended > 0 {
		lines = append(lines, plural(c.Ended, "hold, suspension or retry time")+" ended")
	}
	return lines
}

// summaryPage is the queue as a heat map of age.
type summaryPage struct {
	By     api.SummaryBy
	Bys    []api.SummaryBy
	Same   []field
	Sum    api.Summary
	Paging paging
}

// summaryRows bounds a summary's rows.
const summaryRows = 100

var summaryParams = slices.Concat(filterParams, []string{"by", "after"})

func summary(r *request) (any, error) {
	p := summaryPage{By: api.SummaryBy(r.get("by")), Bys: api.SummaryBys, Same: r.sameOf(filterParams)}
	p.By = cmp.Or(p.By, api.BySite)
	if !slices.Contains(p.Bys, p.By) {
		return nil, api.Invalid("", "by: there is no summary by %q", p.By)
	}
	f, err := r.filter()
	if err != nil {
		return nil, err
	}
	p.Sum, err = api.OpSummary.Call(r.ctx, r.relay,
		api.SummaryQuery{By: p.By, Filter: f, SummaryPage: api.SummaryPage{Limit: summaryRows, After: r.get("after")}})
	p.Paging = r.paging(p.Sum.Next)
	p.Paging.Looked, p.Paging.Complete = p.Sum.Looked, p.Sum.Complete
	return p, err
}

// URL gives the summary, or the list, with the same filter.
func (p summaryPage) URL(more ...string) string { return filterURL(p.Same, more...) }

// Of gives the filter that fits a row, for the list; "" when there is none.
func (p summaryPage) Of(key string) string {
	names := map[api.SummaryBy]string{api.BySite: "site", api.ByDomain: "domain", api.ByTenant: "tenant",
		api.ByState: "state", api.ByCampaign: "campaign", api.ByProvider: "provider",
		api.ByWaitsFor: "waits_for"}
	if name := names[p.By]; name != "" && key != "" {
		return filterURL(p.Same, name, key)
	}
	return ""
}
