package suppression

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"example.org/mta/internal/envelope"
)

// Key names an entry.
type Key struct {
	Tenant  string // whose mail; "": everybody's
	Address string // see KeyOf
}

func (k Key) key() Key { return k }

// KeyOf makes the key of an address: the domain in A-label form, all in lower case. RFC 5321, 2.4,
// lets hosts distinguish Smith from smith; none that matters does, and a list that did would leak.
func KeyOf(tenant string, a envelope.Address) Key {
	local, domain := strings.ToLower(a.Local()), a.Domain()
	switch rest, same := strings.CutPrefix(string(a), local); {
	case domain == "":
		return Key{tenant, local}
	case same && rest[1:] == domain: // as nearly all addresses are: nothing to be copied
		return Key{tenant, string(a)}
	}
	return Key{tenant, local + "@" + domain}
}

// Exempt reports whether an address is never suppressed: every domain must take mail for its
// postmaster (RFC 5321, 4.5.1), which is who is asked when mail is refused wrongly.
func Exempt(a envelope.Address) bool { return strings.EqualFold(a.Local(), "postmaster") }

// Source says where an entry comes from.
type Source string

// The sources of entries.
const (
	Bounce      Source = "bounce"      // a remote host refused the recipient
	Report      Source = "report"      // a delivery report that came back later did (RFC 3464)
	Complaint   Source = "complaint"   // the recipient called a message spam
	Operator    Source = "operator"    // added by hand
	Import      Source = "import"      // read from a file
	Tenant      Source = "tenant"      // added by the tenant, over HTTP
	Unsubscribe Source = "unsubscribe" // the recipient unsubscribed (RFC 8058)
)

// ByHost reports whether entries of the source are what hosts said of mailboxes. Hosts err; the other
// sources are the word of people.
func (s Source) ByHost() bool { return s == Bounce || s == Report }

// ByRecipient reports whether entries of the source are the recipient's wish.
func (s Source) ByRecipient() bool { return s == Complaint || s == Unsubscribe }

// Entry is an address that must get no mail.
type Entry struct {
	Key
	Reason   string // for people, at most MaxReason octets
	Source   Source
	Class    string    // of the refusal, as InvalidRecipient; "" when there was none
	Provider string    // who serves the address: a provider block's name, else the site's; "" when unknown
	Added    time.Time // to the second
	Expires  time.Time // zero: never
}

// Ended reports whether the entry no longer counts.
func (e *Entry) Ended(now time.Time) bool { return !e.Expires.IsZero() && !now.Before(e.Expires) }

// String returns since when the address is suppressed, and why.
func (e *Entry) String() string {
	why := e.Reason
	why = cmp.Or(why, "by "+string(e.Source))
	return "since " + e.Added.UTC().Format(time.DateOnly) + ": " + why
}

// same reports whether an entry that must be added says what is there already. Stores keep whole
// seconds.
func (e *Entry) same(added *Entry) bool {
	return e.Key == added.Key && e.Reason == added.Reason && e.Source == added.Source &&
		e.Class == added.Class && e.Provider == added.Provider &&
		e.Expires.Unix() == added.Expires.Unix() &&
		(added.Added.IsZero() || e.Added.Unix() == added.Added.Unix())
}

// stays reports whether e stays when somebody adds another entry: nobody but the recipient replaces the recipient's
// wish. To end it takes a removal.
func (e *Entry) stays(added *Entry, now time.Time) bool {
	return e.Source.ByRecipient() && !added.Source.ByRecipient() && !e.Ended(now)
}

// yields reports whether the relay may put another entry in the place of e: when e has ended, when a person's
// word comes in the place of a host's, when a recipient's wish comes in the place of a tenant's entry, which the tenant
// can change, and when the other one of its kind lasts longer.
func (e *Entry) yields(other *Entry, now time.Time) bool {
	switch {
	case e.Ended(now):
		return true
	case e.Source.ByHost() != other.Source.ByHost():
		return e.Source.ByHost()
	case e.Source == Tenant && other.Source.ByRecipient():
		return true
	}
	return !e.Expires.IsZero() && (other.Expires.IsZero() || other.Expires.After(e.Expires))
}

// MaxReason is how long a reason can be, in octets. What is longer is cut.
const MaxReason = 256

func shorten(reason string) string {
	if len(reason) <= MaxReason {
		return reason
	}
	reason = reason[:MaxReason]
	for !utf8.ValidString(reason) && len(reason) > MaxReason-utf8.UTFMax {
		reason = reason[:len(reason)-1]
	}
	return reason
}

// Store keeps entries. The list asks it rarely and in batches, so that one that the nodes of a
// cluster share can take the place of a file.
type Store interface {
	// Apply makes changes, in order, and returns when they are durable. To make the same changes
	// again does no harm. An error that is ErrUnknownOutcome says that some may have been made.
	Apply(ctx context.Context, changes []Change) error
	// Get gives those of the entries that are there.
	Get(ctx context.Context, keys []Key) ([]Entry, error)
	// Scan calls each with the entries behind a key, in the order of tenant and address, until it
	// says false. Key{} is before all. each must not call the store.
	Scan(ctx context.Context, after Key, each func(Entry) bool) error
	Close() error
}

// Change puts an entry in the place of the one with its key, or removes that.
type Change struct {
	Entry
	Remove bool
}

// ErrUnknownOutcome says that nobody knows whether a change was made.
var ErrUnknownOutcome = errors.New("the outcome of a change is unknown")
