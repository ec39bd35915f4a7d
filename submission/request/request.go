// Package request has what an HTTP client asks to be sent, in the form of POST /v1/messages, and
// reads it strictly: whatever is wrong with it becomes a [Fault] that names the place and the remedy.
//
// A [Template] fills in its text from data; a [Letter] is a message in parts, and [Letter.WriteTo] builds it (RFC 5322,
// MIME).
//
// It knows neither HTTP nor the queue. Translations of other services' requests make a [Request], too.
package request

import (
	"encoding/json"
	"time"

	"example.org/mta/internal/envelope"
)

// Request asks for one message to all recipients or, with Recipients, for one to each of them.
type Request struct {
	From   []Mailbox
	Sender *Mailbox // MAIL FROM, and the Sender field where it isn't the author; nil: the first of From
	To     []Mailbox
	Cc     []Mailbox
	Bcc    []Mailbox
	// ReplyTo are the addresses in the Reply-To field.
	ReplyTo     []Mailbox
	Subject     string
	Text, HTML  string
	Headers     []Header // in the order of the request
	Attachments []Attachment

	// Raw is a whole message (RFC 5322) with CRLF or LF line ends, in place of what is above; To, Cc and Bcc
	// are its recipients all the same. Nil: the message is built.
	Raw []byte

	// Recipients get a message each, with an id each. Nil: To, Cc and Bcc share one message.
	Recipients []Personal
	// Template is the name of a stored template of the tenant, "" for none. Subject, Text, HTML and the
	// values of Headers are templates themselves where there is Data or a recipient's Data.
	Template string
	Data     map[string]any
	Strict   bool // a variable that the data lacks is a fault, and not empty

	SendAt    time.Time     // the release; zero: at once
	Spread    time.Duration // the release is spread over this window
	ExpiresAt time.Time     // undelivered mail is given up then; zero: after max_age
	Timezone  string        // of the recipients; "": not known
	Pace      string        // of the campaign; "": as configured
	Campaign  string
	Tags      []string
	Meta      json.RawMessage // a JSON object that comes back in each event, nil for none
	Priority  *int            // MT-Priority, -9 to 9 (RFC 6758); nil: the tenant's tier
	Pool      string          // of source addresses; "": as configured
	Notify    envelope.Notify
	EnvID     string
	Ret       envelope.Ret
	DryRun    bool // check and build everything, queue nothing, and return what was built
}

// Personal is a recipient who gets a message of its own.
type Personal struct {
	To      []Mailbox // as the To field shows them; all are recipients of this one message
	Data    map[string]any
	Meta    json.RawMessage // in place of the request's
	Headers []Header        // beside the request's, or in place of those of the same name
	SendAt  time.Time       // in place of the request's
	// Timezone is in place of the request's.
	Timezone string
}

// Mailbox is an address and the name that is displayed with it, "" for none.
type Mailbox struct {
	Name    string
	Address envelope.Address
}

// Header is a field of the header section. Value is unfolded, unencoded UTF-8 in one line.
type Header struct{ Name, Value string }

// Attachment is a file. One with a ContentID is displayed within the HTML, which refers to it as
// cid:ContentID.
type Attachment struct {
	Name      string
	Type      string // the media type, with parameters
	ContentID string // without < and >
	Content   []byte
}

// Faults are all that was found wrong with a request.
type Faults []Fault

// Error joins the faults to one line.
func (f Faults) Error() string {
	s := ""
	for i, v := range f {
		if i > 0 {
			s += "; "
		}
		if v.Pointer != "" {
			s += v.Pointer + ": "
		}
		s += v.Detail
		if v.Remedy != "" {
			s += " (" + v.Remedy + ")"
		}
	}
	return s
}
