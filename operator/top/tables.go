package top

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"example.org/mta/internal/short"
	"example.org/mta/operator/api"
)

// Table is one of the tables of the screen.
type Table int

// The tables, in the order of their keys.
const (
	sites Table = iota
	providers
	sources
	tenants
	warmups
	connections
	tables // how many there are
)

// kind is how a table looks and what can be done with its rows.
type kind struct {
	name    string
	columns []column
	sort    int // by which column, at first
	rows    func(*Data) []row
	empty   string // what an empty table would show
}

// column is one of a table. The first is what the row is about, and is cut when the screen is narrow.
type column struct {
	title string
	right bool // figures, of which the largest come first
	spare int  // left out when the screen is narrow, the largest first; 0: never
}

// row is a line of a table.
type row struct {
	key   string // what the relay knows it by
	cells []value
	note  string // why it is as it is
	style style

	site, source, tenant string // that its mail is of, for explanations and traces
	incoming             bool   // a connection of a client
}

// value is a cell: text, and what it is sorted by.
type value struct {
	text   string
	by     float64
	figure bool
}

func word(s string) value { return value{text: cmp.Or(s, "-")} }

func count[T int | int64](n T) value {
	return value{text: fmt.Sprint(n), by: float64(n), figure: true}
}

// figure is what history has of something, written by a function; nothing of it is a dash.
func figure(of map[string]api.Figure, names []string, write func(float64) string) value {
	sum, found := 0.0, false
	for _, name := range names {
		if f, ok := of[name]; ok && f.Known() {
			sum, found = sum+float64(f), true
		}
	}
	if !found {
		return value{text: "-", by: -1, figure: true}
	}
	return value{text: write(sum), by: sum, figure: true}
}

func rate(of map[string]api.Figure, names ...string) value { return figure(of, names, short.Rate) }

func whole(of map[string]api.Figure, names ...string) value {
	return figure(of, names, func(f float64) string { return fmt.Sprintf("%.0f", f) })
}

func seconds(of map[string]api.Figure, name string) value {
	return figure(of, []string{name}, func(f float64) string {
		if f < 1 {
			return fmt.Sprintf("%.0fms", 1000*f)
		}
		return short.Age(time.Duration(f * float64(time.Second)))
	})
}

// ago is how long something is past, the longest being the largest.
func ago(now, t time.Time) value {
	if t.IsZero() {
		return value{text: "-", by: -1, figure: true}
	}
	return value{text: short.Age(now.Sub(t)), by: now.Sub(t).Seconds(), figure: true}
}

func (v *value) compare(o *value) int {
	if v.figure || o.figure {
		return cmp.Compare(v.by, o.by)
	}
	return strings.Compare(strings.ToLower(v.text), strings.ToLower(o.text))
}

// has reports whether a row has text, in lower case, in one of its words.
func (r *row) has(want string) bool {
	for i := range r.cells {
		if !r.cells[i].figure && strings.Contains(strings.ToLower(r.cells[i].text), want) {
			return true
		}
	}
	return false
}

// queuedTitle is of the columns that count recipients in the queue.
const queuedTitle = "QUEUED"

var kinds = [tables]kind{
	sites: {
		name: "sites", sort: 2, rows: siteRows, empty: "no site is known: they are listed once mail has gone to them",
		columns: []column{{title: "SITE"}, {title: "PROVIDER", spare: 6}, {title: queuedTitle, right: true}, {title: "CONNS", right: true, spare: 4}, {title: "WAITING", right: true, spare: 5},
			{title: "DEFERRED", right: true, spare: 3}, {title: "SENT/s", right: true}, {title: "FAILED/s", right: true, spare: 1}, {title: "LAST", right: true, spare: 7}, {title: "STATE"}},
	},
	providers: {
		name: "providers", sort: 1, rows: providerRows, empty: "the configuration has no provider, and no mail was sent yet",
		columns: []column{{title: "PROVIDER"}, {title: queuedTitle, right: true}, {title: "DEFERRED", right: true}, {title: "CONNS", right: true, spare: 2}, {title: "SENT/s", right: true},
			{title: "DEFERRED/s", right: true, spare: 1}, {title: "BOUNCED/s", right: true, spare: 3}, {title: "DELAY p50", right: true, spare: 5}, {title: "p99", right: true, spare: 4}},
	},
	sources: {
		name: "sources", sort: 0, rows: sourceRows, empty: "the configuration has no source",
		columns: []column{{title: "SOURCE"}, {title: "ADDRESS", spare: 5}, {title: "STATE"}, {title: queuedTitle, right: true, spare: 6}, {title: "CONNS", right: true, spare: 3}, {title: "WAITING", right: true, spare: 4},
			{title: "RUNNING", right: true, spare: 7}, {title: "SENT/s", right: true}, {title: "FAILED/s", right: true, spare: 1}},
	},
	tenants: {
		name: "tenants", sort: 2, rows: tenantRows, empty: "the configuration has no tenant",
		columns: []column{{title: "TENANT"}, {title: "POOL", spare: 6}, {title: queuedTitle, right: true}, {title: "IN/s", right: true}, {title: "REFUSED/s", right: true, spare: 4}, {title: "SENT/s", right: true},
			{title: "FAILED/s", right: true, spare: 3}, {title: "CONNS", right: true, spare: 5}, {title: "STATE"}},
	},
	warmups: {
		name: "warm-ups", sort: 0, rows: warmupRows, empty: "no source has a plan: give it one where a pool dedicates it",
		columns: []column{{title: "SOURCE"}, {title: "IP", spare: 5}, {title: "PLAN", spare: 6}, {title: "STATE"}, {title: "STAGE", right: true}, {title: "HOUR", right: true, spare: 2}, {title: "DAY", right: true},
			{title: "THROTTLE", right: true, spare: 3}},
	},
	connections: {
		name: "connections", sort: 6, rows: connectionRows, empty: "no connection is open",
		columns: []column{{title: "PEER"}, {title: "DIR"}, {title: "STATE", spare: 3}, {title: "SITE OR LISTENER", spare: 6}, {title: "SOURCE", spare: 7}, {title: "TLS", spare: 5}, {title: "AGE", right: true},
			{title: "IDLE", right: true, spare: 2}, {title: "MESSAGES", right: true, spare: 1}, {title: "WINDOW", right: true, spare: 8}},
	},
}

// Tables are the names of all tables.
func Tables() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

func siteRows(d *Data) (rows []row) {
	for i := range d.Sites {
		s := &d.Sites[i]
		of := d.latest(s.Name)
		state, st := "-", plain
		switch {
		case len(s.Actions) > 0:
			state, st = s.Actions[0].What, bad
		case s.Why != "" && s.Waiting+s.Parked > 0:
			state, st = "waiting", waiting
		case s.Running > 0:
			state, st = "sending", good
		case s.Why != "":
			state, st = "retry", waiting
		}
		rows = append(rows, row{
			key: s.Name, site: s.Name, style: st, note: join(siteNote(s, d.Time), lastError(&s.Tally, d.Time)),
			cells: []value{word(s.Name), word(s.Provider), count(s.Queued), {fmt.Sprintf("%d/%d", s.Connections, s.SlowStart), float64(s.Connections), true}, count(s.Waiting + s.Parked),
				count(s.Deferred), rate(of, "delivered"), rate(of, "deferred", "bounced"), ago(d.Time, s.LastGood), word(state)},
		})
	}
	return rows
}

// siteNote is what holds back mail for a site.
func siteNote(s *api.Site, now time.Time) string {
	var notes []string
	for _, a := range s.Actions {
		from := ""
		if a.Source != "" {
			from = " from " + a.Source
		}
		notes = append(notes, fmt.Sprintf("%s%s for %s more: %s", a.What, from, short.Left(a.End.Sub(now)), a.Reason))
	}
	if s.Why != "" && len(notes) == 0 {
		begin := "can't be tried: "
		if s.Waiting+s.Parked > 0 {
			begin = "waits: "
		}
		if left := s.Until.Sub(now); !s.Until.IsZero() && left >= time.Second {
			return begin + s.Why + " (for " + short.Left(left) + " more)"
		}
		return begin + s.Why
	}
	return strings.Join(notes, "; ")
}

func lastError(t *api.Tally, now time.Time) string {
	if t.LastError == nil {
		return ""
	}
	return "last error " + short.Age(now.Sub(t.ErrorAt)) + " ago: " + t.LastError.String()
}

// join joins the notes that there are.
func join(notes ...string) string {
	var all []string
	for _, n := range notes {
		if n != "" {
			all = append(all, n)
		}
	}
	return strings.Join(all, "; ")
}

// noProvider is what the sites that are no provider's are called.
const noProvider = "(none)"

func providerRows(d *Data) (rows []row) {
	for i := range d.Providers {
		p := &d.Providers[i]
		of := d.latest(p.Name)
		if p.Name == "" {
			of = d.latest(api.OtherSubjects)
		}
		rows = append(rows, row{
			key: p.Name, note: lastError(&p.Tally, d.Time),
			cells: []value{word(cmp.Or(p.Name, noProvider)), whole(of, "queued"), whole(of, "queued_deferred"), count(p.Load.Connections),
				rate(of, "delivered"), rate(of, "deferred"), rate(of, "bounced"), seconds(of, "delay_p50"), seconds(of, "delay_p99")},
		})
	}
	return rows
}

var sourceStyles = map[string]style{api.SourceSending: good, api.SourceWarming: waiting, api.SourcePaused: bad, api.SourceMissing: bad}

func sourceRows(d *Data) (rows []row) {
	for i := range d.Sources {
		s := &d.Sources[i]
		of := d.latest(s.Name)
		rows = append(rows, row{
			key: s.Name, source: s.Name, style: sourceStyles[s.State], note: join(s.Reason, lastError(&s.Tally, d.Time)),
			cells: []value{word(s.Name), word(s.Address), word(s.State), whole(of, "queued"), count(s.Load.Connections), count(s.Load.Waiting), count(s.Load.Running),
				rate(of, "delivered"), rate(of, "deferred", "bounced")},
		})
	}
	return rows
}

// noTenant is what mail of nobody in particular is called.
const noTenant = "(none)"

func tenantRows(d *Data) (rows []row) {
	for i := range d.Tenants {
		t := &d.Tenants[i]
		of := d.latest(t.Name)
		queued, conns := count(t.Queued), value{text: "-", by: -1, figure: true}
		state, st, note := "-", plain, ""
		if u := t.Use; u != nil {
			conns = value{fmt.Sprint(u.Connections), float64(u.Connections), true}
			if u.MaxConnections > 0 {
				conns.text += fmt.Sprintf("/%d", u.MaxConnections)
			}
			if u.Over != "" {
				state, st, note = "over quota", waiting, "the next message would be over the limit of "+u.Over
			}
		}
		if t.Paused != "" {
			state, st, note = "paused", bad, t.Paused
		}
		rows = append(rows, row{
			key: t.Name, tenant: t.Name, style: st, note: join(note, lastError(&t.Tally, d.Time)),
			cells: []value{word(cmp.Or(t.Name, noTenant)), word(t.Pool), queued, rate(of, "accepted"), rate(of, "refused"), rate(of, "delivered"), rate(of, "deferred", "bounced"), conns, word(state)},
		})
	}
	return rows
}

var warmupStyles = map[string]style{api.WarmupNormal: good, api.WarmupWarm: good, api.WarmupScheduled: waiting, api.WarmupUnknown: waiting, api.WarmupPaused: bad, api.WarmupStoreDown: bad, api.WarmupCorrupt: bad}

func warmupRows(d *Data) (rows []row) {
	of := func(w *api.Warmup, sent, limit int64) value {
		text := fmt.Sprint(sent)
		if limit > 0 && w.State != api.WarmupWarm {
			text = fmt.Sprintf("%d/%d", sent, limit)
		}
		return value{text, float64(sent), true}
	}
	for i := range d.Warmups {
		w := &d.Warmups[i]
		because := w.Outlook
		if w.OutlookProvider != "" {
			because += " (" + w.OutlookProvider + ")"
		}
		cells := []value{word(w.Source), word(w.IP), word(w.Plan), word(w.State)}
		if w.Stage == 0 { // its ledger was not read
			unknown := value{text: "-", by: -1, figure: true}
			cells = append(cells, unknown, unknown, unknown, unknown)
		} else {
			cells = append(cells, value{fmt.Sprintf("%d/%d", w.Stage, w.TotalStages), float64(w.Stage), true},
				of(w, w.SentHour, w.HourlyLimit), of(w, w.SentDay, w.StageLimit), value{fmt.Sprintf("%.2f", w.Throttle), w.Throttle, true})
		}
		rows = append(rows, row{key: w.Source, source: w.Source, style: warmupStyles[w.State], note: join(w.Paused, because, w.Advice), cells: cells})
	}
	return rows
}

func connectionRows(d *Data) (rows []row) {
	for i := range d.Connections {
		c := &d.Connections[i]
		secured, verified := "-", ""
		if c.TLS != nil {
			if secured = strings.TrimPrefix(c.TLS.Version, "TLSv"); c.TLS.VerifiedBy != "" {
				verified = "verified by " + c.TLS.VerifiedBy
			}
		}
		window := value{text: "-", by: -1, figure: true}
		if c.Window > 0 {
			window = count(c.Window)
		}
		reply := ""
		if c.LastReply != nil {
			reply = "last reply: " + c.LastReply.String()
		}
		rows = append(rows, row{
			key: c.ID, site: c.Site, source: c.Source, tenant: c.Tenant, incoming: c.Direction == api.Incoming,
			note: join(c.PeerName, c.Protocol, c.Mode, verified, reply),
			cells: []value{word(c.Peer), word(string(c.Direction)), word(string(c.State)), word(cmp.Or(c.Site, c.Listener)), word(c.Source), word(secured),
				ago(d.Time, c.Since), ago(d.Time, c.IdleSince), count(c.Messages), window},
		})
	}
	return rows
}
