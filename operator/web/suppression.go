package web

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// suppressionPage is a page of the suppression list, or the entries that keep mail from one address.
type suppressionPage struct {
	Path    string
	Inputs  []input
	Address string
	Checked bool // the entries are those of Address
	Table   *table
	Paging  paging
	Export  string
	Back    string
}

// What the export and the page can ask for.
type (
	suppressionFilter struct {
		api.SuppressionFilter `without:"since"`
	}
	suppressionQuery struct {
		Address string `q:"address"`
		suppressionFilter
	}
)

var (
	suppressionFilterParams = paramsOf(new(suppressionFilter))
	suppressionParams       = paramsOf(new(suppressionQuery), "after")
)

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
	var q suppressionQuery
	if err := r.read(&q); err != nil {
		return nil, err
	}
	p := suppressionPage{Path: r.route.path, Inputs: inputs(&q), Address: q.Address, Back: r.here()}
	q.Tenant = r.tenant() // in the form it may be "-"
	p.Export = filterURL(r.sameOf(suppressionFilterParams))
	if q.Address != "" {
		l, err := r.relay.CheckSuppressed(r.ctx, api.SuppressedAddresses{Addresses: []string{q.Address}, Tenant: q.Tenant})
		p.Checked, p.Table = true, p.table(r, l.Suppressions)
		return p, err
	}
	l, err := r.relay.Suppressions(r.ctx, q.SuppressionFilter, r.get("after"), api.DefaultLimit)
	p.Table, p.Paging = p.table(r, l.Suppressions), r.paging(l.Next)
	return p, err
}

func (p *suppressionPage) table(r *request, entries []api.Suppression) *table {
	t := newTable(r, listing.Suppressions, entries)
	return acts(t, "/suppression/remove", entries, func(s *api.Suppression) []act {
		fields := []any{"addresses", s.Address, "tenant", cmp.Or(s.Tenant, "-"), "back", p.Back}
		return []act{{path: "/suppression/remove", fields: fields}}
	})
}

// pendingPage is the entries that were set aside because their provider is in doubt.
type pendingPage struct {
	Providers []api.DoubtedProvider
	Table     *table
	Paging    paging
	Back      string
}

var pendingParams = []string{"provider", "after"}

func pending(r *request) (any, error) {
	l, err := r.relay.PendingSuppressions(r.ctx, api.SuppressionFilter{Provider: r.get("provider")}, r.get("after"), api.DefaultLimit)
	t := newTable(r, listing.Suppressions, l.Suppressions)
	t.Label = "Entries that were set aside"
	t.Empty = "Nothing is set aside: entries of providers in doubt would stand here."
	return pendingPage{l.Providers, t, r.paging(l.Next), r.here()}, err
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

func suppress(r *request, in api.Intent) (Outcome, error) {
	addresses, err := r.addresses()
	if err != nil {
		return Outcome{}, err
	}
	length, err := r.age("for")
	if err != nil {
		return Outcome{}, err
	}
	s := api.Suppress{Intent: in}
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

func unsuppress(r *request, in api.Intent) (Outcome, error) {
	addresses, err := r.addresses()
	if err != nil {
		return Outcome{}, err
	}
	done, err := r.relay.Unsuppress(r.ctx, api.Unsuppress{
		Intent:              in,
		SuppressedAddresses: api.SuppressedAddresses{Addresses: addresses, Tenant: r.tenant()},
	})
	return Outcome{Count: done.Count, Noun: "entry"}, err
}

// decide makes an action on the entries of a provider that were set aside.
func decide(accept bool) func(*request, api.Intent) (Outcome, error) {
	return func(r *request, in api.Intent) (Outcome, error) {
		s := api.SuppressionSelection{Intent: in, SuppressionFilter: api.SuppressionFilter{Provider: r.get("provider")}}
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
	var f api.SuppressionFilter
	if err := r.read(&f); err != nil {
		return err
	}
	f.Tenant = r.tenant()
	out := s.attachment(w, "suppressions.jsonl")
	lines := json.NewEncoder(out)
	for after := ""; ; {
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
