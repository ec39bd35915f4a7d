package smtpclient

import (
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// The fates of recipients that are still open; never seen outside.
const (
	unanswered Fate = 0x80 + iota // RCPT not answered, or not sent yet
	accepted                      // RCPT answered with 2xx
)

// transactionState is what the connection keeps of a transaction. From Send to Done the writer
// and the reader share it: what the writer sets before the flight leaves is read-only afterwards,
// the rest is guarded by Conn.mu.
type transactionState struct {
	next *Transaction // in the list that it is in

	results []Result
	single  [1]Result // saves the allocation for the most common transaction

	// Set by the writer, from what the message needs and the host offers.
	sender envelope.Address
	body   envelope.BodyType
	utf8   bool

	requireTLS bool // MAIL says REQUIRETLS

	start int64 // where in the stream its first command begins
	end   int64 // where its content ends; 0 while that isn't written

	begun, written time.Time // see Outcome

	// Guarded by Conn.mu.
	asked    int     // recipients whose RCPT is not answered, sent or not
	accepted int     // recipients accepted so far
	heard    bool    // the host has answered its MAIL
	content  bool    // DATA was answered with 354 and the content is being written
	refused  bool    // MAIL or a chunk was refused: no content of it can be taken any more
	local    *Result // for the open recipients, when this side gave it up
}

// begin prepares t for a new journey.
func (t *Transaction) begin() {
	n, results := len(t.Recipients), t.results
	t.transactionState = transactionState{}
	switch {
	case n == 1:
		t.results = t.single[:]
	case n <= cap(results):
		t.results = results[:n]
	default:
		t.results = make([]Result, n)
	}
	for i := range t.results {
		t.results[i] = Result{Fate: unanswered}
	}
	t.asked = len(t.results)
}

// asksOnly reports whether t has no content and is over when its recipients are answered.
func (t *Transaction) asksOnly() bool { return t.Body == nil }

// binary reports whether t goes by BDAT in every mode.
func (t *Transaction) binary() bool { return t.body == envelope.BodyBinaryMIME }

// leaveOut makes Excess of every recipient from i on that was not asked for yet.
func (t *Transaction) leaveOut(i int, why reply.Reply) {
	for ; i < len(t.results); i++ {
		if t.results[i].Fate == unanswered {
			t.close(i, Excess, why)
		}
	}
}

// recipient is the i-th recipient of the transaction.
func (t *Transaction) recipient(i int) *envelope.Recipient {
	return &t.Message.Recipients[t.Recipients[i]]
}

// open reports whether nothing final is known of a recipient.
func (r *Result) open() bool { return r.Fate >= unanswered }

// close makes the i-th recipient's result final before RCPT was answered.
func (t *Transaction) close(i int, fate Fate, why reply.Reply) {
	t.results[i] = Result{Fate: fate, Reply: why}
	t.asked--
}

// conclude makes the result of every recipient that is still open final.
func (t *Transaction) conclude(fate Fate, why reply.Reply) {
	for i := range t.results {
		if t.results[i].open() {
			t.results[i] = Result{Fate: fate, Reply: why}
		}
	}
}

// transactions is a first-in-first-out list. It goes through the transactions themselves, so
// that waiting costs no memory.
type transactions struct {
	first, last *Transaction
	n           int
	bytes       int64 // sum of the messages' sizes
}

func (l *transactions) push(t *Transaction) {
	t.next = nil
	if l.last == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
	l.n++
	l.bytes += t.Message.Size
}

// pop takes the first, nil when there is none.
func (l *transactions) pop() *Transaction {
	t := l.first
	if t == nil {
		return nil
	}
	if l.first = t.next; l.first == nil {
		l.last = nil
	}
	t.next = nil
	l.n--
	l.bytes -= t.Message.Size
	return t
}

func (l *transactions) takeAll() transactions {
	all := *l
	*l = transactions{}
	return all
}
