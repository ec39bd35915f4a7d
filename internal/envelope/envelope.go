// Package envelope has the words that every part shares: message, recipient, address, id.
// It holds values only: no goroutines, no input or output.
package envelope

import (
	"net/netip"
	"strings"
	"time"
)

// BodyType is what MAIL FROM said of the content's octets (RFC 6152, RFC 3030).
type BodyType uint8

const (
	Body7Bit BodyType = iota
	Body8BitMIME
	BodyBinaryMIME
)

// String gives the value of the BODY= parameter.
func (b BodyType) String() string {
	switch b {
	case Body8BitMIME:
		return "8BITMIME"
	case BodyBinaryMIME:
		return "BINARYMIME"
	}
	return "7BIT"
}

// Ret is how much of a message a failure report returns (RFC 3461, 4.3).
type Ret uint8

const (
	RetDefault Ret = iota
	RetFull
	RetHeaders
)

// String gives the value of the RET= parameter, "" for the default.
func (r Ret) String() string {
	switch r {
	case RetFull:
		return "FULL"
	case RetHeaders:
		return "HDRS"
	}
	return ""
}

// Notify is when the sender wants a delivery status notification for a recipient
// (RFC 3461, 4.1). Zero means that nothing was asked: failure and delay are reported.
type Notify uint8

const (
	NotifySuccess Notify = 1 << iota
	NotifyFailure
	NotifyDelay
	NotifyNever
)

// Wants reports whether event, one of the Notify bits, must be reported.
func (n Notify) Wants(event Notify) bool {
	if n == 0 {
		return event != NotifySuccess
	}
	return n&NotifyNever == 0 && n&event != 0
}

// String gives the value of the NOTIFY= parameter, "" when nothing was asked.
func (n Notify) String() string {
	if n&NotifyNever != 0 {
		return "NEVER"
	}
	s := ""
	for _, e := range []struct {
		bit  Notify
		name string
	}{{NotifySuccess, "SUCCESS"}, {NotifyFailure, "FAILURE"}, {NotifyDelay, "DELAY"}} {
		if n&e.bit == 0 {
			continue
		}
		if s != "" {
			s += ","
		}
		s += e.name
	}
	return s
}

// Recipient is one address that a message is for, with its DSN options.
type Recipient struct {
	Address Address
	Notify  Notify
	// ORcpt is the original recipient as "type;address", decoded, "" when not given
	// (RFC 3461, 4.2).
	ORcpt string
}

// Message is what was accepted once and is not changed afterwards. The content is kept apart,
// by id. All fields must be left alone once the message has been handed on.
type Message struct {
	ID         ID
	Sender     Address // "" is the null sender
	Recipients []Recipient

	Body  BodyType
	UTF8  bool // SMTPUTF8 was asked for (RFC 6531)
	Ret   Ret
	EnvID string // decoded, "" when not given (RFC 3461, 4.4)

	RequireTLS bool // REQUIRETLS was asked for (RFC 8689)
	// TLSOptional says that the header has "TLS-Required: No": the recipient's policies don't count
	// (RFC 8689, 5). RequireTLS overrules it.
	TLSOptional bool

	Size int64 // octets of the content as stored: CRLF line ends, trace headers included

	Tenant   string // on whose behalf; "" when unknown
	User     string // who had logged in to submit it; "" when nobody had
	Campaign string // a finer label below the tenant
	Tier     uint8  // 0 matters most, 5 least
	// Marks are what its header has of the fields that the relay was asked to look for when it came in, what was asked
	// for in TimezoneField and PaceField, and By.
	Marks []string

	// Release is when the first attempt is made at the earliest, in whole seconds; zero: at once.
	// Each recipient has its own time within Spread from then on, see ReleaseOf.
	Release time.Time
	Spread  time.Duration // whole seconds, up to MaxSpread

	// Expires is when it is given up although its max_age has not passed, in whole seconds; zero: never.
	Expires time.Time
	Tags    []string // the sender's labels
	Meta    string   // the sender's data, a JSON object that records of the message repeat; "" for none
	Headers string   // a JSON object: the fields of its header that records of the message repeat; "" for none
	Pool    string   // the pool of sources that it leaves from; "": its tenant's
	APIKey  string   // the name of the API key that submitted it; "" for none
	TraceID string   // of the trace that its request belonged to (W3C Trace Context), 32 hex digits; "" for none
	// Detour is that of the recipients that are being sent together. The queue keeps it with each recipient.
	Detour Detour

	Received time.Time      // when it was accepted
	Peer     netip.AddrPort // who submitted it; zero for the relay's own mail
	HeloName string         // what the peer called itself
	Session  string         // the submission session's id
	Protocol string         // as in Received: "with" (RFC 3848): ESMTP, ESMTPS, UTF8SMTP, HTTP, or one of the following
}

// Fields by which a sender asks for what few messages have, so that it is kept with the marks.
const (
	TimezoneField = "X-MTA-Timezone" // the recipients' time zone, as Europe/Berlin
	PaceField     = "X-MTA-Pace"     // of the campaign, as 10000/h
)

// MarkOf is the mark of a field that has a value.
func MarkOf(field, value string) string { return strings.ToLower(field) + ": " + value }

// Asked returns the value that was asked for in a field, "" without one.
func (m *Message) Asked(field string) (value string) {
	for _, mark := range m.Marks {
		if v, ok := strings.CutPrefix(mark, MarkOf(field, "")); ok {
			value = v // the last: a selector that names the field has made its mark first
		}
	}
	return value
}

// Protocols of mail that nobody has submitted: reports, which the relay makes itself, and inbound mail of strangers,
// which it forwards.
const (
	LocalProtocol   = "local"
	ForwardProtocol = "forward"
)

// Generated reports whether the message begins at the relay: nobody has submitted it.
func (m *Message) Generated() bool { return m.Protocol == LocalProtocol || m.Forwarded() }

// Forwarded reports whether the message is inbound mail. A stranger has written it, and its From proves nothing.
func (m *Message) Forwarded() bool { return m.Protocol == ForwardProtocol }
