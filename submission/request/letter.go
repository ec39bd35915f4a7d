package request

import (
	"io"
	"time"

	"example.org/mta/internal/envelope"
)

// Letter is a message in parts. Its fields must have passed the checks of [CheckHeaders] and
// [CheckAttachment].
//
// Of the MIME levels mixed, related and alternative (RFC 2046, 5.1) the message has those that it needs. Header values
// in UTF-8 become encoded words (RFC 2047), file names become RFC 2231 parameters, text is quoted-printable or base64,
// whichever is shorter. UTF-8 mailboxes stay UTF-8 (RFC 6532): [Letter.UTF8] reports whether the header has any.
type Letter struct {
	From    []Mailbox
	Sender  *Mailbox // nil, the null sender or the only author: no Sender field
	To, Cc  []Mailbox
	ReplyTo []Mailbox
	Subject string
	Text    string // lines end in LF, CR or CRLF
	HTML    string
	// Headers follow the fields above, in this order. A Date and a Message-ID among them take
	// the place of those below.
	Headers []Header
	// Attachments with a ContentID stand beside the HTML (RFC 2387), all others at the end.
	Attachments []Attachment

	Date      time.Time
	MessageID string    // without < and >
	Random    io.Reader // for boundaries; 16 octets are read if there are several parts
}

// NewLetter takes the parts from a request. Date, MessageID and Random are left to the caller.
func NewLetter(r *Request) *Letter {
	return &Letter{
		From: r.From, Sender: r.Sender, To: r.To, Cc: r.Cc, ReplyTo: r.ReplyTo,
		Subject: r.Subject, Text: r.Text, HTML: r.HTML, Headers: r.Headers, Attachments: r.Attachments,
	}
}

// UTF8 reports whether a mailbox of the header cannot be written in ASCII, so that the message needs
// SMTPUTF8 (RFC 6531). A domain alone never does: it is written in A-label form.
func (l *Letter) UTF8() bool {
	for _, list := range [][]Mailbox{l.From, l.To, l.Cc, l.ReplyTo} {
		for _, m := range list {
			if !headerAddress(m.Address).ASCII() {
				return true
			}
		}
	}
	return l.hasSender() && !headerAddress(l.Sender.Address).ASCII()
}

// hasSender reports whether there is a Sender field (RFC 5322, 3.6.2): not when it would repeat the author.
func (l *Letter) hasSender() bool {
	return l.Sender != nil && !l.Sender.Address.Null() && (len(l.From) != 1 || l.Sender.Address != l.From[0].Address)
}

// headerAddress is an address as the header shows it: the domain in A-label form if that makes it ASCII.
func headerAddress(a envelope.Address) envelope.Address {
	if d := a.Downgrade(); d.ASCII() {
		return d
	}
	return a
}
