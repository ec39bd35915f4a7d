package events

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"example.org/mta/mta/accounting"
)

// SendGrid writes events as SendGrid's event webhook does, so that programs made for SendGrid learn the fate of mail.
// Records have to be parsed for it, which costs a few microseconds for each.
type SendGrid struct{}

// ContentType is SendGrid's.
func (SendGrid) ContentType() string { return "application/json" }

// Encode appends a JSON array of the events that SendGrid has a name for. It appends nothing when the batch has
// none of them.
func (SendGrid) Encode(to []byte, b *Batch) ([]byte, error) {
	start := len(to)
	for i := range b.Events {
		e := &b.Events[i]
		if _, known := names[e.Type]; !known {
			continue
		}
		before := len(to)
		if before == start {
			to = append(to, '[')
		} else {
			to = append(to, ',')
		}
		var err error
		if to, err = appendEvent(to, e); err != nil {
			// it will be no better next time
			return to[:start], &Rejected{Reason: fmt.Sprintf("event %s: %v", e.ID, err)}
		}
		if len(to) == before+1 { // left out
			to = to[:before]
		}
	}
	if len(to) > start {
		to = append(to, ']')
	}
	return to, nil
}

// names are SendGrid's of the types of records. A Bounce of a suppressed recipient is "dropped", too.
var names = map[string]string{
	"Reception":        "processed",
	"Delivery":         "delivered",
	"TransientFailure": "deferred",
	"Bounce":           "bounce",
	"Expiration":       "bounce",
	"OOB":              "bounce",
	"AdminBounce":      "dropped",
	"Cancellation":     "dropped",
	"Feedback":         "spamreport",
	"Unsubscribe":      "unsubscribe",
}

// record is a record with SendGrid's words for it.
type record struct{ *accounting.Record }

// certain reports whether SendGrid's clients may believe the record: they stop mail to the address of a bounce or a
// spamreport, and anybody can write a report about anybody. Reports of the types not-spam (RFC 6430) and auth-failure
// (RFC 6591) are no complaints.
func (r record) certain() bool {
	if r.MatchedBy == accounting.ByMessageID || r.MatchedBy == accounting.ByFields || r.Recipient == "" {
		return false
	}
	if r.Report == "" {
		return true
	}
	kind := r.FeedbackType()
	return kind != "not-spam" && kind != "auth-failure"
}

// appendEvent writes one event as an object, or nothing when SendGrid would not have it.
func appendEvent(to []byte, e *Event) ([]byte, error) {
	parsed, err := accounting.Parse(e.Line)
	if err != nil {
		return to, err
	}
	r := record{parsed}
	if !r.certain() {
		return to, nil
	}
	o := begin(to)
	o.text("email", string(r.Recipient))
	o.number("timestamp", r.Time.Unix())
	o.text("sg_event_id", e.ID)
	o.text("sg_message_id", e.Message)
	o.filled("smtp-id", messageID(r.Headers))
	o.category(r.Tags)
	o.filled("marketing_campaign_name", r.Campaign)
	name := names[e.Type]
	if e.Type == "Bounce" && r.suppressed() {
		name = "dropped"
	}
	o.text("event", name)
	switch name {
	case "processed":
		o.pool(r.EgressPool)
		if !r.Release.IsZero() {
			o.number("send_at", r.Release.Unix())
		}
	case "delivered":
		o.text("response", r.reply())
		o.connection(r)
	case "deferred":
		o.text("response", r.reply())
		o.text("attempt", strconv.Itoa(r.Attempts)) // SendGrid has a string here
		o.connection(r)
	case "dropped":
		o.text("reason", r.dropReason())
	case "bounce":
		o.bounce(e.Type, r)
	}
	if err := o.arguments(r.Meta); err != nil {
		return to, fmt.Errorf("read meta: %w", err)
	}
	return append(o.b, '}'), nil
}

// reply is the host's reply as SMTP has it, on one line.
func (r record) reply() string {
	b := strconv.AppendInt(nil, int64(r.Response.Code), 10)
	if r.Response.Enhanced[0] != 0 {
		b = append(append(b, ' '), r.status()...)
	}
	if r.Response.Text != "" {
		b = append(append(b, ' '), r.Response.Text...)
	}
	return string(bytes.ReplaceAll(b, []byte{'\n'}, []byte{' '}))
}

// status is the enhanced code, or the simple one where there is no other.
func (r record) status() string {
	if s := r.Response.Enhanced; s[0] != 0 {
		return s.String()
	}
	return strconv.Itoa(r.Response.Code)
}

// messageID is the value of the field Message-ID, if the log is set to copy it.
func messageID(headers accounting.Object) string {
	if headers == "" {
		return ""
	}
	var fields map[string]any
	if json.Unmarshal([]byte(headers), &fields) != nil {
		return ""
	}
	for name, value := range fields {
		if text, ok := value.(string); ok && strings.EqualFold(name, "Message-ID") {
			return text
		}
	}
	return ""
}
