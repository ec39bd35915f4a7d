package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/operator/everywhere"
)

// askSilent is for how long a node is waited for that had not answered for the screen before.
const askSilent = time.Second / 2

// askAll asks all nodes of the cluster for a screen.
func (f *fetch) askAll(ctx context.Context, relay *api.Client, now time.Time) (*Data, error) {
	nodes, err := everywhere.Nodes(ctx, relay)
	if err != nil {
		return nil, err
	}
	before := make(map[int]error)
	for _, silent := range f.silent {
		before[silent.Node] = silent.Err
	}
	took := make([]time.Duration, len(nodes))
	found, failed := everywhere.Ask(ctx, nodes, func(ctx context.Context, node int) (d Data, err error) {
		begun := time.Now()
		if before[node] != nil {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, askSilent)
			defer cancel()
		}
		one, err := f.ask(ctx, relay, now)
		if errors.Is(err, context.DeadlineExceeded) && before[node] != nil {
			return d, before[node]
		} else if err != nil {
			return d, err
		}
		took[slices.Index(nodes, node)] = time.Since(begun)
		return *one, nil
	})
	if len(found) == 0 {
		return nil, cmp.Or(failed.Same(len(nodes)), error(failed))
	}
	d := together(found, failed)
	d.Time, d.took = now, slices.Max(took)
	return d, nil
}

// together is a screen of what nodes have answered: their rows, and the sums of the rest.
func together(found []everywhere.Row[Data], failed everywhere.Failures) *Data {
	first := found[0].Value
	d := &Data{Nodes: found, Failed: failed, table: first.table}
	s := &d.Status
	s.Hostname, s.State = plural(len(found)+len(failed), "node"), api.Running
	s.States = make(map[string]int64)
	s.Rules, s.Disk.Free = first.Status.Rules, first.Status.Disk.Free // rules are those of all nodes
	s.Waiting.Median = api.UnknownFigure()
	for _, r := range found {
		at, one, own := fmt.Sprintf("node %d: ", r.Node), r.Value, &r.Value.Status
		d.More = d.More || one.More
		if one.NoHistory != "" {
			d.NoHistory = at + one.NoHistory
		}
		d.addRates(one.Rates)
		if s.Started.Before(own.Started) {
			s.Started = own.Started
		}
		if own.State != api.Running {
			s.State, s.Reason = own.State, at+cmp.Or(own.Reason, own.State)
		}
		if own.Pending != "" {
			s.Pending = at + own.Pending
		}
		for _, a := range own.Alarms {
			a.Reason = at + a.Reason
			s.Alarms = append(s.Alarms, a)
		}
		for state, n := range own.States {
			s.States[state] += n
		}
		s.Queue.Queued += own.Queue.Queued
		s.Rates.Accepted, s.Rates.Delivered = s.Rates.Accepted+own.Rates.Accepted, s.Rates.Delivered+own.Rates.Delivered
		s.Rates.Deferred, s.Rates.Bounced = s.Rates.Deferred+own.Rates.Deferred, s.Rates.Bounced+own.Rates.Bounced
		s.Connections.In, s.Connections.Out = s.Connections.In+own.Connections.In, s.Connections.Out+own.Connections.Out
		s.Connections.Running += own.Connections.Running
		s.Connections.Waiting += own.Connections.Waiting
		s.Memory.Process += own.Memory.Process
		s.Disk.Free = min(s.Disk.Free, own.Disk.Free)
		addWaiting(&s.Waiting, &own.Waiting)
	}
	slices.SortStableFunc(s.Waiting.Reasons, func(a, b api.WaitsFor) int { return b.Recipients - a.Recipients })
	return d
}

// addWaiting adds what waits at a node. A place at two nodes is one.
func addWaiting(sum, one *api.Waiting) {
	sum.Recipients, sum.Leave = sum.Recipients+one.Recipients, sum.Leave+one.Leave
	for _, r := range one.Reasons {
		i := slices.IndexFunc(sum.Reasons, func(x api.WaitsFor) bool { return x.Reason == r.Reason })
		if i < 0 {
			sum.Reasons = append(sum.Reasons, r)
			continue
		}
		x := &sum.Reasons[i]
		x.Recipients, x.Places = x.Recipients+r.Recipients, max(x.Places, r.Places)
		switch {
		case x.Place == r.Place:
			x.AtPlace += r.AtPlace
			if !r.Since.IsZero() && r.Since.Before(x.Since) {
				x.Since = r.Since
			}
		case r.AtPlace > x.AtPlace:
			x.Place, x.AtPlace, x.Since = r.Place, r.AtPlace, r.Since
		}
	}
}

// addRates adds the history of a node; nil: it was not asked for. The newest values stand together.
func (d *Data) addRates(one *api.History) {
	if one == nil {
		return
	}
	if d.Rates == nil {
		d.Rates = &api.History{Of: one.Of, Span: one.Span, Step: one.Step, Start: one.Start,
			Series: make(map[string]api.HistorySeries)}
	}
	for name, more := range one.Series {
		sum := d.Rates.Series[name]
		values := slices.Clone(more.Values)
		for i := range min(len(values), len(sum.Values)) {
			a, b := &values[len(values)-1-i], sum.Values[len(sum.Values)-1-i]
			if !a.Known() {
				*a = b
			} else if b.Known() {
				*a += b
			}
		}
		d.Rates.Series[name] = api.HistorySeries{Unit: more.Unit, Values: values}
	}
}

// all are the rows of a table, at all nodes.
func (k *kind) all(d *Data) (rows []row) {
	if d.Nodes == nil {
		return k.rows(d)
	}
	for _, r := range d.Nodes {
		for _, one := range k.rows(r.Value) {
			one.node = r.Node
			rows = append(rows, one)
		}
	}
	return rows
}

// id is different for each row of a table.
func (r *row) id() string { return fmt.Sprintf("%d %s", r.node, r.key) }
