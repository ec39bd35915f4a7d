package intake

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// Filter decides on complete messages, and can change them. It is called by many goroutines.
type Filter interface {
	// For reports whether Filter is asked about the mail of a tenant, "" for none.
	For(tenant string) bool
	// Filter returns what becomes of a message, in bounded time. It can replace Header and Body.
	Filter(context.Context, *Filtered) Verdict
}

// Filtering has messages decided on by a Filter.
type Filtering struct {
	// Filter is asked about complete messages, which stay in memory until then. Nil: nothing is filtered.
	Filter Filter
	// Discard removes a message that was accepted, and is held. It is needed with a Filter.
	Discard func(envelope.ID)
}

// Filtered is a message as a Filter gets it.
type Filtered struct {
	ID         string // of the transaction, as in Received
	Hostname   string // of this relay
	Client     *Client
	Tenant     string
	Sender     envelope.Address
	Recipients []envelope.Recipient
	// Header has the fields without this relay's Received, each with its CRLF.
	Header  []byte
	Body    []byte // lines end in CRLF
	Changed bool   // by the Filter
	Limits  Limits
	// Unfit returns why a header section that a Filter has made can't be sent, nil if it can.
	Unfit func(header []byte) error

	foreign *ForeignFields
	// Take asks for memory for so many octets more, which is given back with the message. False: there is none.
	Take func(octets int64) bool
}

// Verdict is what becomes of a message. The zero Verdict lets it pass.
type Verdict struct {
	Refused *reply.Reply
	Held    *reply.Reply // why an operator is to look at it: it stays in the queue until then
	// Discarded says that the message is accepted, and removed from the queue, where it is Held.
	Discarded bool
}

// Holder is a Draft that can be held.
type Holder interface {
	// Hold has the message enter the queue held, for a reason. Released, it is due at a time, the zero time for at
	// once. It comes before the commit.
	Hold(recipients int, due time.Time, why reply.Reply)
}

// Normalise makes lines end in CRLF, the last one, too, and reports whether b can be a message's body.
func Normalise(b []byte, maxLine int) ([]byte, bool) {
	k := checker{newlines: NormaliseBareNewlines, maxLine: maxLine, endsCRLF: true}
	if b = k.pass(b); !k.endsCRLF {
		b = append(b, crlf...)
	}
	return b, k.verdict() == nil
}

// Filtered reports whether End will wait for the Filter.
func (m *Message) Filtered() bool { return m.content != nil && m.content.filtered }

// ownPatterns are the fields that are addressed to this relay, or to the next (RFC 6758).
var ownPatterns = FieldPatterns{"X-MTA-*", "X-Hold-*", "MT-Priority"}

// Own reports whether a header field is addressed to this relay by its clients: a Filter can't write it.
func (f *Filtered) Own(name string) bool {
	return ownPatterns.match([]byte(name)) || new(foreignFields).take(f.foreign, []byte(name), nil) != nil
}

// Traced reports whether a header field is a Received field of this relay: a Filter can't change or delete it, since
// they end mail loops.
func (f *Filtered) Traced(field []byte) bool { return writtenBy(f.Hostname, field) }

// filter asks the Filter, and writes the message to its draft.
func (m *Message) filter(ctx context.Context) {
	x, cfg := m.content, &m.desk.cfg
	whole := x.whole
	x.filtered, x.whole = false, nil
	if m.refused != nil {
		return
	}
	own := 0 // octets of the Received field
	for field := range EachField(x.top) {
		own = len(field)
		break
	}
	f := Filtered{ID: m.id, Hostname: cfg.Hostname, Client: m.client, Tenant: m.account.tenant, Sender: m.Sender,
		Recipients: m.recipients, Limits: cfg.Limits, Take: m.takeMemory, Header: whole[own:],
		foreign: &cfg.Foreign}
	if end := bytes.Index(whole, []byte("\r\n\r\n")); end >= 0 {
		f.Header, f.Body = whole[own:end+len(crlf)], whole[end+2*len(crlf):]
	}
	authors := froms(f.Header)
	f.Unfit = func(header []byte) error {
		if n := froms(header); n != 1 && n != authors { // RFC 5322, 3.6
			return fmt.Errorf("it makes a message with %d From fields", n)
		}
		if cfg.Unsignable == nil {
			return nil
		}
		if err := cfg.Unsignable(f.Tenant, header); err != nil { // it would wait for a signature until it expires
			return fmt.Errorf("it makes a message that can't be signed: %w", err)
		}
		return nil
	}
	v := cfg.Filter.Filter(ctx, &f)
	switch {
	case v.Refused != nil:
		m.reject(v.Refused)
		return
	case f.Changed:
		var fields Fields
		for field := range EachField(f.Header) {
			name, _, _ := envelope.CutField(field)
			fields |= fieldsNamed(name)
		}
		t := m.trace(fields) // Date and Message-ID are written anew, as those of Config.Remove
		whole = append(append(append(t.append(nil), f.Header...), crlf...), f.Body...)
		x.header.text, x.check.eightBit = append(f.Header[:len(f.Header):len(f.Header)], crlf...), hasEightBit(whole)
	}
	if v.Held != nil {
		h, can := x.draft.(Holder)
		if !can {
			m.reject(storeFailed.Refusal())
			return
		}
		h.Hold(len(m.recipients), x.releaseAt, *v.Held)
		x.discarded = v.Discarded
	}
	m.store(whole)
}

// froms counts the From fields of a header section.
func froms(header []byte) (n int) {
	for field := range EachField(header) {
		if name, _, _ := envelope.CutField(field); bytes.EqualFold(name, []byte("From")) {
			n++
		}
	}
	return n
}

// takeMemory holds so many octets more against the budget.
func (m *Message) takeMemory(octets int64) bool {
	if !m.desk.cfg.Memory.Take(octets, usual(m.content.owner)) {
		return false
	}
	m.content.held += octets
	return true
}
