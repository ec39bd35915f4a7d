package events

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

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
	_, first, moved := strings.Cut(r.MovedFrom, "/")
	if !r.certain() || moved && r.Type == accounting.Reception { // the relay that accepted it has reported that
		return to, nil
	}
	o := begin(to)
	o.text("email", string(r.Recipient))
	o.number("timestamp", r.Time.Unix())
	o.text("sg_event_id", e.ID)
	o.text("sg_message_id", cmp.Or(first, e.Message))
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

// bounce writes how a recipient failed.
func (o *object) bounce(recordType string, r record) {
	o.text("reason", r.reply())
	o.text("status", r.status())
	o.text("type", r.kind(recordType))
	o.text("bounce_classification", r.classification())
	o.connection(r)
}

// kind reports whether the address is at fault ("bounce": it should get no more mail), or something that can pass.
func (r record) kind(recordType string) string {
	switch {
	case recordType == "Expiration":
		return "expired"
	case r.Class != "":
		if classes[r.Class] == invalidAddress {
			return "bounce"
		}
	case r.Response.Enhanced[0] == 5 && r.Response.Enhanced[1] == 1:
		return "bounce"
	}
	return "blocked"
}

// classification is SendGrid's word for the record's class.
func (r record) classification() string {
	if c, ok := classes[r.Class]; ok {
		return c
	}
	return unclassified
}

// SendGrid's classifications.
const (
	invalidAddress     = "Invalid Address"
	mailboxUnavailable = "Mailbox Unavailable"
	reputation         = "Reputation"
	content            = "Content"
	frequency          = "Frequency or Volume Too High"
	technical          = "Technical Failure"
	unclassified       = "Unclassified"
)

// classes are SendGrid's of ours (docs/bounces.md); the others are unclassified.
var classes = map[string]string{
	"InvalidRecipient": invalidAddress,
	"BadDomain":        invalidAddress,

	"InactiveMailbox": mailboxUnavailable,
	"QuotaIssues":     mailboxUnavailable,
	"MailboxBusy":     mailboxUnavailable,

	"SpamBlock":            reputation,
	"AuthenticationFailed": reputation,
	"InvalidSender":        reputation,
	"PolicyRelated":        reputation,

	"SpamContent":          content,
	"SpamRelated":          content,
	"VirusRelated":         content,
	"ContentRelated":       content,
	"ProhibitedAttachment": content,
	"MessageTooLarge":      content,

	"RateLimited":        frequency,
	"TooManyConnections": frequency,
	"TooManyRecipients":  frequency,

	"BadConfiguration": technical,
	"BadConnection":    technical,
	"DNSFailure":       technical,
	"Greylisted":       technical,
	"HostFailure":      technical,
	"LocalFailure":     technical,
	"MessageExpired":   technical,
	"NoAnswerFromHost": technical,
	"ProtocolErrors":   technical,
	"RelayDenied":      technical,
	"RelayingIssues":   technical,
	"RoutingErrors":    technical,
	"TransientFailure": technical,
}

// suppressed reports whether this relay kept the mail from going out since the recipient is on the suppression list.
func (r record) suppressed() bool {
	return r.Class == "Suppressed" || r.Response.Local && strings.HasPrefix(r.Response.Text, suppressedText)
}

// suppressedText begins this relay's reply for a suppressed recipient.
const suppressedText = "address is suppressed"

// dropReason is SendGrid's phrase where it has one, and otherwise the reply.
func (r record) dropReason() string {
	if !r.suppressed() {
		return r.reply()
	}
	_, why, _ := strings.Cut(r.Response.Text, ": ")
	why = strings.ToLower(why)
	switch {
	case strings.Contains(why, "unsubscribe"):
		return "Unsubscribed Address"
	case strings.Contains(why, "complain"), strings.Contains(why, "by spam"):
		return "Spam Reporting Address"
	case strings.HasPrefix(why, "5"), strings.Contains(why, "bounce"), strings.Contains(why, "by report"):
		return "Bounced Address"
	}
	return r.reply()
}

// object writes the members of a JSON object.
type object struct{ b []byte }

// begin returns an object that is appended to to.
func begin(to []byte) *object { return &object{append(to, '{')} }

func (o *object) key(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(AppendString(o.b, name), ':')
}

func (o *object) text(name, value string) {
	o.key(name)
	o.b = AppendString(o.b, value)
}

// filled writes a text unless it is empty.
func (o *object) filled(name, value string) {
	if value != "" {
		o.text(name, value)
	}
}

func (o *object) number(name string, value int64) {
	o.key(name)
	o.b = strconv.AppendInt(o.b, value, 10)
}

// category writes the message's labels: one as a text, several as a list.
func (o *object) category(tags []string) {
	switch len(tags) {
	case 0:
		return
	case 1:
		o.text("category", tags[0])
		return
	}
	o.key("category")
	list := byte('[')
	for _, tag := range tags {
		o.b = AppendString(append(o.b, list), tag)
		list = ','
	}
	o.b = append(o.b, ']')
}

// pool writes the source pool.
func (o *object) pool(name string) {
	if name == "" {
		return
	}
	o.key("pool")
	o.b = append(AppendString(append(o.b, `{"name":`...), name), '}')
}

// connection writes what is known of the connection to the recipient's host.
func (o *object) connection(r record) {
	if r.Local.Addr().IsValid() {
		o.text("ip", r.Local.Addr().String())
	}
	if r.TLS.Version == "" {
		o.number("tls", 0)
	} else {
		o.number("tls", 1)
	}
}

// arguments writes the sender's data as members beside the others, as SendGrid does with its unique arguments. Those
// with the name of a member of SendGrid's are left out: a sender's data must not pass for what became of the mail.
func (o *object) arguments(meta accounting.Object) error {
	if meta == "" {
		return nil
	}
	d := jsontext.NewDecoder(strings.NewReader(string(meta)))
	if d.PeekKind() != '{' {
		return fmt.Errorf("it is not an object")
	}
	for {
		token, err := d.ReadToken()
		switch {
		case err != nil:
			return err
		case token.Kind() == '{':
			continue
		case token.Kind() == '}':
			return nil
		}
		name := token.String()
		value, err := d.ReadValue()
		if err != nil {
			return err
		}
		if !slices.Contains(members, name) {
			o.key(name)
			o.b = append(o.b, value...)
		}
	}
}

// members are the names that SendGrid's events have.
var members = []string{
	"email", "timestamp", "event", "smtp-id", "category", "sg_event_id", "sg_message_id", "response",
	"attempt", "reason",
	"status", "type", "bounce_classification", "ip", "tls", "cert_err", "pool", "send_at", "asm_group_id",
	"useragent", "url",
	"url_offset", "marketing_campaign_id", "marketing_campaign_name", "sg_template_id",
	"sg_template_name", "unique_args",
	"sg_machine_open", "sg_content_type", "post_type",
}
