package exported

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
)

// New converts a message for an archive. It completes the recipients from the envelope.
func New(m *envelope.Message, recipients []Recipient) *Message {
	out := &Message{
		ID: m.ID.String(), Sender: string(m.Sender), Accepted: m.Received.UTC(), Release: m.Release,
		Spread: int(m.Spread / time.Second), Expires: m.Expires,
		SMTPUTF8: m.UTF8, RET: m.Ret.String(), EnvID: Text(m.EnvID), RequireTLS: m.RequireTLS,
		TLSOptional: m.TLSOptional,
		Tenant:      Text(m.Tenant), Campaign: Text(m.Campaign), Pool: Text(m.Pool), User: Text(m.User),
		APIKey: Text(m.APIKey), Tier: int(m.Tier),
		Tags: list[Text](m.Tags), Marks: list[Text](m.Marks), Meta: json.RawMessage(m.Meta),
		Headers: json.RawMessage(m.Headers), TraceID: m.TraceID,
		Origin: Origin{HeloName: Text(m.HeloName), Session: Text(m.Session), Protocol: Text(m.Protocol)},
		Total:  len(m.Recipients), Recipients: recipients,
	}
	if m.Body != envelope.Body7Bit {
		out.Body = m.Body.String()
	}
	if m.Peer.IsValid() {
		out.Peer = m.Peer.String()
	}
	for i := range recipients {
		r := &recipients[i]
		of := &m.Recipients[r.Index]
		r.Address, r.Notify, r.ORcpt = string(of.Address), of.Notify.String(), Text(of.ORcpt)
	}
	return out
}

func list[To, From ~string](all []From) (out []To) {
	for _, s := range all {
		out = append(out, To(s))
	}
	return out
}

// AttemptOf converts the last attempt for an archive.
func AttemptOf(r reply.Reply, via string, d envelope.Detour) *Attempt {
	return &Attempt{
		Code: r.Code, Enhanced: r.Enhanced.String(), Text: Text(r.Text), Command: r.Command, Local: r.Local,
		Via: Text(via), Pool: Text(d.Pool), Route: Text(d.Route),
	}
}

// Parts is the inverse of AttemptOf, once Envelope has found nothing wrong.
func (a *Attempt) Parts() (r reply.Reply, via string, d envelope.Detour) {
	if a == nil {
		return r, "", d
	}
	r = reply.Reply{Code: a.Code, Text: string(a.Text), Command: a.Command, Local: a.Local}
	r.Enhanced, _ = enhanced(a.Enhanced)
	return r, string(a.Via), envelope.Detour{Pool: string(a.Pool), Route: string(a.Route)}
}

func enhanced(s string) (e reply.Enhanced, ok bool) {
	if s == "" {
		return e, true
	}
	n, err := fmt.Sscanf(s, "%d.%d.%d", &e[0], &e[1], &e[2])
	return e, err == nil && n == 3 && e.String() == s
}

// Limits of what a message can have.
const (
	maxText       = 16 << 10 // octets of a reply or an identifier
	maxRecipients = 1<<16 - 1
	maxList       = 1000 // tags, marks
	maxObject     = 256 << 10
)

// faults collects the first thing that is wrong with a message.
type faults struct{ err error }

func (f *faults) wrong(field, format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf("%s: "+format, append([]any{field}, args...)...)
	}
}

// text checks a text that can end up in a header field, a report or a log.
func (f *faults) text(field string, s Text, lines bool) {
	if len(s) > maxText {
		f.wrong(field, "it has %d octets; the limit is %d", len(s), maxText)
	}
	for _, c := range []byte(s) {
		if (c < ' ' || c == 0x7f) && !(lines && (c == '\n' || c == '\t')) {
			f.wrong(field, "it has a control character")
			return
		}
	}
}

func (f *faults) object(field string, text json.RawMessage) string {
	if len(text) == 0 {
		return ""
	}
	var compact bytes.Buffer
	if text[0] != '{' || len(text) > maxObject || json.Compact(&compact, text) != nil {
		f.wrong(field, "it must be a JSON object of at most %d octets", maxObject)
	}
	return compact.String()
}

func (f *faults) address(field, s string) envelope.Address {
	if s == "" && field == "sender" || strings.EqualFold(s, "postmaster") {
		return envelope.Address(s)
	}
	a, err := envelope.ParseAddress(s)
	if err != nil {
		f.wrong(field, "%v", err)
	}
	return a
}

// earliest and latest bound times: the queue keeps seconds since 1970 in 32 bits.
var earliest, latest = time.Unix(1, 0), time.Unix(1<<32-2, 0)

func (f *faults) time(field string, t time.Time) {
	if !t.IsZero() && (t.Before(earliest) || t.After(latest)) {
		f.wrong(field, "%s is out of range", t.Format(time.RFC3339))
	}
}

// Envelope returns the message with its recipients, without its id. The error names the field that is wrong.
func (m *Message) Envelope() (*envelope.Message, error) {
	f := &faults{}
	out := &envelope.Message{
		Sender: f.address("sender", m.Sender), UTF8: m.SMTPUTF8, EnvID: string(m.EnvID), RequireTLS: m.RequireTLS,
		TLSOptional: m.TLSOptional,
		Tenant:      string(m.Tenant), Campaign: string(m.Campaign), Pool: string(m.Pool), User: string(m.User),
		APIKey: string(m.APIKey), Tier: uint8(m.Tier),
		Tags: list[string](m.Tags), Marks: list[string](m.Marks), Meta: f.object("meta", m.Meta),
		Headers: f.object("headers", m.Headers), TraceID: m.TraceID,
		Release: m.Release, Spread: time.Duration(m.Spread) * time.Second, Expires: m.Expires,
		HeloName: string(m.HeloName), Session: string(m.Session), Protocol: string(m.Protocol),
	}
	if m.Node == "" || len(m.Node) > 255 {
		f.wrong("node", "it must be the nodeid of a relay")
	}
	if m.Accepted.IsZero() {
		f.wrong("accepted", "it is missing")
	}
	f.time("accepted", m.Accepted)
	f.time("release", m.Release)
	f.time("expires", m.Expires)
	if m.Spread < 0 || m.Spread > int(envelope.MaxSpread/time.Second) {
		f.wrong("spread", "it must be from 0 to %d seconds", envelope.MaxSpread/time.Second)
	}
	if m.Tier < 0 || m.Tier >= envelope.TierCount {
		f.wrong("tier", "it must be from 0 to %d", envelope.TierCount-1)
	}
	var ok bool
	if out.Body, ok = named(m.Body, "", envelope.Body7Bit, envelope.Body8BitMIME, envelope.BodyBinaryMIME); !ok {
		f.wrong("body", "it must be 8BITMIME or BINARYMIME, not %q", m.Body)
	}
	if out.Ret, ok = named(m.RET, "", envelope.RetDefault, envelope.RetFull, envelope.RetHeaders); !ok {
		f.wrong("ret", "it must be FULL or HDRS, not %q", m.RET)
	}
	if m.Peer != "" {
		var err error
		if out.Peer, err = netip.ParseAddrPort(m.Peer); err != nil {
			f.wrong("peer", "%v", err)
		}
	}
	f.texts(m)
	if n := len(m.Recipients); n == 0 || n > maxRecipients {
		f.wrong("recipients", "there are %d; there must be 1 to %d", n, maxRecipients)
	}
	before := -1
	for i := range m.Recipients {
		r := &m.Recipients[i]
		if r.Index <= before || r.Index >= maxRecipients {
			f.wrong(fmt.Sprintf("recipients[%d].index", i), "%d follows %d", r.Index, before)
		}
		before = r.Index
		out.Recipients = append(out.Recipients, f.recipient(fmt.Sprintf("recipients[%d].", i), r))
		if f.err != nil {
			break
		}
	}
	return out, f.err
}

// texts checks the texts of a message.
func (f *faults) texts(m *Message) {
	for _, t := range []struct {
		field string
		text  Text
	}{
		{"envid", m.EnvID}, {"tenant", m.Tenant}, {"campaign", m.Campaign}, {"pool", m.Pool}, {"user", m.User},
		{"key", m.APIKey},
		{"trace_id", Text(m.TraceID)}, {"helo", m.HeloName}, {"session", m.Session}, {"protocol", m.Protocol},
		{"node", Text(m.Node)},
	} {
		f.text(t.field, t.text, false)
	}
	for _, l := range []struct {
		field string
		texts []Text
	}{{"tags", m.Tags}, {"marks", m.Marks}} {
		if len(l.texts) > maxList {
			f.wrong(l.field, "there are %d; the limit is %d", len(l.texts), maxList)
		}
		for _, t := range l.texts {
			f.text(l.field, t, false)
		}
	}
}

// named finds the value whose name is a text; other is another name of the first.
func named[T interface {
	comparable
	String() string
}](text, other string, values ...T) (v T, ok bool) {
	if text == other {
		return values[0], true
	}
	i := slices.IndexFunc(values, func(v T) bool { return v.String() == text })
	if i < 0 {
		return v, false
	}
	return values[i], true
}

func (f *faults) recipient(at string, r *Recipient) envelope.Recipient {
	out := envelope.Recipient{Address: f.address(at+"address", r.Address), ORcpt: string(r.ORcpt)}
	if r.Address == "" {
		f.wrong(at+"address", "it is empty")
	}
	for n := range envelope.NotifyNever << 1 {
		if n.String() == r.Notify && (n&envelope.NotifyNever == 0 || n == envelope.NotifyNever) {
			out.Notify = n
		}
	}
	if out.Notify.String() != r.Notify {
		f.wrong(at+"notify", "%q is not a value of NOTIFY (RFC 3461, 4.1)", r.Notify)
	}
	if r.Attempts < 0 || r.Attempts > 1<<16 {
		f.wrong(at+"attempts", "%d is not a number of attempts", r.Attempts)
	}
	f.time(at+"next", r.Next)
	f.text(at+"orcpt", r.ORcpt, false)
	f.text(at+"site", Text(r.Site), false)
	if key := parking.Parse(r.Site); key.Kind != parking.Site || len(r.Site) > 300 {
		f.wrong(at+"site", "%.40q is not a site", r.Site)
	}
	if a := r.Last; a != nil {
		f.text(at+"last.text", a.Text, true)
		f.text(at+"last.command", Text(a.Command), false)
		f.text(at+"last.via", a.Via, false)
		f.text(at+"last.pool", a.Pool, false)
		f.text(at+"last.route", a.Route, false)
		if a.Code < 0 || a.Code > 999 {
			f.wrong(at+"last.code", "%d is not a reply code", a.Code)
		}
		if _, ok := enhanced(a.Enhanced); !ok {
			f.wrong(at+"last.enhanced", "%.20q is not an enhanced status code", a.Enhanced)
		}
	}
	return out
}
