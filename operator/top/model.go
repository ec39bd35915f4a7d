package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/operator/everywhere"
)

// Model is all that the screen shows, and what the keys mean now. update changes it, draw shows it.
type Model struct {
	width, height int
	now           time.Time
	every         time.Duration // between refreshes, when they are quick
	apart         time.Duration // between them now

	data     *Data  // the last answer; nil before the first
	lost     string // why the relay can't be asked now; "": it can
	fetching bool
	next     time.Time // of the next request
	stopped  bool      // by the operator: no refresh

	table  Table
	bare   bool // for a reader without keys: no cursor, no hints
	states [tables]tableState
	typing bool // a filter is being typed
	dialog *dialog
	page   *page
	pages  int    // how many there were
	note   string // what the last key did, for one line
}

// tableState is what an operator has chosen for a table.
type tableState struct {
	cursor string // id of the chosen row
	line   int    // where that was, for when it is gone
	first  int    // row at the top
	sort   int    // column
	up     bool   // the least first
	filter string
	of     string // of sites: those of this provider; of connections: those of this source
}

// page is text that takes the place of the tables.
type page struct {
	id    int // distinguishes answers to this page from those to one that was left
	title string
	lines []string
	first int
	live  bool // lines are added at the end
	still bool // the operator has scrolled away from the end
	busy  bool // the answer is to come
}

// mostLines is how many lines of a live page are kept.
const mostLines = 2000

// newModel gives the model of a screen that shows nothing yet.
func newModel(now time.Time, every time.Duration, t Table) *Model {
	m := &Model{width: 80, height: 24, now: now, every: every, apart: every, table: t}
	for t := range tables {
		k := &kinds[t]
		m.states[t].sort, m.states[t].up = k.sort, !k.columns[k.sort].right
	}
	return m
}

// rows are those of the table that is shown, filtered and in order.
func (m *Model) rows() []row {
	if m.data == nil || m.data.table != m.table {
		return nil
	}
	st := &m.states[m.table]
	rows := kinds[m.table].all(m.data)
	if st.filter != "" {
		want := strings.ToLower(st.filter)
		rows = slices.DeleteFunc(rows, func(r row) bool { return !r.has(want) })
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		n := a.cells[st.sort].Compare(b.cells[st.sort])
		if !st.up {
			n = -n
		}
		return cmp.Or(n, strings.Compare(a.key, b.key), a.node-b.node)
	})
	return rows
}

// at is the line of the cursor. When its row is gone it stays on its line.
func (st *tableState) at(rows []row) int {
	if i := slices.IndexFunc(rows, func(r row) bool { return r.id() == st.cursor }); i >= 0 && st.cursor != "" {
		return i
	}
	return max(0, min(st.line, len(rows)-1))
}

// chosen is the row of the cursor; nil in an empty table.
func (m *Model) chosen() *row {
	rows := m.rows()
	if len(rows) == 0 {
		return nil
	}
	return &rows[m.states[m.table].at(rows)]
}

// Data is what the relay has answered for one screen. Of the tables it has the one that is shown.
type Data struct {
	Time        time.Time        `json:"time"`
	Status      api.Status       `json:"status"`
	Rates       *api.History     `json:"history,omitempty"`    // of the last 15 minutes
	Latest      []api.HistoryRow `json:"latest,omitempty"`     // figures of what the table lists
	NoHistory   string           `json:"no_history,omitempty"` // why figures are missing
	Sites       []api.Site       `json:"sites,omitempty"`
	Providers   []api.Provider   `json:"providers,omitempty"`
	Sources     []api.Source     `json:"sources,omitempty"`
	Tenants     []api.Tenant     `json:"tenants,omitempty"`
	Warmups     []api.Warmup     `json:"warmups,omitempty"`
	Connections []api.Connection `json:"connections,omitempty"`
	More        bool             `json:"more,omitempty"` // there are more than the table lists

	// of a cluster: the nodes' answers, of which the rest has the sums, and the nodes without one
	Nodes  []everywhere.Row[Data] `json:"nodes,omitempty"`
	Failed everywhere.Failures    `json:"failed,omitempty"`

	table   Table
	ratesAt time.Time     // when Rates was asked for
	took    time.Duration // of a cluster: the longest that a node took
}

// latest gives the figures of a subject; nil when none are kept.
func (d *Data) latest(name string) map[string]api.Figure {
	for i := range d.Latest {
		if d.Latest[i].Name == name {
			return d.Latest[i].Latest
		}
	}
	return nil
}

// rows is how many rows the table has without a filter.
func (d *Data) rows() int { return len(kinds[d.table].all(d)) }
