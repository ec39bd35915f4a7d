package top

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"example.org/mta/internal/legible"
	"example.org/mta/operator/api"
)

// verb is what an operator does to a row.
type verb string

const (
	suspend verb = "suspend"
	resume  verb = "resume"
	closing verb = "close"
)

// action is one that an operator has asked for.
type action struct {
	verb   verb
	table  Table
	row    row
	expect int     // what the dry run has counted
	length api.Age // of a suspension; 0: until it is resumed
	reason string
}

// found is what an action would touch.
type found struct {
	count int
	what  string // in words: "2845 recipients queued"
}

// dialog asks for what an action lacks, one line at a time, and then for a yes.
type dialog struct {
	action  action
	found   found
	fields  []field
	at      int // of fields; behind the last: the yes
	trouble string
	counted bool
	busy    bool // the relay is asked: first to count, then to carry it out
}

// field is a line that is typed.
type field struct {
	label, hint string
	text        string
}

const (
	lengthLabel = "for how long"
	reasonLabel = "reason"
)

// ask begins an action on the chosen row: it asks the relay what that would touch.
func (m *Model) ask(v verb) []any {
	r := m.chosen()
	if r == nil {
		return nil
	}
	if why := v.refused(m.table, r); why != "" {
		m.note = why
		return nil
	}
	a := action{verb: v, table: m.table, row: *r}
	m.dialog = &dialog{action: a, busy: true} // at once, or the keys that follow would act on the table
	return []any{dryRun{a}}
}

// refused is why a verb is not for a row; "" if it is.
func (v verb) refused(t Table, r *row) string {
	switch {
	case v == closing && t != connections:
		return "only connections can be closed"
	case v == closing:
		return ""
	case t == connections:
		return "a connection can be closed (c); a site or a source can be suspended"
	case t == providers:
		return "a provider can't be suspended: choose its sites with Enter"
	case t == tenants && r.key == "":
		return "mail of no tenant can't be paused by its tenant"
	}
	return ""
}

// subject is what an action is on, in words.
func (a *action) subject() string {
	text := kinds[a.table].subject + " " + a.row.cells[0].Text
	switch {
	case a.row.node == 0:
		return text
	case a.table == connections || a.table == warmups:
		return fmt.Sprintf("%s at node %d", text, a.row.node)
	}
	return text + " at all nodes" // they share suspensions and rules
}

// at has the node of the row answer.
func (a *action) at(ctx context.Context) context.Context { return api.AtNode(ctx, a.row.node) }

// does is the verb for the subject: only mail to sites is suspended, all else is paused.
func (a *action) does() string {
	if a.verb == suspend && a.table != sites {
		return "pause"
	}
	return string(a.verb)
}

// counted has the dialog ask, or ask again when the count is another one than was confirmed.
func (m *Model) counted(c counted) {
	d := m.dialog
	switch {
	case d == nil || !d.busy: // it was left
		return
	case c.err != nil:
		m.dialog, m.note = nil, textOr("", c.err)
		return
	case c.found.count == 0:
		m.dialog, m.note = nil, "nothing to do: "+c.found.what
		return
	case d.counted:
		d.trouble = fmt.Sprintf("it was %d when you confirmed", d.found.count)
		d.busy, d.found, d.action.expect = false, c.found, c.found.count
		return
	}
	d.counted, d.busy, d.found, d.action.expect = true, false, c.found, c.found.count
	switch {
	case c.action.verb == suspend && c.action.table == sites:
		d.fields = append(d.fields, field{lengthLabel, "as 30m, 2h, 1d; at most " + api.MaxSuspension.String(), "30m"})
	case c.action.verb == suspend && c.action.table != warmups:
		d.fields = append(d.fields, field{lengthLabel, "as 30m, 2h, 1d; nothing: until it is resumed", ""})
	}
	d.fields = append(d.fields, field{label: reasonLabel, hint: "for those who ask why, and for the audit log"})
}

// answerDialog is a key on a dialog.
func (m *Model) answerDialog(k Key) []any {
	d := m.dialog
	switch {
	case d.busy && (d.counted || k != keyEscape):
		return nil
	case k == keyEscape:
		m.dialog, m.note = nil, "nothing was changed"
	case d.at < len(d.fields):
		d.fill(k)
	case k == "y" || k == "Y":
		d.busy, d.trouble = true, ""
		return []any{carry{d.action}}
	case k == "n" || k == "N" || k == "q":
		m.dialog, m.note = nil, "nothing was changed"
	case k == keyUp || k == keyBacktab || k == keyBackspace:
		d.at--
	}
	return nil
}

// fill types into the field of the dialog, and takes it at Enter.
func (d *dialog) fill(k Key) {
	f := &d.fields[d.at]
	switch k {
	case keyUp, keyBacktab:
		d.at = max(0, d.at-1)
	case keyEnter, keyDown, keyTab:
		if d.trouble = d.take(f); d.trouble == "" {
			d.at++
		}
	default:
		f.text = typed(f.text, k)
	}
}

// take reads a field into the action and says what is wrong with it.
func (d *dialog) take(f *field) string {
	text := strings.TrimSpace(f.text)
	switch {
	case f.label == reasonLabel:
		d.action.reason = text
		return ""
	case text == "" && d.action.table != sites:
		d.action.length = 0
		return ""
	}
	length, err := api.ParseAge(text)
	switch {
	case err != nil:
		return err.Error()
	case length <= 0 || d.action.table == sites && length > api.MaxSuspension:
		return fmt.Sprintf("want a time of at most %v", api.MaxSuspension)
	}
	d.action.length = length
	return ""
}

// question is what is confirmed.
func (d *dialog) question() string {
	a := &d.action
	q := a.does() + " " + a.subject()
	if a.verb == suspend && a.table != warmups {
		if a.length > 0 {
			q += " for " + a.length.String()
		} else {
			q += " until it is resumed"
		}
	}
	return q + "?"
}

// count asks what the action would touch.
func (a *action) count(ctx context.Context, relay *api.Client) counted {
	dry := *a
	if dry.length == 0 && a.table == sites {
		dry.length = shortSuspension // any that is allowed
	}
	e, what, err := dry.carry(ctx, relay, "", api.Intent{DryRun: true})
	return counted{*a, found{e.Count, what}, err}
}

const shortSuspension = api.Age(time.Minute)

// do carries the action out. If it would touch something else than was confirmed, it is counted anew instead.
func (a *action) do(ctx context.Context, relay *api.Client, caller string) any {
	_, _, err := a.carry(api.WithReason(ctx, a.reason), relay, caller, api.Intent{Expect: &a.expect})
	if e := (*api.Error)(nil); errors.As(err, &e) && e.Status == http.StatusConflict && e.Count != nil {
		return a.count(ctx, relay)
	}
	return done{a.does() + " " + a.subject() + ": done", err}
}

// carry asks for the action, or only what it would touch, which it also says in words.
func (a *action) carry(ctx context.Context, relay *api.Client, caller string,
	in api.Intent) (api.Effect, string, error) {
	name := a.row.key
	switch {
	case a.table == sites && a.verb == suspend:
		s, err := api.OpSuspend.Call(ctx, relay, api.Suspend{Intent: in, Site: name, For: a.length, Reason: a.reason})
		return s.Effect, fmt.Sprintf("it serves %s; %s", plural(s.Domains, "known domain"), a.waiting()), err
	case a.table == sites:
		s, err := api.OpResume.Call(ctx, relay, api.Resume{Intent: in, Site: name})
		return s.Effect, plural(s.Ended, "suspension") + " would end", err
	case a.table == connections:
		c, err := api.OpCloseConnections.Call(ctx, relay, api.CloseConnections{Intent: in, IDs: []string{name}})
		if c.Busy > 0 {
			return c.Effect, "what it has begun is finished first", err
		}
		return c.Effect, "nothing is under way on it", err
	case a.table == warmups:
		do := map[verb]api.WarmupAction{suspend: api.WarmupPause, resume: api.WarmupResume}[a.verb]
		w, err := api.OpChangeWarmup[do].Call(ctx, relay, api.StageChoice{Intent: in}, name)
		return w.Effect, fmt.Sprintf("it is on stage %d of %d", w.Stage, w.TotalStages), err
	}
	mail := api.Selection{Tenant: name}
	if a.table == sources {
		mail = api.Selection{Source: name}
	}
	if a.verb == suspend {
		b := api.AddRule{Intent: in, Action: api.RuleSuspend, Selection: mail, Reason: a.reason, By: caller}
		if a.length > 0 {
			b.For = &a.length
		}
		r, err := api.OpAddRule.Call(ctx, relay, b)
		return r.Effect, a.waiting(), err
	}
	r, err := api.OpEndRule.Call(ctx, relay, api.EndRule{Intent: in, Action: api.RuleSuspend, Selection: mail})
	return r.Effect, a.waiting(), err
}

// waiting returns how many recipients wait in the queue for the subject.
func (a *action) waiting() string {
	for i, c := range kinds[a.table].columns {
		if v := &a.row.cells[i]; c.title == queuedTitle && v.By >= 0 {
			return plural(int(v.By), "recipient") + " queued"
		}
	}
	return "the number of queued recipients is not known"
}

func plural(n int, noun string) string { return legible.Count(n, noun) }

// addressOf is the network of one address of a peer as "ip:port"; the zero Prefix if it has none.
func addressOf(peer string) netip.Prefix {
	a, err := netip.ParseAddrPort(peer)
	if err != nil {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a.Addr(), a.Addr().BitLen())
}
