package api

import (
	"context"
	"time"
)

// Admission is which mail the relay refuses while more is offered than can be kept, and why.
type Admission struct {
	Mode        string              `json:"mode"`
	Share       float64             `json:"share"`            // of what is offered that is refused now, 0 to 1
	Reason      string              `json:"reason,omitempty"` // overload, or the kind of the pressure that decides
	Since       time.Time           `json:"since,omitzero"`   // of refusals that have not ended
	Threshold   float64             `json:"threshold"`        // of 768 priority levels, how many are admitted
	Slots       AdmissionSlots      `json:"slots"`
	Pressures   []AdmissionPressure `json:"pressures"`
	Tiers       []AdmissionTier     `json:"tiers"`
	Refusals    []AdmissionCount    `json:"refusals"`   // since the start, the most first
	OverQuota   []AdmissionQuota    `json:"over_quota"` // tenants whose next message would be over a limit of theirs
	Held        int64               `json:"held"`       // sessions that wait for a refusal
	Remembered  int                 `json:"remembered"`
	MemoryLimit int64               `json:"memory_limit,omitempty"` // octets
}

// AdmissionSlots are what messages hold while they are made durable.
type AdmissionSlots struct {
	Limit   float64 `json:"limit"`
	Why     string  `json:"why"`
	Used    float64 `json:"used"`    // on average over the last half second
	Waiting int     `json:"waiting"` // messages that wait for one
}

// AdmissionPressure is how short one thing is.
type AdmissionPressure struct {
	Kind  string  `json:"kind"`
	Value float64 `json:"value"`
	From  float64 `json:"from"` // up to here nothing is refused
	To    float64 `json:"to"`   // from here on nearly everything is
	Share float64 `json:"share"`
}

// AdmissionTier is what a tier has offered since the start, and what was refused of it.
type AdmissionTier struct {
	Tier     int       `json:"tier"`
	Offered  int64     `json:"offered"`
	Refused  int64     `json:"refused"`
	Admitted float64   `json:"admitted"` // the part of its levels that is admitted now, 0 to 1
	History  []float64 `json:"history"`  // the refused share of each 10 s, the latest last; -1 where nothing was offered
}

// AdmissionCount counts refusals.
type AdmissionCount struct {
	Tenant string `json:"tenant"`
	Tier   int    `json:"tier"`
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// AdmissionQuota is a tenant that exceeds one of its limits.
type AdmissionQuota struct {
	Tenant string `json:"tenant"`
	Limit  string `json:"limit"` // rate, messages or bytes
}

// AdmissionVerdict is what becomes of somebody's mail now, and what was refused lately.
type AdmissionVerdict struct {
	Tenant   string             `json:"tenant"`
	Tier     int                `json:"tier"`
	Admitted float64            `json:"admitted"` // of its mail now, 0 to 1
	Share    float64            `json:"share"`    // of all mail that is refused now
	Reason   string             `json:"reason,omitempty"`
	Refused  int                `json:"refused"` // of the last 1,000 refusals
	Last     []AdmissionRefusal `json:"last"`    // of these, the latest first
}

// AdmissionRefusal is one refusal.
type AdmissionRefusal struct {
	Time   time.Time `json:"time"`
	Client string    `json:"client"`
	Sender string    `json:"sender"`
	Tenant string    `json:"tenant"`
	Tier   int       `json:"tier"`
	Cohort int       `json:"cohort"`
	Reason string    `json:"reason"`
	Held   float64   `json:"held"` // s that the client waited for the reply
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
