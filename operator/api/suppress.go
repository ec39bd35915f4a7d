package api

import (
	"cmp"
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
	Unsuppress(context.Context, Unsuppress) (Unsuppressed, error)
	// UnsuppressMatching removes all entries that fit.
	UnsuppressMatching(context.Context, SuppressionSelection) (Unsuppressed, error)
	// PendingSuppressions gives a page of the entries that were set aside, with the providers that are doubted.
	PendingSuppressions(ctx context.Context, f SuppressionFilter, after string, limit int) (PendingList, error)
	// AcceptPending puts entries that were set aside on the list, and DropPending forgets them.
	AcceptPending(context.Context, SuppressionSelection) (PendingDecided, error)
	DropPending(context.Context, SuppressionSelection) (PendingDecided, error)
}

// SuppressionSource is how an address got on the list.
type SuppressionSource string

// The sources of entries.
const (
	SuppressedByBounce      SuppressionSource = "bounce"      // a remote host refused the recipient
	SuppressedByReport      SuppressionSource = "report"      // a delivery report that came back later did
	SuppressedByComplaint   SuppressionSource = "complaint"   // the recipient called a message spam
	SuppressedByOperator    SuppressionSource = "operator"    // added by hand
	SuppressedByImport      SuppressionSource = "import"      // read from a file
	SuppressedByTenant      SuppressionSource = "tenant"      // added by the tenant, over HTTP
	SuppressedByUnsubscribe SuppressionSource = "unsubscribe" // the recipient unsubscribed
)

// SuppressionSources are all of them.
var SuppressionSources = []SuppressionSource{SuppressedByBounce, SuppressedByReport, SuppressedByComplaint, SuppressedByOperator, SuppressedByImport, SuppressedByTenant, SuppressedByUnsubscribe}

// Suppression is an address that no mail is sent to.
type Suppression struct {
	Address string            `json:"address"`
	Tenant  string            `json:"tenant,omitempty"` // whose mail; "": everybody's
	Reason  string            `json:"reason,omitempty"`
	Source  SuppressionSource `json:"source,omitempty"`
	// Class is that of the refusal, as InvalidRecipient; Provider serves the address: a provider block's name, else
	// the site's. Both are "" when unknown.
	Class    string    `json:"class,omitempty"`
	Provider string    `json:"provider,omitempty"`
	Added    time.Time `json:"added,omitzero"`
	Expires  time.Time `json:"expires,omitzero"` // zero: never
}

// SuppressionFilter says which entries are meant. All that is set must fit.
type SuppressionFilter struct {
	Tenant   *string           `json:"tenant,omitempty"` // of exactly this tenant; "" is everybody's. nil: all
	Domain   string            `json:"domain,omitempty"` // of the address
	Source   SuppressionSource `json:"source,omitempty"`
	Provider string            `json:"provider,omitempty"` // a provider block's name, else a site's
	Since    time.Time         `json:"since,omitzero"`     // added then or later
}

// SuppressionSelection says which entries are to be changed.
type SuppressionSelection struct {
	Intent
	SuppressionFilter
}

// SuppressionList is a page of entries. It can have fewer than were asked for, even none, and a
// next page: then there was much to look through.
type SuppressionList struct {
	Suppressions []Suppression `json:"suppressions"`
	Next         string        `json:"next,omitempty"` // cursor of the next page; "" when this is the last
}

// Suppress is entries to be put on the list, in place of those that are there.
type Suppress struct {
	Intent
	// At most MaxSuppress. Added zero: now, or as it was when nothing else changes. Source "": operator.
	Suppressions []Suppression `json:"suppressions"`
}

// MaxSuppress is how many entries one request may add or remove.
const MaxSuppress = 2000

// Suppressed is what a Suppress did.
type Suppressed struct {
	Effect
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

// Unsuppress is entries to be taken off the list.
type Unsuppress struct {
	Intent
	SuppressedAddresses
}

// Unsuppressed is what an Unsuppress did.
type Unsuppressed struct {
	Effect
	Removed int `json:"removed"`
}

// DoubtedProvider is a provider that calls, or called, far more recipients unknown than usual.
type DoubtedProvider struct {
	Provider string    `json:"provider"` // a provider block's name, else a site's
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until,omitzero"` // zero: it still does
	Known    int64     `json:"known"`          // recipients that it took meanwhile
	Unknown  int64     `json:"unknown"`        // those that it called unknown
	Usual    float64   `json:"usual"`          // the share of unknown ones that is usual there, from 0 to 1
}

// PendingList is a page of the entries that were set aside.
type PendingList struct {
	Providers    []DoubtedProvider `json:"providers"`
	Suppressions []Suppression     `json:"suppressions"`
	Next         string            `json:"next,omitempty"` // cursor of the next page; "" when this is the last
}

// PendingDecided is what became of entries that were set aside, or with DryRun would.
type PendingDecided struct {
	Effect
	Entries int `json:"entries"`
}

var suppressionParams = []string{"tenant", "domain", "source", "provider", "since", "after", "limit"}

// suppressionFilter reads which entries are wanted.
func (q *query) suppressionFilter() SuppressionFilter {
	f := SuppressionFilter{Domain: q.str("domain"), Provider: q.str("provider"), Since: q.time("since")}
	if q.values.Has("tenant") {
		tenant := q.str("tenant")
		f.Tenant = &tenant
	}
	if q.str("source") != "" {
		f.Source = oneOf(q, "source", SuppressionSources)
	}
	return f
}

func (s *Server) suppressions(w http.ResponseWriter, r *http.Request, q *query) error {
	f, limit := q.suppressionFilter(), q.number("limit", DefaultLimit, 1, MaxLimit)
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

func (s *Server) checkSuppressed(w http.ResponseWriter, r *http.Request, q *query) error {
	var a SuppressedAddresses
	if q.err != nil {
		return q.err
	}
	if err := readJSON(r.Body, &a); err != nil {
		return err
	}
	if err := a.check(); err != nil {
		return err
	}
	l, err := s.config.Suppressions.CheckSuppressed(r.Context(), a)
	return writeSuppressions(w, l, err)
}

func (s *Server) suppress(r *http.Request, c Suppress) (Suppressed, error) {
	if len(c.Suppressions) == 0 || len(c.Suppressions) > MaxSuppress {
		return Suppressed{}, Invalid("", "suppressions: want 1 to %d, not %d", MaxSuppress, len(c.Suppressions))
	}
	for i := range c.Suppressions {
		c.Suppressions[i].Reason = cmp.Or(c.Suppressions[i].Reason, ReasonOf(r.Context()))
		if err := c.Suppressions[i].check(s.config.Now()); err != nil {
			return Suppressed{}, err
		}
	}
	done, err := s.config.Suppressions.Suppress(r.Context(), c)
	done.Count = done.Added + done.Changed
	return done, err
}

// check returns what is wrong with an entry that is to be added, and fills in what it leaves out.
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
	case hasControl(e.Tenant) || hasControl(e.Reason) || hasControl(e.Class) || hasControl(e.Provider):
		return Invalid("", "tenant, reason, class or provider of %s has a control character", e.Address)
	case !e.Expires.IsZero() && !e.Expires.After(now):
		return Invalid("", "%s: expires at %s, which has passed", e.Address, e.Expires.Format(time.RFC3339))
	}
	return nil
}

// checkAddress returns why text is not an address that mail could be sent to.
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

func (s *Server) unsuppress(r *http.Request, a Unsuppress) (Unsuppressed, error) {
	if err := a.check(); err != nil {
		return Unsuppressed{}, err
	}
	done, err := s.config.Suppressions.Unsuppress(r.Context(), a)
	done.Count = done.Removed
	return done, err
}

func (s *Server) unsuppressMatching(r *http.Request, sel SuppressionSelection) (Unsuppressed, error) {
	if err := sel.check(); err != nil {
		return Unsuppressed{}, err
	}
	if sel.Since.IsZero() && sel.Source == "" && sel.Provider == "" && sel.Domain == "" {
		return Unsuppressed{}, Invalid("name since, source, provider or domain", "that would remove all entries")
	}
	done, err := s.config.Suppressions.UnsuppressMatching(r.Context(), sel)
	done.Count = done.Removed
	return done, err
}

func (s *Server) pendingSuppressions(w http.ResponseWriter, r *http.Request, q *query) error {
	f, limit := q.suppressionFilter(), q.number("limit", DefaultLimit, 1, MaxLimit)
	if q.err != nil {
		return q.err
	}
	l, err := s.config.Suppressions.PendingSuppressions(r.Context(), f, q.str("after"), limit)
	if err != nil {
		return err
	}
	if l.Suppressions == nil {
		l.Suppressions = []Suppression{}
	}
	if l.Providers == nil {
		l.Providers = []DoubtedProvider{}
	}
	return writeJSON(w, l)
}

func (s *Server) acceptPending(r *http.Request, sel SuppressionSelection) (PendingDecided, error) {
	return decidePending(r, sel, s.config.Suppressions.AcceptPending)
}

func (s *Server) dropPending(r *http.Request, sel SuppressionSelection) (PendingDecided, error) {
	return decidePending(r, sel, s.config.Suppressions.DropPending)
}

func decidePending(r *http.Request, sel SuppressionSelection, decide func(context.Context, SuppressionSelection) (PendingDecided, error)) (PendingDecided, error) {
	if err := sel.check(); err != nil {
		return PendingDecided{}, err
	}
	done, err := decide(r.Context(), sel)
	done.Count = done.Entries
	return done, err
}

func (sel *SuppressionSelection) check() error {
	if sel.Source != "" && !slices.Contains(SuppressionSources, sel.Source) {
		return Invalid("", "source: want %s, not %q", join(SuppressionSources), sel.Source)
	}
	return nil
}

func (a *SuppressedAddresses) check() error {
	if len(a.Addresses) == 0 || len(a.Addresses) > MaxSuppress {
		return Invalid("", "addresses: want 1 to %d, not %d", MaxSuppress, len(a.Addresses))
	}
	for _, text := range a.Addresses {
		if _, err := envelope.ParseAddress(text); err != nil {
			return Invalid("", "address %q: %v", text, err)
		}
	}
	return nil
}

// Suppressions gives a page of the entries that fit. after is SuppressionList.Next of the page
// before, limit is from 1 to MaxLimit, 0 is DefaultLimit.
func (c *Client) Suppressions(ctx context.Context, f SuppressionFilter, after string, limit int) (SuppressionList, error) {
	var l SuppressionList
	return l, c.get(ctx, "/v1/suppressions", f.values(after, limit), &l)
}

// PendingSuppressions is Suppressions for the entries that were set aside.
func (c *Client) PendingSuppressions(ctx context.Context, f SuppressionFilter, after string, limit int) (PendingList, error) {
	var l PendingList
	return l, c.get(ctx, "/v1/suppressions/pending", f.values(after, limit), &l)
}

// values are the parameters of a page.
func (f *SuppressionFilter) values(after string, limit int) url.Values {
	v := url.Values{}
	if f.Tenant != nil {
		v.Set("tenant", *f.Tenant)
	}
	setText(v, "domain", f.Domain)
	setText(v, "source", string(f.Source))
	setText(v, "provider", f.Provider)
	if !f.Since.IsZero() {
		v.Set("since", f.Since.Format(time.RFC3339))
	}
	setText(v, "after", after)
	if limit != 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	return v
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
func (c *Client) Unsuppress(ctx context.Context, a Unsuppress) (Unsuppressed, error) {
	var done Unsuppressed
	return done, c.post(ctx, "/v1/suppressions/remove", a, &done)
}

// UnsuppressMatching takes all entries off the list that fit. The selection has at least a time, a source, a provider
// or a domain.
func (c *Client) UnsuppressMatching(ctx context.Context, s SuppressionSelection) (Unsuppressed, error) {
	var done Unsuppressed
	return done, c.post(ctx, "/v1/suppressions/remove-matching", s, &done)
}

// AcceptPending puts the entries that were set aside and fit on the list.
func (c *Client) AcceptPending(ctx context.Context, s SuppressionSelection) (PendingDecided, error) {
	var done PendingDecided
	return done, c.post(ctx, "/v1/suppressions/pending/accept", s, &done)
}

// DropPending forgets the entries that were set aside and fit.
func (c *Client) DropPending(ctx context.Context, s SuppressionSelection) (PendingDecided, error) {
	var done PendingDecided
	return done, c.post(ctx, "/v1/suppressions/pending/drop", s, &done)
}
