package http

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/intake"
	"example.org/mta/submission/request"
)

// job is one message of a request: to all its recipients, or to one of those who get a message each.
type job struct {
	q       *request.Request
	to      *request.Personal // nil: all
	index   int               // of to
	letters *letters          // nil: the message comes as it is
	// declared is how long the client says that the message is, in octets; 0 or less: it doesn't.
	declared int64
}

// renderTime bounds how long the templates of a request may take to render.
const renderTime = 20 * time.Second

// jobs lists the messages of requests. All of them can be built: those that need a template are rendered.
func (x *Submission) jobs(ctx context.Context, requests []*request.Request) ([]job, error) {
	var all []job
	var faults request.Faults
	built := int64(0)
	for i, q := range requests {
		if i >= len(x.letters) || x.letters[i].q != q {
			x.letters = x.letters[:min(i, len(x.letters))]
			faults = append(faults, x.Check(q)...)
		}
		l := x.letters[i]
		more, err := l.check(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return nil, Problemf(http.StatusUnprocessableEntity,
				"the templates took more than %v: simplify them, or send fewer recipients", renderTime)
		case ctx.Err() != nil:
			return nil, errGone(ctx)
		case err != nil:
			return nil, err
		}
		faults = append(faults, more...)
		built += l.built
		if q.Recipients == nil {
			all = append(all, job{q: q, letters: l})
		}
		for j := range q.Recipients {
			all = append(all, job{q: q, letters: l, to: &q.Recipients[j], index: j})
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	if most := mostBuilt * x.call.server.config.MaxRequest; built > most {
		return nil, Problemf(http.StatusRequestEntityTooLarge,
			"the messages of this request would have %d octets together, of %d: send them in several requests, or a "+
				"link in place of a file", built, most)
	}
	return all, x.charge(all)
}

// mostBuilt bounds the octets of all messages that are built for a request, as a multiple of what its body may have: a
// file of 30 MB for each of 1,000 recipients would fill the disk with a single request.
const mostBuilt = 20

// charge counts the recipients against the limits of the key and the tenant. A tenant that was removed while the body
// came has no limits any more, nor senders that bound it: it is refused.
func (x *Submission) charge(jobs []job) error {
	if of := x.mail.Intake.TenantOf; of != nil {
		if _, known := of(x.call.Identity.Tenant); !known {
			return noTenant()
		}
	}
	n := 0
	for i := range jobs {
		n += len(jobs[i].recipients())
	}
	return x.call.Recipients(n)
}

// letter makes the message.
func (j *job) letter(ctx context.Context) (*request.Letter, error) {
	return j.letters.letter(ctx, j.index)
}

// recipients are the mailboxes that the message is for.
func (j *job) recipients() []request.Mailbox {
	q := j.q
	switch {
	case j.to != nil:
		return j.to.To
	case len(q.Cc)+len(q.Bcc) == 0:
		return q.To
	}
	all := make([]request.Mailbox, 0, len(q.To)+len(q.Cc)+len(q.Bcc))
	return append(append(append(all, q.To...), q.Cc...), q.Bcc...)
}

// envelope is what is known of the message before its recipients are.
func (j *job) envelope(to []request.Mailbox) intake.Envelope {
	q := j.q
	e := intake.Envelope{Sender: wire(j.sender()), Ret: q.Ret, EnvID: q.EnvID, Size: j.size()}
	e.UTF8 = !e.Sender.ASCII()
	for _, list := range [][]request.Mailbox{to, q.From, q.ReplyTo} {
		for _, m := range list {
			e.UTF8 = e.UTF8 || !wire(m.Address).ASCII()
		}
	}
	return e
}

// size is the least that the message can have, in octets.
func (j *job) size() int64 {
	n := max(0, j.declared) + int64(len(j.q.Raw)+len(j.q.Text)+len(j.q.HTML))
	for i := range j.q.Attachments {
		n += int64(len(j.q.Attachments[i].Content)) / 3 * 4
	}
	return n
}

// sender is the address of MAIL FROM.
func (j *job) sender() envelope.Address {
	if j.q.Sender != nil {
		return j.q.Sender.Address
	}
	return j.q.From[0].Address
}

// wire is an address in the form that the fewest hosts have to know SMTPUTF8 for.
func wire(a envelope.Address) envelope.Address {
	if d := a.Downgrade(); d.ASCII() {
		return d
	}
	return a
}

// extras are what SMTP has in header fields.
func (j *job) extras() intake.Extras {
	q := j.q
	x := intake.Extras{
		Release: q.SendAt, Spread: q.Spread, Expires: q.ExpiresAt,
		Timezone: q.Timezone, Pace: q.Pace,
		Campaign: q.Campaign, Priority: q.Priority, Tags: q.Tags, Meta: string(q.Meta), Pool: q.Pool,
	}
	if j.to != nil && j.to.Meta != nil {
		x.Meta = string(j.to.Meta)
	}
	if j.to != nil {
		x.Timezone = cmp.Or(j.to.Timezone, x.Timezone)
	}
	if j.to != nil && !j.to.SendAt.IsZero() {
		x.Release = j.to.SendAt
	}
	return x
}
