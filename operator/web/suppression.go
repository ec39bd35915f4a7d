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

// What the export and the page can ask for.
type (
	suppressionFilter struct {
		api.SuppressionFilter `without:"since"`
	}
	suppressionQuery struct {
		Address              string `q:"address"`
		api.SuppressionQuery `without:"since"`
	}
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

var suppressed = lister[suppressionQuery, api.SuppressionList, api.Suppression]{Listing: listing.Suppressions,
	ask: func(r *request, q suppressionQuery) (api.SuppressionList, error) {
		q.Tenant = r.tenant() // in the form it may be "-"
		if q.Address != "" {
			asked := api.SuppressedAddresses{Addresses: []string{q.Address}, Tenant: q.Tenant}
			return api.OpCheckSuppressed.Call(r.ctx, r.relay, asked)
		}
		return api.OpSuppressions.Call(r.ctx, r.relay, q.SuppressionQuery)
	},
	may: "/suppression/remove",
	acts: func(p *listPage, s *api.Suppression) []act {
		return []act{newAct("/suppression/remove", "addresses", s.Address, "tenant", cmp.Or(s.Tenant, "-"),
			"back", p.Back)}
	}}

// ofProvider is a filter of the entries that were set aside because their provider is in doubt.
type ofProvider struct {
	Provider string `q:"provider"`
	api.Paging
}

var pending = lister[ofProvider, api.PendingList, api.Suppression]{Listing: listing.Suppressions,
	ask: func(r *request, f ofProvider) (api.PendingList, error) {
		q := api.SuppressionQuery{SuppressionFilter: api.SuppressionFilter{Provider: f.Provider}, Paging: f.Paging}
		return api.OpPendingSuppressions.Call(r.ctx, r.relay, q)
	},
	label:   "Entries that were set aside",
	nothing: "Nothing is set aside: entries of providers in doubt would stand here."}

// addresses are those of a form: one on a line, or with commas or blanks between them.
func (r *request) addresses() ([]string, error) {
	all := strings.FieldsFunc(r.get("addresses"), func(c rune) bool {
		return c == ',' || c == ';' || c == ' ' || c == '\t' || c == '\n' || c == '\r'
	})
	switch {
	case len(all) == 0:
		return nil, api.Invalid("", "no address is given")
	case len(all) > api.MaxSuppress:
		return nil, api.Invalid("for more, use 'mta suppress import'",
			"%d addresses are given; %d is the most at a time", len(all), api.MaxSuppress)
	}
	return all, nil
}

var suppressParams = []string{"addresses", "tenant", "note", "for"}

func suppress(r *request, in api.Intent) (Outcome, error) {
	addresses, err := r.addresses()
	if err != nil {
		return Outcome{}, err
	}
	var lasting struct {
		For api.Age `q:"for"`
	}
	if err := r.read(&lasting); err != nil {
		return Outcome{}, err
	}
	s := api.Suppress{Intent: in}
	for _, a := range addresses {
		e := api.Suppression{Address: a, Reason: r.get("note")}
		if t := r.tenant(); t != nil {
			e.Tenant = *t
		}
		if lasting.For > 0 {
			e.Expires = r.now.Add(time.Duration(lasting.For))
		}
		s.Suppressions = append(s.Suppressions, e)
	}
	done, err := api.OpSuppress.Call(r.ctx, r.relay, s)
	out := Outcome{Count: done.Count, Noun: "address"}
	if done.Unchanged > 0 {
		out.Lines = append(out.Lines, "On the list as they are: "+count(done.Unchanged))
	}
	if len(done.UnknownTenants) > 0 {
		out.Lines = append(out.Lines, "The configuration has no tenant "+strings.Join(done.UnknownTenants, ", ")+
			": these entries keep nobody's mail until it does.")
	}
	return out, err
}

var unsuppressParams = []string{"addresses", "tenant"}

func unsuppress(r *request, in api.Intent) (Outcome, error) {
	addresses, err := r.addresses()
	if err != nil {
		return Outcome{}, err
	}
	done, err := api.OpUnsuppress.Call(r.ctx, r.relay, api.Unsuppress{
		Intent:              in,
		SuppressedAddresses: api.SuppressedAddresses{Addresses: addresses, Tenant: r.tenant()},
	})
	return Outcome{Count: done.Count, Noun: "entry"}, err
}

// exportSuppressions sends the entries that fit as a file, as 'mta suppress export' writes it and 'mta suppress import'
// reads it.
func (s *Server) exportSuppressions(w http.ResponseWriter, r *request) error {
	var q api.SuppressionQuery
	if err := r.read(&q); err != nil {
		return err
	}
	q.Tenant = r.tenant()
	out := s.attachment(w, "suppressions.jsonl")
	lines := json.NewEncoder(out)
	for q.Limit = api.MaxLimit; ; {
		l, err := api.OpSuppressions.Call(r.ctx, r.relay, q)
		if err != nil {
			return out.end(err)
		}
		for _, e := range l.Suppressions {
			if err := lines.Encode(e); err != nil {
				return out.end(err)
			}
		}
		if q.After = l.Next; q.After == "" {
			return out.end(nil)
		}
	}
}
