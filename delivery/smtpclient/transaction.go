package smtpclient

import (
	"io"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// Transaction is one message for one or more recipients, to be sent down one connection. It
// belongs to the Conn from Send until Done is called; afterwards it may be used again.
type Transaction struct {
	Message    *envelope.Message
	Recipients []int // indexes into Message.Recipients; at least one

	// Body opens the content: Message.Size octets, lines that end in CRLF (BINARYMIME apart). It is
	// opened when the content is about to be written, by the writer; to find out whether a host
	// without 8BITMIME or SMTPUTF8 can take the message it may be opened twice. Its reads must not
	// block for ever: nothing but the end of a read stops them.
	//
	// Nil asks about the recipients and sends nothing: MAIL, RCPT and RSET. The replies are the results;
	// 2xx means then that the host would take mail for the recipient.
	Body func() (io.ReadCloser, error)

	// Done is called exactly once, with no lock held: by the reader, in the order of Send; by the
	// writer for what is refused without anything being sent; or from within Recall. It must not
	// block; it may call Send, of this transaction too.
	Done func(*Transaction, Outcome)

	// ReturnPath gives what MAIL names in place of Message.Sender, in ASCII: reports about the message go there and
	// not to its sender, so the host isn't asked to notify anybody (NOTIFY). only is the recipient that the
	// transaction has, an index into Message.Recipients; -1: it has several. It is asked by the writer, and
	// must not block. Nil: the sender.
	ReturnPath func(only int) envelope.Address

	// MayBegin is asked by the writer just before the first command is made, with the number of
	// recipients that are to be asked for; when it returns false, they are Withdrawn. It must not
	// block, nor call the Conn. Nil: it may.
	MayBegin func(recipients int) bool

	Context any // the caller's own

	transactionState
}

// Outcome is what became of a transaction.
type Outcome struct {
	// Results has one entry for each of Transaction.Recipients, in their order. It is kept in the
	// transaction: it is good until that is sent again.
	Results []Result
	// DSN says that the host has taken over the recipients' NOTIFY options (RFC 3461, 5.2.1). When
	// it is false, a delivered message whose success was to be notified is now to be reported as
	// "relayed" by this relay (RFC 3461, 5.2.2).
	DSN bool
	// Relayed says that the sender is to be notified that the host took the message, whatever it took over: BY asks
	// for that, or the host won't notify the sender in time (RFC 2852, 4.1.4).
	Relayed bool
	UTF8    bool // MAIL had SMTPUTF8 (RFC 6531)
	// Begun is when its first command was put into a flight, Written when the end of its content
	// was. Each is zero when it came to none.
	Begun, Written time.Time
}

// Result is what became of one recipient.
type Result struct {
	Fate Fate
	// Reply is never empty. Answered: the host's (or this relay's, when what the message needs
	// and what the host offers, or the content itself, decide it). The others: this relay's words
	// for what went wrong, or the reply with which the host ended the connection.
	Reply reply.Reply
}

// Fate is how a recipient came out of a transaction.
type Fate uint8

const (
	// Untried: the host never acted on it and certainly has not taken the message. It counts no
	// attempt. It was still queued, or not sent to its end when an earlier transaction's trouble ended
	// the connection, or the host closed a used connection instead of answering MAIL.
	Untried Fate = iota
	// Answered: the reply decides, ask it. 2xx means the host is now responsible.
	Answered
	// Failed: it was tried and has certainly not been delivered, for no fault of the message: the
	// connection broke or the host went out of step before the content's end was sent; or the body could
	// not be read here. The reply is temporary. It counts an attempt.
	Failed
	// Ambiguous: the end of the content may have reached the host and its reply did not reach us.
	// To be retried, and to be logged: the recipient may get the message twice. It counts an attempt.
	Ambiguous
	// Excess: the host takes no more recipients in one transaction (LIMITS, RFC 9422, or 452,
	// RFC 5321, 4.5.3.1.10). To be sent in another transaction at once; counts no attempt.
	// At least one other recipient of the transaction is not Excess.
	Excess
	// Withdrawn: MayBegin said no. Nothing of it was sent; it counts no attempt.
	Withdrawn
)

// String gives the word for logs.
func (f Fate) String() string {
	switch f {
	case Untried:
		return "untried"
	case Answered:
		return "answered"
	case Failed:
		return "failed"
	case Ambiguous:
		return "ambiguous"
	case Withdrawn:
		return "withdrawn"
	}
	return "excess"
}
