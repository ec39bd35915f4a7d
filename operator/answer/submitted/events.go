package submitted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.org/mta/mta/accounting"
	"example.org/mta/mta/events"
	"example.org/mta/submission/http"
)

// Events gives tenants their events over HTTP.
type Events struct{ Puller *events.Puller }

// Pull implements http.Events.
func (t Events) Pull(ctx context.Context, tenant string, q http.EventQuery) (http.EventPage, error) {
	p, err := t.Puller.Pull(ctx,
		events.Pull{Tenant: tenant, After: q.After, Limit: q.Limit, Brief: q.Brief, Wait: q.Wait, Hurry: q.Hurry})
	switch {
	case errors.Is(err, events.ErrAfter):
		err = http.ErrNoEvent
	case errors.Is(err, events.ErrWaiting):
		err = http.ErrWaiting
	}
	page := http.EventPage{Events: make([]json.RawMessage, len(p.Events)), Next: p.Next}
	for i, e := range p.Events {
		page.Events[i] = e
	}
	return page, err
}

// lookPause is how long a request that waits for events waits for those of this node, before it asks the others again.
const lookPause = 5 * time.Second

// silence is for how long a node is not asked for events that has not answered: else each page would wait for it.
const silence = 10 * time.Second

// place is how far a request has read the events of a node.
type place struct {
	node  int
	after string // as http.EventQuery.After
}

// readPlaces reads an After of the events of all nodes: node:after, with commas between them. Another After is where
// all begin, and so do nodes that it doesn't name with their oldest event. Nodes that are none any more are left out.
func readPlaces(text string, self int, nodes []int, now time.Time) (all []place, err error) {
	begin := ""
	if number, _, ofAll := strings.Cut(text, ":"); ofAll && isNode(number) {
		for part := range strings.SplitSeq(text, ",") {
			number, after, _ := strings.Cut(part, ":")
			if after, err = url.QueryUnescape(after); err != nil || !isNode(number) {
				return nil, http.ErrNoEvent
			}
			node, _ := strconv.Atoi(number)
			named := func(p place) bool { return p.node == node }
			if slices.Contains(nodes, node) && !slices.ContainsFunc(all, named) {
				all = append(all, place{node, after})
			}
		}
	} else {
		begin = text
	}
	for _, node := range nodes {
		if slices.ContainsFunc(all, func(p place) bool { return p.node == node }) {
			continue
		}
		after := begin
		if begin == "now" && node != self { // it may be asked later
			after = "@" + now.UTC().Format(time.RFC3339Nano)
		}
		all = append(all, place{node, after})
	}
	return all, nil
}

// isNode reports whether a text is the number of a node.
func isNode(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 1 && n <= 1023
}

func writePlaces(all []place) string {
	var parts []string
	for _, p := range all {
		parts = append(parts, fmt.Sprintf("%d:%s", p.node, url.QueryEscape(p.after)))
	}
	return strings.Join(parts, ",")
}

// strange makes of an After that its node does not know one that it does: the node that made it was another one, or has
// lost its log. What happened since then may have been seen, or not: it comes again.
func strange(after string) (since string, ok bool) {
	if i := strings.LastIndex(after, "@"); i >= 0 {
		after = after[:i]
	}
	_, at, err := accounting.ParseEventID(strings.TrimSuffix(after, "-next"))
	return "@" + time.Unix(at.File, 0).UTC().Format(time.RFC3339), err == nil
}

// Pull implements http.Events. Next of a page is for all nodes.
func (e *Everywhere) Pull(ctx context.Context, tenant string, q http.EventQuery) (page http.EventPage, err error) {
	if e.Nodes == nil {
		return e.Events.Pull(ctx, tenant, q)
	}
	others, err := e.others()
	if err != nil {
		return page, err
	}
	self := e.Nodes.Self()
	all, err := readPlaces(q.After, self, append([]int{self}, others...), e.Now())
	if err != nil {
		return page, err
	}
	for end := e.Now().Add(q.Wait); ; {
		if page, err = e.pullAll(ctx, tenant, q.Limit, all); err != nil {
			return page, err
		}
		left := end.Sub(e.Now())
		if len(page.Events) > 0 || left <= 0 {
			break
		}
		own := &all[slices.IndexFunc(all, func(p place) bool { return p.node == self })]
		mine, err := e.Events.Pull(ctx, tenant,
			http.EventQuery{After: own.after, Limit: q.Limit, Wait: min(left, lookPause), Hurry: q.Hurry})
		if err != nil {
			return page, err
		}
		page.Events, own.after = mine.Events, mine.Next
		if len(page.Events) > 0 || leaving(q.Hurry) {
			break
		}
	}
	page.Next = writePlaces(all)
	return page, nil
}

func leaving(hurry <-chan struct{}) bool {
	select {
	case <-hurry:
		return true
	default:
		return false
	}
}

// pullAll asks nodes for their parts of a page, and notes how far they were read. Those that were asked stand last,
// so that it is the turn of the others where there are more nodes than events on a page.
func (e *Everywhere) pullAll(ctx context.Context, tenant string, limit int, all []place) (
	page http.EventPage, err error) {
	self, may := e.Nodes.Self(), len(all) == 1 || e.may(tenant) // else the others are asked next time
	var asked []int                                             // places
	for i, p := range all {
		switch {
		case len(asked) == limit, p.node != self && !may:
		case p.node != self && !e.heard(p.node):
			page.Unanswered = append(page.Unanswered, p.node)
		default:
			asked = append(asked, i)
		}
	}
	type answer struct {
		http.EventPage
		err error
	}
	answers := make([]answer, len(asked))
	var together sync.WaitGroup
	for n, i := range asked {
		together.Go(func() {
			a, p, part := &answers[n], all[i], limit/len(asked)
			if p.node == self {
				a.EventPage, a.err = e.Events.Pull(ctx, tenant, http.EventQuery{After: p.after, Limit: part})
				return
			}
			var theirs answered
			theirs, a.err = e.ask(ctx, p.node, question{Do: "events", Tenant: tenant, After: p.after, Limit: part})
			a.EventPage = theirs.Events
		})
	}
	together.Wait()
	for n, i := range asked {
		a, p := answers[n], &all[i]
		since, before := strange(p.after)
		switch {
		case a.err == nil:
			page.Events, p.after = append(page.Events, a.Events...), a.Next
		case errors.Is(a.err, http.ErrNoEvent) && before:
			p.after = since
		case errors.Is(a.err, http.ErrNoEvent), p.node == self:
			return page, a.err
		default:
			page.Unanswered = append(page.Unanswered, p.node)
		}
	}
	slices.Sort(page.Unanswered)
	turned := make([]place, 0, len(all))
	for i, p := range all {
		if !slices.Contains(asked, i) {
			turned = append(turned, p)
		}
	}
	for _, i := range asked {
		turned = append(turned, all[i])
	}
	copy(all, turned)
	return page, nil
}

// heard reports whether a node may be asked for events: it has not failed to answer of late, or it is time to try.
func (e *Everywhere) heard(node int) bool {
	now := e.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	since, silent := e.silent[node]
	if silent && now.Sub(since) < silence {
		return false
	}
	if silent { // one request tries
		e.silent[node] = now
	}
	return true
}

// spoke notes whether a node has answered.
func (e *Everywhere) spoke(node int, well bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case well:
		delete(e.silent, node)
	case e.silent == nil:
		e.silent = map[int]time.Time{node: e.Now()}
	default:
		e.silent[node] = e.Now()
	}
}
