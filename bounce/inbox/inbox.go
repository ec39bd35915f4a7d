// Package inbox takes reports about mail that this relay has sent: bounces, complaints, requests to unsubscribe.
// A report goes through the files in this order:
//
//	address.go   RCPT: what the relay has at the address; a forged or expired token is refused there
//	inbox.go     Take: what kind of report it is, and what follows
//	subject.go   whom it is about, and how sure that is
//	handed.go    reports about mail that another node of a cluster has sent
//	record.go    what is written down of it
//	feedback.go  the fields of a complaint, as JSON
//	repeats.go   reports that came before, or come at the same time
//	folder.go    what is not understood and kept for people
//	forward.go   what is not understood and sent on to people
//
// Reports are believed as far as they prove to be about mail of this relay's. A token that only the relay can have
// made, in the address or in what is returned of the message, is a proof; a Message-ID or an address proves nothing,
// and such a report is written down and nothing else.
//
// No mail is ever sent in reply, and no goroutine is started here.
package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/bounce/report"
	"example.org/mta/bounce/returnpath"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// Mail is what was brought.
type Mail struct {
	Session    string
	Peer       netip.AddrPort
	Helo       string
	Protocol   string
	Sender     envelope.Address
	Recipients []envelope.Address
	Content    []byte // its beginning, as it came
	Size       int64  // octets of the whole
	Time       time.Time
}

func (m *Mail) whole() bool { return m.Size == int64(len(m.Content)) }

// Books know what was sent, and are where reports are written down.
type Books interface {
	// Message returns what is on record of a message, nil when nothing is.
	Message(context.Context, envelope.ID) (*Message, error)
	// Write returns when the records are durable. Some have consequences for their recipients: see Record.Follows.
	Write(context.Context, []*Record) error
	// Unsubscribe returns when the recipient's subscription has durably ended.
	Unsubscribe(context.Context, *Record) error
}

// Config is what an Inbox needs.
type Config struct {
	Hostname string          // of this relay, which its own reports carry
	Node     returnpath.Node // of this relay: it knows nothing of messages that others sent
	// Elsewhere has the node that sent a message take a report about it: see Handed. Nil: there are no other nodes.
	Elsewhere func(context.Context, *Handed) (Outcome, error)
	Keys      func() *returnpath.Keys // in force
	Books     Books
	Folder    *Folder
	// Forward returns when content is in the queue for an address, from the null sender.
	Forward func(ctx context.Context, to envelope.Address, content []byte) error
	// Classify gives the class of a reply of a provider's host; "" is one without a name.
	Classify func(r *reply.Reply, provider string) bounce.Class
	MaxHops  int // Received fields of mail that is forwarded
	Log      *slog.Logger
}

// Inbox takes reports. It is safe for use by many goroutines.
type Inbox struct {
	cfg     Config
	repeats repeats // records from which something follows
	idle    repeats // the others: a sender of many of them must not have the first forgotten
	pending pending
	taken   lately[handing, Outcome] // by other nodes
	counts  counts
}

// New makes an Inbox.
func New(cfg Config) *Inbox { return &Inbox{cfg: cfg} }

// What keeps mail from being taken, beside failures of the disk.
var (
	// ErrTooLarge is of mail that has to be kept or forwarded whole.
	ErrTooLarge = errors.New("inbound mail is too large to be kept")
	// ErrLoop is of mail that was forwarded before.
	ErrLoop = errors.New("inbound mail was here before")
)

// Outcome is what became of inbound mail.
type Outcome string

const (
	Recorded     Outcome = "recorded"     // in the accounting log
	Repeated     Outcome = "repeated"     // was recorded before
	Unsubscribed Outcome = "unsubscribed" // a subscription has ended
	Ignored      Outcome = "ignored"      // nothing follows from its kind
	Own          Outcome = "own"          // a report by this relay: its records have it
	Kept         Outcome = "kept"         // in the folder
	Forwarded    Outcome = "forwarded"
	Failed       Outcome = "failed" // answered with 4xx or 5xx
)

// Take returns when all that follows from mail is durable. at are the addresses of the listener that took it, where
// mail that is not understood goes to forward, or is kept when that is "". Each address to unsubscribe is taken apart:
// its token ends one subscription, whatever else the mail is. One that is repeated counts once.
func (b *Inbox) Take(ctx context.Context, at *Addresses, forward envelope.Address, m *Mail) error {
	others := *m
	others.Recipients = nil
	wishes := make(map[returnpath.Token]bool)
	for _, rcpt := range m.Recipients {
		place, err := at.Find(rcpt, b.cfg.Keys(), m.Time)
		if err != nil || place.Purpose != report.Unsubscription {
			others.Recipients = append(others.Recipients, rcpt)
			continue
		}
		if wishes[*place.Token] {
			continue
		}
		wishes[*place.Token] = true
		wish := *m
		wish.Recipients = []envelope.Address{rcpt}
		if err := b.take(ctx, at, forward, &wish); err != nil {
			return err
		}
	}
	if len(others.Recipients) == 0 {
		return nil
	}
	return b.take(ctx, at, forward, &others)
}

func (b *Inbox) take(ctx context.Context, at *Addresses, forward envelope.Address, m *Mail) error {
	a := &arrival{Inbox: b, Mail: m, forward: forward}
	a.locate(at)
	a.read()
	return a.settle(ctx)
}

func (a *arrival) read() {
	a.result = report.Read(a.Content, report.Options{
		Purpose:  a.purpose,
		Classify: func(r *reply.Reply, _ string) bounce.Class { return a.cfg.Classify(r, "") },
	})
}

// settle acts on the report, and counts what became of it.
func (a *arrival) settle(ctx context.Context) error {
	outcome, err := a.act(ctx)
	if err != nil {
		outcome = Failed
	}
	a.counts.add(a.result.Kind, outcome)
	a.log(ctx, outcome, err)
	return err
}

func (a *arrival) log(ctx context.Context, outcome Outcome, err error) {
	a.cfg.Log.LogAttrs(ctx, slog.LevelDebug, "inbound mail", slog.String("session", a.Session),
		slog.Any("peer", a.Peer),
		slog.String("kind", a.result.Kind.String()), slog.String("outcome", string(outcome)),
		slog.String("about", string(a.about)), slog.Bool("by_node", a.handed), slog.Any("error", err))
}

// arrival is one mail on its way through.
type arrival struct {
	*Inbox
	*Mail
	forward envelope.Address
	handed  bool // by another node, which keeps what people have to look at
	purpose report.Purpose
	result  *report.Result
	subject
}

// locate notes what the recipients are for. Of several with a token the first counts: hosts that write reports
// send one for each return path.
func (a *arrival) locate(at *Addresses) {
	for _, rcpt := range a.Recipients {
		place, err := at.Find(rcpt, a.cfg.Keys(), a.Time)
		if err != nil {
			continue // it was good at RCPT, and a reload came between
		}
		if a.purpose == report.AnyReport {
			a.purpose = place.Purpose
		}
		if place.Token != nil && a.token == nil {
			a.token, a.about = place.Token, ByToken
		}
	}
}

// act does what a report of its kind asks for.
func (a *arrival) act(ctx context.Context) (Outcome, error) {
	if a.own() {
		return Own, nil
	}
	if err := a.find(ctx); err != nil {
		return "", err
	}
	if a.token != nil && a.message == nil && a.cfg.Elsewhere != nil && a.matters() {
		if outcome, err := a.elsewhere(ctx); outcome != "" || err != nil {
			return outcome, err
		}
	}
	return a.follow(ctx)
}

// own reports whether this relay has written the report.
func (a *arrival) own() bool {
	return a.result.Host != "" && strings.EqualFold(a.result.Host, a.cfg.Hostname)
}

// follow does what a report asks for whose message was looked up.
func (a *arrival) follow(ctx context.Context) (Outcome, error) {
	switch r := a.result; r.Kind {
	case report.Bounce:
		return a.record(ctx, a.bounces())
	case report.Complaint:
		return a.record(ctx, a.complaints())
	case report.Unsubscribe:
		return a.unsubscribe(ctx)
	case report.Other:
		if r.Feedback != nil { // not-spam, say
			return a.record(ctx, a.complaints())
		}
		return a.keep(ctx)
	}
	return Ignored, nil
}

// record writes down what was not written down before.
func (a *arrival) record(ctx context.Context, all []*Record) (Outcome, error) {
	keys := make([]repeat, len(all))
	for i, r := range all {
		keys[i] = r.key()
	}
	end, err := a.begin(ctx, keys...)
	if err != nil {
		return "", err
	}
	defer end()
	var fresh []*Record
	for _, r := range all {
		if !a.memory(r).known(r.key()) {
			fresh = append(fresh, r)
		}
	}
	if len(fresh) == 0 {
		return Repeated, nil
	}
	if err := a.cfg.Books.Write(ctx, fresh); err != nil {
		return "", fmt.Errorf("recording a report: %w", err)
	}
	for _, r := range fresh {
		a.memory(r).note(r.key())
	}
	return Recorded, nil
}

// begin waits until no other report with one of the keys is being written down, and holds up those that come until
// end is called.
func (b *Inbox) begin(ctx context.Context, keys ...repeat) (end func(), err error) {
	if end, err = b.pending.begin(ctx, keys); err != nil {
		return nil, fmt.Errorf("the same report is being recorded: %w", err)
	}
	return end, nil
}

// memory is where a record is remembered.
func (b *Inbox) memory(r *Record) *repeats {
	if r.Follows {
		return &b.repeats
	}
	return &b.idle
}

// unsubscribe ends the subscription of the recipient whom the token names. Without one a person has to look.
func (a *arrival) unsubscribe(ctx context.Context) (Outcome, error) {
	var names []string
	for i := range a.result.Reports {
		names = append(names, a.result.Reports[i].Recipient)
	}
	rcpt := a.only() // people write from other addresses than the one that got the mail
	if rcpt == nil {
		rcpt = a.recipient(names...)
	}
	if !a.vouches(rcpt) {
		return a.keep(ctx)
	}
	rec := a.newRecord(Unsubscription)
	rec.Recipient, rec.Known, rec.Follows = rcpt.Address, rcpt, true
	end, err := a.begin(ctx, rec.key())
	if err != nil {
		return "", err
	}
	defer end()
	if a.repeats.known(rec.key()) {
		return Repeated, nil
	}
	if err := a.cfg.Books.Unsubscribe(ctx, rec); err != nil {
		return "", fmt.Errorf("ending a subscription: %w", err)
	}
	a.repeats.note(rec.key())
	return Unsubscribed, nil
}

// keep hands what is not understood to people.
func (a *arrival) keep(ctx context.Context) (Outcome, error) {
	if a.handed {
		return Kept, nil
	}
	if !a.whole() {
		return "", ErrTooLarge
	}
	if a.forward != "" {
		content, err := a.forwarded()
		if err != nil {
			return "", err
		}
		if err := a.cfg.Forward(ctx, a.forward, content); err != nil {
			return "", fmt.Errorf("forwarding inbound mail: %w", err)
		}
		return Forwarded, nil
	}
	head := headOf(a.Content)
	k := KeptMail{
		Time: a.Time, Kind: a.result.Kind.String(), Sender: a.Sender, Recipients: a.Recipients,
		Helo: a.Helo, Size: a.Size,
		From: field(head, "From"), Subject: field(head, "Subject"),
	}
	if a.Peer.IsValid() {
		k.Peer = a.Peer.Addr().String()
	}
	if a.token != nil {
		k.Message = a.token.Message.String()
	}
	if err := a.cfg.Folder.Add(&k, a.Content); err != nil {
		return "", fmt.Errorf("keeping inbound mail: %w", err)
	}
	return Kept, nil
}

// Counted is what mail has in common that is counted together.
type Counted struct {
	Kind    report.Kind
	Outcome Outcome
}

// counts counts inbound mail since the start.
type counts struct {
	mu sync.Mutex // guards by
	by map[Counted]int64
}

func (c *counts) add(k report.Kind, o Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = make(map[Counted]int64)
	}
	c.by[Counted{k, o}]++
}

// Counts returns how much mail came in since the start.
func (b *Inbox) Counts() map[Counted]int64 {
	b.counts.mu.Lock()
	defer b.counts.mu.Unlock()
	out := make(map[Counted]int64, len(b.counts.by))
	maps.Copy(out, b.counts.by)
	return out
}
