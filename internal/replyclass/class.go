// Package replyclass says what a refusal is about: the recipient, the message, the host's own
// trouble, or us, who sent it. The same answer is a fact about an address to one reader and about
// this relay's standing to another, so all of them ask here: the back-off rules, the health of
// warm-ups, the suppression list.
//
// A reply is judged by the marks of providers and block lists and by the words for a block first (a
// 5.1.1 that names a block list is a block), then by its enhanced status, its other words, and last by
// what it answers.
package replyclass

import (
	"strings"

	"example.org/mta/internal/reply"
)

// Class is what a reply is about. The names are KumoMTA's where it has them.
type Class uint8

const (
	Uncategorized Class = iota // nothing is known of it
	Delivered
	Ours // said by this relay

	// About us: our addresses, domains, volume or mail.

	SpamBlock            // an address, a network or a domain of ours is blocked
	RateLimited          // too much, or too fast
	TooManyConnections   // at a time
	AuthenticationFailed // SPF, DKIM, DMARC
	SpamContent          // the message looks like spam
	PolicyRelated        // any other policy

	// About the recipient.

	InvalidRecipient // there is no such address
	InactiveMailbox  // it is disabled
	QuotaIssues      // it is full
	MailboxBusy      // it gets too much mail from all sides

	// About the message, or what we did with the protocol.

	MessageRefused    // too large, or badly formed
	TooManyRecipients // in one transaction
	ProtocolErrors
	RelayDenied // the host is not in charge of the domain

	// About the host.

	HostTrouble
	Greylisted  // come again (RFC 6647)
	Unexplained // a temporary refusal without a reason: at the first attempt most often greylisting
)

var names = [...]string{"Uncategorized", "Delivered", "Ours", "SpamBlock", "RateLimited", "TooManyConnections", "AuthenticationFailed",
	"SpamContent", "PolicyRelated", "InvalidRecipient", "InactiveMailbox", "QuotaIssues", "MailboxBusy", "MessageRefused",
	"TooManyRecipients", "ProtocolErrors", "RelayDenied", "HostTrouble", "Greylisted", "Unexplained"}

// String gives the name.
func (c Class) String() string { return names[c] }

// AboutUs reports whether the refusal is about who sends: other mail of ours will fare likewise.
func (c Class) AboutUs() bool { return c >= SpamBlock && c <= PolicyRelated }

// AboutRecipient reports whether it is about the address that the mail was for.
func (c Class) AboutRecipient() bool { return c >= InvalidRecipient && c <= MailboxBusy }

// Of classifies a reply.
func Of(r reply.Reply) Class {
	switch {
	case r.OK():
		return Delivered
	case r.Local:
		return Ours
	}
	text := plain(r.Text)
	if c, ok := byMark(&r, text); ok {
		return c
	}
	if has(text, blocked) {
		return SpamBlock
	}
	if c, ok := byStatus(&r); ok {
		return c
	}
	if c, ok := byWords(text); ok {
		return c
	}
	return byCode(&r)
}

// plain gives a text in lower case and on one line, without addresses: <spamhaus@example.com> is no
// block list.
func plain(text string) string {
	text = strings.ToLower(strings.ReplaceAll(text, "\n", " "))
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "<")
		inside, after, closed := strings.Cut(rest, ">")
		if !found || !closed {
			break
		}
		b.WriteString(before)
		if !strings.Contains(inside, "@") {
			b.WriteString("<" + inside + ">")
		}
		text = after
	}
	b.WriteString(text)
	return b.String()
}

// byStatus knows the enhanced codes that leave no doubt (RFC 3463). Those of 7, policy, are said of
// much that has a word for it, and wait for their turn.
func byStatus(r *reply.Reply) (Class, bool) {
	permanent := r.Permanent()
	either := func(then, now Class) (Class, bool) {
		if permanent {
			return then, true
		}
		return now, true
	}
	switch e := r.Enhanced; [2]uint16{e[1], e[2]} {
	case [2]uint16{1, 1}, [2]uint16{1, 2}, [2]uint16{1, 3}, [2]uint16{1, 6}, [2]uint16{1, 10}:
		return either(InvalidRecipient, HostTrouble) // a temporary one is a look-up that failed
	case [2]uint16{1, 7}, [2]uint16{1, 8}:
		return PolicyRelated, true // it is the sender's address
	case [2]uint16{2, 1}:
		return either(InactiveMailbox, MailboxBusy)
	case [2]uint16{2, 2}:
		return QuotaIssues, true
	case [2]uint16{2, 3}, [2]uint16{3, 4}:
		return MessageRefused, true
	case [2]uint16{5, 3}:
		return TooManyRecipients, true
	}
	return Uncategorized, false
}

// byCode decides when neither mark nor word does.
func byCode(r *reply.Reply) Class {
	session := false
	switch r.Command {
	case "connect", "greeting", "EHLO", "STARTTLS", "AUTH":
		session = true
	}
	switch e := r.Enhanced; e[1] {
	case 1:
		if r.Permanent() {
			return InvalidRecipient
		}
		return HostTrouble
	case 2:
		if r.Permanent() {
			return InactiveMailbox
		}
		return Unexplained
	case 3, 4:
		return HostTrouble
	case 5:
		return ProtocolErrors
	case 6:
		return MessageRefused
	case 7:
		if (r.Code == 450 || r.Code == 451) && e[2] == 1 && !session {
			return Unexplained
		}
		return PolicyRelated
	}
	switch {
	case r.Permanent() && r.Command == "RCPT", r.Permanent() && r.Command == "":
		return Uncategorized
	case r.Permanent(): // a host that has heard of no recipient, or of all of them, doesn't mean the address
		return PolicyRelated
	case (r.Code == 450 || r.Code == 451) && !session:
		return Unexplained
	}
	return HostTrouble
}
