package submitted

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	nethttp "net/http"
	"slices"
	"sync"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/fair"
	"example.org/mta/internal/faultlog"
	"example.org/mta/internal/gcra"
	"example.org/mta/submission/http"
)

// Nodes are the nodes of a cluster.
type Nodes interface {
	Self() int
	// Others are the numbers of the other members; false while they are not known.
	Others() ([]int, bool)
	// Ask has another node answer a request, by its Everywhere. The whole answer is in memory, and bounded.
	Ask(ctx context.Context, node int, r *nethttp.Request) (*nethttp.Response, error)
}

// Own answers tenants about their mail at this node.
type Own interface {
	http.Messages
	// Parts are the message with an id, or what was moved here of one that had it: that can have come in parts, with an
	// id here for each.
	Parts(ctx context.Context, tenant string, id envelope.ID) ([]http.Message, error)
}

// Everywhere answers tenants about their mail at all nodes of a cluster: by its id, wherever it is and was moved, and
// cancels of campaigns, tags and keys are of all nodes. What another node asks is answered of this node alone.
type Everywhere struct {
	Own
	Events http.Events // of this node; nil: it keeps none
	Nodes  Nodes       // nil: there is no other
	Name   string
	Now    func() time.Time
	Log    *slog.Logger
	// Moving reports whether mail may be moving to other nodes. It may be nil.
	Moving func() bool

	mu     sync.Mutex // guards what follows
	asked  map[string]*gcra.Limiter
	turns  map[int]*fair.Turns // by node that is asked
	fails  map[int]*faultlog.Kind
	silent map[int]time.Time // when nodes were asked last, for events, that have not answered
}

const (
	// mostIDs bounds the ids under which mail that has moved again, or in parts, is followed.
	mostIDs = 16
	// mostTenants is how many tenants are counted before those that matter no more go.
	mostTenants = 1024
	// patience is how long an answer may take, but that of a list and of a cancel of much: these search the queue, and
	// have the patience of the nodes, which is longer than searchTime and cancelWait together.
	patience = 5 * time.Second
	// atOnce bounds the questions to a node at a time, of which a tenant has one.
	atOnce = 4
	// maxQuestion bounds what another node asks, in octets.
	maxQuestion = 64 << 10
)

// rounds is how often the nodes are asked for a tenant.
var rounds = gcra.Rate{Events: 20, Burst: 40}

// question is what a node asks another one for a tenant.
type question struct {
	Do     string // get, list, cancel, move or events
	Tenant string
	ID     envelope.ID       `json:",omitzero"`
	Cancel http.Cancel       `json:",omitzero"`
	List   http.MessageQuery `json:",omitzero"`
	At     time.Time         `json:",omitzero"`
	After  string            `json:",omitempty"` // of events
	Limit  int               `json:",omitempty"`
}

type answered struct {
	Name   string           // the nodeid of the node
	List   http.MessagePage `json:",omitzero"`
	Parts  []http.Message   `json:",omitempty"`
	Done   http.Cancelled   `json:",omitzero"`
	Events http.EventPage   `json:",omitzero"`
	// Moving is true after a cancel during which mail may have moved to other nodes.
	Moving bool `json:",omitzero"`
	// TooMuch is true after a list that would take too long.
	TooMuch bool   `json:",omitzero"`
	Error   string `json:",omitempty"`
}

// failures are the errors that go from node to node.
var failures = map[string]error{"no message": http.ErrNoMessage, "two": http.ErrTwo, "released": http.ErrReleased,
	"expires": http.ErrExpires, "busy": http.ErrBusy, "too much": http.ErrTooMuch,
	"no event": http.ErrNoEvent, "waiting": http.ErrWaiting}

// word is that of an error that goes from node to node, "" for a fault.
func word(err error) string {
	for word, known := range failures {
		if errors.Is(err, known) {
			return word
		}
	}
	return ""
}

// note logs when a node begins or ends to fail.
func (e *Everywhere) note(ctx context.Context, node int, err error) {
	e.mu.Lock()
	kind := e.fails[node]
	if kind == nil {
		if e.fails == nil {
			e.fails = make(map[int]*faultlog.Kind)
		}
		which := fmt.Sprintf("node %d ", node)
		kind = faultlog.New(e.Log, e.Now, slog.LevelWarn, which+"does not answer about tenants' mail",
			which+"answers about tenants' mail again")
		e.fails[node] = kind
	}
	e.mu.Unlock()
	switch {
	case err == nil || word(err) != "":
		kind.Well()
	case !errors.Is(ctx.Err(), context.Canceled): // else the client has gone, or has its answer
		kind.Failed("", "error", err)
	}
}

// begin waits for a tenant's turn to ask a node.
func (e *Everywhere) begin(ctx context.Context, tenant string, node int) (*fair.Turn, error) {
	e.mu.Lock()
	turns := e.turns[node]
	if turns == nil {
		if e.turns == nil {
			e.turns = make(map[int]*fair.Turns)
		}
		turns = fair.New(atOnce, e.Now)
		e.turns[node] = turns
	}
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	return turns.Begin(ctx, tenant)
}

// ServeHTTP answers another node.
func (e *Everywhere) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	var q question
	if err := json.NewDecoder(nethttp.MaxBytesReader(w, r.Body, maxQuestion)).Decode(&q); err != nil {
		nethttp.Error(w, "the question can't be read", nethttp.StatusBadRequest)
		return
	}
	var a answered
	var err error
	switch q.Do {
	case "get":
		a.Parts, err = e.Own.Parts(r.Context(), q.Tenant, q.ID)
	case "list":
		if a.List, err = e.Own.List(r.Context(), q.Tenant, q.List); errors.Is(err, http.ErrTooMuch) {
			a.TooMuch, err = true, nil
		}
		shorten(&a.List)
	case "cancel":
		a, err = e.cancelOwn(r.Context(), q.Tenant, q.Cancel)
	case "move":
		err = e.Own.Move(r.Context(), q.Tenant, q.ID, q.At)
	case "events":
		if e.Events == nil {
			err = errors.New("it keeps no accounting log")
			break
		}
		a.Events, err = e.Events.Pull(r.Context(), q.Tenant,
			http.EventQuery{After: q.After, Limit: q.Limit, Brief: true})
	default:
		err = fmt.Errorf("it has no answer to %.20q", q.Do)
	}
	if err != nil {
		a.Error = cmp.Or(word(err), err.Error())
	}
	if e.Nodes != nil {
		e.note(r.Context(), e.Nodes.Self(), err)
	}
	a.Name = e.Name
	w.Header().Set("Content-Type", "application/json")
	text := json.NewEncoder(w)
	text.SetEscapeHTML(false) // events are to be as they are
	_ = text.Encode(&a)
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
	turn, err := e.begin(ctx, q.Tenant, node)
	if err != nil {
		return a, err
	}
	defer turn.End()
	if long := q.Do == "list" || q.Do == "cancel" && q.Cancel.ID == 0; !long {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, patience, errSilent)
		defer cancel()
		r = r.WithContext(ctx)
	}
	defer func() { e.note(ctx, node, err) }()
	answer, err := e.Nodes.Ask(ctx, node, r)
	if !errors.Is(ctx.Err(), context.Canceled) { // else the client has gone, or has its answer
		e.spoke(node, err == nil)
	}
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

// askAll asks nodes at the same time, until one has an answer that is enough. silent are those without an answer to
// count on.
func (e *Everywhere) askAll(ctx context.Context, nodes []int, q question,
	enough func(answered) bool) (answers map[int]answered, silent []int) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	all, errs := make([]answered, len(nodes)), make([]error, len(nodes))
	var asked sync.WaitGroup
	for i, n := range nodes {
		asked.Go(func() {
			if all[i], errs[i] = e.ask(ctx, n, q); errs[i] == nil && enough(all[i]) {
				end()
			}
		})
	}
	asked.Wait()
	answers = make(map[int]answered)
	for i, n := range nodes {
		switch {
		case errs[i] == nil:
			answers[n] = all[i]
		case !errors.Is(errs[i], http.ErrNoMessage):
			silent = append(silent, n)
		}
	}
	return answers, silent
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

var errSilent = fmt.Errorf("no answer within %s", patience)

// errNodes is returned while this node does not know which others there are.
var errNodes = errors.New("the nodes of the cluster are not known yet, since its database has not been read")

// others are the nodes that can be asked.
func (e *Everywhere) others() ([]int, error) {
	if e.Nodes == nil {
		return nil, nil
	}
	nodes, known := e.Nodes.Others()
	if !known {
		return nil, errNodes
	}
	return nodes, nil
}

// copied is a message as a node has it, which was asked for it by an id; node 0 is this one.
type copied struct {
	node int
	by   envelope.ID
	http.Message
}

func (c *copied) is(id envelope.ID) bool { return c.ID == id.String() }

// find looks for a message at all nodes, and for what it has become where it was moved. here is what this one has of
// it. The node whose number the id ends with has made it, most likely, and is asked alone first: if it has all of the
// message, or with first any node has, no more are asked. silent are the nodes without an answer.
func (e *Everywhere) find(ctx context.Context, tenant string, id envelope.ID, nodes []int, here []http.Message,
	first bool) (all []copied, silent http.Unanswered, err error) {
	next := []envelope.ID{id}
	add := func(node int, by envelope.ID, parts []http.Message) {
		for _, m := range parts {
			if slices.ContainsFunc(all, func(c copied) bool { return c.node == node && c.ID == m.ID }) {
				continue
			}
			all = append(all, copied{node, by, m})
			further, err := envelope.ParseID(m.ID)
			if err == nil && hasMoved(m) && !slices.Contains(next, further) {
				next = append(next, further)
			}
		}
	}
	add(0, id, here)
	for i := 0; i < len(next) && i < mostIDs; i++ {
		by := next[i]
		if i > 0 {
			parts, err := e.Own.Parts(ctx, tenant, by)
			if err != nil && !errors.Is(err, http.ErrNoMessage) {
				return nil, nil, err
			}
			add(0, by, parts)
		}
		whole := func(a answered) bool {
			return slices.ContainsFunc(a.Parts, func(m http.Message) bool {
				return m.ID == by.String() && !hasMoved(m)
			})
		}
		ask := func(nodes []int, ends bool) (enough bool) {
			answers, without := e.askAll(ctx, nodes, question{Do: "get", Tenant: tenant, ID: by},
				func(a answered) bool { return ends && whole(a) })
			silent = append(silent, without...)
			for _, n := range slices.Sorted(maps.Keys(answers)) {
				add(n, by, answers[n].Parts)
				enough = enough || whole(answers[n])
			}
			return enough
		}
		rest := slices.DeleteFunc(slices.Clone(nodes), func(n int) bool {
			return slices.ContainsFunc(all, func(c copied) bool { return c.node == n && c.is(by) })
		})
		if home := slices.Index(rest, by.Node()); home >= 0 {
			if ask(rest[home:home+1], false) {
				continue
			}
			rest = slices.Delete(rest, home, home+1)
		}
		ask(rest, first)
	}
	slices.Sort(silent)
	return all, slices.Compact(silent), nil
}

// findOne is find for a change: it fails for an id that could be another message's.
func (e *Everywhere) findOne(ctx context.Context, tenant string, id envelope.ID, nodes []int,
	here []http.Message) (all []copied, silent http.Unanswered, err error) {
	if all, silent, err = e.find(ctx, tenant, id, nodes, here, false); err != nil {
		return nil, nil, err
	}
	given := 0
	certain := len(here) > 0 || len(silent) == 0 || slices.Contains(nodes, id.Node())
	for i := range all {
		if all[i].is(id) {
			given++
			certain = certain && (len(here) > 0 || len(silent) == 0 || all[i].node == id.Node())
		}
	}
	switch {
	case given > 1:
		err = http.ErrTwo
	case !certain, len(all) == 0 && len(silent) > 0:
		err = silent
	case len(all) == 0:
		err = http.ErrNoMessage
	}
	return all, silent, err
}

func hasMoved(parts ...http.Message) bool {
	return slices.ContainsFunc(parts, func(m http.Message) bool {
		return slices.ContainsFunc(m.Recipients, func(r http.MessageRecipient) bool { return r.Status == http.Moved })
	})
}

// Get implements http.Messages.
func (e *Everywhere) Get(ctx context.Context, tenant string, id envelope.ID) (http.Message, error) {
	m, err := e.get(ctx, tenant, id)
	if err == nil {
		m.ID = id.String() // whichever node is asked
	}
	return m, err
}

func (e *Everywhere) get(ctx context.Context, tenant string, id envelope.ID) (http.Message, error) {
	here, err := e.Own.Parts(ctx, tenant, id)
	nodes, unknown := e.others()
	// The queue of another node has what this one has no time to look for in its log.
	elsewhere := errors.Is(err, http.ErrNoMessage) || errors.Is(err, http.ErrBusy) || errors.Is(err, http.ErrTooMuch)
	switch {
	case err == nil && !hasMoved(here...), err != nil && !elsewhere, unknown == nil && len(nodes) == 0:
		return whole(here), err
	case unknown != nil:
		return http.Message{}, unknown
	case !e.may(tenant):
		return http.Message{}, http.ErrBusy
	}
	all, silent, failed := e.find(ctx, tenant, id, nodes, here, true)
	switch {
	case failed != nil:
		return http.Message{}, failed
	case len(all) == 0 && len(silent) > 0:
		return http.Message{}, silent
	case len(all) == 0:
		return http.Message{}, err
	}
	own := slices.IndexFunc(all, func(c copied) bool { return c.is(id) })
	m := all[max(own, 0)].Message
	for i := range all {
		follow(&m, &all[i].Message, own < 0)
	}
	m.Summarise()
	if own < 0 || hasMoved(m) {
		m.Unanswered = silent
	}
	return m, nil
}

// List implements http.Messages. The cursor of a page, an id, is that of all nodes.
func (e *Everywhere) List(ctx context.Context, tenant string, q http.MessageQuery) (page http.MessagePage, err error) {
	nodes, unknown := e.others()
	switch {
	case unknown != nil:
		return page, unknown
	case len(nodes) == 0:
		return e.Own.List(ctx, tenant, q)
	case !e.may(tenant):
		return page, http.ErrBusy
	}
	var answers map[int]answered
	var silent []int
	var together sync.WaitGroup
	together.Go(func() { page, err = e.Own.List(ctx, tenant, q) })
	answers, silent = e.askAll(ctx, nodes, question{Do: "list", Tenant: tenant, List: q},
		func(answered) bool { return false })
	together.Wait()
	for _, a := range answers {
		if err == nil && a.TooMuch {
			err = http.ErrTooMuch
		}
	}
	if err != nil {
		return page, err
	}
	end := page.Next // behind it a node may have more; ids sort as texts
	for _, a := range answers {
		page.Messages = append(page.Messages, a.List.Messages...)
		if next := a.List.Next; next != "" && (end == "" || next < end) {
			end = next
		}
	}
	slices.SortStableFunc(page.Messages, func(a, b http.Message) int { return cmp.Compare(a.ID, b.ID) })
	if n := q.Limit; n > 0 && n < len(page.Messages) && (end == "" || page.Messages[n-1].ID < end) {
		end = page.Messages[n-1].ID
	}
	if page.Next = end; end != "" {
		page.Messages = slices.DeleteFunc(page.Messages, func(m http.Message) bool { return m.ID > end })
	}
	slices.Sort(silent)
	page.Unanswered = silent
	return page, nil
}

// mostListed bounds the recipients in another node's part of a list, to some MB: there is one message at least.
const mostListed = 20_000

// shorten cuts a page off.
func shorten(page *http.MessagePage) {
	recipients := 0
	for i, m := range page.Messages {
		if recipients += len(m.Recipients); recipients > mostListed && i > 0 {
			page.Messages, page.Next = page.Messages[:i], page.Messages[i-1].ID
			return
		}
	}
}

// whole is a message of its parts.
func whole(parts []http.Message) (m http.Message) {
	for i := range parts {
		if i == 0 {
			m = parts[i]
		}
		follow(&m, &parts[i], true)
	}
	m.Summarise()
	return m
}

// follow has the recipients of a message that were moved be as another node has them. parts adds others, too.
func follow(m, other *http.Message, parts bool) {
	m.Recipients = slices.Clone(m.Recipients)
	for _, r := range other.Recipients {
		i := slices.IndexFunc(m.Recipients, func(mine http.MessageRecipient) bool { return mine.Address == r.Address })
		switch {
		case i < 0 && parts:
			m.Recipients = append(m.Recipients, r)
		case i >= 0 && m.Recipients[i].Status == http.Moved:
			m.Recipients[i] = r
		}
	}
}

// Cancel implements http.Messages.
func (e *Everywhere) Cancel(ctx context.Context, tenant string, what http.Cancel) (http.Cancelled, error) {
	nodes, unknown := e.others()
	switch {
	case what.ID != 0:
		return e.cancelID(ctx, tenant, what.ID)
	case unknown != nil:
		return http.Cancelled{}, unknown
	case len(nodes) == 0:
		return e.Own.Cancel(ctx, tenant, what)
	case !e.may(tenant):
		return http.Cancelled{}, http.ErrBusy
	}
	var (
		own      answered
		err      error
		answers  map[int]answered
		silent   []int
		together sync.WaitGroup
	)
	together.Go(func() { own, err = e.cancelOwn(ctx, tenant, what) })
	answers, silent = e.askAll(ctx, nodes, question{Do: "cancel", Tenant: tenant, Cancel: what},
		func(answered) bool { return false })
	together.Wait()
	done, moving := own.Done, own.Moving
	switch noMessage := errors.Is(err, http.ErrNoMessage); {
	case noMessage && len(answers) == 0 && len(silent) > 0:
		return done, http.Unanswered(silent)
	case err != nil && len(answers) == 0:
		return done, err
	case err != nil && !noMessage: // what the others have cancelled stays so
		e.Log.Warn("cancelling at this node", "tenant", tenant, "error", err)
		silent = append(silent, e.Nodes.Self())
	}
	if done.Withheld > 0 {
		silent = append(silent, e.Nodes.Self())
	}
	reached := []string{e.Name}
	for _, n := range slices.Sorted(maps.Keys(answers)) {
		more := answers[n].Done
		done.Cancelled, done.TooLate = done.Cancelled+more.Cancelled, done.TooLate+more.TooLate
		done.Recipients = append(done.Recipients, more.Recipients...)
		done.MovedTo = append(done.MovedTo, more.MovedTo...)
		reached, moving = append(reached, answers[n].Name), moving || answers[n].Moving
		if more.Withheld > 0 {
			silent = append(silent, n)
		}
	}
	done.Recipients = done.Recipients[:min(len(done.Recipients), tooLateShown)]
	slices.Sort(done.MovedTo)
	done.MovedTo = slices.DeleteFunc(slices.Compact(done.MovedTo), func(name string) bool {
		return !moving && slices.Contains(reached, name) // else mail may have moved behind that node's search
	})
	slices.Sort(silent)
	done.Unanswered = silent
	return done, nil
}

// cancelOwn cancels at this node.
func (e *Everywhere) cancelOwn(ctx context.Context, tenant string, what http.Cancel) (a answered, err error) {
	moving := func() bool { return e.Moving != nil && e.Moving() }
	a.Moving = moving()
	a.Done, err = e.Own.Cancel(ctx, tenant, what)
	a.Moving = a.Moving || moving()
	return a, err
}

// cancelID cancels a message where it is, and where it was moved.
func (e *Everywhere) cancelID(ctx context.Context, tenant string, id envelope.ID) (http.Cancelled, error) {
	done, err := e.Own.Cancel(ctx, tenant, http.Cancel{ID: id})
	isMoved := func(r http.CancelledRecipient) bool { return r.Status == http.Moved }
	moved := slices.ContainsFunc(done.Recipients, isMoved)
	nodes, unknown := e.others()
	switch {
	case err == nil && !moved && done.Withheld > 0:
		done.Unanswered = []int{e.Nodes.Self()}
		return done, nil
	case err == nil && !moved, err != nil && !errors.Is(err, http.ErrNoMessage), unknown == nil && len(nodes) == 0:
		return done, err
	case unknown != nil: // a repeat has the same answer for what is cancelled
		return done, unknown
	case !e.may(tenant):
		return done, http.ErrBusy
	}
	var here []http.Message
	if err == nil {
		if here, err = e.Own.Parts(ctx, tenant, id); err != nil {
			return done, err
		}
	}
	all, silent, err := e.findOne(ctx, tenant, id, nodes, here)
	if err != nil {
		return done, err
	}
	var without http.Unanswered
	if done.Withheld > 0 {
		without = append(without, e.Nodes.Self())
	}
	for i, c := range all {
		again := func(b copied) bool { return b.node == c.node && b.by == c.by }
		if c.node == 0 && c.by == id || slices.ContainsFunc(all[:i], again) {
			continue
		}
		more, failed := e.cancelAt(ctx, tenant, c.node, c.by)
		switch {
		case failed == nil:
			done.Join(more)
			if more.Withheld > 0 {
				without = append(without, c.node)
			}
		case c.node == 0, errors.Is(failed, http.ErrTwo):
			return done, failed
		default:
			without = append(without, c.node)
		}
	}
	own := slices.ContainsFunc(all, func(c copied) bool { return c.is(id) })
	if !own || slices.ContainsFunc(done.Recipients, isMoved) {
		without = append(without, silent...)
	}
	slices.Sort(without)
	if without = slices.Compact(without); len(done.Recipients) == 0 {
		return done, without
	}
	done.Unanswered = without
	return done, nil
}

// cancelAt cancels a message at a node by an id that it knows.
func (e *Everywhere) cancelAt(ctx context.Context, tenant string, node int, id envelope.ID) (http.Cancelled, error) {
	what := http.Cancel{ID: id}
	if node == 0 {
		return e.Own.Cancel(ctx, tenant, what)
	}
	a, err := e.ask(ctx, node, question{Do: "cancel", Tenant: tenant, Cancel: what})
	return a.Done, err
}

// Move implements http.Messages.
func (e *Everywhere) Move(ctx context.Context, tenant string, id envelope.ID, at time.Time) error {
	err := e.Own.Move(ctx, tenant, id, at)
	nodes, unknown := e.others()
	noMessage := errors.Is(err, http.ErrNoMessage)
	if !noMessage && !errors.Is(err, http.ErrReleased) || unknown == nil && len(nodes) == 0 {
		return err
	}
	here, failed := e.Own.Parts(ctx, tenant, id)
	switch {
	case failed != nil && !errors.Is(failed, http.ErrNoMessage):
		return failed
	case !noMessage && !hasMoved(here...):
		return err
	case unknown != nil:
		return unknown
	case !e.may(tenant):
		return http.ErrBusy
	}
	all, silent, failed := e.findOne(ctx, tenant, id, nodes, here)
	if failed != nil {
		return failed
	}
	all = slices.DeleteFunc(all, func(c copied) bool { return hasMoved(c.Message) })
	switch {
	case len(all) == 0 && len(silent) > 0:
		return silent
	case len(all) != 1: // what moves in parts was in delivery
		return http.ErrReleased
	}
	now, failed := envelope.ParseID(all[0].ID)
	switch {
	case failed != nil:
		return failed
	case all[0].node == 0:
		return e.Own.Move(ctx, tenant, now, at)
	}
	_, err = e.ask(ctx, all[0].node, question{Do: "move", Tenant: tenant, ID: now, At: at})
	return err
}
