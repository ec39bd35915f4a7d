package api

import (
	"context"
	"time"
)

// Admission is which mail the relay refuses while more is offered than can be kept, and why.
type Admission struct {
	Mode  string  `json:"mode"`  // of the configuration: utilisation, pid or off
	Share float64 `json:"share"` // of what is offered that is refused now, 0 to 1
	// overload, or the kind of pressure that decides; absent when nothing is refused
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"` // of refusals that have not ended; absent without
	// of 768 priority levels, how many are admitted, the most important first
	Threshold   float64             `json:"threshold"`
	Slots       AdmissionSlots      `json:"slots"`
	Pressures   []AdmissionPressure `json:"pressures"`              // what can run out
	Tiers       []AdmissionTier     `json:"tiers"`                  // tiers 0 to 5
	Refusals    []AdmissionCount    `json:"refusals"`               // since the start, the most first
	OverQuota   []AdmissionQuota    `json:"over_quota"`             // tenants whose next message would be over a limit of theirs
	Held        int64               `json:"held"`                   // sessions that wait for a refusal
	Remembered  int                 `json:"remembered"`             // refused messages whose first attempt is remembered
	MemoryLimit int64               `json:"memory_limit,omitempty"` // of the process, octets; absent without
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
	Tier     int       `json:"tier"`     // 0 is the most important
	Offered  int64     `json:"offered"`  // messages since the start
	Refused  int64     `json:"refused"`  // of these
	Admitted float64   `json:"admitted"` // the part of its levels that is admitted now, 0 to 1
	History  []float64 `json:"history"`  // the refused share of each 10 s, the latest last; -1 where nothing was offered
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
	Admission() Admission
	// WhyRefused explains the refusals of a client's address, a sender's address, or a tenant.
	WhyRefused(ctx context.Context, who string) (AdmissionVerdict, error)
}

type whyQuery struct {
	Who string `q:"who" help:"a client's address, a sender's address, or a tenant"`
}

func (q *whyQuery) Check() error {
	if q.Who == "" {
		return Invalid("name a client's or sender's address, or a tenant", "who is missing")
	}
	return nil
}

// Admission gives which mail is refused, and why.
func (c *Client) Admission(ctx context.Context) (Admission, error) {
	return opAdmission.call(ctx, c, none{})
}

// WhyRefused explains the refusals of a client's address, a sender's address, or a tenant.
func (c *Client) WhyRefused(ctx context.Context, who string) (AdmissionVerdict, error) {
	return opWhyRefused.call(ctx, c, whyQuery{who})
}
