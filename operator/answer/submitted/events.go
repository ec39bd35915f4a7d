package submitted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.org/mta/mta/events"
	"example.org/mta/submission/http"
)

// Events gives tenants their events over HTTP.
type Events struct{ Puller *events.Puller }

// Pull implements http.Events.
func (t Events) Pull(ctx context.Context, tenant string, q http.EventQuery) (http.EventPage, error) {
	p, err := t.Puller.Pull(ctx,
		events.Pull{Tenant: tenant, After: q.After, Limit: q.Limit, Wait: q.Wait, Hurry: q.Hurry})
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
const lookPause = 2 * time.Second

// mostPlaces is how many nodes an After can name: so many can there be.
const mostPlaces = 1023

// place is how far a request has read the events of a node.
type place struct {
	node  int
	after string // as http.EventQuery.After
}

// readPlaces reads an After of the events of several nodes: node:after, with commas between them. Nodes that it doesn't
// name are read from the oldest event on.
func readPlaces(text string, nodes []int) (all []place, err error) {
	begin := ""
	if strings.Contains(text, ":") {
		for part := range strings.SplitSeq(text, ",") {
			number, after, _ := strings.Cut(part, ":")
			node, err := strconv.Atoi(number)
			named := func(p place) bool { return p.node == node }
			if err != nil || len(all) == mostPlaces || slices.ContainsFunc(all, named) {
				return nil, http.ErrNoEvent
			}
			all = append(all, place{node, after})
		}
	} else {
		begin = text
	}
	for _, node := range nodes {
		if !slices.ContainsFunc(all, func(p place) bool { return p.node == node }) {
			all = append(all, place{node, begin})
		}
	}
	return all, nil
}

func writePlaces(all []place) string {
	var parts []string
	for _, p := range all {
		parts = append(parts, fmt.Sprintf("%d:%s", p.node, p.after))
	}
	return strings.Join(parts, ",")
}

// Pull implements http.Events. Next of a page is for all nodes. An event_id is of this node, and so is what follows it.
func (e *Everywhere) Pull(ctx context.Context, tenant string, q http.EventQuery) (page http.EventPage, err error) {
	others, err := e.others()
	ofAll := strings.Contains(q.After, ":")
	switch {
	case e.Nodes == nil, !ofAll && q.After != "" && q.After != "now", !ofAll && err == nil && len(others) == 0:
		return e.Events.Pull(ctx, tenant, q)
	case err != nil:
		return page, err
	}
	self := e.Nodes.Self()
	all, err := readPlaces(q.After, append([]int{self}, others...))
	if err != nil {
		return page, err
	}
	for end := e.Now().Add(q.Wait); ; {
		if page, err = e.pullAll(ctx, tenant, q.Limit, all, others); err != nil {
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
func (e *Everywhere) pullAll(ctx context.Context, tenant string, limit int, all []place, others []int) (
	page http.EventPage, err error) {
	if len(others) > 0 && !e.may(tenant) {
		return page, http.ErrWaiting
	}
	self := e.Nodes.Self()
	var asked []int // places
	for i, p := range all {
		if len(asked) < limit && (p.node == self || slices.Contains(others, p.node)) {
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
		switch a := answers[n]; {
		case a.err == nil:
			page.Events, all[i].after = append(page.Events, a.Events...), a.Next
		case errors.Is(a.err, http.ErrNoEvent), all[i].node == self:
			return page, a.err
		default:
			page.Unanswered = append(page.Unanswered, all[i].node)
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
