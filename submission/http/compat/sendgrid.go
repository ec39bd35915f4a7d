package compat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"mime"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/request"
)

var sendGridMailbox = []field{{name: "email"}, {name: "name"}}

// sendGridFields are those of POST /v3/mail/send.
var sendGridFields = []field{
	{name: "personalizations", kind: objects, in: []field{
		{name: "from", kind: object, in: sendGridMailbox},
		{name: "to", kind: objects, in: sendGridMailbox},
		{name: "cc", kind: objects, in: sendGridMailbox},
		{name: "bcc", kind: objects, in: sendGridMailbox},
		{name: "subject"},
		{name: "headers", kind: object},
		{name: "substitutions", kind: object},
		{name: "dynamic_template_data", kind: object},
		{name: "custom_args", kind: object},
		{name: "send_at", kind: number},
	}},
	{name: "from", kind: object, in: sendGridMailbox},
	{name: "reply_to", kind: object, in: sendGridMailbox},
	{name: "reply_to_list", kind: objects, in: sendGridMailbox},
	{name: "subject"},
	{name: "content", kind: objects, in: []field{{name: "type"}, {name: "value"}}},
	{name: "attachments", kind: objects, in: []field{
		{name: "content"},
		{name: "type"},
		{name: "filename"},
		{name: "disposition"},
		{name: "content_id"},
		{name: "contentId"}, // from @sendgrid/mail, which doesn't translate this name of its own
	}},
	{name: "template_id"},
	{name: "sections", kind: object, use: refused, active: filled,
		remedy: "put the text of each section into the substitutions"},
	{name: "headers", kind: object},
	{name: "categories", kind: texts},
	{name: "custom_args", kind: object},
	{name: "send_at", kind: number},
	{name: "batch_id"},
	{name: "asm", kind: object, use: refused, active: filled,
		remedy: "leave it out: the relay has one list of suppressions for the tenant, and its setting \"unsubscribe\""},
	{name: "ip_pool_name"},
	{name: "mail_settings", kind: object, in: []field{
		{name: "sandbox_mode", kind: object, in: []field{{name: "enable", kind: flag}}},
		{name: "bypass_list_management", kind: object, use: refused, active: enabled, remedy: bypass},
		{name: "bypass_bounce_management", kind: object, use: refused, active: enabled, remedy: bypass},
		{name: "bypass_unsubscribe_management", kind: object, use: refused, active: enabled, remedy: bypass},
		{name: "bypass_spam_management", kind: object, use: refused, active: enabled, remedy: bypass},
		{name: "footer", kind: object, use: refused, active: enabled, remedy: "put the footer into the content"},
		{name: "bcc", kind: object, use: refused, active: enabled,
			remedy: "put the address into \"bcc\" of the personalizations"},
		{name: "spam_check", kind: object, use: refused, active: enabled,
			remedy: "check the message before it is sent"},
	}},
	{name: "tracking_settings", kind: object, in: []field{
		{name: "click_tracking", kind: object, use: ignored, active: enabled},
		{name: "open_tracking", kind: object, in: []field{
			{name: "enable", kind: flag, use: ignored, active: filled},
			{name: "substitution_tag", use: refused, active: filled,
				remedy: "leave it out: there is no pixel that could take its place"},
		}},
		{name: "ganalytics", kind: object, use: ignored, active: enabled},
		{name: "subscription_tracking", kind: object, use: refused, active: enabled,
			remedy: "put the link into the content, or use the tenant's setting \"unsubscribe\""},
	}},
}

const bypass = "remove the address from the tenant's suppressions first"

// sendGrid reads a request of SendGrid's. Each personalization becomes a request: it has its own sender,
// recipients and subject, and shares the content.
func sendGrid(root *request.Node) ([]*request.Request, *reader) {
	r := new(reader)
	if root.Kind != request.Object {
		r.fault("", "want an object, not "+root.Kind.String(), "")
		return nil, r
	}
	r.object(root, sendGridFields, "")
	if len(r.faults) > 0 {
		return nil, r
	}
	common := r.sendGridCommon(root)
	personalizations := each(root, "personalizations")
	if len(personalizations) == 0 {
		r.fault("/personalizations", "there is no personalization", "name the recipients of a message in each")
	}
	tags := r.substitutions(root, common.Template, personalizations)
	tags.prepare(common)
	all := make([]*request.Request, 0, len(personalizations))
	for _, p := range personalizations {
		one := *common
		r.personalize(&one, p, tags)
		all = append(all, &one)
	}
	return all, r
}

// sendGridCommon reads what all personalizations share.
func (r *reader) sendGridCommon(root *request.Node) *request.Request {
	q := &request.Request{
		Subject:  textAt(root, "subject"),
		Headers:  headers(nil, at(root, "headers")),
		Template: textAt(root, "template_id"),
		Campaign: textAt(root, "batch_id"),
		Pool:     textAt(root, "ip_pool_name"),
		SendAt:   r.unixTime(at(root, "send_at")),
	}
	q.From = r.mailboxes(at(root, "from"))
	for _, c := range each(root, "categories") {
		q.Tags = append(q.Tags, c.Text())
	}
	for _, a := range each(root, "attachments") {
		q.Attachments = append(q.Attachments, r.sendGridAttachment(a))
	}
	if sandbox := at(root, "mail_settings", "sandbox_mode", "enable"); sandbox != nil {
		q.DryRun = sandbox.True()
	}
	q.Meta = meta(at(root, "custom_args"))
	r.sendGridContent(q, root)
	return q
}

func (r *reader) sendGridContent(q *request.Request, root *request.Node) {
	for _, c := range each(root, "content") {
		given := textAt(c, "type")
		base, _, err := mime.ParseMediaType(given)
		into := map[string]*string{"text/plain": &q.Text, "text/html": &q.HTML}[base]
		switch {
		case err != nil || into == nil:
			r.fault(c.Pointer()+"/type", strconv.Quote(given)+" is not text/plain or text/html",
				"send other parts as attachments")
		case *into != "":
			r.fault(c.Pointer()+"/type", "there is another content of this type", "send one of each type")
		default:
			*into = textAt(c, "value")
		}
	}
	if q.Template == "" {
		return
	}
	// The template's take their place, there as here.
	q.Subject, q.Text, q.HTML = "", "", ""
	for _, name := range []string{"subject", "content"} {
		if at(root, name) != nil {
			r.ignore(name)
		}
	}
}

func (r *reader) sendGridAttachment(n *request.Node) request.Attachment {
	a := request.Attachment{Name: textAt(n, "filename"), Type: textAt(n, "type"), Content: r.base64(n)}
	switch disposition := textAt(n, "disposition"); disposition {
	case "", "attachment":
	case "inline":
		a.ContentID = contentID(textAt(n, "content_id") + textAt(n, "contentId"))
		if a.ContentID == "" {
			r.fault(n.Pointer()+"/content_id", "an inline attachment has no id for the HTML to refer to it",
				`give one, or send it with the disposition "attachment"`)
		}
	default:
		r.fault(n.Pointer()+"/disposition", strconv.Quote(disposition)+` is not "attachment" or "inline"`, "")
	}
	return a
}

// personalize puts into a request what a personalization has.
func (r *reader) personalize(q *request.Request, p *request.Node, tags *substitutions) {
	q.To = r.mailboxes(each(p, "to")...)
	q.Cc = r.mailboxes(each(p, "cc")...)
	q.Bcc = r.mailboxes(each(p, "bcc")...)
	if from := at(p, "from"); from != nil {
		q.From = r.mailboxes(from)
	}
	switch subject := at(p, "subject"); {
	case subject == nil:
	case q.Template != "":
		r.ignore("personalizations.subject")
	default:
		q.Subject = tags.template(subject.Text())
	}
	if h := at(p, "headers"); h != nil {
		q.Headers = headers(q.Headers, h)
	}
	if args := at(p, "custom_args"); args != nil {
		q.Meta = merged(q.Meta, args)
	}
	if at(p, "send_at") != nil {
		q.SendAt = r.unixTime(at(p, "send_at"))
	}
	data := at(p, "dynamic_template_data")
	switch {
	case q.Template != "":
		q.Data = map[string]any{}
		if data != nil {
			q.Data = data.Map()
		}
	case data != nil && data.Len > 0:
		r.fault(data.Pointer(), "there is no template for these data", "name a stored template in template_id")
	}
	tags.apply(r, q, p)
}

// headers adds fields to those that there are, in place of those of the same name.
func headers(before []request.Header, n *request.Node) []request.Header {
	all := slices.Clone(before)
	if n == nil {
		return all
	}
	for m := range n.All() {
		all = slices.DeleteFunc(all, func(h request.Header) bool { return strings.EqualFold(h.Name, m.Name) })
		all = append(all, request.Header{Name: m.Name, Value: m.Text()})
	}
	return all
}

// meta is an object without white space, nil for an empty one.
func meta(n *request.Node) json.RawMessage {
	if n == nil || n.Len == 0 {
		return nil
	}
	var b bytes.Buffer
	if json.Compact(&b, n.Raw()) != nil {
		return nil // the tree has checked it
	}
	return b.Bytes()
}

// merged is an object with the members of both, those of n in place of the others.
func merged(before json.RawMessage, n *request.Node) json.RawMessage {
	all, own := make(map[string]json.RawMessage), meta(n)
	for _, object := range []json.RawMessage{before, own} {
		if object != nil && json.Unmarshal(object, &all) != nil {
			return own
		}
	}
	if len(all) == 0 {
		return nil
	}
	out, err := json.Marshal(all)
	if err != nil {
		return own
	}
	return out
}

func (r *reader) unixTime(n *request.Node) time.Time {
	if n == nil {
		return time.Time{}
	}
	seconds, err := strconv.ParseInt(n.Text(), 10, 48)
	if err != nil {
		r.fault(n.Pointer(), "not a time", "send seconds since 1970")
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// mailboxes reads objects with an "email" and perhaps a "name".
func (r *reader) mailboxes(nodes ...*request.Node) (all []request.Mailbox) {
	for _, n := range nodes {
		if n == nil {
			continue
		}
		all = append(all, r.mailbox(n, strings.Clone))
	}
	return all
}

// mailbox reads such an object. change is made to its texts before.
func (r *reader) mailbox(n *request.Node, change func(string) string) request.Mailbox {
	a, err := envelope.ParseAddress(change(textAt(n, "email")))
	if err != nil {
		r.fault(n.Pointer()+"/email", err.Error(), "send an address such as user@example.com")
	}
	return request.Mailbox{Name: change(textAt(n, "name")), Address: a}
}

// substitutions are SendGrid's: tags of any form in the subject, the texts and Reply-To, each replaced by a
// value of the personalization. They become variables of a template that all personalizations share, so
// that a thousand of them cost one content, parsed once.
type substitutions struct {
	tags      []string          // the longest first; that of index i is the variable "mta_i"
	variables *strings.Replacer // of tags by variables
	replyTo   []*request.Node
}

// brace is the variable in whose place there is a brace, so that no text is taken for a template.
const brace = "mta_brace"

// literal makes a template of a text that has none.
func literal(s string) string { return strings.ReplaceAll(s, "{", "{{&"+brace+"}}") }

// substitutions finds the tags of all personalizations.
func (r *reader) substitutions(root *request.Node, template string, personalizations []*request.Node) *substitutions {
	s := &substitutions{replyTo: append(each(root, "reply_to"), each(root, "reply_to_list")...)}
	known := make(map[string]bool)
	for _, p := range personalizations {
		n := at(p, "substitutions")
		if n == nil || n.Len == 0 {
			continue
		}
		if template != "" {
			r.fault(n.Pointer(), "a stored template takes no substitutions", "send dynamic_template_data")
			continue
		}
		for m := range n.All() {
			if m.Name == "" || m.Kind == request.Object || m.Kind == request.Array {
				r.fault(m.Pointer(), "a substitution is a tag and a string", "")
			}
			known[m.Name] = true
		}
	}
	s.tags = slices.SortedFunc(maps.Keys(known), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})
	pairs := make([]string, 0, 2*len(s.tags)+2)
	for i, tag := range s.tags {
		pairs = append(pairs, tag, "{{&"+variable(i)+"}}")
	}
	s.variables = strings.NewReplacer(append(pairs, "{", "{{&"+brace+"}}")...)
	return s
}

func variable(i int) string { return "mta_" + strconv.Itoa(i) }

// prepare makes templates of what the personalizations share.
func (s *substitutions) prepare(q *request.Request) {
	q.Subject, q.Text, q.HTML = s.template(q.Subject), s.template(q.Text), s.template(q.HTML)
}

// template has variables in place of the tags.
func (s *substitutions) template(text string) string {
	if len(s.tags) == 0 {
		return text
	}
	return s.variables.Replace(text)
}

// apply gives a request the values of its personalization. A tag that it has no value for stays as it is.
func (s *substitutions) apply(r *reader, q *request.Request, p *request.Node) {
	values := at(p, "substitutions")
	pairs := make([]string, 0, 2*len(s.tags))
	if len(s.tags) > 0 {
		q.Data = make(map[string]any, len(s.tags)+1)
		for i, tag := range s.tags {
			value := tag
			if values != nil && values.Get(tag) != nil {
				value = textAt(values, tag) // null is empty
			}
			q.Data[variable(i)] = value
			pairs = append(pairs, tag, value)
		}
	}
	if q.Data != nil {
		q.Data[brace] = "{"
		q.Headers = slices.Clone(q.Headers)
		for i, h := range q.Headers {
			q.Headers[i].Value = literal(h.Value)
		}
	}
	replace := strings.NewReplacer(pairs...)
	for _, n := range s.replyTo {
		q.ReplyTo = append(q.ReplyTo, r.mailbox(n, replace.Replace))
	}
}
