// Package envelope has the words that every part shares: message, recipient, address, id.
// It holds values only: no goroutines, no input or output.
package envelope

import (
	"math/bits"
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
	// for in TimezoneField and PaceField, By, Priority, and MovedFrom.
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

// Detour is the way that an operator has chosen for queued mail, in place of its own. The zero Detour is its own.
type Detour struct {
	Pool  string // the pool of sources that it leaves from; "" is that of its tenant
	Route string // the domain whose route it takes; "" is that of each recipient
}

// IsZero reports whether mail goes its own way.
func (d Detour) IsZero() bool { return d == Detour{} }

// String gives it in words: "pool backup, route of smarthost.example".
func (d Detour) String() string {
	var parts []string
	if d.Pool != "" {
		parts = append(parts, "pool "+d.Pool)
	}
	if d.Route != "" {
		parts = append(parts, "route of "+d.Route)
	}
	return strings.Join(parts, ", ")
}

// MaxSpread is the longest Message.Spread.
const MaxSpread = 24 * time.Hour

// ReleaseOf is when a recipient is released, in whole seconds: Release, and of Spread a part that
// is the recipient's own and stays the same. It is the zero time when the message is not Scheduled.
func (m *Message) ReleaseOf(recipient int) time.Time {
	if !m.Scheduled() {
		return time.Time{}
	}
	return m.Release.Add(time.Duration(m.ID.Jitter(recipient, uint32(m.Spread/time.Second))) * time.Second)
}

// Start is when the message's age begins to count: when it was received or, if it was scheduled
// (RFC 4865), when all of its recipients have been released.
func (m *Message) Start() time.Time {
	switch {
	case !m.Release.IsZero():
		return m.Release.Add(m.Spread)
	case m.Received.IsZero():
		return m.ID.Time()
	}
	return m.Received
}

// Jitter gives a recipient of the message its place in a window of so many seconds: 0 to one below
// the window, evenly over recipients and messages, and the same each time it is asked.
func (id ID) Jitter(recipient int, window uint32) uint32 {
	if window == 0 {
		return 0
	}
	// The finaliser of SplitMix64 over its sequence: neighbours differ in all bits.
	x := uint64(id) + uint64(recipient+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return uint32(x >> 32 * uint64(window) >> 32)
}

// Turns between mail of different tiers: the first tier that has something goes first, and each of the others has a
// share, so that none starves. The owner of a value guards it.

// TierCount is how many tiers there are: 0 matters most, TierCount-1 least.
const TierCount = 6

// TierShare bounds the wait of a tier: while it waits, it gets about one turn in TierShare.
const TierShare = 20

// TierOf returns tier, or the last one for a number that no tier has.
func TierOf(tier uint8) uint8 { return min(tier, TierCount-1) }

// TierSet is some of the tiers.
type TierSet uint8

// With gives s with a tier.
func (s TierSet) With(tier uint8) TierSet { return s | 1<<tier }

// Without gives s without a tier.
func (s TierSet) Without(tier uint8) TierSet { return s &^ (1 << tier) }

// First returns the tier of s that matters most; s must not be empty.
func (s TierSet) First() uint8 { return uint8(bits.TrailingZeros8(uint8(s))) }

// TierTurns keeps track of whose turn it is. The zero value is ready to use.
type TierTurns struct {
	passed [TierCount]uint8 // turns that others had while the tier waited
}

// Next returns the tier whose turn it is among those of waiting, which must not be empty: the first, unless
// others have waited for their share; then the one of these that has waited longest. It changes nothing.
func (t *TierTurns) Next(waiting TierSet) uint8 {
	next := waiting.First()
	longest := uint8(TierShare - 2)
	for tier := next + 1; tier < TierCount; tier++ {
		if waiting&(1<<tier) != 0 && t.passed[tier] > longest {
			next, longest = tier, t.passed[tier]
		}
	}
	return next
}

// Took notes that tier had a turn while the tiers of waiting had something.
func (t *TierTurns) Took(tier uint8, waiting TierSet) {
	for i := range t.passed {
		switch {
		case uint8(i) == tier || waiting&(1<<i) == 0:
			t.passed[i] = 0
		case t.passed[i] < 255:
			t.passed[i]++
		}
	}
}
