package web

import (
	"cmp"
	"errors"
	"strings"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// sitePage is one site: what decides on its mail, and what became of the latest.
type sitePage struct {
	Name   string
	Known  bool     // the relay has it among its sites
	Site   api.Site // where Known
	Domain string   // for which the rest is true
	// Explained is what happens to mail for Domain, nil when none is known that the site serves.
	Explained *api.Destination
	Limits    *table // in force for it
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
	l, err := api.OpSites.Call(r.ctx, r.relay, api.SiteFilter{Names: []string{p.Name}, Paging: api.Paging{Limit: 1}})
	if err != nil {
		return nil, err
	}
	if p.Known = len(l.Sites) == 1; p.Known {
		p.Site = l.Sites[0]
	}
	if p.Recent, err = api.OpRecent.Call(r.ctx, r.relay, api.None{}, p.Name); err != nil && !api.IsNotFound(err) {
		return nil, err
	}
	p.Plots, err = plotsOf(r, api.OfSite, p.Name, api.Last15Minutes)
	return p, err
}

// explain finds what happens to mail for the domain. Of a site it takes a domain that has mail in the queue for it.
func (p *sitePage) explain(r *request) error {
	if p.Domain == "" {
		l, err := api.OpList.Call(r.ctx, r.relay,
			api.ListQuery{Filter: api.Filter{Site: p.Name}, Page: api.Page{Limit: 1, Recipients: 1}})
		if err != nil {
			return err
		}
		if len(l.Messages) == 0 || len(l.Messages[0].Recipients) == 0 {
			return nil
		}
		address := l.Messages[0].Recipients[0].Address
		p.Domain = address[strings.LastIndexByte(address, '@')+1:]
	}
	x, err := api.OpExplain.Call(r.ctx, r.relay, api.ExplainQuery{Domain: p.Domain})
	if refused := (*api.Error)(nil); r.get("domain") == "" && errors.As(err, &refused) {
		p.Domain = "" // it was taken from an address literal
		return nil
	}
	if err != nil || len(x.Destinations) == 0 {
		return err
	}
	p.Explained = &x.Destinations[0]
	p.Limits = newTable(r, listing.Limits, p.Explained.Limits)
	p.Name = cmp.Or(p.Name, p.Explained.Site)
	return nil
}

// Waiting counts the recipients that wait for the site.
func (p sitePage) Waiting() int { return listing.Waiting(&p.Site) }
