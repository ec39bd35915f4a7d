package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
)

// Suppressions is what the server asks of the list of addresses that no mail is sent to.
type Suppressions interface {
	// Suppressions gives a page of what fits, in the order of tenant and address.
	Suppressions(context.Context, SuppressionQuery) (SuppressionList, error)
	// CheckSuppressed gives the entries that keep mail from addresses.
	CheckSuppressed(context.Context, SuppressedAddresses) (SuppressionList, error)
	// Suppress adds entries, and Unsuppress removes them. What they did is durable.
	Suppress(context.Context, Suppress) (Suppressed, error)
	Unsuppress(context.Context, Unsuppress) (Unsuppressed, error)
	// UnsuppressMatching removes all entries that fit.
	UnsuppressMatching(context.Context, SuppressionSelection) (Unsuppressed, error)
	// PendingSuppressions gives a page of the entries that were set aside, with the providers that are doubted.
	PendingSuppressions(context.Context, SuppressionQuery) (PendingList, error)
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
var SuppressionSources = []SuppressionSource{SuppressedByBounce, SuppressedByReport, SuppressedByComplaint,
	SuppressedByOperator, SuppressedByImport, SuppressedByTenant, SuppressedByUnsubscribe}

// Suppression is an address that no mail is sent to.
type Suppression struct {
	Address string `json:"address"`          // in lower case, the domain in A-label form
	Tenant  string `json:"tenant,omitempty"` // whose mail; absent: everybody's
	Reason  string `json:"reason,omitempty"` // for people
	// how it got on the list: a remote host refused the recipient, a delivery report that came back later did, the
	// recipient called a message spam, it was added by hand, it was read from a file, the tenant added it, the
	// recipient unsubscribed
	Source SuppressionSource `json:"source,omitempty"`
	// of the refusal, as InvalidRecipient; absent: it was not a refusal
	Class string `json:"class,omitempty"`
	// who serves the address: the name of a provider block, else the site; absent: unknown
	Provider string    `json:"provider,omitempty"`
	Added    time.Time `json:"added,omitzero"`   // to the second
	Expires  time.Time `json:"expires,omitzero"` // when it ends; absent: never
}

// SuppressionFilter says which entries are meant. All that is set must fit.
type SuppressionFilter struct {
	Tenant   *string           `json:"tenant,omitempty" q:"tenant" hint:"- is everybody's" help:"entries of this <tenant> only; \"\": those for all mail"`
	Domain   string            `json:"domain,omitempty" q:"domain" help:"addresses in this <domain>"`
	Source   SuppressionSource `json:"source,omitempty" q:"source" help:"entries from this <source>: bounce, report, complaint, operator, import, tenant or unsubscribe"`
	Provider string            `json:"provider,omitempty" q:"provider" help:"addresses that this <provider> served, or this site"`
	Since    time.Time         `json:"since,omitzero" q:"since" whole:"1s" help:"entries added at this <time> or later"`
}

// SuppressionSelection selects the entries that a change is for.
type SuppressionSelection struct {
	Intent
	SuppressionFilter
}

// SuppressionList is a page of entries. It can have fewer than were asked for, even none, and a
// next page: then there was much to look through.
type SuppressionList struct {
	Suppressions []Suppression `json:"suppressions"`   // by tenant and address
	Next         string        `json:"next,omitempty"` // cursor of the next page; absent when this is the last
}

// Suppress is entries to be put on the list, in place of those that are there.
type Suppress struct {
	Intent
	// at most 2000; added by default now, or as it was when nothing else changes; source operator
	Suppressions []Suppression `json:"suppressions"`
}

// MaxSuppress is how many entries one request may add or remove.
const MaxSuppress = 2000

// Suppressed is what a Suppress did.
type Suppressed struct {
	Effect
	Added     int `json:"added"`     // were not on the list
	Changed   int `json:"changed"`   // were on the list, and said something else
	Unchanged int `json:"unchanged"` // were on the list as they are
	// those of the entries that the configuration doesn't have: the entries keep nobody's mail until it does
	UnknownTenants []string `json:"unknown_tenants,omitempty"`
}

// SuppressedAddresses names addresses on the list.
type SuppressedAddresses struct {
	Addresses []string `json:"addresses"` // at most 2000
	// whose entries; absent: all. To a check it is whose mail, which meets everybody's entries too
	Tenant *string `json:"tenant,omitempty" q:"tenant" help:"the entries that apply to this <tenant>'s mail; \"\": to mail without a tenant (default: all)"`
}

// Unsuppress is entries to be taken off the list.
type Unsuppress struct {
	Intent
	SuppressedAddresses
}

// Unsuppressed is what an Unsuppress did.
type Unsuppressed struct {
	Effect
	Removed int `json:"removed"` // entries
}

// DoubtedProvider is a provider that calls, or called, far more recipients unknown than usual.
type DoubtedProvider struct {
	Provider string    `json:"provider"`       // the name of a provider block, else a site
	Since    time.Time `json:"since"`          // when that began
	Until    time.Time `json:"until,omitzero"` // when it ended; absent: it has not
	Known    int64     `json:"known"`          // recipients that it took meanwhile
	Unknown  int64     `json:"unknown"`        // recipients that it called unknown
	Usual    float64   `json:"usual"`          // the share of unknown ones that is usual there, from 0 to 1
}

// PendingList is a page of the entries that were set aside.
type PendingList struct {
	// those in a flood, and those whose flood left entries behind
	Providers    []DoubtedProvider `json:"providers"`
	Suppressions []Suppression     `json:"suppressions"` // by tenant and address
	// cursor of the next page; absent when this is the last
	Next string `json:"next,omitempty"`
}

// PendingDecided is what became of entries that were set aside, or with DryRun would.
type PendingDecided struct {
	Effect
	Entries int `json:"entries"` // that were put on the list, or forgotten; with dry_run, would be
}

// Check refuses none and too many, and fills in what entries leave out.
func (s *Suppress) Check() error {
	if len(s.Suppressions) == 0 || len(s.Suppressions) > MaxSuppress {
		return Invalid("", "suppressions: want 1 to %d, not %d", MaxSuppress, len(s.Suppressions))
	}
	for i := range s.Suppressions {
		if err := s.Suppressions[i].check(); err != nil {
			return err
		}
	}
	return nil
}

// check returns what is wrong with an entry that must be added, and fills in what it leaves out.
func (e *Suppression) check() error {
	if err := checkAddress(e.Address); err != nil {
		return err
	}
	e.Source = cmp.Or(e.Source, SuppressedByOperator)
	switch {
	case !slices.Contains(SuppressionSources, e.Source):
		return Invalid("", "source of %s: want %s, not %q", e.Address, join(SuppressionSources), e.Source)
	case hasControl(e.Tenant) || hasControl(e.Reason) || hasControl(e.Class) || hasControl(e.Provider):
		return Invalid("", "tenant, reason, class or provider of %s has a control character", e.Address)
	}
	return nil
}

// checkAddress returns why text is not an address that mail could be sent to.
func checkAddress(text string) error {
	a, err := envelope.ParseAddress(text)
	if err == nil && a.Null() {
		return Invalid("", "no mail is sent to the null sender")
	}
	if err != nil {
		return Invalid("", "address %q: %v", text, err)
	}
	if strings.EqualFold(a.Local(), "postmaster") {
		return Invalid("every domain must take mail for its postmaster (RFC 5321, 4.5.1): it is always sent",
			"%s can't be suppressed", text)
	}
	return nil
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// Check refuses sources that there are not.
func (sel *SuppressionSelection) Check() error {
	if sel.Source != "" && !slices.Contains(SuppressionSources, sel.Source) {
		return Invalid("", "source: want %s, not %q", join(SuppressionSources), sel.Source)
	}
	return nil
}

// Check refuses texts that are not addresses.
func (a *SuppressedAddresses) Check() error {
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

// SuppressionQuery asks for a page of the entries that fit.
type SuppressionQuery struct {
	SuppressionFilter
	Paging
}

// Bounces is what the server asks of the relay about refusals.
type Bounces interface {
	// UnknownReplies gives the replies that no rule knows.
	UnknownReplies(context.Context, UnknownQuery) (UnknownList, error)
}

// UnknownList is what no rule for classes knows.
type UnknownList struct {
	Since   time.Time        `json:"since"`   // when the relay was started, and counting began
	Unknown []UnknownReplies `json:"unknown"` // by provider, the most first
}

// UnknownReplies are those of a provider.
type UnknownReplies struct {
	Provider string          `json:"provider"` // empty: of sites without one
	Count    int64           `json:"count"`    // of all, those without a sample too
	Samples  []UnknownSample `json:"samples"`  // the most frequent first
}

// UnknownSample is a reply, and how often the provider gave it, numbers and addresses aside.
type UnknownSample struct {
	Reply   Reply     `json:"reply"`             // the latest
	Message string    `json:"message,omitempty"` // the latest message that it refused
	Count   int64     `json:"count"`             // how often
	First   time.Time `json:"first"`             // the first time
	Last    time.Time `json:"last"`              // the latest time
}

// UnknownQuery asks for the replies that no rule knows: of a provider, or of all.
type UnknownQuery struct {
	Provider *string `q:"provider" help:"of this <provider> only; \"\": of sites without one"`
}

// InboundMail is mail for the relay itself that it did not understand, and keeps for people.
type InboundMail struct {
	ID   string    `json:"id"`   // its id
	Time time.Time `json:"time"` // when it came
	// what it is: other, or unsubscribe when nobody knows who wants that
	Kind       string   `json:"kind"`
	Sender     string   `json:"sender"`            // of the envelope; empty for the null sender
	Recipients []string `json:"recipients"`        // of the envelope
	Peer       string   `json:"peer,omitempty"`    // the IP address of the host that brought it
	Helo       string   `json:"helo,omitempty"`    // what that host calls itself
	Size       int64    `json:"size"`              // octets
	From       string   `json:"from,omitempty"`    // its From field, printable
	Subject    string   `json:"subject,omitempty"` // its Subject field, printable
	Message    string   `json:"message,omitempty"` // the id of the message that it is about, as its token proves
}

// InboundList is a page of kept mail, the newest first.
type InboundList struct {
	Mail    []InboundMail `json:"mail"`           // the newest first
	Kept    int           `json:"kept"`           // how many are kept in all
	Dropped int64         `json:"dropped"`        // how many were deleted since the start of the relay, for space
	Next    string        `json:"next,omitempty"` // after for the next page; absent on the last
}

// Inbound is what the server asks of kept inbound mail.
type Inbound interface {
	Inbound(context.Context, Paging) (InboundList, error)
	// InboundMail gives what is known of a mail, InboundContent its octets; NotFound when it is there no more.
	InboundMail(ctx context.Context, id string) (InboundMail, error)
	InboundContent(ctx context.Context, id string) ([]byte, error)
}

func (s *Server) inboundContent(w http.ResponseWriter, r *http.Request, _ None) error {
	content, err := s.config.Inbound.InboundContent(r.Context(), nameIn(r))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "message/rfc822")
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.Write(content)
	return nil
}
