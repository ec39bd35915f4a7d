package web

import (
	"errors"
	"strings"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// sitesPage is a page of the list of sites.
type sitesPage struct {
	Inputs []input
	Find   string // what was searched for
	Table  *table
	Paging paging
}

var sitesParams = paramsOf(new(api.SiteFilter), "q", "after")

func sites(r *request) (any, error) {
	var f api.SiteFilter
	if err := r.read(&f); err != nil {
		return nil, err
	}
	p := sitesPage{Find: r.get("q"), Inputs: inputs(&f, "name")}
	if p.Find != "" { // a name, or all below it
		f.Names = append(f.Names, p.Find, "."+strings.TrimPrefix(p.Find, "."))
	}
	l, err := r.relay.Sites(r.ctx, f, r.get("after"), api.DefaultLimit)
	p.Table = newTable(r, listing.Sites, l.Sites)
	p.Paging = r.paging(l.Next)
	return p, err
}

// sitePage is one site: what decides on its mail, and what became of the latest.
type sitePage struct {
	Name   string
	Known  bool     // the relay has it among its sites
	Site   api.Site // where Known
	Domain string   // for which the rest is true
	// Explained is what happens to mail for Domain, nil when none is known that the site serves.
	Explained *api.Destination
	Recent    api.Recent
	Plots     []Plot
	Back      string
}

var siteParams = []string{"name", "domain"}

func site(r *request) (any, error) {
	p := sitePage{Name: r.get("name"), Domain: r.get("domain"), Back: r.here()}
	if p.Name == "" && p.Domain == "" {
		return nil, api.Invalid("", "name a site or a domain")
	}
	if err := p.explain(r); err != nil {
		return nil, err
	}
	if p.Name == "" {
		return p, nil
	}
	l, err := r.relay.Sites(r.ctx, api.SiteFilter{Names: []string{p.Name}}, "", 1)
	if err != nil {
		return nil, err
	}
	if p.Known = len(l.Sites) == 1; p.Known {
		p.Site = l.Sites[0]
	}
	if p.Recent, err = r.relay.Recent(r.ctx, p.Name); err != nil && !api.IsNotFound(err) {
		return nil, err
	}
	h, err := r.relay.History(r.ctx, api.HistoryQuery{Of: api.OfSite, Name: p.Name, Span: api.Last15Minutes})
	switch {
	case err == nil:
		p.Plots = []Plot{history(h, "rates", "Recipients", "/s", "delivered", "deferred", "bounced"), history(h, "delay", "Time to delivery", "s", "delay_p50", "delay_p99")}
	case !api.IsNotFound(err):
		return nil, err
	}
	return p, nil
}

// explain finds what happens to mail for the domain. Of a site it takes a domain that has mail in the queue for it.
func (p *sitePage) explain(r *request) error {
	if p.Domain == "" {
		l, err := r.relay.List(r.ctx, api.Filter{Site: p.Name}, api.Page{Limit: 1, Recipients: 1})
		if err != nil {
			return err
		}
		if len(l.Messages) == 0 || len(l.Messages[0].Recipients) == 0 {
			return nil
		}
		address := l.Messages[0].Recipients[0].Address
		p.Domain = address[strings.LastIndexByte(address, '@')+1:]
	}
	x, err := r.relay.Explain(r.ctx, api.ExplainQuery{Domain: p.Domain})
	if refused := (*api.Error)(nil); r.get("domain") == "" && errors.As(err, &refused) {
		p.Domain = "" // it was taken from an address literal
		return nil
	}
	if err != nil || len(x.Destinations) == 0 {
		return err
	}
	p.Explained = &x.Destinations[0]
	if p.Name == "" {
		p.Name = p.Explained.Site
	}
	return nil
}

// suspensions are the times for which a form offers to suspend.
var suspensions = []string{"15m", "1h", "4h", "1d", "7d"}

// Waiting counts the recipients that wait for the site.
func (p sitePage) Waiting() int { return listing.Waiting(&p.Site) }

// Spans are those times.
func (sitePage) Spans() []string { return suspensions }

var suspendParams = []string{"site", "source", "for"}

func suspendSite(r *request, try Try) (Outcome, error) {
	span, err := r.age("for")
	if err != nil {
		return Outcome{}, err
	}
	done, err := r.relay.Suspend(r.ctx, api.Suspend{Intent: try.intent(), Site: r.get("site"), Source: r.get("source"), For: span})
	return Outcome{Count: done.Count, Noun: "site", Lines: suspended(done)}, err
}

func suspended(done api.Suspended) (lines []string) {
	if !done.Until.IsZero() {
		lines = append(lines, "Site "+done.Site+", until "+done.Until.UTC().Format("2006-01-02 15:04 MST"))
	}
	if done.Domains > 0 {
		lines = append(lines, "It serves "+plural(done.Domains, "domain")+": "+strings.Join(done.Some, ", "))
	}
	return lines
}

func resumeSite(r *request, try Try) (Outcome, error) {
	done, err := r.relay.Resume(r.ctx, api.Resume{Intent: try.intent(), Site: r.get("site")})
	return Outcome{Count: done.Count, Noun: "suspension"}, err
}
