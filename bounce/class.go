// Package bounce knows what refusals mean: whether a reply is about the recipient, the message, the
// host, or about us, who sent it. One answer is a fact about an address to one reader and about this
// relay's standing to another, so all ask here: the accounting log, the back-off rules, the health of
// warm-ups, the suppression list, the reports that come back.
//
// The rules are lines of rules.txt. A Classifier has an operator's rules before them and a memory of
// replies that were seen.
package bounce

import (
	"fmt"

	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
)

// Class is what a refusal is about. The names are KumoMTA's where it has them.
type Class uint8

// None is not a refusal: its name is "".
const None Class = 0

// About us: our addresses, our domains, how much we send, or our mail.
const (
	SpamBlock            Class = iota + 1 // an address, a network or one of our domains is blocked
	RateLimited                           // too much, or too fast
	TooManyConnections                    // at a time
	AuthenticationFailed                  // SPF, DKIM, DMARC
	InvalidSender                         // the sender's address or its domain
	SpamContent                           // the message looks like spam
	SpamRelated                           // spam, without saying whether content or sender
	VirusRelated
	PolicyRelated // any other policy
)

// About the recipient.
const (
	InvalidRecipient Class = iota + PolicyRelated + 1 // there is no such address
	BadDomain                                         // there is no such domain, or it takes no mail
	InactiveMailbox                                   // it is disabled
	QuotaIssues                                       // it is full
	MailboxBusy                                       // it gets too much mail from all sides
)

// About the message, or what was done with the protocol.
const (
	MessageTooLarge Class = iota + MailboxBusy + 1
	ProhibitedAttachment
	ContentRelated    // malformed, or otherwise not acceptable
	TooManyRecipients // in one transaction
	ProtocolErrors
)

// About the host and the way to it.
const (
	RelayDenied Class = iota + ProtocolErrors + 1 // the host is not in charge of the domain
	RelayingIssues
	RoutingErrors    // no way leads there, or it is a loop
	BadConfiguration // the host is not set up for it
	BadConnection    // the connection broke
	NoAnswerFromHost // nobody is there
	DNSFailure
	HostFailure      // overload, no space, a failed look-up
	Greylisted       // come again (RFC 6647)
	TransientFailure // a temporary refusal without a reason: at the first attempt most often greylisting
)

// Said by this relay.
const (
	MessageExpired Class = iota + TransientFailure + 1 // too old
	Suppressed                                         // the address is on the suppression list
	Administrative                                     // removed by an operator, or cancelled by its sender
	LocalFailure                                       // its disk, its configuration, its stop
)

// What comes back and is not a failure, and what no rule knows.
const (
	AutoReply Class = iota + LocalFailure + 1
	ChallengeResponse
	Subscribe
	Unsubscribe
	Uncategorized
	classes // how many there are
)

// Classes gives all classes but None, those about one subject side by side.
func Classes() []Class {
	all := make([]Class, 0, classes-1)
	for c := None + 1; c < classes; c++ {
		all = append(all, c)
	}
	return all
}

// Names gives the names of all classes but None.
func Names() []string {
	var names []string
	for _, c := range Classes() {
		names = append(names, c.String())
	}
	return names
}

// String gives the name, "" of None.
func (c Class) String() string { return facts[c].name }

// MarshalText gives the name.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText takes the name of a class.
func (c *Class) UnmarshalText(text []byte) (err error) {
	*c, err = ParseClass(string(text))
	return err
}

// ParseClass reads a name, in exactly the case that String gives.
func ParseClass(name string) (Class, error) {
	for _, c := range Classes() {
		if facts[c].name == name {
			return c, nil
		}
	}
	return None, fmt.Errorf("%q is not a valid class of bounces (want one such as InvalidRecipient)", name)
}

// Bounces reports whether a refusal for good counts as a hard bounce in a warm-up: what no rule knows is most often
// about the address.
func (c Class) Bounces() bool { return c.Hard() || c == InactiveMailbox || c == Uncategorized }

// AboutUs reports whether the refusal is about who sends: other mail of ours will fare likewise.
func (c Class) AboutUs() bool { return c >= SpamBlock && c <= PolicyRelated }

// AboutRecipient reports whether it is about the address that the mail was for.
func (c Class) AboutRecipient() bool { return c >= InvalidRecipient && c <= MailboxBusy }

// Hard reports whether a permanent refusal of that class says that the address will never take mail.
func (c Class) Hard() bool { return c == InvalidRecipient || c == BadDomain }

// Meaning is a phrase for people.
func (c Class) Meaning() string { return facts[c].meaning }

// PowerMTA is the bounce category that PowerMTA would log.
func (c Class) PowerMTA() string { return facts[c].powermta }

// SparkPost is the number that SparkPost gives its bounce classification.
func (c Class) SparkPost() int { return facts[c].sparkpost }

// waits is what mail waits for after a temporary refusal of a class; what has no row is refused for now.
var waits = [classes]parking.Reason{
	SpamBlock: parking.Blocked, RateLimited: parking.Rate, TooManyConnections: parking.Rate,
	AuthenticationFailed: parking.Blocked, InvalidSender: parking.Blocked, SpamContent: parking.Blocked,
	SpamRelated: parking.Blocked, VirusRelated: parking.Blocked, PolicyRelated: parking.Blocked,
	QuotaIssues: parking.Mailbox, MailboxBusy: parking.Mailbox, InactiveMailbox: parking.Mailbox,
	TooManyRecipients: parking.Rate, BadConnection: parking.Unreachable, NoAnswerFromHost: parking.Unreachable,
	DNSFailure: parking.DNS, BadDomain: parking.DNS, RoutingErrors: parking.DNS, Greylisted: parking.Greylisted,
	LocalFailure: parking.Fault,
}

// Waits is what mail waits for after a temporary refusal, given its class.
func (c Class) Waits(r *reply.Reply) parking.Reason {
	switch {
	case r.Local && r.Enhanced[1] == 7 && (c == PolicyRelated || c == BadConfiguration):
		return parking.TLS // RFC 3463, 3.8: what this relay itself demands of a host
	case waits[c] == parking.Unclassed:
		return parking.Refused
	}
	return waits[c]
}

// fact is what the manual says of a class: docs/bounces.md has the same table, and a test compares them.
type fact struct {
	name, meaning, powermta string
	sparkpost               int
}

var facts = [classes]fact{
	None: {},

	SpamBlock:            {"SpamBlock", "an address, a network or one of our domains is blocked", "spam-related", 51},
	RateLimited:          {"RateLimited", "we send too much or too fast", "policy-related", 70},
	TooManyConnections:   {"TooManyConnections", "we have too many connections at a time", "bad-connection", 70},
	AuthenticationFailed: {"AuthenticationFailed", "SPF, DKIM, DMARC or a login failed", "policy-related", 50},
	InvalidSender:        {"InvalidSender", "the sender's address or its domain is not accepted", "invalid-sender", 50},
	SpamContent:          {"SpamContent", "the message looks like spam", "spam-related", 52},
	SpamRelated:          {"SpamRelated", "spam, without saying whether the sender or the content", "spam-related", 50},
	VirusRelated:         {"VirusRelated", "a virus or phishing was found", "virus-related", 52},
	PolicyRelated:        {"PolicyRelated", "any other policy of the host", "policy-related", 50},

	InvalidRecipient: {"InvalidRecipient", "there is no such address", "bad-mailbox", 10},
	BadDomain:        {"BadDomain", "there is no such domain, or it takes no mail", "bad-domain", 10},
	InactiveMailbox:  {"InactiveMailbox", "the mailbox is disabled or abandoned", "inactive-mailbox", 10},
	QuotaIssues:      {"QuotaIssues", "the mailbox is full", "quota-issues", 22},
	MailboxBusy:      {"MailboxBusy", "the mailbox gets too much mail from all sides", "quota-issues", 70},

	MessageTooLarge:      {"MessageTooLarge", "the message is too large", "content-related", 23},
	ProhibitedAttachment: {"ProhibitedAttachment", "an attachment is not allowed", "content-related", 53},
	ContentRelated: {"ContentRelated", "the message is malformed or otherwise not acceptable",
		"content-related", 50},
	TooManyRecipients: {"TooManyRecipients", "too many recipients in one transaction", "policy-related", 70},
	ProtocolErrors:    {"ProtocolErrors", "a command was not understood or out of order", "protocol-errors", 40},

	RelayDenied:    {"RelayDenied", "the host is not in charge of the domain", "relaying-issues", 54},
	RelayingIssues: {"RelayingIssues", "another problem with relaying", "relaying-issues", 54},
	RoutingErrors:  {"RoutingErrors", "no way leads to the recipient, or it is a loop", "routing-errors", 40},
	BadConfiguration: {"BadConfiguration", "the host is not set up for what the message needs",
		"bad-configuration", 40},
	BadConnection:    {"BadConnection", "the connection broke or timed out", "bad-connection", 20},
	NoAnswerFromHost: {"NoAnswerFromHost", "no host of the domain answers", "no-answer-from-host", 20},
	DNSFailure:       {"DNSFailure", "the DNS does not answer", "routing-errors", 21},
	HostFailure:      {"HostFailure", "a problem of the host: overload, no space, a failed look-up", "other", 70},
	Greylisted:       {"Greylisted", "the host asks us to try again later", "other", 70},
	TransientFailure: {"TransientFailure", "a temporary refusal without a reason", "other", 70},

	MessageExpired: {"MessageExpired", "the message was too old", "message-expired", 24},
	Suppressed:     {"Suppressed", "the address is on the suppression list", "other", 25},
	Administrative: {"Administrative", "removed by an operator or cancelled by its sender", "other", 25},
	LocalFailure:   {"LocalFailure", "a problem of this relay: its disk, its configuration", "other", 40},

	AutoReply:         {"AutoReply", "an automatic reply, such as a vacation notice", "other", 60},
	ChallengeResponse: {"ChallengeResponse", "the sender is asked to prove that a person wrote the mail", "other", 100},
	Subscribe:         {"Subscribe", "a request to subscribe", "other", 80},
	Unsubscribe:       {"Unsubscribe", "a request to unsubscribe", "other", 90},
	Uncategorized:     {"Uncategorized", "no rule knows it", "other", 1},
}
