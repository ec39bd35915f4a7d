package http

import (
	"time"

	"example.org/mta/internal/network"
	"example.org/mta/submission/intake"
	"example.org/mta/submission/request"
)

// Mail is what messages are taken in with.
type Mail struct {
	// Intake is what they are held to. Its Recipients are those of a request. Without a Store there are no
	// routes that bring messages.
	Intake intake.Config
	// Templates has those that tenants have stored. Nil: there are no templates.
	Templates Templates
	// Repeats knows requests by their Idempotency-Key. Nil: the field is refused.
	Repeats *intake.Repeats
	// MayUsePool reports whether a tenant's mail can name a pool. Nil: it can name none.
	MayUsePool func(tenant, pool string) bool
}

// late is how long ago the time of a request's release may be.
const late = 5 * time.Minute

// Submission is the messages of one request on their way in. Handlers that translate another service's
// requests use it as this package's own do: Begin, Check, Send, End.
type Submission struct {
	Now    time.Time
	Limits request.Limits
	// Earlier is the answer to an earlier request with the same Idempotency-Key: nothing is left but to give it
	// again. Nil: there is none.
	Earlier *Sent

	call    *Call
	mail    *Mail
	client  intake.Client
	claim   *intake.Claim // nil: the request has no key
	letters []*letters    // of the requests that were checked
	// rendering is the time that was spent on templates.
	rendering time.Duration
}

// submission begins to take in the messages of a request.
func (c *Call) submission() *Submission {
	mail := &c.server.config.Mail
	x := &Submission{call: c, mail: mail, Now: c.server.config.Now()}
	x.Limits = request.Limits{Recipients: mail.Intake.Limits.Recipients, MaxHold: mail.Intake.MaxHold, Late: late}
	x.client = intake.Client{
		Session: c.ID, Peer: c.Client, Network: network.Of(c.Client.Addr()), Protocol: "HTTP", TLS: c.Request.TLS,
		MayRelay: true, APIKey: c.Identity.Name, Tenant: c.Identity.Tenant, Newlines: intake.NormaliseBareNewlines,
	}
	if c.server.config.Admission != nil {
		x.client.Admit(c.TakeAdmission())
	}
	if c.Secure {
		x.client.Protocol = "HTTPS"
	}
	return x
}

// Begin begins to take in the messages of a request with this body, and looks for an earlier one with its
// Idempotency-Key. Its errors are Problems; after one there is nothing to End.
func (c *Call) Begin(body []byte) (*Submission, error) {
	x := c.submission()
	h, err := x.sum()
	if h != nil {
		h.Write(body)
		err = x.repeat(h)
	}
	if err != nil {
		x.End()
		return nil, err
	}
	return x, nil
}

// End lets another request with the same Idempotency-Key begin, and gives back an admission that was not used.
func (x *Submission) End() {
	x.client.Leave()
	x.claim.Drop()
}
