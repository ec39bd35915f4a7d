package request

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/legible"
)

// Bounds of a request's parts.
const (
	MaxTags        = 20
	MaxHeaders     = 100
	MaxAttachments = 100
	maxLabel       = 128  // octets of a campaign or a tag
	maxSubject     = 2000 // octets
	maxEnvID       = 100  // octets (RFC 3461, 4.4)
)

// choices lists words for a remedy.
func choices[T any](words map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(words)), " or ")
}

// Check reports what is wrong with a request beyond its form: fields that are missing or exclude each
// other, values out of bounds, and characters that could not stand in a header or an envelope. Pointers
// name the fields of POST /v1/messages. The header fields and attachments are checked in check_parts.go.
func (q *Request) Check(now time.Time, l Limits) Faults {
	c := check{q: q, now: now, limits: l}
	c.people()
	c.content()
	c.schedule()
	c.labels()
	c.reports()
	return c.faults
}

type check struct {
	q      *Request
	now    time.Time
	limits Limits
	faults Faults
}

func (c *check) wrong(pointer, remedy, format string, args ...any) {
	c.faults.add(pointer, remedy, format, args...)
}

// people checks the addresses.
func (c *check) people() {
	q := c.q
	if len(q.From) == 0 && (q.Raw == nil || q.Sender == nil) {
		c.wrong("/from", "add the author's address", "the field from is missing")
	}
	for _, list := range []struct {
		pointer string
		all     []Mailbox
	}{{"/from", q.From}, {"/to", q.To}, {"/cc", q.Cc}, {"/bcc", q.Bcc}, {"/reply_to", q.ReplyTo}} {
		c.mailboxes(list.pointer, list.all)
	}
	if q.Sender != nil {
		c.name("/sender", q.Sender.Name)
	}
	count := len(q.To) + len(q.Cc) + len(q.Bcc)
	switch {
	case q.Recipients == nil && count == 0:
		c.wrong("/to", "add to, cc, bcc or recipients", "the message has no recipients")
	case q.Recipients != nil && count > 0:
		c.wrong("/recipients", "put each address into an element of recipients, or leave recipients out",
			"to, cc and bcc are for one message, recipients for one message each")
	case q.Recipients != nil && q.Raw != nil:
		c.wrong("/recipients", "use to, or send subject, text and html in place of raw",
			"a raw message can't be personalised")
	case q.Recipients != nil && len(q.Recipients) == 0:
		c.wrong("/recipients", "add an element for each recipient", "there are no recipients")
	}
	pointer := "/to"
	for i := range q.Recipients {
		pointer = "/recipients"
		count += len(q.Recipients[i].To)
		c.personal(fmt.Sprintf("/recipients/%d", i), &q.Recipients[i])
	}
	if count > c.limits.Recipients {
		c.wrong(pointer, fmt.Sprintf("send %d at most, and the others in another request", c.limits.Recipients),
			"there are %d addresses", count)
	}
}

func (c *check) personal(pointer string, p *Personal) {
	if len(p.To) == 0 {
		c.wrong(pointer+"/to", "add the recipient's address", "the field to is missing")
	}
	c.mailboxes(pointer+"/to", p.To)
	c.release(pointer+"/send_at", p.SendAt)
}

func (c *check) mailboxes(pointer string, all []Mailbox) {
	for i, m := range all {
		at := fmt.Sprintf("%s/%d", pointer, i)
		c.name(at, m.Name)
		if m.Address.Null() {
			c.wrong(at, mailboxRemedy(""), "the address is missing")
		}
	}
}

func (c *check) name(pointer, name string) {
	if err := checkDisplayName(name); err != nil {
		c.wrong(pointer, "send a name in one line of text", "%v", err)
	}
}

// content checks that there is one content, and one only.
func (c *check) content() {
	q := c.q
	built := []struct {
		pointer string
		there   bool
	}{
		{"/subject", q.Subject != ""}, {"/text", q.Text != ""}, {"/html", q.HTML != ""},
		{"/template", q.Template != ""}, {"/headers", len(q.Headers) > 0}, {"/attachments", len(q.Attachments) > 0},
		{"/reply_to", len(q.ReplyTo) > 0}, {"/data", q.Data != nil},
	}
	for i, f := range built {
		switch {
		case f.there && q.Raw != nil:
			c.wrong(f.pointer, "put it into the raw message, or leave raw out", "the field can't be combined with raw")
		case f.there && q.Template != "" && i < 3:
			c.wrong(f.pointer, "change the stored template, or leave template out",
				"a stored template has its own %s", f.pointer[1:])
		}
	}
	if q.Raw == nil && q.Text == "" && q.HTML == "" && q.Template == "" && len(q.Attachments) == 0 {
		c.wrong("/text", "add text, html, template, raw or attachments", "the message has no content")
	}
	c.line("/subject", q.Subject, maxSubject)
}

// line checks what becomes a line of a header, or is listed as one.
func (c *check) line(pointer, s string, longest int) {
	switch {
	case len(s) > longest:
		c.wrong(pointer, "shorten it", "%d octets; the limit is %d", len(s), longest)
	case !utf8.ValidString(s):
		c.wrong(pointer, "send UTF-8", "not valid UTF-8")
	case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\t' }):
		c.wrong(pointer, "send one line of text", "it contains a line break or another control character")
	}
}

// label checks a word that operators see in lists.
func (c *check) label(pointer, s string) {
	if c.line(pointer, s, maxLabel); utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) &&
		strings.ContainsFunc(s, legible.Hidden) {
		c.wrong(pointer, "send characters that can be seen",
			"it contains a mark that changes the direction of text, or another invisible character")
	}
}

// schedule checks the times.
func (c *check) schedule() {
	q := c.q
	c.release("/send_at", q.SendAt)
	if c.limits.MaxHold <= 0 && q.Spread > 0 {
		c.wrong("/spread", "leave it out", "scheduling is not allowed here")
	}
	if q.ExpiresAt.IsZero() {
		return
	}
	last := q.SendAt
	for i := range q.Recipients {
		if at := q.Recipients[i].SendAt; at.After(last) {
			last = at
		}
	}
	if last.Before(c.now) {
		last = c.now
	}
	if !q.ExpiresAt.After(last.Add(q.Spread)) {
		c.wrong("/expires_at", "send a later time", "the mail would expire before it is sent")
	}
}

// release checks a time of release.
func (c *check) release(pointer string, at time.Time) {
	l := &c.limits
	switch {
	case at.IsZero():
	case l.MaxHold <= 0:
		c.wrong(pointer, "leave it out", "scheduling is not allowed here")
	case at.Before(c.now.Add(-l.Late)):
		c.wrong(pointer, "send a later time, or leave it out", "%s is in the past", at.Format(time.RFC3339))
	case at.Add(c.q.Spread).After(c.now.Add(l.MaxHold)):
		c.wrong(pointer, "send a time before "+c.now.Add(l.MaxHold-c.q.Spread).UTC().Format(time.RFC3339),
			"mail can be scheduled %v ahead at most, spread included", l.MaxHold)
	}
}

// labels checks what comes back in events.
func (c *check) labels() {
	q := c.q
	c.label("/campaign", q.Campaign)
	if len(q.Tags) > MaxTags {
		c.wrong("/tags", fmt.Sprintf("send %d at most", MaxTags), "there are %d tags", len(q.Tags))
	}
	for i, tag := range q.Tags[:min(len(q.Tags), MaxTags)] {
		at := fmt.Sprintf("/tags/%d", i)
		c.label(at, tag)
		switch {
		case tag == "":
			c.wrong(at, "remove it", "the tag is empty")
		case slices.Contains(q.Tags[:i], tag):
			c.wrong(at, "send it once", "the tag %s is given twice", shown(tag))
		}
	}
	if q.Priority != nil && (*q.Priority < -9 || *q.Priority > 9) {
		c.wrong("/priority", "send a whole number, -9 to 9", "%d is not allowed here", *q.Priority)
	}
	if len(q.Meta) > maxMeta {
		c.wrong("/meta", "shorten it, or send a reference to it", "%d octets of metadata; the limit is %d",
			len(q.Meta), maxMeta)
	}
}

// reports checks what is said about delivery status notifications (RFC 3461).
func (c *check) reports() {
	q := c.q
	if q.Notify&envelope.NotifyNever != 0 && q.Notify != envelope.NotifyNever {
		c.wrong("/notify", "send never alone, or leave it out", "never excludes the others")
	}
	c.line("/envid", q.EnvID, maxEnvID)
	if strings.ContainsFunc(q.EnvID, func(r rune) bool { return r > '~' || r == '\t' }) {
		c.wrong("/envid", "send printable ASCII", "it contains characters that an envelope id can't have")
	}
}
