package delivery

import (
	"io"
	"time"

	"mta/delivery/smtpclient"
	"mta/internal/envelope"
	"mta/internal/reply"
	"mta/internal/route"
)

// Job is the recipients of one message that can go down one connection to one site from one
// source. It belongs to the scheduler from Submit until Done.
type Job struct {
	Message    *envelope.Message
	Recipients []int // indexes into Message.Recipients; at least one
	Route      *route.Route
	Source     string // the name of a source; see Config.Source
	// Expires is when the message is too old: a job that still waits here then comes back
	// unattempted, with 4.4.7. Zero is never.
	Expires time.Time
	Weight  int // of the tenant among tenants, 0 is 1

	Body func() (io.ReadCloser, error) // see smtpclient.Transaction.Body
	// MayBegin is asked when a connection is to take the job, as it may have waited long by then, and
	// just before its transaction is opened. When it says no, its recipients come back Withdrawn. So
	// do those of a job that may, when its source is suspended at the site: that leave may lapse
	// meanwhile, see HeldBack. It must not block, nor call the scheduler. Nil: it may.
	MayBegin func() bool
	// Done is called once, with a result for each recipient, in any order of recipients. It is
	// called from goroutines that carry mail, with no lock held: it must not block for long. It may
	// Submit.
	Done func(*Job, []Result)
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
	// since it may not leave from its source any longer, or since there is no host to try and Submit takes no more either.
	Withdrawn bool
	// RetryAfter is the earliest time at which another attempt makes sense, where that is known;
	// zero leaves it to the caller's schedule.
	RetryAfter time.Time
	// Ambiguous says that the host may have taken the message without our hearing of it: another
	// attempt may deliver it twice.
	Ambiguous bool
	// DSN says that the host took over what NOTIFY asks for (RFC 3461, 5.2.1).
	DSN     bool
	TLS     string        // version and cipher, "" for clear text
	Session string        // names the connection in logs; "" when none had the recipient
	Time    time.Duration // from being handed to the connection to the reply
}

// work is a job under way: it is done when all its recipients have a result.
type work struct {
	*Job
	lane    *lane
	message *message
	results []Result
	since   time.Time // when it was submitted
	flow    Flow      // whose room it takes
	backlog bool      // accepted before an outage ended; see drain
	first   part      // most jobs have one part only
}

// part is the recipients of a job that travel in one transaction.
type part struct {
	tx      smtpclient.Transaction
	work    *work
	conn    *connection // that carries it; nil while it waits
	handed  time.Time   // when it was handed to conn
	moves   int         // connections that died under it before it had its turn
	waiting bool

	group        *group
	next         *part // in its group
	older, newer *part // in its lane
}

// mayBegin asks whether p may be handed to a connection. One that may not is not to cost a turn of
// the lane's rates: an hour's jobs may end at the same moment, and what comes then would wait for the
// turns of all of them.
func (p *part) mayBegin() bool { return p.work.MayBegin == nil || p.work.MayBegin() }

var takenBack = reply.Local(451, reply.Enhanced{4, 3, 0}, "route", "taken back before it was sent")

// message is what the parts of one message share, in whatever lane they are: Finch's concurrency.
type message struct {
	id      envelope.ID
	workers int // connections that carry parts of it or are being opened for it
	works   int // jobs that are not done
	groups  *group
}

// split cuts a job into parts of at most limit recipients.
func (w *work) split(limit int) []*part {
	limit = max(limit, 1)
	rest := w.Recipients
	parts := make([]*part, 0, 1)
	for p := &w.first; ; p = new(part) {
		n := min(limit, len(rest))
		p.work = w
		p.tx = smtpclient.Transaction{Message: w.Message, Recipients: rest[:n:n], Body: w.Body, MayBegin: w.MayBegin, Context: p}
		parts = append(parts, p)
		if rest = rest[n:]; len(rest) == 0 {
			return parts
		}
	}
}
