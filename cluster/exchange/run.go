package exchange

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/mta/cluster/changes"
)

// Limits of a run.
const (
	gather   = 100 * time.Millisecond // in which changes come together
	look     = 500 * time.Millisecond // between two calls
	retry    = 2 * time.Second        // after one without a result
	patience = 10 * time.Second       // with a call
	leave    = 5 * time.Second        // in which what waits is sent after all
	most     = 1000                   // changes of a call, each way
	mend     = time.Minute            // between two looks at a row that could not be applied
	tidy     = time.Hour
	poll     = 200 * time.Millisecond // between two questions what the others have read
	known    = 5 * time.Second        // in which they should have
	deaf     = 15 * time.Second       // of failures that are an alarm
)

// Run exchanges changes as a node until ctx ends, and then sends what waits to an engine that answered last.
func (c *Exchange) Run(ctx context.Context, me changes.Me, e changes.Engine) {
	set := func(e changes.Engine) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.engine, c.me = e, me
	}
	set(e)
	defer set(nil)
	tidied, looked, answered := c.cfg.Now(), time.Time{}, false
	for ctx.Err() == nil {
		again, err := c.step(ctx, me, e)
		if now := c.cfg.Now(); err == nil && now.Sub(looked) >= mend {
			looked, err = now, c.mend(ctx, me, e)
		} else if err == nil && now.Sub(tidied) >= tidy {
			tidied, err = now, c.tidy(ctx, e)
		}
		if ctx.Err() != nil {
			break
		}
		c.ended(err)
		switch answered = err == nil; {
		case !answered:
			pause(ctx, retry, nil)
		case !again:
			pause(ctx, gather, nil)
			pause(ctx, look-gather, c.wake)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leave)
	defer cancel()
	for answered {
		items, _, err := c.take()
		if answered = err == nil && len(items) > 0; answered {
			_, err = c.step(ctx, me, e)
			answered = err == nil
		}
	}
}

func pause(ctx context.Context, d time.Duration, woken <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-woken:
	case <-ctx.Done():
	}
}

// ended notes how a step has ended.
func (c *Exchange) ended(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.failed == nil {
		c.since = c.cfg.Now()
		c.cfg.Log.Error("what the nodes of the cluster know is not exchanged", "error", err)
	} else if err == nil && c.failed != nil {
		c.cfg.Log.Info("what the nodes of the cluster know is exchanged again")
	}
	c.failed = err
	switch {
	case err == nil:
		c.most = min(2*c.most, most)
	case errors.Is(err, context.DeadlineExceeded):
		c.most = max(c.most/2, 1)
	}
}

// newest is the last serial of this node's changes.
func (c *Exchange) newest() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *Exchange) tidy(ctx context.Context, e changes.Engine) error {
	for {
		waiting, cancel := context.WithTimeout(ctx, patience)
		n, err := e.Tidy(waiting, most)
		if cancel(); err != nil || n < most {
			return err
		}
	}
}

// step makes a call, and reports whether there is more to be done at once.
func (c *Exchange) step(ctx context.Context, me changes.Me, e changes.Engine) (again bool, err error) {
	if err := c.join(ctx); err != nil {
		return false, err
	}
	items, more, err := c.take()
	if err != nil {
		return false, err
	}
	parts, sent, err := c.parts(ctx, me, items)
	if err != nil {
		return false, err
	}
	began := c.cfg.Now()
	r, size, err := c.call(ctx, e, me, parts)
	if err != nil {
		return false, err
	} else if r.Stale {
		return true, c.stale(me, r)
	} else if last := c.newest(); r.Serial > last { // it would take later ones for repeated
		return false, fmt.Errorf("the row of node %d in mta_cluster.readers has the serial %d, and this node "+
			"has sent %d: correct the serial", me.Node, r.Serial, last)
	}
	if err := c.settle(ctx, me, items, sent, &r); err != nil {
		return false, err
	}
	c.mu.Lock()
	moved := r.Origin != c.state.Origin
	if !moved && !c.asked.IsZero() {
		c.age = c.cfg.Now().Sub(c.asked)
	}
	c.mu.Unlock()
	if moved { // to another timeline: what was read may be gone
		return true, c.saved(func(s *state) {
			s.Origin = r.Origin
			for kind := range s.Read {
				s.Read[kind] = 0
			}
		})
	}
	full := len(r.Rows) > 0 && len(r.Rows) == size && r.Rows[size-1].Number <= r.Last
	if err = c.receive(ctx, &r); err == nil && !full && !c.Whole() {
		if err = c.saved(func(s *state) { s.Whole = true }); err == nil {
			c.whole.Store(true)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.age = unknown
	if err == nil && !full {
		c.asked = began
	}
	return more || full, err
}

func (c *Exchange) saved(change func(*state)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.save(change)
}

// join notes all keys of each kind that is new to this node. Its values are older than all that the engine has.
func (c *Exchange) join(ctx context.Context) error {
	for _, kind := range slices.Sorted(maps.Keys(c.kinds)) {
		c.mu.Lock()
		_, joined := c.state.Read[kind]
		joined = joined || c.state.Era == ""
		c.mu.Unlock()
		if joined {
			continue
		}
		err := c.kinds[kind].All(ctx, func(keys []string) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.note(kind, keys, 0)
		})
		if err == nil {
			err = c.saved(func(s *state) { s.Read[kind] = 0 })
		}
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

// parts makes those of items, and returns which items they are of: what can't be sent is left out, with an alarm.
func (c *Exchange) parts(ctx context.Context, me changes.Me, items []item,
) (parts []changes.Part, sent []int, err error) {
	keys := make(map[string][]string)
	for _, x := range items {
		keys[x.kind] = append(keys[x.kind], x.key)
	}
	values := make(map[string]map[string][]byte)
	for kind, some := range keys {
		if k := c.kinds[kind]; k != nil {
			if values[kind], err = k.Get(ctx, some); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", kind, err)
			}
		}
	}
	for i, x := range items {
		p := changes.Part{Kind: x.kind, Key: x.key, Serial: x.serial, Seen: x.seen, Value: values[x.kind][x.key]}
		if values[x.kind] == nil { // of another version of this program
			continue
		}
		if p.Rank, p.Until, err = c.rank(x.kind, x.key, p.Value, len(p.Value)); err != nil {
			c.fault(unsent+x.kind, fmt.Sprintf("change %d of node %d, of kind %s, is not sent to the others: %v",
				x.serial, me.Node, x.kind, err))
			continue
		}
		parts, sent = append(parts, p), append(sent, i)
	}
	return parts, sent, nil
}

// rank looks at a value on its way to or from the engine.
func (c *Exchange) rank(kind, key string, value []byte, size int) (rank int, until time.Time, err error) {
	switch {
	case len(key) > changes.MaxKey || size > changes.MaxValue:
		return 0, until, fmt.Errorf("it has %d octets", len(key)+size)
	case value == nil:
		return 0, until, nil
	}
	return c.kinds[kind].Look(key, value)
}

// call makes one, from the positions of this node, and returns how many rows it asked for. Those of kinds that a later
// version of this program has read stay as they are.
func (c *Exchange) call(ctx context.Context, e changes.Engine, me changes.Me, parts []changes.Part,
) (r changes.Result, most int, err error) {
	c.mu.Lock()
	call := changes.Call{Me: me, Era: c.state.Era, Acknowledged: c.state.Acknowledged, After: make(map[string]uint64),
		Most: c.most, Parts: parts}
	for kind, n := range c.state.Read {
		if c.kinds[kind] != nil {
			call.After[kind] = n
		}
	}
	if c.state.Me != me {
		call.Era = ""
	}
	c.mu.Unlock()
	r, err = c.ask(ctx, e, call)
	return r, call.Most, err
}

func (c *Exchange) ask(ctx context.Context, e changes.Engine, call changes.Call) (changes.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := e.Changes(ctx, call)
	switch {
	case err != nil:
	case r.Forgotten:
		err = errors.New("this node was forgotten")
	case !r.Stale && len(r.After) != len(call.Parts):
		err = fmt.Errorf("the engine answers %d of %d changes", len(r.After), len(call.Parts))
	}
	return r, err
}

// stale begins anew with another engine, and reports what one has lost.
func (c *Exchange) stale(me changes.Me, r changes.Result) error {
	c.mu.Lock()
	s := c.state
	c.mu.Unlock()
	if s.Me != me || s.Era != r.Era {
		return c.begin(me, r)
	}
	return fmt.Errorf("the cluster's database has lost changes, and nothing is exchanged with it: it has %d, and %d "+
		"of this node's own; this node has read up to %d, and knows of %d. docs/cluster.md has the remedy",
		r.Last, r.Serial, slices.Max(append(slices.Collect(maps.Values(s.Read)), 0)), s.Acknowledged)
}

// settle applies what counts in place of this node's changes, and takes these out of the outbox.
func (c *Exchange) settle(ctx context.Context, me changes.Me, items []item, sent []int, r *changes.Result,
) error {
	if len(items) == 0 {
		return nil
	}
	others, mine := make(map[string][]changes.Row), make(map[string]map[string]item)
	last := make(map[string]uint64)
	for i, row := range r.After {
		if row == nil || row.Number > r.Last { // receive names that
			continue
		}
		x := items[sent[i]]
		last[x.kind] = max(last[x.kind], row.Number)
		if (changes.Me{Node: row.Node, Incarnation: row.Incarnation}) != me {
			if mine[x.kind] == nil {
				mine[x.kind] = make(map[string]item)
			}
			mine[x.kind][x.key] = x
			others[x.kind] = append(others[x.kind], *row)
		}
	}
	for kind, rows := range others {
		if _, err := c.apply(ctx, kind, rows, c.stays(kind, mine[kind])); err != nil {
			return err
		}
		if k, is := c.kinds[kind].(interface{ Overtaken(keys []string) }); is {
			k.Overtaken(slices.Collect(maps.Keys(mine[kind])))
		}
	}
	if err := c.acknowledge(items, sent); err != nil {
		return err
	}
	whole := make(map[string]bool) // kinds of which all was sent
	for i, x := range items {
		_, is := slices.BinarySearch(sent, i)
		before, there := whole[x.kind]
		whole[x.kind] = is && (before || !there)
	}
	for kind, is := range whole {
		if is {
			c.fault(unsent+kind, "")
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for kind, n := range last {
		c.sent[kind] = max(c.sent[kind], n)
	}
	return nil
}

// receive applies rows, and then notes that they were read. Those with numbers that were not given yet would hide what
// gets them.
func (c *Exchange) receive(ctx context.Context, r *changes.Result) error {
	of, ahead := make(map[string][]changes.Row), make(map[string]string)
	for _, row := range r.Rows {
		if c.kinds[row.Kind] == nil {
			return fmt.Errorf("the engine gives changes of kind %q, and was not asked for any", row.Kind)
		}
		if row.Number <= r.Last {
			of[row.Kind] = append(of[row.Kind], row)
		} else if ahead[row.Kind] == "" {
			ahead[row.Kind] = fmt.Sprintf("row %d of the cluster's database, of kind %s and node %d, is not "+
				"applied: the newest number is %d", row.Number, row.Kind, row.Node, r.Last)
		}
	}
	for kind := range c.kinds {
		c.fault(numbered+kind, ahead[kind])
	}
	for kind, rows := range of {
		bad, err := c.apply(ctx, kind, rows, c.stays(kind, nil))
		if err != nil {
			return err
		}
		if err = c.saved(func(s *state) {
			s.Read[kind] = rows[len(rows)-1].Number
			if s.Bad[kind] == 0 && bad != 0 {
				s.Bad[kind] = bad
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// apply has a kind apply rows. It leaves out those that it can't have, and returns the first number of these.
func (c *Exchange) apply(ctx context.Context, kind string, rows []changes.Row, stays func(string) bool,
) (bad uint64, err error) {
	values, from := make(map[string][]byte, len(rows)), make(map[uint16]bool)
	for _, row := range rows {
		if c.isBad(kind, &row) {
			bad = cmp.Or(bad, row.Number)
			continue
		}
		values[row.Key], from[row.Node] = row.Value, true
	}
	if len(values) == 0 {
		return bad, nil
	}
	if err := c.kinds[kind].Apply(ctx, values, stays); err != nil {
		return 0, fmt.Errorf("%s: %w", kind, err)
	}
	if delete(from, c.me.Node); len(from) > 0 {
		c.cfg.Log.Debug("what other nodes have changed is applied", "kind", kind, "changes", len(values), "nodes",
			slices.Sorted(maps.Keys(from)))
	}
	return bad, nil
}

// isBad reports whether a row can't be applied. The alarm has neither its key nor its value: these may be addresses.
func (c *Exchange) isBad(kind string, row *changes.Row) bool {
	_, _, err := c.rank(kind, row.Key, row.Value, max(row.Size, len(row.Value)))
	if err = cmp.Or(row.Fault, err); err != nil {
		c.fault(kind, fmt.Sprintf("row %d of the cluster's database, of kind %s and node %d, is not applied: %v",
			row.Number, kind, row.Node, err))
	}
	return err != nil
}

// mend looks whether the first row of a kind that could not be applied is another one now, or gone: then it is read
// again, with all behind it.
func (c *Exchange) mend(ctx context.Context, me changes.Me, e changes.Engine) error {
	c.mu.Lock()
	bad, era := maps.Clone(c.state.Bad), c.state.Era
	c.mu.Unlock()
	for kind, n := range bad {
		if c.kinds[kind] == nil {
			continue
		}
		r, err := c.ask(ctx, e, changes.Call{Me: me, Era: era, After: map[string]uint64{kind: n - 1}, Most: 1})
		if err != nil || r.Stale {
			return err
		}
		if len(r.Rows) > 0 && r.Rows[0].Number == n && c.isBad(kind, &r.Rows[0]) {
			continue
		}
		c.fault(kind, "")
		if err := c.saved(func(s *state) {
			delete(s.Bad, kind)
			s.Read[kind] = min(s.Read[kind], n-1)
		}); err != nil {
			return err
		}
	}
	return nil
}

// unsent and numbered are before the kind of a fault that is about a change of this node, or a number.
const unsent, numbered = "unsent ", "numbered "

// fault notes what of a kind is not exchanged; "": nothing.
func (c *Exchange) fault(kind, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why == "" {
		delete(c.faults, kind)
	} else if c.faults[kind] == "" {
		c.faults[kind] = why
		c.cfg.Log.Error("a change of the cluster is left out", "error", why)
	}
}

// Trouble returns why what the nodes know is not exchanged, or what of it is not; "" when all is.
func (c *Exchange) Trouble() string {
	if c == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	if c.failed != nil && c.cfg.Now().Sub(c.since) >= deaf {
		all = append(all, fmt.Sprintf("what the nodes know is not exchanged: %v", c.failed))
	}
	for _, kind := range slices.Sorted(maps.Keys(c.faults)) {
		all = append(all, c.faults[kind])
	}
	return strings.Join(all, "; ")
}

// Behind waits until all members have read what this node has changed of a kind, and returns in words which have not
// after 5 s, or when ctx ends; "" if all have, and without a cluster.
func (c *Exchange) Behind(ctx context.Context, kind string) string {
	if c == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, known)
	defer cancel()
	nodes, err := c.behind(ctx, kind)
	switch {
	case err != nil:
		return fmt.Sprintf("the change is not known at the cluster's other nodes yet: %v", err)
	case len(nodes) == 0:
		return ""
	}
	var names []string
	for _, n := range nodes {
		names = append(names, fmt.Sprintf("node %d", n))
	}
	return strings.Join(names, ", ") + " of the cluster: the change is not known there yet"
}

func (c *Exchange) behind(ctx context.Context, kind string) (nodes []uint16, err error) {
	c.mu.Lock()
	want := c.last
	c.mu.Unlock()
	for {
		c.mu.Lock()
		e, acknowledged, number, me := c.engine, c.state.Acknowledged, c.sent[kind], c.me
		c.mu.Unlock()
		switch {
		case e == nil:
			err = errors.New("this relay takes no part in its cluster")
		case acknowledged < want:
			err = errors.New("the cluster's database has not taken it")
		default:
			var read map[uint16]uint64
			if read, err = e.Readers(ctx, kind); err != nil && len(nodes) > 0 && ctx.Err() != nil {
				return nodes, nil // as the last answer had them
			}
			if err == nil {
				nodes = nil
				for node, n := range read {
					if n < number && node != me.Node {
						nodes = append(nodes, node)
					}
				}
				slices.Sort(nodes)
			}
		}
		if err == nil && len(nodes) == 0 || ctx.Err() != nil {
			return nodes, err
		}
		pause(ctx, poll, nil)
	}
}
