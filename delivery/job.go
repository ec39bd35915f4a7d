package delivery

import (
	"io"
	"net/netip"
	"time"

	"example.org/mta/delivery/smtpclient"
	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
)

// Job is the recipients of one message that can go down one connection to one site from one
// source. It has space from Reserve on, and belongs to the scheduler from Submit until Done.
type Job struct {
	Message    *envelope.Message
	Recipients []int // indexes into Message.Recipients; at least one
	Route      *route.Route
	Source     string // the name of a source; see Config.Source
	Demand     tlspolicy.Demand
	// Expires is when the message is too old: a job that still waits here then comes back
	// unattempted, with 4.4.7. Zero is never.
	Expires time.Time
	Weight  int // of the tenant among tenants, 0 is 1
	// Called says that the caller took the job out of a line because Space gave its flow so much. The job has that
	// space even if the flow's part has become smaller since, unless no host of the site is known to work.
	Called bool

	Body func() (io.ReadCloser, error) // see smtpclient.Transaction.Body
	// ReturnPath is asked for each transaction, see smtpclient.Transaction.ReturnPath. Nil: the sender.
	ReturnPath func(only int) envelope.Address
	// MayBegin is asked just before a transaction for so many of the recipients is opened, after a
	// lost connection anew. When it returns false, they come back Withdrawn. It must not block, nor
	// call the scheduler. Nil: it may.
	MayBegin func(recipients int) bool
	// Done is called once, with a result for each recipient, in any order of recipients. It is
	// called from goroutines that carry mail, with no lock held: it must not block for long. It may
	// Submit.
	Done func(*Job, []Result)

	space space // from Reserve
}

// Result is what became of one recipient of a job.
type Result struct {
	Recipient int         // the index into Message.Recipients
	Reply     reply.Reply // never empty: the host's, or this relay's words for what went wrong
	Host      route.Host  // who answered, or could not be reached; zero when none was chosen
	Source    string
	// Attempted is false when the recipient never got its turn: that counts no attempt.
	Attempted bool
	// Withdrawn says that it was taken back before it was sent: by Job.MayBegin, by Cancel, by Reload
	// since it may not leave from its source any longer, or since there is no host to try and no space for more either.
	Withdrawn bool
	// RetryAfter is the earliest time at which another attempt makes sense, where that is known;
	// zero leaves it to the caller's schedule.
	RetryAfter time.Time
	// Ambiguous says that the host may have taken the message without our hearing of it: another
	// attempt may deliver it twice.
	Ambiguous bool
	// DSN says that the host took over what NOTIFY asks for (RFC 3461, 5.2.1).
	DSN     bool
	Relayed bool   // see smtpclient.Outcome.Relayed
	Session string // names the connection in logs; "" when none had the recipient
	Link    *Link  // of the connection; nil when none had the recipient
	UTF8    bool   // sent with SMTPUTF8
	Times   Times
}

// Times is what a recipient's way through delivery took, by phase. A phase that it did not come to
// is 0, and so are Connect and Handshake on a connection that was used before.
type Times struct {
	Wait      time.Duration // from Submit until it was handed to a connection, less the next two
	Connect   time.Duration // while that connection was dialed
	Handshake time.Duration // greeting, EHLO, STARTTLS, AUTH
	Turn      time.Duration // on the connection, behind other messages
	Send      time.Duration // from MAIL to the end of the content
	Reply     time.Duration // from then to the reply; from MAIL to it when no content was sent
}

// Link is what a connection runs over.
type Link struct {
	Local    netip.AddrPort  // our end; behind a proxy its address, as far as that is known, and port 0
	TLS      tlspolicy.Facts // zero for clear text
	Extended bool            // the host knows EHLO
	Auth     bool            // credentials were sent
}

// Protocol is the name of what was spoken (RFC 3848, RFC 6531, 4.3): SMTP, ESMTP, ESMTPS, ESMTPSA,
// UTF8SMTPS and so on.
func (l *Link) Protocol(utf8 bool) string {
	name := "SMTP"
	switch {
	case utf8:
		name = "UTF8SMTP"
	case l.Extended:
		name = "ESMTP"
	}
	if l.TLS != (tlspolicy.Facts{}) {
		name += "S"
	}
	if l.Auth {
		name += "A"
	}
	return name
}

// work is a job under way: it is done when all its recipients have a result.
type work struct {
	*Job
	lane    *lane
	message *message
	results []Result
	since   time.Time // when it was submitted
	first   part      // most jobs have one part only,
	one     [1]Result // and one recipient
}

// part is the recipients of a job that travel in one transaction.
type part struct {
	tx      smtpclient.Transaction
	work    *work
	conn    *connection // that carries it; nil while it waits
	handed  time.Time   // when it was handed to conn
	fresh   bool        // it is the first that conn was handed
	ahead   int         // jobs that conn had before it
	moves   int         // connections that died under it before it had its turn
	waiting bool

	group        *group
	next         *part // in its group
	older, newer *part // in its lane
}

// message is what the parts of one message share, in whatever lane they are: Finch's concurrency.
type message struct {
	id      envelope.ID
	workers int // connections that carry parts of it or are being opened for it
	works   int // jobs that are not done
	groups  *group
	turn    int // of the lane that lined up last for it among strangers, see lane.turn
}

// newWork makes a job's work.
func newWork(j *Job, now time.Time) *work {
	w := &work{Job: j, since: now}
	if w.results = w.one[:0]; len(j.Recipients) > 1 {
		w.results = make([]Result, 0, len(j.Recipients))
	}
	return w
}

// split cuts a job into parts of at most limit recipients, and calls add with each.
func (w *work) split(limit int, add func(*part)) {
	limit = max(limit, 1)
	rest := w.Recipients
	for p := &w.first; ; p = new(part) {
		n := min(limit, len(rest))
		p.work = w
		p.tx = smtpclient.Transaction{Message: w.Message, Recipients: rest[:n:n], Body: w.Body,
			ReturnPath: w.ReturnPath, MayBegin: w.MayBegin, Context: p}
		add(p)
		if rest = rest[n:]; len(rest) == 0 {
			return
		}
	}
}
