// Package messages answers about queued mail: where it is and why, what waits for what, and moves it between relays.
package messages

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/answer/blocks"
	"example.org/mta/operator/answer/waits"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// Messages answers about queued mail, and changes it; it implements api.Queue.
type Messages struct {
	Policy     func() *wiring.Policy // in force
	Now        func() time.Time
	Log        *slog.Logger
	Queue      *queue.Queue
	Delivery   Delivery
	Dispatcher Dispatcher
	Router     Router
	Rules      *rules.Rules
	Warmups    *blocks.Warmups
	Providers  Providers
	Waits      *waits.Waits
}

// Delivery knows where mail is that the queue has handed out.
type Delivery interface {
	Counts() delivery.Counts
	WhereaboutsOf([]envelope.ID) map[envelope.ID]delivery.Whereabouts
	OnConnection(id envelope.ID, recipient int) bool
	Site(name string) (delivery.SiteInfo, bool)
	OutOfService(site string) (why string, until time.Time)
	Unblock(site string) int
}

// Dispatcher knows mail between queue and delivery.
type Dispatcher interface {
	// LookingUp reports whether a recipient waits for the route of its domain, in memory.
	LookingUp(id envelope.ID, domain string, recipient int) bool
	// Signing reports whether a message is being signed.
	Signing(envelope.ID) bool
	// Cancel takes back what waits within delivery.
	Cancel(envelope.ID)
}

// Router knows which routes are being looked up.
type Router interface{ LookingUp(domain string) bool }

// Providers names the providers of what waits; false when it is not known whether it has one.
type Providers interface {
	Provider(parking.Key) (string, bool)
	ProviderOf(key parking.Key, domain string) (string, bool)
}

// States counts the recipients in the queue by state. Queue and delivery are asked one after the other.
func (m *Messages) States() map[string]int64 {
	s := m.Queue.Stats()
	active := min(int64(m.Delivery.Counts().Carried), s.Leased)
	return map[string]int64{
		string(api.StateDue): s.Due, string(api.StateWaiting): s.Parked + s.Leased - active,
		string(api.StateActive):   active,
		string(api.StateDeferred): s.Deferred, string(api.StateHeld): s.Held, string(api.StateEnding): s.Ending,
		string(api.StateUnreadable): s.Unreadable,
	}
}

func (m *Messages) List(_ context.Context, q api.ListQuery) (api.List, error) {
	sel, err := m.selector(q.Filter, true)
	if err != nil {
		return api.List{}, err
	}
	if len(sel.IDs) > 0 {
		list := m.list(m.Queue.Pick(sel.IDs, sel.Filter), q.Recipients)
		list.Looked, list.Complete = len(sel.IDs), true
		list.Moved, err = m.movedHere(sel.IDs)
		return list, err
	}
	page := queue.Page{Order: orders[q.Order], Limit: q.Limit, Cursor: q.After, Time: timeToLook}
	l, err := m.Queue.List(sel.Filter, page)
	if err != nil {
		return api.List{}, badCursor(err)
	}
	list := m.list(l.Items, q.Recipients)
	list.Next, list.Looked, list.Complete = l.Next, l.Looked, l.Complete
	return list, nil
}

// movedHere names what some ids have become here, that messages had at other relays.
func (m *Messages) movedHere(ids []envelope.ID) (map[string][]string, error) {
	moved := make(map[string][]string)
	for _, id := range ids {
		here, err := KeyStore{m.Queue}.MovedHere(id)
		if err != nil {
			return nil, err
		}
		for _, as := range here {
			moved[id.String()] = append(moved[id.String()], as.String())
		}
	}
	return moved, nil
}

// timeToLook is how long a request may look through the queue.
const timeToLook = 150 * time.Millisecond

func badCursor(err error) error {
	return api.Invalid("give --after what the page before ended with", "%v", err)
}

// list puts messages into the API's words.
func (m *Messages) list(items []queue.Item, recipients int) api.List {
	out := api.List{Messages: make([]api.Item, len(items))}
	k := m.LookOut(items...)
	for i := range items {
		out.Messages[i] = m.item(&items[i], k, recipients)
	}
	return out
}

var orders = map[api.Order]queue.Order{
	api.OldestFirst: queue.OldestFirst,
	api.NewestFirst: queue.NewestFirst,
	api.NextAttempt: queue.NextAttempt,
}

func (m *Messages) item(it *queue.Item, k *Lookout, show int) api.Item {
	out := api.Item{
		ID: it.ID.String(), Sender: string(it.Sender), Size: it.Size, Received: it.Accepted(), Tenant: it.Tenant,
		Campaign: it.Campaign, Tags: it.Tags, Tier: int(it.Tier), Matching: len(it.Recipients), Total: it.Total,
		Unreadable: it.Unreadable,
	}
	if it.Peer.IsValid() {
		out.Peer = it.Peer.String()
	}
	for i, rc := range it.Recipients {
		if show > 0 && i == show {
			break
		}
		out.Recipients = append(out.Recipients, m.Recipient(it, k, &rc))
	}
	return out
}

// Recipient returns how a recipient is.
func (m *Messages) Recipient(it *queue.Item, k *Lookout, rc *queue.ItemRecipient) api.RecipientStatus {
	st := k.Of(it, rc)
	out := api.RecipientStatus{
		Address: string(rc.Address), State: st.State, Site: rc.Line.String(), Attempts: rc.Attempts,
		Warned: rc.Warned, Next: st.Next, Expires: m.expires(it, rc), Scheduled: rc.Scheduled, Doing: st.Why,
		Reply: api.ReplyOf(rc.Last), Rerouted: m.rerouted(rc.Detour),
	}
	if st.State != api.StateActive {
		out.WaitsFor = api.Reason(k.look.Cause(rc.Line, rc.State).Reason.String())
	}
	switch {
	case st.State == api.StateActive:
		out.Asked = controlActions[rc.Asked]
	case st.State == api.StateDeferred && out.Expires.Before(m.Now()): // max_age was longer at the last attempt
		out.Expires = rc.Next
	case st.State == api.StateDeferred && !st.Next.Before(out.Expires):
		out.Next, out.Doing = out.Expires, "expires before its next attempt"
	case st.State == api.StateWaiting && out.Expires.Before(st.Next):
		out.Doing += "; it expires before that"
	}
	if rc.Line.Kind != parking.Site && rc.Line.Kind != parking.Tokens {
		out.Site = ""
	}
	return out
}

// expires is when a recipient is given up: what is held, which nobody looks at, by the longest max_age of all.
func (m *Messages) expires(it *queue.Item, rc *queue.ItemRecipient) time.Time {
	pol := m.Policy()
	if rc.State == queue.StateHeld {
		return wiring.Expires(rc.Start, it.Expires, pol.LongestAge)
	}
	domain := WayOf(pol.Config, it, rc).Domain
	provider, known := m.Providers.ProviderOf(rc.Line.Key, domain)
	return pol.ExpiresAt(&it.Message, rc.Start, pol.MaxAge(domain, provider, known))
}

func (m *Messages) Get(_ context.Context, text string) (api.Item, error) {
	id, err := envelope.ParseID(text)
	if err != nil {
		return api.Item{}, api.Invalid("", "%v", err)
	}
	it, err := m.Queue.Get(id)
	if err != nil {
		return api.Item{}, NotQueued(id, err)
	}
	out := m.item(&it, m.LookOut(it), 0)
	out.User, out.HeloName, out.Protocol, out.Session, out.EnvID = it.User, it.HeloName, it.Protocol,
		it.Session, it.EnvID
	out.Expires, out.Meta, out.Pool, out.Key = it.Expires, json.RawMessage(it.Meta), it.Pool, it.APIKey
	out.MovedFrom = it.MovedFrom()
	return out, nil
}

func (m *Messages) Content(_ context.Context, text string) (io.ReadCloser, error) {
	id, err := envelope.ParseID(text)
	if err != nil {
		return nil, api.Invalid("", "%v", err)
	}
	body, err := m.Queue.Body(id)
	return body, NotQueued(id, err)
}

const doneWith = "it may be done with: look for it with 'mta log --id', in a cluster with --cluster"

// NotQueued returns an error of the queue about a message in the words of the API.
func NotQueued(id envelope.ID, err error) error {
	if errors.Is(err, queue.ErrUnknown) {
		return api.NotFound(doneWith, "message %s is not in the queue", id)
	}
	return err
}

var queueActions = map[api.Action]queue.Action{
	api.Hold:    queue.Hold,
	api.Release: queue.Unhold,
	api.Bounce:  queue.Bounce,
	api.Remove:  queue.Remove,
}

// controlActions are the actions that mail on a connection can be asked for, as the API calls them.
var controlActions = map[queue.Action]api.Action{
	queue.Hold:     api.Hold,
	queue.Bounce:   api.Bounce,
	queue.Remove:   api.Remove,
	queue.Transfer: api.Remove,
	queue.RetryNow: api.Retry,
}

func (m *Messages) Change(_ context.Context, c api.Change) (api.Changed, error) {
	sel, err := m.selector(c.Filter, c.All)
	if err != nil {
		return api.Changed{}, err
	}
	var done api.Changed
	switch c.Action {
	case api.Retry:
		done, err = m.retry(&sel, c)
	case api.Reroute:
		done.Recipients, err = m.reroute(&sel, c)
	default:
		action := queueActions[c.Action]
		if err = m.expect(&sel, c.Intent, func() (*queue.Counted, error) {
			return m.Queue.Count(sel, action)
		}); err == nil {
			done.Recipients, err = m.Queue.Change(sel, action, c.DryRun)
		}
	}
	if errors.Is(err, queue.ErrUnknown) {
		err = api.NotFound(doneWith, "%v", err)
	}
	done.Count = done.Recipients
	if done.Recipients == 0 || c.DryRun || c.Action == api.Release {
		return done, err
	}
	m.out(sel, func(it *queue.Item) {
		done.Later += m.onConnection(it, c.Action)
		if c.Action != api.Retry {
			m.Dispatcher.Cancel(it.ID)
		}
	})
	done.Later = min(done.Later, done.Recipients) // others may have been asked before
	return done, err
}

// expect counts what is selected, where a number is expected, and selects exactly what it has counted: what comes into
// the queue meanwhile, or into the state that was asked for, is not touched. If it is another number, that is the
// error.
func (m *Messages) expect(sel *queue.Selector, in api.Intent, count func() (*queue.Counted, error)) error {
	if in.Expect == nil || in.DryRun {
		return nil
	}
	counted, err := count()
	if err == nil {
		err = api.Recount(counted.Len(), *in.Expect)
	}
	sel.Counted = counted
	return err
}

// onConnection counts the recipients of a message that an attempt is under way for, and that an action waits for.
func (m *Messages) onConnection(it *queue.Item, a api.Action) (n int) {
	for i := range it.Recipients {
		rc := &it.Recipients[i]
		if rc.Asked != 0 && asksFor(a, rc.Asked) && m.Delivery.OnConnection(it.ID, rc.Index) {
			n++
		}
	}
	return n
}

// asksFor reports whether what was asked of a recipient on a connection is part of an action. A reroute is a retry too.
func asksFor(a api.Action, asked queue.Action) bool {
	return controlActions[asked] == a || a == api.Reroute && asked == queue.RetryNow
}

// out calls each with the selected messages that the queue has handed out. What waits within delivery is
// taken back by that, so that the queue's action comes into force now and not after the attempt.
func (m *Messages) out(sel queue.Selector, each func(*queue.Item)) {
	active := sel.Filter
	if len(active.States) > 0 && !slices.Contains(active.States, queue.StateLeased) {
		return
	}
	active.States = []queue.State{queue.StateLeased}
	if sel.Counted != nil {
		sel.Counted.IDs(func(ids []envelope.ID) {
			for _, it := range m.Queue.Pick(ids, active) {
				each(&it)
			}
		})
		return
	}
	if len(sel.IDs) > 0 {
		for _, it := range m.Queue.Pick(sel.IDs, active) {
			each(&it)
		}
		return
	}
	for page := (queue.Page{Limit: 1000}); ; {
		l, err := m.Queue.List(active, page)
		if err != nil {
			m.Log.Warn("taking back what is being delivered", "error", err)
			return
		}
		for i := range l.Items {
			each(&l.Items[i])
		}
		if page.Cursor = l.Next; l.Next == "" {
			return
		}
	}
}

// selector translates a filter into the queue's terms.
func (m *Messages) selector(f api.Filter, all bool) (queue.Selector, error) {
	sel := queue.Selector{All: all, Filter: queue.Filter{
		Key:       parking.Parse(strings.ToLower(f.Site)),
		Domain:    f.Domain,
		Recipient: f.Recipient,
		Sender:    f.Sender,
		Tenant:    f.Tenant,
		Campaign:  f.Campaign,
		Tag:       f.Tag,
		OlderThan: time.Duration(f.Older),
		NewerThan: time.Duration(f.Newer),
	}}
	for _, text := range f.IDs {
		id, err := envelope.ParseID(text)
		if err != nil {
			return sel, api.Invalid("", "%v", err)
		}
		sel.IDs = append(sel.IDs, id)
	}
	if f.State != "" {
		if !m.inState(&sel.Filter, f.State) {
			return sel, api.Invalid("", "there is no state %q", f.State)
		}
	}
	m.byReason(&sel.Filter, f)
	return sel, nil
}

// byReason has a filter select by what mail waits for, and by its last attempt. What is on a connection does not wait.
func (m *Messages) byReason(f *queue.Filter, by api.Filter) {
	if by.WaitsFor != "" || by.Provider != "" {
		look := m.Waits.Look()
		f.Waits = func(line parking.Line, state queue.State) bool {
			c := look.Cause(line, state)
			return (by.WaitsFor == "" || string(by.WaitsFor) == c.Reason.String()) &&
				(by.Provider == "" || by.Provider == c.Provider)
		}
	}
	if selects := f.Leased; by.WaitsFor != "" {
		f.Leased = func(id envelope.ID, recipient int, ending bool) bool {
			return (selects == nil || selects(id, recipient, ending)) && !m.Delivery.OnConnection(id, recipient)
		}
	}
	if text := strings.ToLower(by.Reply); text != "" || by.Source != "" {
		f.Last = func(line parking.Line, last *queue.Attempt) bool {
			return strings.Contains(strings.ToLower(last.Reply.String()), text) &&
				(by.Source == "" || by.Source == cmp.Or(line.Source, last.Via))
		}
	}
}
