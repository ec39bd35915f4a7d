package web

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.org/mta/operator/api"
)

// suppressionPage is a page of the suppression list, or the entries that keep mail from one address.
type suppressionPage struct {
	Filter  suppressionFilter
	Sources []api.SuppressionSource
	Checked bool // Entries are those of Filter.Address
	Entries []api.Suppression
	Paging  paging
	Export  string
	Back    string
	Filters bool // there is a filter
}

// suppressionFilter is the filter as it was typed.
type suppressionFilter struct{ Address, Tenant, Domain, Source, Provider string }

var (
	suppressionFilterParams = []string{"tenant", "domain", "source", "provider"}
	suppressionParams       = append(slices.Clone(suppressionFilterParams), "address", "after")
)

// suppressionFilter reads which entries are meant. A tenant "-" is everybody's entries.
func (r *request) suppressionFilter() api.SuppressionFilter {
	f := api.SuppressionFilter{Domain: r.get("domain"), Source: api.SuppressionSource(r.get("source")), Provider: r.get("provider")}
	f.Tenant = r.tenant()
	return f
}

// tenant is whose entries are meant: nil is all, "-" everybody's.
func (r *request) tenant() *string {
	switch t := r.get("tenant"); t {
	case "":
		return nil
	case "-":
		return new(string)
	default:
		return &t
	}
}

func suppression(r *request) (any, error) {
	p := suppressionPage{
		Filter:  suppressionFilter{r.get("address"), r.get("tenant"), r.get("domain"), r.get("source"), r.get("provider")},
		Sources: api.SuppressionSources, Back: r.here(),
	}
	same := r.sameOf(suppressionFilterParams)
	p.Export, p.Filters = filterURL(same), len(same) > 0
	if p.Filter.Address != "" {
		l, err := r.relay.CheckSuppressed(r.ctx, api.SuppressedAddresses{Addresses: []string{p.Filter.Address}, Tenant: r.tenant()})
		p.Checked, p.Entries = true, l.Suppressions
		return p, err
	}
	l, err := r.relay.Suppressions(r.ctx, r.suppressionFilter(), r.get("after"), api.DefaultLimit)
	p.Entries, p.Paging = l.Suppressions, r.paging(l.Next)
	return p, err
}

// pendingPage is the entries that were set aside because their provider is in doubt.
type pendingPage struct {
	api.PendingList
	Paging paging
	Back   string
}

var pendingParams = []string{"provider", "after"}

func pending(r *request) (any, error) {
	l, err := r.relay.PendingSuppressions(r.ctx, api.SuppressionFilter{Provider: r.get("provider")}, r.get("after"), api.DefaultLimit)
	return pendingPage{l, r.paging(l.Next), r.here()}, err
}

// addresses are those of a form: one on a line, or with commas or blanks between them.
func (r *request) addresses() ([]string, error) {
	all := strings.FieldsFunc(r.get("addresses"), func(c rune) bool { return c == ',' || c == ';' || c == ' ' || c == '\t' || c == '\n' || c == '\r' })
	switch {
	case len(all) == 0:
		return nil, api.Invalid("", "no address is given")
	case len(all) > api.MaxSuppress:
		return nil, api.Invalid("for more, use 'mta suppress import'", "%d addresses are given; %d is the most at a time", len(all), api.MaxSuppress)
	}
	return all, nil
}

var suppressParams = []string{"addresses", "tenant", "note", "for"}

func suppress(r *request, try Try) (Outcome, error) {
	addresses, err := r.addresses()
	if err != nil {
		return Outcome{}, err
	}
	length, err := r.age("for")
	if err != nil {
		return Outcome{}, err
	}
	s := api.Suppress{Intent: try.intent()}
	for _, a := range addresses {
		e := api.Suppression{Address: a, Reason: r.get("note")}
		if t := r.tenant(); t != nil {
			e.Tenant = *t
		}
		if length > 0 {
			e.Expires = r.now.Add(time.Duration(length))
		}
		s.Suppressions = append(s.Suppressions, e)
	}
	done, err := r.relay.Suppress(r.ctx, s)
	out := Outcome{Count: done.Count, Noun: "address"}
	if done.Unchanged > 0 {
		out.Lines = append(out.Lines, "On the list as they are: "+count(done.Unchanged))
	}
	if len(done.UnknownTenants) > 0 {
		out.Lines = append(out.Lines, "The configuration has no tenant "+strings.Join(done.UnknownTenants, ", ")+": these entries keep nobody's mail until it does.")
	}
	return out, err
}

var unsuppressParams = []string{"addresses", "tenant"}

func unsuppress(r *request, try Try) (Outcome, error) {
	addresses, err := r.addresses()
	if err != nil {
		return Outcome{}, err
	}
	done, err := r.relay.Unsuppress(r.ctx, api.Unsuppress{
		Intent:              try.intent(),
		SuppressedAddresses: api.SuppressedAddresses{Addresses: addresses, Tenant: r.tenant()},
	})
	return Outcome{Count: done.Count, Noun: "entry"}, err
}

// decide makes an action on the entries of a provider that were set aside.
func decide(accept bool) func(*request, Try) (Outcome, error) {
	return func(r *request, try Try) (Outcome, error) {
		s := api.SuppressionSelection{Intent: try.intent(), SuppressionFilter: api.SuppressionFilter{Provider: r.get("provider")}}
		do := r.relay.DropPending
		if accept {
			do = r.relay.AcceptPending
		}
		done, err := do(r.ctx, s)
		return Outcome{Count: done.Count, Noun: "entry"}, err
	}
}

// exportSuppressions sends the entries that fit as a file, as 'mta suppress export' writes it and 'mta suppress import' reads it.
func (s *Server) exportSuppressions(w http.ResponseWriter, r *request) error {
	out := s.attachment(w, "suppressions.jsonl")
	lines := json.NewEncoder(out)
	for after, f := "", r.suppressionFilter(); ; {
		l, err := r.relay.Suppressions(r.ctx, f, after, api.MaxLimit)
		if err != nil {
			return out.end(err)
		}
		for _, e := range l.Suppressions {
			if err := lines.Encode(e); err != nil {
				return out.end(err)
			}
		}
		if after = l.Next; after == "" {
			return out.end(nil)
		}
	}
}
