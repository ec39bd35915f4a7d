package compat

import (
	"encoding/base64"
	"regexp"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/request"
)

// resendFields are those of POST /emails, and of each message of POST /emails/batch.
var resendFields = []field{
	{name: "from"},
	{name: "to", kind: textList},
	{name: "cc", kind: textList},
	{name: "bcc", kind: textList},
	{name: "reply_to", kind: textList},
	{name: "subject"},
	{name: "text"},
	{name: "html"},
	{name: "headers", kind: object},
	{name: "attachments", kind: objects, in: []field{
		{name: "content", kind: content},
		{name: "filename"},
		{name: "content_type"},
		{name: "content_id"},
		{name: "inline_content_id"},
		{name: "path", use: refused, active: filled, remedy: "send the content: the relay fetches nothing"},
	}},
	{name: "tags", kind: objects, in: []field{{name: "name"}, {name: "value"}}},
	{name: "scheduled_at"},
	{name: "template", kind: object, in: []field{{name: "id"}, {name: "variables", kind: object}}},
	{name: "topic_id", use: refused, active: filled,
		remedy: "leave it out: the relay has one list of suppressions for the tenant"},
}

// resendBatch is how many messages POST /emails/batch takes.
const resendBatch = 100

// resend reads a message of Resend's.
func resend(n *request.Node, now time.Time) (*request.Request, *reader) {
	r := new(reader)
	if n.Kind != request.Object {
		r.fault(n.Pointer(), "want an object, not "+n.Kind.String(), "")
		return nil, r
	}
	r.object(n, resendFields, "")
	if len(r.faults) > 0 {
		return nil, r
	}
	q := &request.Request{
		From:    r.resendMailboxes(n, "from"),
		To:      r.resendMailboxes(n, "to"),
		Cc:      r.resendMailboxes(n, "cc"),
		Bcc:     r.resendMailboxes(n, "bcc"),
		ReplyTo: r.resendMailboxes(n, "reply_to"),
		Subject: textAt(n, "subject"),
		Text:    textAt(n, "text"),
		HTML:    textAt(n, "html"),
		Headers: headers(nil, at(n, "headers")),
		SendAt:  r.moment(at(n, "scheduled_at"), now),
	}
	for _, a := range each(n, "attachments") {
		q.Attachments = append(q.Attachments, request.Attachment{
			Name: textAt(a, "filename"), Type: textAt(a, "content_type"), Content: r.base64(a),
			ContentID: contentID(textAt(a, "content_id") + textAt(a, "inline_content_id")),
		})
	}
	for _, t := range each(n, "tags") {
		q.Tags = append(q.Tags, strings.TrimSuffix(textAt(t, "name")+":"+textAt(t, "value"), ":"))
	}
	r.resendTemplate(q, n)
	return q, r
}

func (r *reader) resendTemplate(q *request.Request, n *request.Node) {
	t := at(n, "template")
	if t == nil {
		return
	}
	q.Template, q.Data, q.Strict = textAt(t, "id"), map[string]any{}, true
	switch variables := at(t, "variables"); {
	case q.Template == "":
		r.fault(t.Pointer()+"/id", "the template has no id", "give the name of a stored template")
	case q.Text != "" || q.HTML != "":
		r.fault(t.Pointer(), "there is a template beside a text", "send one of them")
	case variables != nil:
		q.Data = variables.Map()
	}
	for i, h := range q.Headers {
		q.Headers[i].Value = literal(h.Value)
	}
	q.Data[brace] = "{"
}

// resendMailboxes reads addresses, or names with an address in < and >. The SDKs' users write names as
// they are, without the quotes of RFC 5322.
func (r *reader) resendMailboxes(n *request.Node, name string) (all []request.Mailbox) {
	for _, m := range each(n, name) {
		display, address := split(m.Text())
		a, err := envelope.ParseAddress(address)
		if err != nil {
			r.fault(m.Pointer(), err.Error(), "send user@example.com or Name <user@example.com>")
		}
		all = append(all, request.Mailbox{Name: display, Address: a})
	}
	return all
}

// split gives the name and the address of a mailbox.
func split(mailbox string) (name, address string) {
	mailbox = strings.TrimSpace(mailbox)
	open := strings.LastIndexByte(mailbox, '<')
	if open < 0 || !strings.HasSuffix(mailbox, ">") {
		return "", mailbox
	}
	return unquoted(strings.TrimSpace(mailbox[:open])), mailbox[open+1 : len(mailbox)-1]
}

// unquoted takes the quotes from a quoted string (RFC 5322, 3.2.4); other text stays as it is.
func unquoted(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	var b strings.Builder
	for inner := s[1 : len(s)-1]; inner != ""; inner = inner[1:] {
		if inner[0] == '"' {
			return s
		}
		if inner[0] == '\\' && len(inner) > 1 {
			inner = inner[1:]
		}
		b.WriteByte(inner[0])
	}
	return b.String()
}

// contentID is an id as the HTML has it behind "cid:".
func contentID(s string) string { return strings.TrimSuffix(strings.TrimPrefix(s, "<"), ">") }

// base64 reads the content of an attachment.
func (r *reader) base64(attachment *request.Node) []byte {
	n := at(attachment, "content")
	if n == nil {
		r.fault(attachment.Pointer()+"/content", "the attachment has no content", "send it in base64")
		return nil
	}
	if n.Kind == request.Array {
		return r.octets(n)
	}
	s := n.Text()
	if strings.ContainsAny(s, "\r\n") { // lines, as in MIME
		s = strings.NewReplacer("\r", "", "\n", "").Replace(s)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		r.fault(n.Pointer(), "not base64: "+err.Error(), "encode it as in RFC 4648, section 4, with padding")
	}
	return b
}

// octets reads an array of numbers, which the tree keeps as source.
func (r *reader) octets(n *request.Node) []byte {
	var b []byte
	inner := strings.TrimSpace(string(n.Raw()[1 : len(n.Raw())-1]))
	if inner == "" {
		return []byte{}
	}
	for number := range strings.SplitSeq(inner, ",") {
		v, err := strconv.ParseUint(strings.TrimSpace(number), 10, 8)
		if err != nil {
			r.fault(n.Pointer(), "not an array of octets", "send whole numbers from 0 to 255, or base64")
			return nil
		}
		b = append(b, byte(v))
	}
	return b
}

// inWords are the times relative to now, of all that Resend reads in natural language.
var inWords = regexp.MustCompile(`^in (a|an|[0-9]{1,5}) (sec|second|min|minute|hour|day)s?$`)

// moment reads a time.
func (r *reader) moment(n *request.Node, now time.Time) time.Time {
	if n == nil {
		return time.Time{}
	}
	given := strings.TrimSpace(n.Text())
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05Z07:00"} {
		if t, err := time.Parse(layout, given); err == nil {
			return t
		}
	}
	m := inWords.FindStringSubmatch(strings.ToLower(given))
	if m == nil {
		r.fault(n.Pointer(), strconv.Quote(given)+" is not a time with a zone",
			`send "2026-11-22T17:00:00Z", or "in 5 minutes"`)
		return time.Time{}
	}
	count := 1
	if m[1][0] != 'a' {
		count, _ = strconv.Atoi(m[1])
	}
	unit := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}[m[2][0]]
	return now.Add(time.Duration(count) * unit)
}
