package request

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/hours"
	"example.org/mta/internal/settings"
)

// Limits bound a request.
type Limits struct {
	Recipients int           // addresses of a request [1000]
	MaxHold    time.Duration // from now to the end of the release; 0: nothing can be scheduled
	// Late is how long ago SendAt may be: mail leaves at once then. It covers clocks that differ and
	// requests that were on the way.
	Late time.Duration
}

// The tree of a document: 1,000 recipients with 200 values each.
var tree = TreeLimits{Depth: 64, Values: 250_000}

// maxMeta is the longest metadata, in octets without white space.
const maxMeta = 4 << 10

// Decode reads the JSON of a request and checks it. All faults are reported at once; the request is
// usable if there are none.
func Decode(body []byte, now time.Time, l Limits) (*Request, Faults) {
	root, faults := ParseTree(body, tree)
	if root == nil {
		return nil, faults
	}
	r := reader{limits: l, faults: faults}
	q := new(Request)
	if root.Kind != Object {
		r.wrong(root, "send an object", "want %v, got %v", Object, root.Kind)
		return nil, r.faults
	}
	object(&r, root, q, requestFields)
	r.faults.merge(q.Check(now, l))
	return q, r.faults
}

// merge appends the faults of a check, without those at places where reading has failed already.
func (f *Faults) merge(more Faults) {
	read := *f
next:
	for _, m := range more {
		for _, have := range read {
			if have.Pointer == m.Pointer || strings.HasPrefix(have.Pointer, m.Pointer+"/") {
				continue next
			}
		}
		f.add(m.Pointer, m.Remedy, "%s", m.Detail)
	}
}

// requestFields are those of a request. docs/http.md and the OpenAPI document describe them.
var requestFields = []field[Request]{
	{"from", func(r *reader, n *Node, q *Request) { q.From = r.mailboxes(n) }},
	{"sender", func(r *reader, n *Node, q *Request) {
		if m, ok := r.mailbox(n); ok {
			q.Sender = &m
		}
	}},
	{"to", func(r *reader, n *Node, q *Request) { q.To = r.mailboxes(n) }},
	{"cc", func(r *reader, n *Node, q *Request) { q.Cc = r.mailboxes(n) }},
	{"bcc", func(r *reader, n *Node, q *Request) { q.Bcc = r.mailboxes(n) }},
	{"reply_to", func(r *reader, n *Node, q *Request) { q.ReplyTo = r.mailboxes(n) }},
	{"subject", func(r *reader, n *Node, q *Request) { q.Subject = r.text(n) }},
	{"text", func(r *reader, n *Node, q *Request) { q.Text = r.text(n) }},
	{"html", func(r *reader, n *Node, q *Request) { q.HTML = r.text(n) }},
	{"headers", func(r *reader, n *Node, q *Request) { q.Headers = r.headers(n) }},
	{"attachments", func(r *reader, n *Node, q *Request) { q.Attachments = r.attachments(n) }},
	{"raw", func(r *reader, n *Node, q *Request) {
		if r.is(n, String) {
			q.Raw = []byte(n.Text())
		}
	}},
	{"recipients", func(r *reader, n *Node, q *Request) { q.Recipients = r.personal(n) }},
	{"template", func(r *reader, n *Node, q *Request) { q.Template = r.text(n) }},
	{"data", func(r *reader, n *Node, q *Request) { q.Data = r.data(n) }},
	{"strict", func(r *reader, n *Node, q *Request) { q.Strict = r.bool(n) }},
	{"send_at", func(r *reader, n *Node, q *Request) { q.SendAt = r.time(n) }},
	{"spread", func(r *reader, n *Node, q *Request) {
		seconds, _ := r.integer(n, 0, int64(envelope.MaxSpread/time.Second))
		q.Spread = time.Duration(seconds) * time.Second
	}},
	{"expires_at", func(r *reader, n *Node, q *Request) { q.ExpiresAt = r.time(n) }},
	{"timezone", func(r *reader, n *Node, q *Request) { q.Timezone = r.valid(n, hours.Check, zoneRemedy) }},
	{"pace", func(r *reader, n *Node, q *Request) {
		q.Pace = r.valid(n, settings.CheckRate, "send one such as 10000/h")
	}},
	{"campaign", func(r *reader, n *Node, q *Request) { q.Campaign = r.text(n) }},
	{"tags", func(r *reader, n *Node, q *Request) {
		r.array(n, MaxTags, "tags", func(n *Node) { q.Tags = append(q.Tags, r.text(n)) })
	}},
	{"meta", func(r *reader, n *Node, q *Request) { q.Meta = r.meta(n) }},
	{"priority", func(r *reader, n *Node, q *Request) {
		if v, ok := r.integer(n, -9, 9); ok {
			p := int(v)
			q.Priority = &p
		}
	}},
	{"pool", func(r *reader, n *Node, q *Request) { q.Pool = r.text(n) }},
	{"notify", func(r *reader, n *Node, q *Request) { q.Notify = r.notify(n) }},
	{"envid", func(r *reader, n *Node, q *Request) { q.EnvID = r.text(n) }},
	{"ret", func(r *reader, n *Node, q *Request) { q.Ret = word(r, n, rets) }},
	{"dry_run", func(r *reader, n *Node, q *Request) { q.DryRun = r.bool(n) }},
}

// personalFields are those of an element of recipients.
var personalFields = []field[Personal]{
	{"to", func(r *reader, n *Node, p *Personal) { p.To = r.mailboxes(n) }},
	{"data", func(r *reader, n *Node, p *Personal) { p.Data = r.data(n) }},
	{"meta", func(r *reader, n *Node, p *Personal) { p.Meta = r.meta(n) }},
	{"headers", func(r *reader, n *Node, p *Personal) { p.Headers = r.headers(n) }},
	{"send_at", func(r *reader, n *Node, p *Personal) { p.SendAt = r.time(n) }},
	{"timezone", func(r *reader, n *Node, p *Personal) { p.Timezone = r.valid(n, hours.Check, zoneRemedy) }},
}

func (r *reader) personal(n *Node) []Personal {
	all := make([]Personal, 0, min(n.Len, r.limits.Recipients))
	r.array(n, r.limits.Recipients, "recipients", func(n *Node) {
		var p Personal
		object(r, n, &p, personalFields)
		all = append(all, p)
	})
	return all
}

var attachmentFields = []field[Attachment]{
	{"content", func(r *reader, n *Node, a *Attachment) { a.Content = r.content(n) }},
	{"name", func(r *reader, n *Node, a *Attachment) { a.Name = r.text(n) }},
	{"type", func(r *reader, n *Node, a *Attachment) { a.Type = r.text(n) }},
	{"content_id", func(r *reader, n *Node, a *Attachment) { a.ContentID = r.text(n) }},
}

func (r *reader) attachments(n *Node) (all []Attachment) {
	r.array(n, MaxAttachments, "attachments", func(n *Node) {
		var a Attachment
		object(r, n, &a, attachmentFields)
		if n.Kind == Object && !given(n, "content") {
			r.wrong(n, "add the file as base64", "the field content is missing")
		}
		all = append(all, a)
	})
	return all
}

// given reports whether an object has a field, and not null in its place.
func given(n *Node, name string) bool {
	field := n.Get(name)
	return field != nil && field.Kind != Null
}

// headers reads an object: a name has a value or an array of values.
func (r *reader) headers(n *Node) (all []Header) {
	if !r.is(n, Object) {
		return nil
	}
	for c := range n.All() {
		if c.Kind == Array {
			r.array(c, MaxHeaders, "values", func(v *Node) { all = append(all, Header{c.Name, r.text(v)}) })
		} else if r.is(c, String) {
			all = append(all, Header{c.Name, c.Text()})
		}
	}
	return all
}

// meta reads an object that is kept as JSON.
func (r *reader) meta(n *Node) json.RawMessage {
	if !r.is(n, Object) {
		return nil
	}
	v := jsontext.Value(n.Raw()).Clone()
	if err := v.Compact(); err != nil {
		return nil // a name twice, which is reported
	}
	if len(v) > maxMeta {
		r.wrong(n, "shorten it, or send a reference to it", "%d octets of metadata; the limit is 4096", len(v))
		return nil
	}
	return json.RawMessage(v)
}

var (
	rets     = map[string]envelope.Ret{"full": envelope.RetFull, "headers": envelope.RetHeaders}
	notifies = map[string]envelope.Notify{
		"success": envelope.NotifySuccess, "failure": envelope.NotifyFailure, "delay": envelope.NotifyDelay,
		"never": envelope.NotifyNever,
	}
)

// word reads one of a few words.
func word[T any](r *reader, n *Node, words map[string]T) (v T) {
	text := r.text(n)
	v, ok := words[text]
	if !ok && n.Kind == String {
		r.wrong(n, "send "+choices(words), "%s is not allowed here", shown(text))
	}
	return v
}

// notify reads a word or an array of words.
func (r *reader) notify(n *Node) (all envelope.Notify) {
	if n.Kind != Array {
		return word(r, n, notifies)
	}
	r.array(n, 3, "events", func(n *Node) { all |= word(r, n, notifies) })
	return all
}
