package inbox

import (
	"cmp"
	"slices"

	"example.org/mta/bounce"
	"example.org/mta/bounce/report"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// RecordKind is what a record is of.
type RecordKind uint8

const (
	OutOfBand      RecordKind = iota // a recipient failed after the message was taken
	Complaint                        // a recipient calls the message spam
	Unsubscription                   // a recipient wants no more mail
)

// Record is what is written down of a report, for one recipient.
type Record struct {
	Kind      RecordKind
	Message   *Message         // what is on record of the message; nil when nothing is
	ID        envelope.ID      // of the message, 0 when nobody knows
	Recipient envelope.Address // "" when nobody knows
	Known     *Recipient       // of Message.Recipients; nil: the message never had it, or nobody knows
	About     About
	// Follows is set when something follows for the recipient: the report proves that it is about the message and the
	// recipient, and it counts against the recipient.
	Follows  bool
	Reply    reply.Reply // as reported
	Class    bounce.Class
	Feedback string // a JSON object; "" for none
	// Reporter is the host that wrote the report, as it calls itself, and Mail how it came.
	Reporter string
	Mail     *Mail
}

// key is what two reports of the same fact have in common.
func (r *Record) key() repeat {
	return repeat{r.Kind, r.ID, key(r.Recipient), r.Class, r.Follows, r.Known == nil && r.ID == 0}
}

func (a *arrival) newRecord(kind RecordKind) *Record {
	r := &Record{Kind: kind, Message: a.message, About: a.about, Reporter: a.result.Host, Mail: a.Mail}
	if a.token != nil {
		r.ID = a.token.Message
	}
	return r
}

// bounces makes a record for each recipient that failed. A report that names nobody is about the token's recipient.
func (a *arrival) bounces() (all []*Record) {
	for i := range a.result.Reports {
		p := &a.result.Reports[i]
		if p.Action != report.ActionFailed && p.Action != "" {
			continue
		}
		all = append(all, a.bounce(p))
	}
	if p := a.result.Unnamed; p != nil {
		all = append(all, a.bounce(p))
	}
	if len(all) == 0 {
		all = append(all, a.bounce(&report.Report{Class: bounce.Uncategorized}))
	}
	return bounded(all)
}

// bounded leaves out the records without consequences beyond maxIdle.
func bounded(all []*Record) []*Record {
	idle := 0
	return slices.DeleteFunc(all, func(r *Record) bool {
		if !r.Follows {
			idle++
		}
		return !r.Follows && idle > maxIdle
	})
}

// maxIdle is how many records without consequences one report can have: nobody may fill the log, and the streams of
// events, with recipients that no message ever had.
const maxIdle = 20

// bounce makes the record of a recipient.
func (a *arrival) bounce(p *report.Report) *Record {
	r := a.newRecord(OutOfBand)
	a.concern(r, p.Recipient, p.Final)
	r.Class, r.Reply = p.Class, p.Reply
	if k := r.Known; k != nil && k.Provider != "" && p.Reply.Code != 0 {
		if class := a.cfg.Classify(&p.Reply, k.Provider); class != a.cfg.Classify(&p.Reply, "") {
			r.Class = class // by a rule for the provider, which the reader of reports does not know
		}
	}
	if r.Reply.Enhanced == (reply.Enhanced{}) {
		r.Reply.Enhanced = p.Status
	}
	if r.Reply.Code == 0 {
		r.Reply.Code = 550
		if !p.Hard && p.Status[0] != 5 {
			r.Reply.Code = 450
		}
	}
	r.Reply.Text = cmp.Or(r.Reply.Text, p.Diagnostic)
	return r
}

// complaints makes a record for each recipient who complains. Feedback loops often hide the address, and what they
// return of the header can name a list: then the token's recipient is meant.
func (a *arrival) complaints() (all []*Record) {
	f := a.result.Feedback
	fields := feedbackJSON(f)
	add := func(name string) {
		r := a.newRecord(Complaint)
		a.concern(r, name)
		r.Feedback = fields
		r.Follows = r.Follows && blames(f)
		all = append(all, r)
	}
	if len(a.result.Reports) == 0 || len(f["original-rcpt-to"]) == 0 && a.only() != nil {
		add("")
		return all
	}
	for i := range a.result.Reports[:min(len(a.result.Reports), maxComplaints)] {
		add(a.result.Reports[i].Recipient)
	}
	return bounded(all)
}

// blames reports whether a feedback report says that the recipient does not want the mail. Those of the type not-spam
// (RFC 6430) say the contrary, and those of auth-failure (RFC 6591) nothing about the recipient.
func blames(f report.Feedback) bool { return f.Type() != "not-spam" && f.Type() != "auth-failure" }

// maxComplaints is how many recipients one complaint can have.
const maxComplaints = 100

// concern notes whom a record is about.
func (a *arrival) concern(r *Record, names ...string) {
	if known := a.recipient(names...); known != nil {
		r.Recipient, r.Known, r.Follows = known.Address, known, a.vouches(known)
	} else {
		r.Recipient = firstAddress(names)
	}
	if r.Recipient != "" && !r.Follows && r.About.sure() {
		r.About = ByFields // the token proves the message only
	}
}

func firstAddress(names []string) envelope.Address {
	for _, name := range names {
		if address, err := envelope.ParseAddress(name); err == nil && !address.Null() {
			return address
		}
	}
	return ""
}
