package request

import (
	"bytes"
	"encoding/base64"
	"errors"
	"example.org/mta/internal/legible"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// reader turns a tree into values and collects the faults on its way.
type reader struct {
	limits Limits
	faults Faults
}

// maxFaults is how many faults are listed.
const maxFaults = 100

// wrong notes a fault at n.
func (r *reader) wrong(n *Node, remedy, format string, args ...any) {
	r.faults.add(n.Pointer(), remedy, format, args...)
}

// add appends a fault, up to the limit.
func (f *Faults) add(pointer, remedy, format string, args ...any) {
	switch {
	case len(*f) < maxFaults:
		*f = append(*f, Fault{Pointer: pointer, Detail: fmt.Sprintf(format, args...), Remedy: remedy})
	case len(*f) == maxFaults:
		*f = append(*f, Fault{Detail: "there are more faults than these",
			Remedy: "correct these and send the request again"})
	}
}

// shown quotes a client's text for an error, shortened.
func shown(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:60], "") + "..."
	}
	return strconv.Quote(s)
}

// is reports whether n is of a kind. null stands for a field that isn't there.
func (r *reader) is(n *Node, k Kind) bool {
	if n.Kind != k && n.Kind != Null {
		r.wrong(n, "send "+k.String(), "want %v, got %v", k, n.Kind)
	}
	return n.Kind == k
}

// field is how a member of an object is read.
type field[T any] struct {
	name string
	read func(r *reader, n *Node, to *T)
}

// object reads the members of n into a struct by a table of its fields.
func object[T any](r *reader, n *Node, to *T, fields []field[T]) {
	if !r.is(n, Object) {
		return
	}
members:
	for c := range n.All() {
		for i := range fields {
			if fields[i].name == c.Name {
				fields[i].read(r, c, to)
				continue members
			}
		}
		if len(r.faults) <= maxFaults { // the search for a similar name takes its time
			r.wrong(c, meant(c.Name, names(fields)), "there is no field %s here", shown(c.Name))
		}
	}
}

// meant is the remedy for an unknown name.
func meant(name string, known []string) string {
	if guess := legible.Nearest(strings.ToLower(name), known); guess != "" {
		return fmt.Sprintf("did you mean %q?", guess)
	}
	return "remove it; the names are " + strings.Join(known, ", ")
}

func names[T any](fields []field[T]) []string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.name
	}
	return all
}

// array calls each for the elements of n, up to most of them.
func (r *reader) array(n *Node, most int, what string, each func(*Node)) {
	if !r.is(n, Array) {
		return
	}
	if n.Len > most {
		r.wrong(n, fmt.Sprintf("send %d at most", most), "there are %d %s", n.Len, what)
		return
	}
	for c := range n.All() {
		if c.Kind == Null {
			r.wrong(c, "remove it", "null in an array")
			continue
		}
		each(c)
	}
}

func (r *reader) text(n *Node) string {
	if !r.is(n, String) {
		return ""
	}
	return n.Text()
}

func (r *reader) bool(n *Node) bool { return r.is(n, Bool) && n.True() }

// integer reads a whole number within bounds; ok is false if there is none.
func (r *reader) integer(n *Node, low, high int64) (v int64, ok bool) {
	if !r.is(n, Number) {
		return 0, false
	}
	f, err := strconv.ParseFloat(n.Text(), 64)
	if err != nil || f != math.Trunc(f) || f < float64(low) || f > float64(high) {
		r.wrong(n, fmt.Sprintf("send a whole number, %d to %d", low, high), "%s is not allowed here", shown(n.Text()))
		return 0, false
	}
	return int64(f), true
}

func (r *reader) time(n *Node) time.Time {
	if !r.is(n, String) {
		return time.Time{}
	}
	t, err := parseTime(n.Text())
	if err != nil {
		r.wrong(n, timeRemedy, "%v", err)
	}
	return t
}

// valid reads a text that passes a check.
func (r *reader) valid(n *Node, check func(string) error, remedy string) string {
	text := r.text(n)
	if text == "" {
		return text
	}
	if err := check(text); err != nil {
		r.wrong(n, remedy, "%v", err)
	}
	return text
}

const zoneRemedy = "send the name of a time zone, such as Europe/Berlin"

const timeRemedy = "send a date and time with an offset (RFC 3339), such as 2030-01-31T12:00:00Z"

func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s is not a time", shown(s))
	} else if t.UTC().Year() > 9999 { // RFC 3339 has no such time, and times are kept in UTC
		return time.Time{}, fmt.Errorf("%s is after the year 9999 in UTC", shown(s))
	}
	return t, nil
}

// mailbox reads "a@b", "Name <a@b>" or {"address", "name"}; ok is false if there is none.
func (r *reader) mailbox(n *Node) (m Mailbox, ok bool) {
	if n.Kind == Object {
		return r.mailboxObject(n)
	}
	if !r.is(n, String) {
		return m, false
	}
	m, err := ParseMailbox(n.Text())
	if err != nil {
		r.wrong(n, mailboxRemedy(n.Text()), "%v", err)
	}
	return m, err == nil
}

func (r *reader) mailboxObject(n *Node) (m Mailbox, ok bool) {
	before := len(r.faults)
	address := ""
	object(r, n, &m, []field[Mailbox]{
		{"address", func(r *reader, n *Node, _ *Mailbox) { address = r.text(n) }},
		{"name", func(r *reader, n *Node, m *Mailbox) { m.Name = r.text(n) }},
	})
	if len(r.faults) > before {
		return m, false
	}
	if at := n.Get("address"); at == nil || at.Kind == Null {
		r.wrong(n, "add the field", "the field address is missing")
		return m, false
	} else if err := m.set(m.Name, address); err != nil {
		r.wrong(n, mailboxRemedy(address), "%v", err)
		return m, false
	}
	return m, true
}

// mailboxes reads a mailbox or an array of them.
func (r *reader) mailboxes(n *Node) (all []Mailbox) {
	take := func(n *Node) {
		if m, ok := r.mailbox(n); ok {
			all = append(all, m)
		}
	}
	if n.Kind == Array {
		r.array(n, r.limits.Recipients, "addresses", take)
	} else {
		take(n)
	}
	return all
}

// data reads an object for templates.
func (r *reader) data(n *Node) map[string]any {
	if !r.is(n, Object) {
		return nil
	}
	return n.Map()
}

// content reads base64 (RFC 4648, 4), which may be broken into lines.
func (r *reader) content(n *Node) []byte {
	if !r.is(n, String) {
		return nil
	}
	text := n.Raw()[1 : len(n.Raw())-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		text = []byte(n.Text())
	}
	decoded := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	size, err := base64.StdEncoding.Decode(decoded, text)
	var corrupt base64.CorruptInputError
	if errors.As(err, &corrupt) {
		r.wrong(n, "send base64 with the characters A-Z a-z 0-9 + / and padding by =, and nothing before or after it",
			"not base64 from character %d on", int64(corrupt)+1)
		return nil
	}
	return decoded[:size]
}
