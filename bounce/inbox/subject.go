package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/mta/bounce/returnpath"
	"example.org/mta/internal/envelope"
)

// About is how it is known which message a report is about.
type About string

// The ways, the surest first.
const (
	ByToken     About = "token"          // in the address that the report came to
	ByReturned  About = "returned_token" // in what the report returns of the message
	ByMessageID About = "message_id"     // the report names it; anybody who knows it can
	ByFields    About = "fields"         // there are addresses at best
)

// sure reports whether nobody but a host that had the message can have written the report.
func (a About) sure() bool { return a == ByToken || a == ByReturned }

// Message is what is on record of a message that was sent.
type Message struct {
	ID       envelope.ID
	Sender   envelope.Address
	Created  time.Time
	Size     int64
	User     string
	Key      string
	Tenant   string
	Campaign string
	Tags     []string
	Meta     string // a JSON object, "" for none
	Headers  string // likewise
	// Recipients are in the order of the envelope.
	Recipients []Recipient
}

// Recipient is what is on record of one.
type Recipient struct {
	Address   envelope.Address
	Provider  string
	Site      string
	Pool      string    // of its source
	Source    string    // from which it was delivered
	Delivered time.Time // zero: it was not
}

// subject is what a report is about.
type subject struct {
	about   About
	token   *returnpath.Token // genuine; nil without one
	message *Message          // nil when nothing is on record
}

// find looks up the message.
func (a *arrival) find(ctx context.Context) error {
	for _, text := range a.result.Tokens {
		if a.token != nil {
			break
		}
		t, err := a.cfg.Keys().Read(returnpath.Bounce, text, a.Time)
		if errors.Is(err, returnpath.ErrForged) {
			t, err = a.cfg.Keys().Read(returnpath.Unsubscribe, text, a.Time) // of List-Unsubscribe
		}
		if err == nil {
			a.token, a.about = &t, ByReturned
		}
	}
	switch {
	case a.token != nil && a.token.Node != a.cfg.Node:
		// Relays that share a secret can make the same message ids: this one's message is another.
	case a.token != nil:
		m, err := a.cfg.Books.Message(ctx, a.token.Message)
		if err != nil {
			return fmt.Errorf("looking up the records of message %v: %w", a.token.Message, err)
		}
		a.message = m
	case a.result.Original.MessageID != "":
		a.about = ByMessageID
	default:
		a.about = ByFields
	}
	return nil
}

// only returns the recipient that the token names, or the only one that the message has; nil when there is none.
func (s *subject) only() *Recipient {
	if s.message == nil || s.token == nil {
		return nil
	}
	all := s.message.Recipients
	switch i := s.token.Recipient; {
	case 0 <= i && i < len(all):
		return &all[i]
	case i == returnpath.NoRecipient && len(all) == 1:
		return &all[0]
	}
	return nil
}

// recipient returns the recipient of the message that a report is about, given the addresses by which the report
// names it. It is nil when the message never had such a recipient, or the report names nobody and the token neither.
func (s *subject) recipient(names ...string) *Recipient {
	named := false
	for _, name := range names {
		address, err := envelope.ParseAddress(name)
		if err != nil || address.Null() {
			continue
		}
		named = true
		if r := s.has(address); r != nil {
			return r
		}
	}
	if named {
		return nil
	}
	return s.only()
}

// vouches reports whether the token proves a report about a recipient of the message. One that names a recipient went
// out to that one alone, who must not speak for the others.
func (s *subject) vouches(r *Recipient) bool {
	return r != nil && s.about.sure() && (s.token.Recipient == returnpath.NoRecipient || r == s.only())
}

// has returns the recipient of the message at an address. The token's own comes first where it has the address, too.
func (s *subject) has(address envelope.Address) *Recipient {
	if s.message == nil {
		return nil
	}
	want := key(address)
	if r := s.only(); r != nil && key(r.Address) == want {
		return r
	}
	for i := range s.message.Recipients {
		if r := &s.message.Recipients[i]; key(r.Address) == want {
			return r
		}
	}
	return nil
}
