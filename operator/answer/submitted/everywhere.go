package submitted

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	nethttp "net/http"
	"slices"
	"sync"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/gcra"
	"example.org/mta/submission/http"
)

// Nodes are the nodes of a cluster.
type Nodes interface {
	// Others are the numbers of the other members.
	Others() []int
	// Ask has another node answer a request, by its Everywhere. The whole answer is in memory, and bounded.
	Ask(ctx context.Context, node int, r *nethttp.Request) (*nethttp.Response, error)
}

// Everywhere answers tenants about their mail at all nodes of a cluster: by its id, wherever it is and was moved, and
// cancels of campaigns, tags and keys are of all nodes. What another node asks is answered of this node alone.
type Everywhere struct {
	http.Messages       // of this node
	Nodes         Nodes // nil: there is no other
	Name          string
	Now           func() time.Time

	mu    sync.Mutex // guards asked
	asked map[string]*gcra.Limiter
}

const (
	// mostHops bounds how often mail that has moved again is followed.
	mostHops = 4
	// mostTenants is how many tenants are counted before those that matter no more go.
	mostTenants = 1024
	// maxQuestion bounds what another node asks, in octets.
	maxQuestion = 64 << 10
)

// rounds is how often the nodes are asked for a tenant.
var rounds = gcra.Rate{Events: 20, Burst: 40}

// question is what a node asks another one for a tenant.
type question struct {
	Do     string // get, cancel or move
	Tenant string
	ID     envelope.ID `json:",omitzero"`
	Cancel http.Cancel `json:",omitzero"`
	At     time.Time   `json:",omitzero"`
}

type answered struct {
	Name    string         // the nodeid of the node
	Message http.Message   `json:",omitzero"`
	Done    http.Cancelled `json:",omitzero"`
	Error   string         `json:",omitempty"`
}

// failures are the errors that go from node to node.
var failures = map[string]error{"no message": http.ErrNoMessage, "two": http.ErrTwo, "released": http.ErrReleased,
	"expires": http.ErrExpires, "busy": http.ErrBusy, "too much": http.ErrTooMuch}

// ServeHTTP answers another node.
func (e *Everywhere) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	var q question
	if err := json.NewDecoder(nethttp.MaxBytesReader(w, r.Body, maxQuestion)).Decode(&q); err != nil {
		nethttp.Error(w, "the question can't be read", nethttp.StatusBadRequest)
		return
	}
	a := answered{Name: e.Name}
	var err error
	switch q.Do {
	case "get":
		a.Message, err = e.Messages.Get(r.Context(), q.Tenant, q.ID)
	case "cancel":
		a.Done, err = e.Messages.Cancel(r.Context(), q.Tenant, q.Cancel)
	case "move":
		err = e.Messages.Move(r.Context(), q.Tenant, q.ID, q.At)
	default:
		err = fmt.Errorf("it has no answer to %.20q", q.Do)
	}
	if err != nil {
		a.Error = err.Error()
		for word, known := range failures {
			if errors.Is(err, known) {
				a.Error = word
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&a)
}

// ask asks a node.
func (e *Everywhere) ask(ctx context.Context, node int, q question) (a answered, err error) {
	body, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	r, err := nethttp.NewRequestWithContext(ctx, nethttp.MethodPost, "http://node/", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	answer, err := e.Nodes.Ask(ctx, node, r)
	if err != nil {
		return a, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != nethttp.StatusOK {
		err = fmt.Errorf("status %d", answer.StatusCode)
	}
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err == nil && a.Error != "" {
		if err = failures[a.Error]; err == nil {
			err = errors.New(a.Error)
		}
	}
	return a, err
}

// askAll asks nodes at the same time. silent are those without an answer to count on.
func (e *Everywhere) askAll(ctx context.Context, nodes []int, q question) (answers map[int]answered, two bool,
	silent []int) {
	all, errs := make([]answered, len(nodes)), make([]error, len(nodes))
	var asked sync.WaitGroup
	for i, n := range nodes {
		asked.Go(func() { all[i], errs[i] = e.ask(ctx, n, q) })
	}
	asked.Wait()
	answers = make(map[int]answered)
	for i, n := range nodes {
		switch {
		case errs[i] == nil:
			answers[n] = all[i]
		case errors.Is(errs[i], http.ErrTwo):
			two = true
		case !errors.Is(errs[i], http.ErrNoMessage):
			silent = append(silent, n)
		}
	}
	return answers, two, silent
}

// may reports whether the nodes are asked for a tenant now.
func (e *Everywhere) may(tenant string) bool {
	now := e.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.asked) >= mostTenants {
		maps.DeleteFunc(e.asked, func(_ string, l *gcra.Limiter) bool { return l.Paid(now) })
	}
	l := e.asked[tenant]
	if l == nil {
		if e.asked == nil {
			e.asked = make(map[string]*gcra.Limiter)
		}
		l = new(gcra.Limiter)
		e.asked[tenant] = l
	}
	if l.Next(now, rounds, 1).After(now) {
		return false
	}
	l.Take(now, rounds, 1)
	return true
}

// others are the nodes that can be asked.
func (e *Everywhere) others() []int {
	if e.Nodes == nil {
		return nil
	}
	return e.Nodes.Others()
}

// copied is a message as a node has it; node 0 is this one.
type copied struct {
	node int
	http.Message
}

// find looks for a message at all nodes, and for what it has become where it was moved. here is what this one has of
// it.
func (e *Everywhere) find(ctx context.Context, tenant string, id envelope.ID, here []copied) (all []copied,
	err error) {
	nodes, next := e.others(), []envelope.ID{id}
	add := func(node int, m http.Message) {
		if slices.ContainsFunc(all, func(c copied) bool { return c.node == node && c.ID == m.ID }) {
			return
		}
		all = append(all, copied{node, m})
		further, err := envelope.ParseID(m.ID)
		if err == nil && hasMoved(&m) && !slices.Contains(next, further) {
			next = append(next, further)
		}
	}
	for _, c := range here {
		add(c.node, c.Message)
	}
	var silent []int
	for i := 0; i < len(next) && i < mostHops; i++ {
		if i > 0 {
			if m, err := e.Messages.Get(ctx, tenant, next[i]); err == nil {
				add(0, m)
			}
		}
		answers, two, without := e.askAll(ctx, nodes, question{Do: "get", Tenant: tenant, ID: next[i]})
		if silent = append(silent, without...); two {
			return nil, http.ErrTwo
		}
		for _, n := range slices.Sorted(maps.Keys(answers)) {
			add(n, answers[n].Message)
		}
	}
	slices.Sort(silent)
	if silent = slices.Compact(silent); len(silent) > 0 {
		err = http.Unanswered(silent)
	}
	return all, err
}

func hasMoved(m *http.Message) bool {
	return slices.ContainsFunc(m.Recipients, func(r http.MessageRecipient) bool { return r.Status == http.Moved })
}

// Get implements http.Messages.
func (e *Everywhere) Get(ctx context.Context, tenant string, id envelope.ID) (http.Message, error) {
	m, err := e.Messages.Get(ctx, tenant, id)
	known := err == nil
	switch {
	case known && !hasMoved(&m), !known && !errors.Is(err, http.ErrNoMessage), len(e.others()) == 0:
		return m, err
	case !e.may(tenant):
		return m, when(!known, http.ErrBusy)
	}
	var here []copied
	if known {
		here = append(here, copied{0, m})
	}
	all, silent := e.find(ctx, tenant, id, here)
	if len(all) == 0 {
		return m, cmp.Or(silent, err)
	}
	first := slices.IndexFunc(all, func(c copied) bool { return c.ID == id.String() })
	m = all[max(first, 0)].Message
	for i := range all {
		follow(&m, &all[i].Message)
	}
	m.Summarise()
	return m, nil
}

func when(is bool, err error) error {
	if is {
		return err
	}
	return nil
}

// follow has the recipients of a message that were moved be as another node has them.
func follow(m, other *http.Message) {
	m.Recipients = slices.Clone(m.Recipients)
	for i := range m.Recipients {
		for _, r := range other.Recipients {
			if m.Recipients[i].Status == http.Moved && r.Address == m.Recipients[i].Address {
				m.Recipients[i] = r
			}
		}
	}
}

// Cancel implements http.Messages.
func (e *Everywhere) Cancel(ctx context.Context, tenant string, what http.Cancel) (http.Cancelled, error) {
	nodes := e.others()
	switch {
	case len(nodes) == 0:
		return e.Messages.Cancel(ctx, tenant, what)
	case what.ID != 0:
		return e.cancelID(ctx, tenant, what.ID)
	case !e.may(tenant):
		return http.Cancelled{}, http.ErrBusy
	}
	var (
		done     http.Cancelled
		err      error
		answers  map[int]answered
		silent   []int
		together sync.WaitGroup
	)
	together.Go(func() { done, err = e.Messages.Cancel(ctx, tenant, what) })
	answers, _, silent = e.askAll(ctx, nodes, question{Do: "cancel", Tenant: tenant, Cancel: what})
	together.Wait()
	switch unknown := errors.Is(err, http.ErrNoMessage); {
	case err != nil && !unknown:
		return done, err // a repeat reaches the others again
	case unknown && len(answers) == 0 && len(silent) > 0:
		return done, http.Unanswered(silent)
	case unknown && len(answers) == 0:
		return done, err
	}
	reached := []string{e.Name}
	for _, n := range slices.Sorted(maps.Keys(answers)) {
		more := answers[n].Done
		done.Cancelled, done.TooLate = done.Cancelled+more.Cancelled, done.TooLate+more.TooLate
		done.Recipients = append(done.Recipients, more.Recipients...)
		done.MovedTo = append(done.MovedTo, more.MovedTo...)
		reached = append(reached, answers[n].Name)
	}
	done.Recipients = done.Recipients[:min(len(done.Recipients), tooLateShown)]
	slices.Sort(done.MovedTo)
	done.MovedTo = slices.DeleteFunc(slices.Compact(done.MovedTo), func(name string) bool {
		return slices.Contains(reached, name)
	})
	done.Unanswered = silent
	return done, nil
}

// cancelID cancels a message where it is, and where it was moved.
func (e *Everywhere) cancelID(ctx context.Context, tenant string, id envelope.ID) (http.Cancelled, error) {
	done, err := e.Messages.Cancel(ctx, tenant, http.Cancel{ID: id})
	isMoved := func(r http.CancelledRecipient) bool { return r.Status == http.Moved }
	moved := slices.ContainsFunc(done.Recipients, isMoved)
	switch {
	case err == nil && !moved, err != nil && !errors.Is(err, http.ErrNoMessage):
		return done, err
	case !e.may(tenant):
		return done, when(err != nil, http.ErrBusy)
	}
	all, silent := e.find(ctx, tenant, id, e.here(ctx, tenant, id))
	given := 0 // by how many nodes the id was given to a message that they know
	for _, c := range all {
		if c.ID == id.String() {
			given++
		}
	}
	if errors.Is(silent, http.ErrTwo) || given > 1 {
		return done, http.ErrTwo
	}
	if len(all) == 0 && err != nil {
		return done, cmp.Or(silent, err)
	}
	var without http.Unanswered
	errors.As(silent, &without)
	for _, c := range all {
		more, failed := e.cancelAt(ctx, tenant, c)
		if failed == nil {
			done.Join(more)
		} else if c.node != 0 {
			without = append(without, c.node)
		}
	}
	if len(done.Recipients) == 0 && len(without) > 0 {
		return done, without
	}
	if slices.ContainsFunc(done.Recipients, isMoved) {
		done.Unanswered = without
	}
	return done, nil
}

// cancelAt cancels a message at the node that has it.
func (e *Everywhere) cancelAt(ctx context.Context, tenant string, c copied) (http.Cancelled, error) {
	id, err := envelope.ParseID(c.ID)
	if err != nil {
		return http.Cancelled{}, err
	}
	what := http.Cancel{ID: id}
	if c.node == 0 {
		return e.Messages.Cancel(ctx, tenant, what)
	}
	a, err := e.ask(ctx, c.node, question{Do: "cancel", Tenant: tenant, Cancel: what})
	return a.Done, err
}

// Move implements http.Messages.
func (e *Everywhere) Move(ctx context.Context, tenant string, id envelope.ID, at time.Time) error {
	err := e.Messages.Move(ctx, tenant, id, at)
	unknown := errors.Is(err, http.ErrNoMessage)
	if !unknown && !errors.Is(err, http.ErrReleased) || len(e.others()) == 0 {
		return err
	}
	here := e.here(ctx, tenant, id)
	switch {
	case !unknown && (len(here) == 0 || !hasMoved(&here[0].Message)):
		return err
	case !e.may(tenant):
		return http.ErrBusy
	}
	all, silent := e.find(ctx, tenant, id, here)
	all = slices.DeleteFunc(all, func(c copied) bool { return hasMoved(&c.Message) })
	switch {
	case len(all) == 0 && unknown:
		return cmp.Or(silent, err)
	case len(all) == 0:
		return err
	case len(all) > 1:
		return http.ErrTwo
	}
	now, failed := envelope.ParseID(all[0].ID)
	switch {
	case failed != nil:
		return failed
	case all[0].node == 0:
		return e.Messages.Move(ctx, tenant, now, at)
	}
	_, err = e.ask(ctx, all[0].node, question{Do: "move", Tenant: tenant, ID: now, At: at})
	return err
}

// here is what this node has of a message.
func (e *Everywhere) here(ctx context.Context, tenant string, id envelope.ID) []copied {
	m, err := e.Messages.Get(ctx, tenant, id)
	if err != nil {
		return nil
	}
	return []copied{{0, m}}
}
