package control

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
)

// Suppressions is what the server asks of the list of addresses that no mail is sent to.
type Suppressions interface {
	// Suppressions gives a page of what fits, in the order of tenant and address. after is
	// SuppressionList.Next of the page before.
	Suppressions(ctx context.Context, f SuppressionFilter, after string, limit int) (SuppressionList, error)
	// CheckSuppressed gives the entries that keep mail from addresses.
	CheckSuppressed(context.Context, SuppressedAddresses) (SuppressionList, error)
	// Suppress adds entries, and Unsuppress removes them. What they did is durable.
	Suppress(context.Context, Suppress) (Suppressed, error)
	Unsuppress(context.Context, SuppressedAddresses) (Unsuppressed, error)
}

// SuppressionSource is how an address got on the list.
type SuppressionSource string

// The sources of entries.
const (
	SuppressedByBounce      SuppressionSource = "bounce"      // a remote host said that there is no such mailbox
	SuppressedByOperator    SuppressionSource = "operator"    // added by hand
	SuppressedByImport      SuppressionSource = "import"      // read from a file
	SuppressedByTenant      SuppressionSource = "tenant"      // added by the tenant, over HTTP
	SuppressedByUnsubscribe SuppressionSource = "unsubscribe" // the recipient asked for it by a link in a message
)

// SuppressionSources are all of them.
var SuppressionSources = []SuppressionSource{SuppressedByBounce, SuppressedByOperator, SuppressedByImport, SuppressedByTenant, SuppressedByUnsubscribe}

// Suppression is an address that no mail is sent to.
type Suppression struct {
	Address string            `json:"address"`
	Tenant  string            `json:"tenant,omitempty"` // whose mail; "": everybody's
	Reason  string            `json:"reason,omitempty"`
	Source  SuppressionSource `json:"source,omitempty"`
	Added   time.Time         `json:"added,omitzero"`
	Expires time.Time         `json:"expires,omitzero"` // zero: never
}

// SuppressionFilter says which entries are meant. All that is set must fit.
type SuppressionFilter struct {
	Tenant *string // of exactly this tenant; "" is everybody's. nil: all
	Domain string  // of the address
	Source SuppressionSource
}

// SuppressionList is a page of entries. It can have fewer than were asked for, even none, and a
// next page: then there was much to look through.
type SuppressionList struct {
	Suppressions []Suppression `json:"suppressions"`
	Next         string        `json:"next,omitempty"` // cursor of the next page; "" when this is the last
}

// Suppress is entries to be put on the list, in place of those that are there.
type Suppress struct {
	// At most MaxSuppress. Added zero: now, or as it was when nothing else changes. Source "": operator.
	Suppressions []Suppression `json:"suppressions"`
}

// MaxSuppress is how many entries one request may add or remove.
const MaxSuppress = 2000

// Suppressed is what a Suppress did.
type Suppressed struct {
	Added     int `json:"added"`
	Changed   int `json:"changed"`   // were on the list, and said something else
	Unchanged int `json:"unchanged"` // were on the list as they are
	// UnknownTenants are those of the entries that the configuration doesn't have: the entries keep
	// nobody's mail until it does.
	UnknownTenants []string `json:"unknown_tenants,omitempty"`
}

// SuppressedAddresses names addresses on the list.
type SuppressedAddresses struct {
	Addresses []string `json:"addresses"`
	// Tenant is whose entries are meant; nil: all. To a check it is whose mail, which meets
	// everybody's entries too.
	Tenant *string `json:"tenant,omitempty"`
}

// Unsuppressed is what an Unsuppress did.
type Unsuppressed struct {
	Removed int `json:"removed"`
}

var suppressionParams = []string{"tenant", "domain", "source", "after", "limit"}

func (s *Server) suppressions(w http.ResponseWriter, r *http.Request, q *query) error {
	f := SuppressionFilter{Domain: q.str("domain")}
	if q.values.Has("tenant") {
		tenant := q.str("tenant")
		f.Tenant = &tenant
	}
	if q.str("source") != "" {
		f.Source = oneOf(q, "source", SuppressionSources)
	}
	limit := q.number("limit", DefaultLimit, 1, MaxLimit)
	if q.err != nil {
		return q.err
	}
	l, err := s.config.Suppressions.Suppressions(r.Context(), f, q.str("after"), limit)
	return writeSuppressions(w, l, err)
}

func writeSuppressions(w http.ResponseWriter, l SuppressionList, err error) error {
	if err != nil {
		return err
	}
	if l.Suppressions == nil {
		l.Suppressions = []Suppression{}
	}
	return writeJSON(w, l)
}

func (s *Server) checkSuppressed(w http.ResponseWriter, r *http.Request, _ *query) error {
	a, err := readAddresses(r)
	if err != nil {
		return err
	}
	l, err := s.config.Suppressions.CheckSuppressed(r.Context(), a)
	return writeSuppressions(w, l, err)
}

func (s *Server) suppress(w http.ResponseWriter, r *http.Request, _ *query) error {
	var c Suppress
	if err := readJSON(r.Body, &c); err != nil {
		return err
	}
	if len(c.Suppressions) == 0 || len(c.Suppressions) > MaxSuppress {
		return Invalid("", "suppressions: want 1 to %d, not %d", MaxSuppress, len(c.Suppressions))
	}
	for i := range c.Suppressions {
		if err := c.Suppressions[i].check(s.config.Now()); err != nil {
			return err
		}
	}
	done, err := s.config.Suppressions.Suppress(r.Context(), c)
	if err != nil {
		return err
	}
	s.config.Events.Info("operator suppresses addresses", "first", c.Suppressions[0].Address, "added", done.Added, "changed", done.Changed, "unchanged", done.Unchanged)
	return writeJSON(w, done)
}

// check says what is wrong with an entry that is to be added, and fills in what it leaves out.
func (e *Suppression) check(now time.Time) error {
	if err := checkAddress(e.Address); err != nil {
		return err
	}
	if e.Source == "" {
		e.Source = SuppressedByOperator
	}
	switch {
	case !slices.Contains(SuppressionSources, e.Source):
		return Invalid("", "source of %s: want %s, not %q", e.Address, join(SuppressionSources), e.Source)
	case hasControl(e.Tenant) || hasControl(e.Reason):
		return Invalid("", "tenant or reason of %s has a control character", e.Address)
	case !e.Expires.IsZero() && !e.Expires.After(now):
		return Invalid("", "%s: expires at %s, which has passed", e.Address, e.Expires.Format(time.RFC3339))
	}
	return nil
}

// checkAddress says why text is not an address that mail could be sent to.
func checkAddress(text string) error {
	a, err := envelope.ParseAddress(text)
	if err == nil && a.Null() {
		return Invalid("", "the null sender is no address that mail is sent to")
	}
	if err != nil {
		return Invalid("", "address %q: %v", text, err)
	}
	if strings.EqualFold(a.Local(), "postmaster") {
		return Invalid("every domain must take mail for its postmaster (RFC 5321, 4.5.1): it is always sent", "%s can't be suppressed", text)
	}
	return nil
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func (s *Server) unsuppress(w http.ResponseWriter, r *http.Request, _ *query) error {
	a, err := readAddresses(r)
	if err != nil {
		return err
	}
	done, err := s.config.Suppressions.Unsuppress(r.Context(), a)
	if err != nil {
		return err
	}
	s.config.Events.Info("operator removes suppressions", "first", a.Addresses[0], "removed", done.Removed)
	return writeJSON(w, done)
}

func readAddresses(r *http.Request) (SuppressedAddresses, error) {
	var a SuppressedAddresses
	if err := readJSON(r.Body, &a); err != nil {
		return a, err
	}
	if len(a.Addresses) == 0 || len(a.Addresses) > MaxSuppress {
		return a, Invalid("", "addresses: want 1 to %d, not %d", MaxSuppress, len(a.Addresses))
	}
	for _, text := range a.Addresses {
		if _, err := envelope.ParseAddress(text); err != nil {
			return a, Invalid("", "address %q: %v", text, err)
		}
	}
	return a, nil
}

// Suppressions gives a page of the entries that fit. after is SuppressionList.Next of the page
// before, limit is from 1 to MaxLimit, 0 is DefaultLimit.
func (c *Client) Suppressions(ctx context.Context, f SuppressionFilter, after string, limit int) (SuppressionList, error) {
	v := url.Values{}
	if f.Tenant != nil {
		v.Set("tenant", *f.Tenant)
	}
	setText(v, "domain", f.Domain)
	setText(v, "source", string(f.Source))
	setText(v, "after", after)
	if limit != 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	var l SuppressionList
	return l, c.get(ctx, "/v1/suppressions", v, &l)
}

// CheckSuppressed gives the entries that keep mail from addresses.
func (c *Client) CheckSuppressed(ctx context.Context, a SuppressedAddresses) (SuppressionList, error) {
	var l SuppressionList
	return l, c.post(ctx, "/v1/suppressions/check", a, &l)
}

// Suppress puts entries on the list.
func (c *Client) Suppress(ctx context.Context, s Suppress) (Suppressed, error) {
	var done Suppressed
	return done, c.post(ctx, "/v1/suppressions/add", s, &done)
}

// Unsuppress takes entries off the list.
func (c *Client) Unsuppress(ctx context.Context, a SuppressedAddresses) (Unsuppressed, error) {
	var done Unsuppressed
	return done, c.post(ctx, "/v1/suppressions/remove", a, &done)
}
