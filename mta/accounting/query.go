package accounting

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/linelog"
)

// Query says which records are meant. All that is set must fit; the zero Query fits all.
// Addresses, domains and sites are compared without regard to case.
type Query struct {
	Types     []Type    // any of these
	ID        string    // of the message
	Sender    string    // an address, "@domain", or "<>" for the null sender
	Recipient string    // an address or "@domain"
	Domain    string    // of the recipient
	Site      string    // that was tried
	Tenant    string    // of the message
	Campaign  string    // of the message
	Provider  string    // of the site that was tried
	Source    string    // from which it was tried
	Tag       string    // one of the message's
	Classes   []string  // any of these, of the response
	Since     time.Time // zero: from the oldest record that is kept
	Until     time.Time // zero: to the newest
	Last      int       // only so many, the newest; 0: all
	Follow    bool      // and then what comes, until the context ends
	// Pause is called each time that 64 KiB were looked at, for readings that give way to others. Its error ends the
	// reading. May be nil.
	Pause func() error
}

// clockSlack is how far records may be out of order: they are stamped by those who saw the
// event, and clocks are set back at times.
const clockSlack = time.Minute

// matcher is a Query made ready for many lines. It is for one goroutine.
type matcher struct {
	Query
	message envelope.ID // that is meant; 0 is any
	byHead  bool        // the type and the id are all that is asked for
	asked   []condition // on single fields
	exact   []byte      // the ID; as it is in every line that fits
	needles [][]byte    // lower case; each is in every line that fits
	folded  []byte      // the line in lower case
	damaged int         // lines that may have been meant, and are missing, no records or not as they were written
	chain   linelog.Chain
	first   Position // of them
	spoiled func(Position)
}

func (q Query) matcher() matcher {
	m := matcher{Query: q}
	if id, err := envelope.ParseID(q.ID); err == nil {
		m.ID = id.String()
		m.exact, m.message = []byte(m.ID), id
		// Its id says nothing about when that was: ids go on from where a clock that was ahead has left them.
	}
	m.Domain = asciiDomain(m.Domain)
	for _, address := range []*string{&m.Sender, &m.Recipient} {
		if domain, ok := strings.CutPrefix(*address, "@"); ok {
			*address = "@" + asciiDomain(domain)
		}
	}
	for _, x := range conditions {
		if x.asked(&m.Query) {
			m.asked = append(m.asked, x)
		}
	}
	m.byHead = len(m.asked) == 0 && m.Tag == "" && m.Since.IsZero() && m.Until.IsZero()
	texts := []string{m.Sender, m.Recipient, m.Domain, m.Site, m.Tenant, m.Campaign, m.Provider, m.Source, m.Tag}
	if len(m.Classes) == 1 {
		texts = append(texts, m.Classes[0])
	}
	for _, text := range texts {
		if needle, plain := appendFolded(nil, text); plain && text != "" && text != "<>" &&
			!bytes.ContainsRune(needle, '"') {
			m.needles = append(m.needles, needle)
		}
	}
	return m
}

// asciiDomain gives a domain as Address.Domain does.
func asciiDomain(s string) string {
	if a, err := envelope.ToASCII(s); err == nil {
		return a
	}
	return strings.ToLower(s)
}

// appendFolded adds text in lower case. It is plain when it has only ASCII and nothing that
// JSON escapes with a backslash, so that equal texts are equal octets.
func appendFolded[T string | []byte](to []byte, text T) (folded []byte, plain bool) {
	plain = true
	for i := range len(text) {
		c := text[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c >= 0x80 || c == '\\' || c < ' ' || c == 0x7f {
			plain = false
		}
		to = append(to, c)
	}
	return to, plain
}

// hopeless reports whether line can't fit. It is several times faster than to find out whether
// it does, and most lines are hopeless.
func (m *matcher) hopeless(line []byte) bool {
	if !bytes.Contains(line, m.exact) || !m.typed(line) {
		return true
	}
	if len(m.needles) == 0 {
		return false
	}
	plain := false
	if m.folded, plain = appendFolded(m.folded[:0], line); !plain {
		return false
	}
	for _, n := range m.needles {
		if !bytes.Contains(m.folded, n) {
			return true
		}
	}
	return false
}

// typed reports whether a line can be of a type that is meant.
func (m *matcher) typed(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte(`{"type":"`))
	if len(m.Types) == 0 || !ok {
		return true
	}
	for _, t := range m.Types {
		if len(rest) > len(t) && rest[len(t)] == '"' && string(rest[:len(t)]) == string(t) {
			return true
		}
	}
	return false
}

// fits reports whether line is a record that is meant. What is no record never is.
func (m *matcher) fits(line []byte, at Position) bool { return m.sound(line, at) && m.means(line, at) }

// sound reports whether line is as it was written, and counts it if not, or if others are missing before it.
func (m *matcher) sound(line []byte, at Position) bool {
	ok, place, damaged := m.chain.Line(line, at)
	if damaged {
		m.spoil(place)
	}
	return ok
}

// spoil counts damage at a place.
func (m *matcher) spoil(at Position) {
	m.damage(1, at)
	if m.spoiled != nil {
		m.spoiled(at)
	}
}

// damage counts lines; the first of them is at a position.
func (m *matcher) damage(n int, first Position) {
	if n > 0 && (m.damaged == 0 || first.Compare(m.first) < 0) {
		m.first = first
	}
	m.damaged += n
}

// means is fits for a sound line.
func (m *matcher) means(line []byte, at Position) bool {
	if m.hopeless(line) {
		return false
	}
	// Most look-ups are of a message's records, and its lines say so at their beginnings.
	if kind, id := headOf(line); kind != nil && m.message != 0 && linelog.EventID(line) != "" {
		switch {
		case string(id) != m.ID, len(m.Types) > 0 && !slices.Contains(m.Types, Type(kind)):
			return false
		case m.byHead:
			return true
		}
	}
	w, err := Parse(line)
	if err != nil || w.Type == "" {
		m.damage(1, at)
		return false
	}
	for _, x := range m.asked {
		if !x.fits(&m.Query, x.of(w)) {
			return false
		}
	}
	return (len(m.Types) == 0 || slices.Contains(m.Types, w.Type)) &&
		(m.ID == "" || m.message != 0 && m.message == w.ID) &&
		(m.Tag == "" || slices.Contains(w.Tags, m.Tag)) && m.inTime(w.Time)
}

// inTime reports whether a query means the time of an event.
func (q *Query) inTime(t time.Time) bool {
	return (q.Since.IsZero() || !t.Before(q.Since)) && (q.Until.IsZero() || t.Before(q.Until))
}

// condition is what a query can ask of a field that has one text.
type condition struct {
	key   string // of the field in the log
	asked func(*Query) bool
	of    func(*Record) string
	fits  func(*Query, string) bool
}

var conditions = []condition{
	{"sender", func(q *Query) bool { return q.Sender != "" }, func(r *Record) string { return string(r.Sender) },
		func(q *Query, text string) bool { return fitsAddress(q.Sender, envelope.Address(text)) }},
	{"recipient", func(q *Query) bool { return q.Recipient+q.Domain != "" },
		func(r *Record) string { return string(r.Recipient) },
		func(q *Query, text string) bool {
			a := envelope.Address(text)
			return fitsAddress(q.Recipient, a) && (q.Domain == "" || strings.EqualFold(q.Domain, a.Domain()))
		}},
	{"site", func(q *Query) bool { return q.Site != "" }, func(r *Record) string { return r.Site },
		func(q *Query, text string) bool { return strings.EqualFold(q.Site, text) }},
	{"tenant", func(q *Query) bool { return q.Tenant != "" }, func(r *Record) string { return r.Tenant },
		func(q *Query, text string) bool { return q.Tenant == text }},
	{"campaign", func(q *Query) bool { return q.Campaign != "" }, func(r *Record) string { return r.Campaign },
		func(q *Query, text string) bool { return q.Campaign == text }},
	{"provider_name", func(q *Query) bool { return q.Provider != "" }, func(r *Record) string { return r.Provider },
		func(q *Query, text string) bool { return q.Provider == text }},
	{"egress_source", func(q *Query) bool { return q.Source != "" }, func(r *Record) string { return r.EgressSource },
		func(q *Query, text string) bool { return q.Source == text }},
	{"bounce_classification", func(q *Query) bool { return len(q.Classes) > 0 },
		func(r *Record) string { return r.Class },
		func(q *Query, text string) bool { return slices.Contains(q.Classes, text) }},
}

func fitsAddress(want string, got envelope.Address) bool {
	switch {
	case want == "":
		return true
	case want == "<>":
		return got == ""
	case strings.HasPrefix(want, "@"):
		return strings.EqualFold(want[1:], got.Domain())
	}
	return strings.EqualFold(want, string(got))
}

// within gives those of the files, oldest first, that can have records in the query's time.
func (m *matcher) within(files []linelog.File) []linelog.File {
	first, last := 0, len(files)
	for first+1 < len(files) && !m.Since.IsZero() && files[first+1].Begun.Before(m.Since.Add(-clockSlack)) {
		first++
	}
	for last > first && !m.Until.IsZero() && files[last-1].Begun.After(m.Until.Add(clockSlack)) {
		last--
	}
	return files[first:last]
}
