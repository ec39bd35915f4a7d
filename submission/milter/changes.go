package milter

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/emersion/go-milter"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/intake"
)

// maxChanges is how many header fields a milter may add, change and delete.
const maxChanges = 200

// verdict makes what becomes of a message of a milter's answer, and changes the message.
func (s *server) verdict(a *milter.Action, changes []milter.ModifyAction,
	m *intake.Filtered) (v intake.Verdict, _ error) {
	switch a.Code {
	case milter.ActReject:
		v.Refused = intake.FilterRefuses.Refusal(s.Name)
	case milter.ActTempFail:
		v.Refused = intake.FilterDefers.Refusal(s.Name)
	case milter.ActReplyCode:
		if a.SMTPCode < 400 || a.SMTPCode > 599 {
			return v, fmt.Errorf("it replies %d, which refuses nothing", a.SMTPCode)
		}
		v.Refused = refusal(a)
	case milter.ActDiscard:
		v.Held, v.Discarded = s.local(554, "discarded", ""), true
	case milter.ActAccept, milter.ActContinue:
		e := edit{message: m}
		if err := e.apply(changes); err != nil {
			return v, err
		}
		if e.quarantined {
			v.Held = s.local(450, "quarantined", e.why)
		}
		m.Changed = m.Changed || e.changed
	default:
		return v, fmt.Errorf("it answers %q, which is not known here", rune(a.Code))
	}
	return v, nil
}

// refusal is a milter's reply, on one line. 421 would close the connection, which others may use.
func refusal(a *milter.Action) *reply.Reply {
	code := a.SMTPCode
	if code == 421 {
		code = 451
	}
	var words []string
	for i, line := range strings.FieldsFunc(a.SMTPText, func(r rune) bool { return r == '\r' || r == '\n' }) {
		r := reply.Parse("000 " + line)
		if i > 0 {
			r = reply.Parse(line) // has the code again
		}
		words = append(words, r.Text)
	}
	r := reply.Parse(fmt.Sprintf("%d %s", code, reply.Printable(strings.Join(words, " "))))
	if r.Local = true; r.Enhanced == (reply.Enhanced{}) {
		r.Enhanced = reply.Enhanced{uint16(code / 100), 7, 1}
	}
	return &r
}

// field is one of the header section.
type field struct {
	name string
	text []byte // with its name and CRLF; nil: it was deleted, and still counts
}

// edit is what a milter does to a message.
type edit struct {
	message     *intake.Filtered
	fields      []field
	changed     bool
	quarantined bool
	why         string
}

// apply changes the message: all of it or, after an error, nothing.
func (e *edit) apply(changes []milter.ModifyAction) error {
	m := e.message
	var body []byte
	replaced, count := false, 0
	for i := range changes {
		c := &changes[i]
		switch c.Code {
		case milter.ActQuarantine:
			e.quarantined, e.why = true, c.Reason
		case milter.ActReplBody:
			replaced = true
			body = append(body, c.Body...)
		case milter.ActAddHeader, milter.ActInsertHeader, milter.ActChangeHeader:
			if count++; count == 1 {
				for text := range intake.EachField(m.Header) {
					name, _, _ := envelope.CutField(text)
					e.fields = append(e.fields, field{string(name), text})
				}
			}
			if count > maxChanges {
				return fmt.Errorf("it changes more than %d header fields", maxChanges)
			}
			if m.Own(c.HeaderName) && (c.Code != milter.ActChangeHeader || c.HeaderValue != "") {
				continue
			}
			if err := e.change(c); err != nil {
				return err
			}
		default:
			return fmt.Errorf("it changes the envelope (%q), which was not offered", rune(c.Code))
		}
	}
	header := m.Header
	if e.changed = replaced || count > 0; count > 0 {
		header = nil
		for _, f := range e.fields {
			header = append(header, f.text...)
		}
	}
	if !replaced {
		body = m.Body
	} else {
		var ok bool
		if body, ok = intake.Normalise(body, m.Limits.LineLength); !ok {
			return fmt.Errorf("it makes a body with a NUL octet, or a line longer than %d octets", m.Limits.LineLength)
		}
	}
	switch {
	case len(header) > m.Limits.HeaderSize:
		return excess(len(m.Header), m.Limits.HeaderSize, "header section larger than %d octets")
	case int64(len(header)+len(body)) > m.Limits.Size:
		return excess(int64(len(m.Header)+len(m.Body)), m.Limits.Size, "message larger than %d octets")
	}
	if count > 0 {
		if err := m.Unfit(header); err != nil {
			return err
		}
	}
	m.Header, m.Body = header, body
	return nil
}

// excess is why a message exceeds a limit with a milter's changes. It is the message's fault if it comes with more than
// half of that already.
func excess[N int | int64](before, limit N, format string) error {
	what := misfit(fmt.Sprintf(format, limit))
	if before > limit/2 {
		return what
	}
	return errors.New("with its changes: " + string(what))
}

// change adds, inserts, changes or deletes a field. Positions count the fields that the milter was given, deleted ones
// included, as Sendmail counts them.
func (e *edit) change(c *milter.ModifyAction) error {
	f, err := e.field(c.HeaderName, c.HeaderValue)
	if err != nil {
		return err
	}
	switch at := int(min(max(c.HeaderIndex, 1), 1<<30)); c.Code {
	case milter.ActAddHeader:
		e.fields = append(e.fields, f)
	case milter.ActInsertHeader: // 0 is above this relay's Received for Sendmail, which stays on top here
		e.fields = slices.Insert(e.fields, min(at-1, len(e.fields)), f)
	default:
		if c.HeaderValue == "" {
			f.text = nil
		}
		for i := range e.fields {
			if strings.EqualFold(e.fields[i].name, f.name) {
				if at--; at == 0 {
					if !e.message.Traced(e.fields[i].text) {
						e.fields[i] = f
					}
					return nil
				}
			}
		}
		if f.text != nil {
			e.fields = append(e.fields, f)
		}
	}
	return nil
}

// field makes a field as it is sent.
func (e *edit) field(name, value string) (f field, _ error) {
	value = strings.TrimRight(strings.ReplaceAll(value, "\r\n", "\n"), "\n")
	text := []byte(name + ": " + strings.TrimLeft(value, " \t"))
	text, ok := intake.Normalise(text, e.message.Limits.LineLength)
	if !ok {
		return f, fmt.Errorf("it writes a header field with a NUL octet, or a line longer than %d octets",
			e.message.Limits.LineLength)
	}
	n, _, isField := envelope.CutField(text)
	lines := bytes.Count(text, []byte("\n"))
	folded := bytes.Count(text, []byte("\n ")) + bytes.Count(text, []byte("\n\t"))
	if !isField || string(n) != name || folded != lines-1 || !utf8.Valid(text) {
		return f, fmt.Errorf("it writes a header field that is malformed: %q", reply.Printable(name))
	}
	return field{name, text}, nil
}
