package top

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"example.org/mta/internal/legible"
	"example.org/mta/operator/api"
	"example.org/mta/operator/everywhere"
)

// What comes to update: a Key, and these.
type (
	resized struct{ width, height int }
	tick    time.Time
	// answered is the end of a fetch.
	answered struct {
		data *Data
		err  error
		took time.Duration
	}
	// said has lines for a page.
	said struct {
		id    int
		lines []string
		over  bool // they are the last
	}
	// counted is the answer to a dry run.
	counted struct {
		action action
		found  found
		err    error
	}
	// done is the end of an action.
	done struct {
		text string
		err  error
	}
)

// What update asks for.
type (
	fetch struct {
		table  Table
		of     string // the provider or source, see tableState
		filter string
		rates  bool                // the history of the relay, too
		silent everywhere.Failures // of a cluster: nodes that had not answered before
	}
	// explain wants the text of a page about a row.
	explain struct {
		id    int
		table Table
		row   row
		width int
	}
	// watch wants the lines of a live page.
	watch struct {
		id    int
		node  int
		query api.TraceQuery
		width int
	}
	unwatch struct{}
	dryRun  struct{ action action }
	carry   struct{ action action }
	redraw  struct{}
	quit    struct{}
)

// Key is a key press: the text of the key, or one of the names below.
type Key string

// Keys without text.
const (
	keyUp        Key = "up"
	keyDown      Key = "down"
	keyLeft      Key = "left"
	keyRight     Key = "right"
	keyPageUp    Key = "pgup"
	keyPageDown  Key = "pgdn"
	keyHome      Key = "home"
	keyEnd       Key = "end"
	keyEnter     Key = "enter"
	keyEscape    Key = "esc"
	keyTab       Key = "tab"
	keyBacktab   Key = "backtab"
	keyBackspace Key = "backspace"
	keyInterrupt Key = "ctrl-c"
	keyRedraw    Key = "ctrl-l"
	keyClear     Key = "ctrl-u"
)

// update changes the model by what has happened, and returns what must be done about it.
func (m *Model) update(event any) (todo []any) {
	switch e := event.(type) {
	case Key:
		todo = m.pressed(e)
	case resized:
		m.width, m.height = e.width, e.height
	case tick:
		m.now = time.Time(e)
	case answered:
		m.answered(e)
	case said:
		if m.page != nil && m.page.id == e.id {
			m.page.busy = !e.over
			m.page.add(e.lines)
		}
	case counted:
		m.counted(e)
	case done:
		m.dialog, m.note, m.next = nil, textOr(e.text, e.err), m.now
	}
	m.scroll()
	return append(todo, m.refresh()...)
}

// scroll keeps the cursor, or the end of a live page, on the screen.
func (m *Model) scroll() {
	if p := m.page; p != nil {
		last := max(0, len(p.lines)-m.pageLines())
		if p.first = max(0, min(p.first, last)); p.live && !p.still {
			p.first = last
		}
		return
	}
	rows, st, height := m.rows(), &m.states[m.table], m.layout().rows
	at := st.at(rows)
	st.first = max(0, min(st.first, len(rows)-height))
	if at < st.first {
		st.first = at
	} else if at >= st.first+height {
		st.first = at - height + 1
	}
}

// textOr is a text, or an error with its remedy.
func textOr(text string, err error) string {
	if err == nil {
		return text
	}
	if hint := api.Hint(err); hint != "" {
		return err.Error() + "; " + hint
	}
	return err.Error()
}

const (
	// ratesEvery is how often the history of the rates is asked for: a column of a sparkline is about that long.
	ratesEvery = 10 * time.Second
	// share is the part of the time that the relay may spend on answers to a screen.
	share = 1.0 / 50
	// slowest is the longest time between refreshes.
	slowest = time.Minute
)

// refresh asks for what is shown when it is time.
func (m *Model) refresh() []any {
	if m.fetching || m.now.Before(m.next) || m.stopped && m.data != nil && m.data.table == m.table && m.lost == "" {
		return nil
	}
	m.fetching = true
	st := &m.states[m.table]
	var silent everywhere.Failures
	if m.data != nil {
		silent = m.data.Failed
	}
	return []any{fetch{table: m.table, of: st.of, filter: st.filter, silent: silent,
		rates: m.data == nil || m.data.Rates == nil || !m.now.Before(m.data.ratesAt.Add(ratesEvery))}}
}

// answered takes what the relay has answered. An answer that cost it much has the next one wait longer.
func (m *Model) answered(a answered) {
	m.fetching = false
	if m.apart = m.every; a.err == nil {
		m.apart = min(max(m.every, slowest), max(m.every, time.Duration(float64(a.took)/share)))
	}
	m.next = m.now.Add(m.apart)
	if a.err != nil {
		m.lost = textOr("", a.err)
		return
	}
	m.lost = ""
	if a.data.Rates != nil {
		a.data.ratesAt = m.now
	} else if m.data != nil {
		a.data.Rates, a.data.ratesAt = m.data.Rates, m.data.ratesAt
	}
	m.data = a.data
	if a.data.table != m.table { // it was changed meanwhile
		m.next = m.now
	}
}

// pressed is a key on what is on top: a dialog, a filter that is typed, a page, or the tables.
func (m *Model) pressed(k Key) []any {
	switch {
	case k == keyInterrupt:
		return []any{quit{}}
	case k == keyRedraw:
		return []any{redraw{}}
	case m.dialog != nil:
		return m.answerDialog(k)
	case m.typing:
		m.typeFilter(k)
	case m.page != nil:
		return m.onPage(k)
	default:
		return m.onTable(k)
	}
	return nil
}

// typeFilter changes the filter of the table.
func (m *Model) typeFilter(k Key) {
	st := &m.states[m.table]
	switch k {
	case keyEnter:
		m.typing, m.next = false, m.now
	case keyEscape:
		m.typing, st.filter, m.next = false, "", m.now
	default:
		st.filter = typed(st.filter, k)
	}
}

// longestInput is how many octets can be typed.
const longestInput = 200

// typed is a text after a key.
func typed(text string, k Key) string {
	switch {
	case k == keyBackspace:
		_, n := utf8.DecodeLastRuneInString(text)
		return text[:len(text)-n]
	case k == keyClear:
		return ""
	case k.printable() && len(text)+len(k) <= longestInput:
		return text + string(k)
	}
	return text
}

// printable reports whether a key is text, and not one with a name.
func (k Key) printable() bool { return utf8.RuneCountInString(string(k)) == 1 }

// onPage scrolls a page, or leaves it.
func (m *Model) onPage(k Key) []any {
	p, lines := m.page, m.pageLines()
	last := max(0, len(p.lines)-lines)
	switch k {
	case "q", keyEscape, keyEnter, keyLeft:
		m.page = nil
		if p.live {
			return []any{unwatch{}}
		}
		return nil
	}
	p.first = scrolled(p.first, k, lines, last)
	p.still = p.first < last
	return nil
}

// scrolled is where a key leads from a line, with so many lines on the screen.
func scrolled(line int, k Key, screen, last int) int {
	switch k {
	case keyUp, "k":
		return line - 1
	case keyDown, "j":
		return line + 1
	case keyPageUp:
		return line - screen
	case keyPageDown, " ":
		return line + screen
	case keyHome, "g":
		return 0
	case keyEnd, "G":
		return last
	}
	return line
}

// add appends to a page. The end of a live one stays in view unless the operator has left it.
func (p *page) add(lines []string) {
	p.lines = append(p.lines, lines...)
	if n := len(p.lines) - mostLines; n > 0 && p.live {
		p.lines = append([]string(nil), p.lines[n:]...)
		p.first = max(0, p.first-n)
	}
}

// open begins a page. Its lines come with said.
func (m *Model) open(title string, live bool) int {
	m.pages++
	m.page = &page{id: m.pages, title: title, live: live, busy: true}
	return m.pages
}

// onTable is a key of the tables.
func (m *Model) onTable(k Key) []any {
	m.note = ""
	for _, b := range bindings {
		if slices.Contains(b.keys, k) {
			return b.do(m, k)
		}
	}
	return nil
}

// binding is what keys do on the tables.
type binding struct {
	keys  []Key
	label string // how help calls the keys
	what  string
	do    func(*Model, Key) []any
}

// bindings are the keys of the tables, in the order of the help.
var bindings []binding

func init() { // help shows the bindings, of which it is one
	bindings = []binding{
		{[]Key{"1", "2", "3", "4", "5", "6"}, "1-6", "show a table", func(m *Model, k Key) []any {
			m.show(Table(k[0]-'1'), "")
			return nil
		}},
		{[]Key{keyTab}, "Tab", "the next table", func(m *Model, _ Key) []any {
			m.show((m.table+1)%tables, "")
			return nil
		}},
		{[]Key{keyBacktab}, "Shift-Tab", "the table before", func(m *Model, _ Key) []any {
			m.show((m.table+tables-1)%tables, "")
			return nil
		}},
		{[]Key{keyUp, "k", keyDown, "j", keyPageUp, keyPageDown, keyHome, "g", keyEnd, "G"},
			"Up Down PgUp PgDn Home End", "move; also k, j, g and G", (*Model).move},
		{[]Key{keyLeft, keyRight, "<", ">"}, "Left Right", "sort by another column", (*Model).sortBy},
		{[]Key{"o"}, "o", "reverse the order", func(m *Model, _ Key) []any {
			m.states[m.table].up = !m.states[m.table].up
			return nil
		}},
		{[]Key{"/"}, "/", "filter: rows with this text; Esc ends it", func(m *Model, _ Key) []any {
			m.typing = true
			return nil
		}},
		{[]Key{keyEscape}, "Esc", "show all rows", func(m *Model, _ Key) []any {
			m.show(m.table, "")
			m.states[m.table].filter = ""
			return nil
		}},
		{[]Key{keyEnter}, "Enter", "a provider's sites, a source's connections; else e", (*Model).enter},
		{[]Key{"e"}, "e", "explain: why the mail of this row waits", (*Model).explain},
		{[]Key{"t"}, "t", "trace: watch the SMTP conversations of this row", (*Model).trace},
		{[]Key{"s"}, "s", "suspend a site; pause a source, tenant or warm-up", func(m *Model, _ Key) []any {
			return m.ask(suspend)
		}},
		{[]Key{"r"}, "r", "resume it", func(m *Model, _ Key) []any { return m.ask(resume) }},
		{[]Key{"c"}, "c", "close this connection", func(m *Model, _ Key) []any { return m.ask(closing) }},
		{[]Key{"a"}, "a", "all alarms and rules", (*Model).alarms},
		{[]Key{" "}, "Space", "stop and restart the refresh", func(m *Model, _ Key) []any {
			m.stopped = !m.stopped
			m.next = m.now
			return nil
		}},
		{[]Key{"?", "h"}, "?", "help", (*Model).help},
		{[]Key{"q"}, "q", "quit (Ctrl-C everywhere)", func(*Model, Key) []any { return []any{quit{}} }},
	}
}

// show turns to a table, of one provider or source or of all.
func (m *Model) show(t Table, of string) {
	m.table, m.states[t].of, m.next = t, of, m.now
}

func (m *Model) move(k Key) []any {
	rows, st := m.rows(), &m.states[m.table]
	if len(rows) == 0 {
		return nil
	}
	i := scrolled(st.at(rows), k, m.layout().rows, len(rows)-1)
	st.line = max(0, min(i, len(rows)-1))
	st.cursor = rows[st.line].id()
	return nil
}

func (m *Model) sortBy(k Key) []any {
	st, n := &m.states[m.table], len(kinds[m.table].columns)
	if k == keyLeft || k == "<" {
		st.sort += n - 1
	} else {
		st.sort++
	}
	st.sort %= n
	st.up = !kinds[m.table].columns[st.sort].right
	m.note = "sorted by " + kinds[m.table].columns[st.sort].title
	return nil
}

func (m *Model) enter(k Key) []any {
	r := m.chosen()
	switch {
	case r == nil:
	case m.table == providers && r.key == "":
		m.note = "these sites have no provider: they are among all sites (1)"
	case m.table == providers:
		m.show(sites, r.key)
	case m.table == sources:
		m.show(connections, r.key)
	default:
		return m.explain(k)
	}
	return nil
}

func (m *Model) explain(Key) []any {
	r := m.chosen()
	if r == nil {
		return nil
	}
	title := r.cells[0].Text
	if m.table == connections && !r.incoming {
		title = r.site
	}
	return []any{explain{m.open(title, false), m.table, *r, m.width}}
}

func (m *Model) trace(Key) []any {
	r := m.chosen()
	if r == nil {
		return nil
	}
	q := api.TraceQuery{Site: r.site, Source: r.source}
	what := "conversations with " + r.site
	switch m.table {
	case providers:
		m.note = "choose a site: press Enter"
		return nil
	case sources, warmups:
		what = "conversations from source " + r.source
	case tenants:
		if r.key == "" {
			m.note = "mail of no tenant can't be traced by its tenant: trace a site or a source"
			return nil
		}
		q, what = api.TraceQuery{Tenant: r.tenant}, "conversations about the mail of tenant "+r.tenant
	case connections:
		if r.incoming {
			peer := addressOf(r.cells[0].Text)
			if !peer.IsValid() {
				m.note = "this client has no address to trace"
				return nil
			}
			q, what = api.TraceQuery{Clients: true, Client: peer}, "sessions of client "+peer.Addr().String()
		}
	}
	return []any{watch{m.open(what, true), r.node, q, m.width}}
}

// alarms shows in full what does not fit on the screen.
func (m *Model) alarms(Key) []any {
	if m.data == nil {
		return nil
	}
	s := &m.data.Status
	var lines []string
	for _, silent := range m.data.Failed {
		lines = append(lines, silent.Error())
	}
	if s.Reason != "" {
		lines = append(lines, s.State+": "+s.Reason)
	}
	for _, a := range s.Alarms {
		lines = append(lines, fmt.Sprintf("alarm %s, since %s: %s", a.Name, legible.Age(m.now.Sub(a.Since)), a.Reason))
	}
	for i := range s.Rules {
		lines = append(lines, ruleLine(&s.Rules[i], m.now))
	}
	if lines == nil {
		lines = []string{"no alarm is on, and there is no rule"}
	}
	m.open("alarms and rules", false)
	m.page.busy = false
	for _, l := range lines {
		m.page.lines = append(m.page.lines, wrap(l, m.width)...)
	}
	return nil
}

func ruleLine(p *api.Rule, now time.Time) string {
	text := fmt.Sprintf("rule %d: %s", p.ID, p.Does())
	if p.Action == api.RuleSuspend {
		text = "paused: " + p.Selection.String()
	}
	text += ", by " + p.By + " since " + legible.Age(now.Sub(p.Since))
	if !p.Until.IsZero() {
		text += ", for " + legible.Left(p.Until.Sub(now)) + " more"
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

func (m *Model) help(Key) []any {
	m.open("help", false)
	m.page.busy = false
	m.page.lines = Keys()
	return nil
}

// Keys are the lines of the help.
func Keys() (lines []string) {
	for _, b := range bindings {
		lines = append(lines, fmt.Sprintf("%-27s  %s", b.label, b.what))
	}
	return lines
}
