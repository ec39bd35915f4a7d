package api

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
)

// query reads the parameters of a request; the first that is wrong stays in err.
type query struct {
	values url.Values
	err    error
}

// newQuery refuses parameters that the route doesn't know: a filter that is misspelt and then
// ignored would fit everything.
func newQuery(r *http.Request, known []string) *query {
	q := &query{}
	if q.values, q.err = url.ParseQuery(r.URL.RawQuery); q.err != nil {
		q.err = Invalid("", "query: %v", q.err)
		return q
	}
	for name, values := range q.values {
		if !slices.Contains(known, name) {
			q.fail(Invalid("known are "+strings.Join(known, ", "), "unknown parameter %q", name))
		}
		if len(values) > 1 && name != "id" && name != "type" && name != "name" {
			q.fail(Invalid("", "parameter %q stands twice", name))
		}
	}
	return q
}

func (q *query) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

func (q *query) str(name string) string { return q.values.Get(name) }

func (q *query) strs(name string) []string {
	var out []string
	for _, v := range q.values[name] {
		out = append(out, strings.Split(v, ",")...)
	}
	return out
}

func (q *query) number(name string, byDefault, least, most int) int {
	s := q.values.Get(name)
	if s == "" {
		return byDefault
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		q.fail(Invalid("", "%s: want a number from %d to %d, not %q", name, least, most, s))
		return byDefault
	}
	return n
}

func (q *query) age(name string) Age {
	s := q.values.Get(name)
	if s == "" {
		return 0
	}
	a, err := ParseAge(s)
	if err != nil {
		q.fail(Invalid("", "%s: %v", name, err))
	}
	return a
}

func (q *query) time(name string) time.Time {
	s := q.values.Get(name)
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		q.fail(Invalid("", "%s: want a time as 2026-01-02T15:04:05Z, not %q", name, s))
	}
	return t
}

// network reads "192.0.2.0/24", or an address, which is a network of one.
func (q *query) network(name string) netip.Prefix {
	s := q.values.Get(name)
	if s == "" {
		return netip.Prefix{}
	}
	p, err := ParseNetwork(s)
	if err != nil {
		q.fail(Invalid("", "%s: %v", name, err))
	}
	return p
}

// ParseNetwork reads "192.0.2.0/24", or an address, which is a network of one.
func ParseNetwork(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("want an address or a network as 192.0.2.0/24, not %q", s)
	}
	return p.Masked(), nil
}

func (q *query) flag(name string) bool {
	switch q.values.Get(name) {
	case "", "false":
		return false
	case "true":
		return true
	}
	q.fail(Invalid("", "%s: want true or false, not %q", name, q.values.Get(name)))
	return false
}

// oneOf reads a word out of a few; the first is the default.
func oneOf[T ~string](q *query, name string, words []T) T {
	w := T(q.values.Get(name))
	if w == "" {
		return words[0]
	}
	if !slices.Contains(words, w) {
		q.fail(Invalid("", "%s: want %s, not %q", name, join(words), w))
	}
	return w
}

func join[T ~string](words []T) string {
	var s []string
	for _, w := range words {
		s = append(s, string(w))
	}
	return strings.Join(s, ", ")
}

// filterParams are what filter reads. The first names messages, the others describe them.
var filterParams = []string{"id", "domain", "site", "tenant", "campaign", "tag", "sender", "recipient", "state", "older", "newer"}

func (q *query) filter() Filter {
	f := Filter{
		IDs:       q.strs("id"),
		Domain:    q.str("domain"),
		Site:      q.str("site"),
		Tenant:    q.str("tenant"),
		Campaign:  q.str("campaign"),
		Tag:       q.str("tag"),
		Sender:    q.str("sender"),
		Recipient: q.str("recipient"),
		State:     State(q.str("state")),
		Older:     q.age("older"),
		Newer:     q.age("newer"),
	}
	if err := f.Check(); err != nil {
		q.fail(err)
	}
	return f
}

// values is the inverse of query.filter, for the client.
func (f *Filter) values() url.Values {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("id", strings.Join(f.IDs, ","))
	set("domain", f.Domain)
	set("site", f.Site)
	set("tenant", f.Tenant)
	set("campaign", f.Campaign)
	set("tag", f.Tag)
	set("sender", f.Sender)
	set("recipient", f.Recipient)
	set("state", string(f.State))
	if f.Older != 0 {
		set("older", f.Older.String())
	}
	if f.Newer != 0 {
		set("newer", f.Newer.String())
	}
	return v
}

// Check returns what in f can't be meant.
func (f *Filter) Check() error {
	for _, id := range f.IDs {
		if _, err := envelope.ParseID(id); err != nil {
			return Invalid("", "%v", err)
		}
	}
	if f.State != "" && !slices.Contains(States, f.State) {
		return Invalid("", "state: want %s, not %q", join(States), f.State)
	}
	if f.Older != 0 && f.Newer != 0 && f.Older >= f.Newer {
		return Invalid("", "nothing is older than %v and newer than %v", f.Older, f.Newer)
	}
	return nil
}
