package demo

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/smtp"
	"strings"
	"sync"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
)

// aftermath is what comes back about mail that was taken: providers that find out later that they can't deliver it,
// and recipients who complain. It reaches the relay by SMTP, as such mail does.
//
// Its goroutine ends with the context of run.
type aftermath struct {
	reactions chan reaction

	mu         sync.Mutex // guards what follows
	late       map[string]bool
	complaints map[string]bool
}

// reaction is one such mail.
type reaction struct {
	id, path, recipient string // of the message: what the provider knows of it
	complaint           bool
	due                 time.Time
}

const (
	reactionDelay = 500 * time.Millisecond // after the delivery
	reactionRetry = 200 * time.Millisecond
	mostReactions = 10_000 // that wait; more are not begun
)

func newAftermath() *aftermath {
	return &aftermath{reactions: make(chan reaction, mostReactions), late: make(map[string]bool),
		complaints: make(map[string]bool)}
}

// of is the hook of a provider's sinks.
func (a *aftermath) of(p *provider) func(sink.Command) sink.Answer {
	if p.late+p.complains == 0 {
		return nil
	}
	return func(c sink.Command) sink.Answer {
		if c.Phase == sink.Kept && c.Sender != "" {
			for _, r := range c.Recipients {
				a.consider(p, c.ID, c.Sender, r)
			}
		}
		return sink.Answer{}
	}
}

// consider begins a reaction of one recipient in so many. The same mail has the same reactions in each run.
func (a *aftermath) consider(p *provider, id, path, recipient string) {
	h := fnv.New32a()
	h.Write([]byte(id + recipient))
	n := int(h.Sum32() >> 1)
	r := reaction{id: id, path: path, recipient: recipient, due: time.Now().Add(reactionDelay)}
	switch {
	case p.late > 0 && n%p.late == 0:
	case p.complains > 0 && n%p.complains == 0:
		r.complaint = true
	default:
		return
	}
	select {
	case a.reactions <- r:
	default:
	}
}

// run sends reactions to the relay's listener for them.
func (a *aftermath) run(ctx context.Context, to string) {
	for {
		select {
		case r := <-a.reactions:
			for pause(ctx, time.Until(r.due)) {
				if a.send(r, to) == nil {
					break
				}
				r.due = time.Now().Add(reactionRetry) // as any mail server would
			}
		case <-ctx.Done():
			return
		}
	}
}

func (a *aftermath) send(r reaction, to string) error {
	rcpt, content := r.path, r.bounce()
	if r.complaint {
		rcpt, content = complaintsAddress, r.report()
	}
	if err := smtp.SendMail(to, nil, "", []string{rcpt},
		[]byte(strings.ReplaceAll(content, "\n", "\r\n"))); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.complaint {
		a.complaints[r.recipient] = true
	} else {
		a.late[r.recipient] = true
	}
	return nil
}

// sums gives how many late bounces and complaints the relay has taken.
func (a *aftermath) sums() (late, complaints int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int64(len(a.late)), int64(len(a.complaints))
}

// happened lists the late bounces and complaints that the relay has taken.
func (a *aftermath) happened() (all []happening) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for recipient := range a.late {
		all = append(all, happening{accounting.OOB, recipient})
	}
	for recipient := range a.complaints {
		all = append(all, happening{accounting.Feedback, recipient})
	}
	return all
}

// bounce is a report of failure (RFC 3464).
func (r *reaction) bounce() string {
	_, domain, _ := strings.Cut(r.recipient, "@")
	return fmt.Sprintf(`From: Mail Delivery System <mailer-daemon@%[1]s>
To: <%[2]s>
Subject: Undelivered Mail Returned to Sender
Auto-Submitted: auto-replied
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="b"

--b
Content-Type: text/plain

Your message could not be delivered: the mailbox does not exist.

--b
Content-Type: message/delivery-status

Reporting-MTA: dns; mail.%[1]s

Final-Recipient: rfc822; %[3]s
Action: failed
Status: 5.1.1
Diagnostic-Code: smtp; 550 5.1.1 <%[3]s>: user unknown in local mailbox table

--b
Content-Type: text/rfc822-headers

Return-Path: <%[2]s>
Message-ID: <%[4]s@%[5]s>

--b--
`, domain, r.path, r.recipient, r.id, home().domain)
}

// report is a complaint by a feedback loop (RFC 5965).
func (r *reaction) report() string {
	_, domain, _ := strings.Cut(r.recipient, "@")
	return fmt.Sprintf(`From: Feedback Loop <fbl@%[1]s>
To: <%[2]s>
Subject: complaint
MIME-Version: 1.0
Content-Type: multipart/report; report-type=feedback-report; boundary="b"

--b
Content-Type: text/plain

A recipient calls this message spam.

--b
Content-Type: message/feedback-report

Feedback-Type: abuse
User-Agent: demo/1.0
Version: 1
Original-Mail-From: <%[3]s>
Original-Rcpt-To: <%[4]s>

--b
Content-Type: text/rfc822-headers

Return-Path: <%[3]s>
Message-ID: <%[5]s@%[6]s>

--b--
`, domain, complaintsAddress, r.path, r.recipient, r.id, home().domain)
}
