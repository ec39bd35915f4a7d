package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Histories is what the server asks of the figures that the relay keeps of the last two weeks.
type Histories interface {
	// History gives what is kept of one subject over a span; NotFound when nothing is.
	History(context.Context, HistoryQuery) (History, error)
	// HistoryNames gives the subjects of a kind with their latest figures, the busiest first and OtherSubjects last.
	HistoryNames(context.Context, HistoryNamesQuery) (HistoryNames, error)
}

// Subject is a kind of thing of which figures are kept.
type Subject string

// The kinds.
const (
	OfRelay    Subject = "relay" // there is one, without a name
	OfProvider Subject = "provider"
	OfSource   Subject = "source"
	OfSite     Subject = "site"
	OfTenant   Subject = "tenant"
)

// Subjects are all of them.
var Subjects = []Subject{OfRelay, OfProvider, OfSource, OfSite, OfTenant}

// OtherSubjects is the name of all subjects of a kind that have no figures kept by themselves.
const OtherSubjects = "other"

// Span is how far back a history goes, and with it how far apart its values are.
type Span string

// The spans.
const (
	Last15Minutes Span = "15m" // a value for each 2 s
	Last12Hours   Span = "12h" // for each 30 s
	Last14Days    Span = "14d" // for each 10 min; the only one that outlives a restart
)

// Spans are all of them.
var Spans = []Span{Last15Minutes, Last12Hours, Last14Days}

// HistoryQuery names a history.
type HistoryQuery struct {
	Of Subject `q:"of" default:"relay" help:"the kind of subject"`
	// Name is that of the provider, source, site or tenant; "" of the relay.
	Name string `q:"name" help:"of the provider, source, site or tenant; other: all those that have no history by themselves"`
	Span Span   `q:"span" default:"15m" help:"the <span>: 15m (a value for each 2 s), 12h (30 s) or 14d (10 min)"`
}

// Check refuses a name for the relay.
func (q *HistoryQuery) Check() error {
	if q.Of == OfRelay && q.Name != "" {
		return Invalid("", "name: the history of the relay has none, not %q", q.Name)
	}
	return nil
}

// HistoryNamesQuery asks for the subjects of a kind.
type HistoryNamesQuery struct {
	Of Subject `q:"of" default:"relay" help:"the kind of subject"`
}

// History is what is kept of one subject over a span.
type History struct {
	Of    Subject   `json:"of"`           // the kind of subject
	Name  string    `json:"name"`         // of the subject; empty for the relay
	Span  Span      `json:"span"`         // how far back it goes
	Step  float64   `json:"step_seconds"` // the time between two values
	Start time.Time `json:"start"`        // the beginning of the step that the first values are for

	// by the name of the figure; all have the same number of values
	Series map[string]HistorySeries `json:"series"`
}

// HistorySeries is a figure over time.
type HistorySeries struct {
	Unit   string  `json:"unit"`   // recipients/s, recipients, seconds, connections, bytes and the like
	Values Figures `json:"values"` // one for each step, the oldest first, to three digits; null: not known
}

// HistoryNames are the subjects of a kind.
type HistoryNames struct {
	Of Subject `json:"of"` // the kind of subject
	// the busiest first; other, which is all that have no history by themselves, last
	Rows []HistoryRow `json:"rows"`
}

// HistoryRow is a subject with its latest figures: those per second over the last minute, the others as they are
// now. A figure that nothing is known of is null.
type HistoryRow struct {
	Name string `json:"name"` // of the subject
	// by the name of the figure: rates over the last minute, the others as they are now; null: not known
	Latest map[string]Figure `json:"latest"`
}

// Figure is a number that may be unknown: NaN here, null in JSON.
type Figure float64

// UnknownFigure is one that nothing is known of.
func UnknownFigure() Figure { return Figure(math.NaN()) }

// Known reports whether it is known.
func (f Figure) Known() bool { return !math.IsNaN(float64(f)) }

// MarshalJSON implements json.Marshaler. Figures are kept with three digits, so that five are enough.
func (f Figure) MarshalJSON() ([]byte, error) { return f.append(nil), nil }

func (f Figure) append(b []byte) []byte {
	if !f.Known() {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, float64(f), 'g', 5, 64)
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *Figure) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*f = UnknownFigure()
		return nil
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if *f = Figure(v); err != nil {
		return fmt.Errorf("a figure: %w", err)
	}
	return nil
}

// Figures are numbers one after the other.
type Figures []Figure

// MarshalJSON implements json.Marshaler: that of a slice would cost an allocation for each figure.
func (f Figures) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 8*len(f)+2), '[')
	for i, v := range f {
		if i > 0 {
			b = append(b, ',')
		}
		b = v.append(b)
	}
	return append(b, ']'), nil
}

// UnmarshalJSON implements json.Unmarshaler, for the same reason.
func (f *Figures) UnmarshalJSON(b []byte) error {
	if *f = nil; string(b) == "null" {
		return nil
	}
	inner, opened := bytes.CutPrefix(b, []byte("["))
	inner, closed := bytes.CutSuffix(inner, []byte("]"))
	if !opened || !closed {
		return errors.New("figures: want an array of numbers")
	}
	if inner = bytes.TrimSpace(inner); len(inner) == 0 {
		*f = Figures{}
		return nil
	}
	*f = make(Figures, 0, bytes.Count(inner, []byte(","))+1)
	for word := range bytes.SplitSeq(inner, []byte(",")) {
		var v Figure
		if err := v.UnmarshalJSON(bytes.TrimSpace(word)); err != nil {
			return err
		}
		*f = append(*f, v)
	}
	return nil
}

// Admission is which mail the relay refuses while more is offered than can be kept, and why.
type Admission struct {
	Mode  string  `json:"mode"`  // of the configuration: utilisation, pid or off
	Share float64 `json:"share"` // of what is offered that is refused now, 0 to 1
	// overload, or the kind of pressure that decides; absent when nothing is refused
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"` // of refusals that have not ended; absent without
	// of 768 priority levels, how many are admitted, the most important first
	Threshold float64             `json:"threshold"`
	Slots     AdmissionSlots      `json:"slots"`
	Pressures []AdmissionPressure `json:"pressures"` // what can run out
	Tiers     []AdmissionTier     `json:"tiers"`     // tiers 0 to 5
	Refusals  []AdmissionCount    `json:"refusals"`  // since the start, the most first
	// tenants whose next message would be over a limit of theirs
	OverQuota   []AdmissionQuota `json:"over_quota"`
	Held        int64            `json:"held"`                   // sessions that wait for a refusal
	Remembered  int              `json:"remembered"`             // refused messages whose first attempt is remembered
	MemoryLimit int64            `json:"memory_limit,omitempty"` // of the process, octets; absent without
}

// AdmissionSlots are what messages hold while they are made durable.
type AdmissionSlots struct {
	Limit   float64 `json:"limit"`   // how many there are
	Why     string  `json:"why"`     // why there are as many
	Used    float64 `json:"used"`    // on average over the last half second
	Waiting int     `json:"waiting"` // messages that wait for one
}

// AdmissionPressure is how short one thing is.
type AdmissionPressure struct {
	Kind  string  `json:"kind"`  // sync, disk, memory or backlog
	Value float64 `json:"value"` // sync and backlog: seconds; memory and disk: the part that is used
	From  float64 `json:"from"`  // up to this value nothing is refused
	To    float64 `json:"to"`    // from this value on nearly everything is
	Share float64 `json:"share"` // that it alone refuses, 0 to 1
}

// AdmissionTier is what a tier has offered since the start, and what was refused of it.
type AdmissionTier struct {
	Tier     int     `json:"tier"`     // 0 is the most important
	Offered  int64   `json:"offered"`  // messages since the start
	Refused  int64   `json:"refused"`  // of these
	Admitted float64 `json:"admitted"` // the part of its levels that is admitted now, 0 to 1
	// the refused share of each 10 s, the latest last; -1 where nothing was offered
	History []float64 `json:"history"`
}

// AdmissionCount counts refusals.
type AdmissionCount struct {
	Tenant string `json:"tenant"` // empty: nobody's; (others): of those that are too many to count
	Tier   int    `json:"tier"`   // 0 to 5
	Reason string `json:"reason"` // overload, line, or the kind of a pressure
	Count  int64  `json:"count"`  // since the start
}

// AdmissionQuota is a tenant that exceeds one of its limits.
type AdmissionQuota struct {
	Tenant string `json:"tenant"` // of the configuration
	Limit  string `json:"limit"`  // rate, messages or bytes
}

// AdmissionVerdict is what becomes of somebody's mail now, and what was refused lately.
type AdmissionVerdict struct {
	Tenant   string  `json:"tenant"`   // whose mail it is; empty: nobody's
	Tier     int     `json:"tier"`     // of its mail
	Admitted float64 `json:"admitted"` // of its mail now, 0 to 1
	Share    float64 `json:"share"`    // of all mail that is refused now
	// overload, or the kind of pressure that decides; absent when nothing is refused
	Reason  string             `json:"reason,omitempty"`
	Refused int                `json:"refused"` // of the last 1,000 refusals, how many were its
	Last    []AdmissionRefusal `json:"last"`    // the latest of these, the newest first
}

// AdmissionRefusal is one refusal.
type AdmissionRefusal struct {
	Time   time.Time `json:"time"`   // of the reply
	Client string    `json:"client"` // address
	Sender string    `json:"sender"` // in MAIL FROM
	Tenant string    `json:"tenant"` // empty: nobody's
	Tier   int       `json:"tier"`   // 0 to 5
	Cohort int       `json:"cohort"` // 0 to 127
	Reason string    `json:"reason"` // overload, line, or the kind of a pressure
	Held   float64   `json:"held"`   // seconds that the client waited for the reply
}

// Admissions is what the server asks about admission.
type Admissions interface {
	Admission(context.Context) (Admission, error)
	// WhyRefused explains the refusals of a client's address, a sender's address, or a tenant.
	WhyRefused(context.Context, WhyQuery) (AdmissionVerdict, error)
}

// WhyQuery asks about somebody's mail.
type WhyQuery struct {
	Who string `q:"who" help:"a client's address, a sender's address, or a tenant"`
}

func (q *WhyQuery) Check() error {
	if q.Who == "" {
		return Invalid("name a client's or sender's address, or a tenant", "who is missing")
	}
	return nil
}
