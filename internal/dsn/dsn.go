// Package dsn builds delivery status notifications: the reports to a sender about what became
// of a message (RFC 3464, with the options of RFC 3461 and the international forms of RFC 6533).
// It is pure: time and boundary come with the Report. It starts no goroutines.
package dsn

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// Kind is what a report is about.
type Kind uint8

const (
	Failed    Kind = iota // delivery was given up
	Delayed               // delivery is still being tried
	Delivered             // delivery succeeded, as the sender wanted to know
)

// Recipient is what became of one recipient.
type Recipient struct {
	envelope.Recipient
	Reply       reply.Reply
	Host        string    // who answered; "" when nobody did
	LastAttempt time.Time // zero when there was none
	RetryUntil  time.Time // of Delayed: when it is given up
	// Relayed says, of Delivered, that the host doesn't do notifications: what it makes of the
	// message we can't know (RFC 3461, 5.2.2).
	Relayed bool
}

// Report is what a notification is made from.
type Report struct {
	Kind       Kind
	Message    *envelope.Message // the original one
	Recipients []Recipient       // at least one
	Content    io.Reader         // the original's content; nil when it can't be read

	From        string    // of the notification: a header field's value
	Hostname    string    // of the relay
	Now         time.Time // when the report is made
	ID          string    // unique on this host: becomes the Message-ID's left side and the boundary
	ReturnLimit int64     // a larger original comes back as headers only, octets
}

// Notification is a finished report: a message for the original's sender.
type Notification struct {
	Content  []byte
	EightBit bool // has octets above 127: needs 8BITMIME
	UTF8     bool // has UTF-8 in header fields: needs SMTPUTF8
}

// About what a report has in octets, besides the original, and for each recipient.
const (
	usualFrame     = 1 << 10
	usualRecipient = 512
)

// Build makes the notification.
func Build(r Report) (Notification, error) {
	if len(r.Recipients) == 0 {
		return Notification{}, errors.New("report about nobody")
	}
	original, err := readOriginal(r)
	if err != nil {
		return Notification{}, fmt.Errorf("reading the original message: %w", err)
	}
	n := Notification{UTF8: r.global()}
	w := &writer{utf8: n.UTF8, boundary: r.boundary(original.content)}
	w.Grow(len(original.content) + usualFrame + usualRecipient*len(r.Recipients))
	n.EightBit = n.UTF8 || original.eightBit
	r.header(w, original, n.EightBit)
	r.explain(w, original)
	r.status(w)
	r.returned(w, original)
	w.line("") // belongs to the boundary (RFC 2046, 5.1.1)
	w.line("--" + w.boundary + "--")
	n.Content = w.Bytes()
	return n, nil
}

// boundary is a line that does not occur in what is returned (RFC 2046, 5.1.1).
func (r *Report) boundary(content []byte) string {
	b := "=_" + r.ID
	for bytes.Contains(content, []byte("--"+b)) {
		b += "_"
	}
	return b
}

// global reports whether the report has addresses that need UTF-8. It may have them only when the
// original's sender showed by SMTPUTF8 that it can take such a report.
func (r *Report) global() bool {
	if !r.Message.UTF8 {
		return false
	}
	for _, rc := range r.Recipients {
		if !rc.Address.ASCII() {
			return true
		}
	}
	return !r.Message.Sender.ASCII()
}

// relayedBy reports whether the report is of a message with BY that was relayed (RFC 2852, 4.1.4).
func (r *Report) relayedBy() bool {
	by := r.Message.By()
	return r.Kind == Delivered && !by.At.IsZero()
}

var subjects = [...]string{
	Failed:    "Your message could not be delivered",
	Delayed:   "Your message is delayed",
	Delivered: "Your message was delivered",
}

func (r *Report) header(w *writer, o original, eightBit bool) {
	w.field("From", r.From)
	w.field("To", "<"+string(r.Message.Sender)+">")
	subject := subjects[r.Kind]
	if r.relayedBy() {
		subject = "Your message was relayed"
	}
	w.field("Subject", subject)
	w.field("Date", r.Now.Format(dateLayout))
	w.field("Message-ID", "<"+r.ID+"@"+r.Hostname+">")
	if o.messageID != "" {
		w.field("In-Reply-To", o.messageID)
		w.field("References", o.messageID)
	}
	w.field("Auto-Submitted", "auto-replied") // RFC 3834, 5
	w.field("MIME-Version", "1.0")
	w.line(`Content-Type: multipart/report; report-type=delivery-status;`)
	w.line(` boundary="` + w.boundary + `"`)
	if eightBit {
		w.field("Content-Transfer-Encoding", "8bit")
	}
	w.line("")
	w.line("This is a delivery status notification in MIME format.")
}

const dateLayout = "Mon, 2 Jan 2006 15:04:05 -0700"

// explain writes the part for people. It is UTF-8 if need be, even to a sender that takes no
// UTF-8 in header fields: what the other side said, and in which language, is what matters here.
func (r *Report) explain(w *writer, o original) {
	text := &writer{utf8: true}
	text.Grow((usualFrame + usualRecipient*len(r.Recipients)) / 2)
	text.line("This is the mail system at " + r.Hostname + ".")
	text.line("")
	introduction := introductions[r.Kind]
	if r.relayedBy() {
		introduction = "Your message asks for delivery by a certain time. It was relayed to the mail servers of the " +
			"following recipients."
	}
	text.paragraph(introduction)
	text.line("")
	for _, rc := range r.Recipients {
		text.line("  <" + string(rc.Address) + ">")
		text.paragraph("    " + r.about(rc))
		if a := r.advice(rc); a != "" {
			text.paragraph("    " + a)
		}
		text.line("")
	}
	text.paragraph(r.remedy(o))
	if o.subject != "" {
		text.line("")
		text.paragraph("Subject of your message: " + o.subject)
	}
	switch {
	case !hasEightBit(text.Bytes()):
		w.part("text/plain; charset=us-ascii", "")
		w.Write(text.Bytes())
	case w.utf8:
		w.part("text/plain; charset=utf-8", "8bit")
		w.Write(text.Bytes())
	default:
		w.part("text/plain; charset=utf-8", "quoted-printable")
		w.quotedPrintable(text.Bytes())
	}
}

var introductions = [...]string{
	Failed: "Your message could not be delivered to the following recipients. No further attempts will be made.",
	Delayed: "Your message has not been delivered to the following recipients yet. No action is required; delivery " +
		"will be retried.",
	Delivered: "Your message was delivered to the following recipients. You requested this notification.",
}

var remedies = [...]string{
	Failed:    "Please fix the problem described above before sending the message again.",
	Delayed:   "You will be notified if delivery fails permanently.",
	Delivered: "The mail servers named above are now responsible for the message.",
}

// remedy returns what the sender can do, and what is attached.
func (r *Report) remedy(o original) string {
	remedy := remedies[r.Kind]
	if r.late() {
		remedy = "Delivery was given up at the time that your message asked for. " +
			"You can send it again with a later time."
	}
	switch {
	case r.Kind != Failed || len(o.content) == 0:
		return remedy
	case o.whole:
		return remedy + " Your message is attached."
	}
	return remedy + " The headers of your message are attached; its body is not."
}

// late reports whether the message was given up at the time that its BY asks for (RFC 2852, 4.1).
func (r *Report) late() bool {
	by := r.Message.By()
	return by.Return && r.Kind == Failed && !r.Now.Before(by.At)
}

// about returns what happened to a recipient.
func (r *Report) about(rc Recipient) string {
	who := "this server"
	if !rc.Reply.Local {
		who = cmp.Or(rc.Host, "the remote server") // the queue keeps no host with a reply
	}
	switch {
	case r.relayedBy():
		return "Relayed to " + who + "."
	case r.Kind == Delivered && rc.Relayed:
		return "Accepted by " + who + ", which does not send delivery notifications."
	case r.Kind == Delivered:
		return "Accepted by " + who + "."
	case rc.Reply.Code == 0 && rc.Reply.Text == "":
		return "No delivery attempt has completed yet."
	}
	said := "Reported by " + who + ": " + rc.Reply.String()
	if rc.Reply.Command != "" && who == rc.Host {
		said = rc.Host + " replied to " + rc.Reply.Command + ": " + rc.Reply.String()
	}
	switch {
	case r.Kind == Delayed && !rc.RetryUntil.IsZero():
		said += " (delivery will be retried until " + rc.RetryUntil.Format(dateLayout) + ")"
	case r.Kind == Failed && rc.Reply.Temporary():
		said += " (the message has expired)"
	}
	return said
}

var actions = [...]string{Failed: "failed", Delayed: "delayed", Delivered: "delivered"}

// status writes the part for programs (RFC 3464, 2; RFC 6533, 4).
func (r *Report) status(w *writer) {
	if w.utf8 {
		w.part("message/global-delivery-status", "8bit")
	} else {
		w.part("message/delivery-status", "")
	}
	w.field("Reporting-MTA", "dns; "+r.Hostname)
	if r.Message.EnvID != "" {
		w.field("Original-Envelope-Id", r.Message.EnvID) // decoded (RFC 3461, 6.3 a)
	}
	w.field("Arrival-Date", r.Message.Received.Format(dateLayout))
	if by := r.Message.By(); !by.At.IsZero() {
		w.field("Deliver-By-Date", by.At.Format(dateLayout)) // RFC 2852, 5
	}
	for _, rc := range r.Recipients {
		w.line("")
		if kind, address, ok := strings.Cut(rc.ORcpt, ";"); ok {
			w.field("Original-Recipient", kind+"; "+w.address(address))
		}
		w.field("Final-Recipient", addressType(rc.Address, w.utf8)+"; "+w.address(string(rc.Address)))
		action := actions[r.Kind]
		if rc.Relayed {
			action = "relayed"
		}
		w.field("Action", action)
		w.field("Status", r.statusOf(rc))
		if rc.Host != "" {
			w.field("Remote-MTA", "dns; "+rc.Host)
		}
		if rc.Reply.Code != 0 || rc.Reply.Text != "" {
			kind := "smtp; "
			if rc.Reply.Local {
				kind = "x-mta; "
			}
			w.field("Diagnostic-Code", kind+rc.Reply.String())
		}
		if !rc.LastAttempt.IsZero() {
			w.field("Last-Attempt-Date", rc.LastAttempt.Format(dateLayout))
		}
		if r.Kind == Delayed && !rc.RetryUntil.IsZero() {
			w.field("Will-Retry-Until", rc.RetryUntil.Format(dateLayout))
		}
	}
}

// statusOf is the recipient's status code. Of mail that expired it is the failure that it met,
// class 4 and all: RFC 3463 (3.5) prefers that to 4.4.7, its class 4 is for "abandonment or delay"
// (2), and a mailing list must not take a host that was down for an address that is wrong.
func (r *Report) statusOf(rc Recipient) string {
	s := rc.Reply.Status()
	switch {
	case r.late() && s[0] != 5:
		return "5.4.7" // delivery time expired, as asked for
	case rc.Reply.Code == 0 && r.Kind == Failed:
		return "4.4.7" // delivery time expired
	case r.Kind == Failed && s[0] != 4 && s[0] != 5:
		return "5.0.0"
	case r.Kind == Delayed && s[0] != 4:
		return "4.4.1" // no answer from host
	case r.Kind == Delivered && s[0] != 2:
		return "2.0.0"
	}
	return s.String()
}

func addressType(a envelope.Address, utf8 bool) string {
	if utf8 && !a.ASCII() {
		return "utf-8"
	}
	return "rfc822"
}

// returned writes the original, whole or its header.
func (r *Report) returned(w *writer, o original) {
	if len(o.content) == 0 {
		return
	}
	kind := "text/rfc822-headers"
	switch {
	case o.whole && o.utf8:
		kind = "message/global"
	case o.whole:
		kind = "message/rfc822"
	case o.utf8:
		kind = "message/global-headers"
	}
	encoding := ""
	if o.eightBit {
		encoding = "8bit"
	}
	w.part(kind, encoding)
	w.Write(o.content)
	if !bytes.HasSuffix(o.content, []byte("\r\n")) {
		w.line("")
	}
}

// advice is what a sender can do about a failure, by its status without the class (RFC 3463 and
// the registry of RFC 5248), in words for people who do not know the codes. Mail that expired has
// class 4.
var advice = map[string]string{
	"1.1":  "The mailbox does not exist. Check the part of the address before the @.",
	"1.2":  "The domain does not exist. Check the part of the address after the @.",
	"1.3":  "The address is not valid. Check its spelling.",
	"1.6":  "The mailbox has moved without a forwarding address.",
	"1.10": "The domain does not accept mail. Check the part of the address after the @.",
	"2.1":  "The mailbox is disabled or does not accept mail at the moment.",
	"2.2":  "The mailbox is full. Contact the recipient in another way.",
	"2.3":  "The message is too large for this mailbox. Send a smaller one.",
	"3.4":  "The message is too large for the recipient's mail server. Send a smaller one.",
	"4.1":  "The recipient's mail server could not be reached.",
	"4.3":  "The domain's name servers did not answer.",
	"4.4":  "The domain has no mail server. Contact its owner.",
	"4.6":  "The message would loop between mail servers. Contact the domain's owner.",
	"5.3":  "The message has too many recipients. Send it to fewer recipients at a time.",
	"6.3":  "The recipient's mail server does not support the format of this message. Send it as plain text.",
	"6.7":  "The recipient's mail server does not support international addresses. Use another address.",
	"7.1":  "The recipient's mail server does not accept this message, or mail from this sender.",
	"7.20": "The message has no valid DKIM signature. Contact your mail administrator.",
	"7.23": "The sending server is not authorized to send for your domain (SPF). Contact your mail administrator.",
	"7.26": "The message failed authentication (DMARC, SPF or DKIM). Contact your mail administrator.",
}

// advice returns the advice for a recipient, "" if there is none.
func (r *Report) advice(rc Recipient) string {
	if r.Kind != Failed {
		return ""
	}
	_, detail, _ := strings.Cut(r.statusOf(rc), ".")
	return advice[detail]
}
