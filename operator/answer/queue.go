package answer

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// messages answers the control API's questions about the queue, in the API's words.
type messages struct{ r *Relay }

func (o messages) List(_ context.Context, f api.Filter, p api.Page) (api.List, error) {
	sel, err := o.selector(f, true)
	if err != nil {
		return api.List{}, err
	}
	if len(sel.IDs) > 0 {
		list := o.list(o.r.Queue.Pick(sel.IDs, sel.Filter), p)
		list.Looked, list.Complete = len(sel.IDs), true
		return list, nil
	}
	page := queue.Page{Order: orders[p.Order], Limit: p.Limit, Cursor: p.After, Time: timeToLook}
	l, err := o.r.Queue.List(sel.Filter, page)
	if err != nil {
		return api.List{}, badCursor(err)
	}
	list := o.list(l.Items, p)
	list.Next, list.Looked, list.Complete = l.Next, l.Looked, l.Complete
	return list, nil
}

// timeToLook is how long a request may look through the queue.
const timeToLook = 150 * time.Millisecond

func badCursor(err error) error {
	return api.Invalid("give --after what the page before ended with", "%v", err)
}

// list puts messages into the API's words.
func (o messages) list(items []queue.Item, p api.Page) api.List {
	out := api.List{Messages: make([]api.Item, len(items))}
	k := o.r.lookOut(items...)
	for i := range items {
		out.Messages[i] = o.item(&items[i], k, p.Recipients)
	}
	return out
}

var orders = map[api.Order]queue.Order{
	api.OldestFirst: queue.OldestFirst,
	api.NewestFirst: queue.NewestFirst,
	api.NextAttempt: queue.NextAttempt,
}

func (o messages) item(it *queue.Item, k *lookout, show int) api.Item {
	out := api.Item{
		ID: it.ID.String(), Sender: string(it.Sender), Size: it.Size, Received: it.Received, Tenant: it.Tenant,
		Campaign: it.Campaign, Tags: it.Tags, Tier: int(it.Tier), Peer: it.Peer, Matching: len(it.Recipients), Total: it.Total,
		Unreadable: it.Unreadable,
	}
	for i, rc := range it.Recipients {
		if show > 0 && i == show {
			break
		}
		out.Recipients = append(out.Recipients, o.recipient(it, k, &rc))
	}
	return out
}

func (o messages) recipient(it *queue.Item, k *lookout, rc *queue.ItemRecipient) api.RecipientStatus {
	st := k.of(it, rc)
	out := api.RecipientStatus{
		Address: string(rc.Address), State: st.state, Site: rc.Line.String(), Attempts: rc.Attempts,
		Warned: rc.Warned, Next: st.next, Expires: o.expires(it, rc), Scheduled: rc.Scheduled, Doing: st.why,
		Reply: replyOf(rc.Last), Rerouted: o.r.rerouted(rc.Detour),
	}
	switch {
	case st.state == api.StateActive:
		out.Asked = controlActions[rc.Asked]
	case st.state == api.StateDeferred && out.Expires.Before(o.r.Now()): // max_age was longer at the last attempt
		out.Expires = rc.Next
	case st.state == api.StateDeferred && !st.next.Before(out.Expires):
		out.Next, out.Doing = out.Expires, "expires before its next attempt"
	}
	if rc.Line.Kind == parking.Pause {
		out.Site = ""
	}
	return out
}

// expires is when a recipient is given up: what is held, which nobody looks at, by the longest max_age of all.
func (o messages) expires(it *queue.Item, rc *queue.ItemRecipient) time.Time {
	pol := o.r.Policy()
	age := pol.LongestAge
	if rc.State != queue.StateHeld {
		domain := wayOf(pol.Config, it, rc).Domain
		provider, known := o.r.Sites.ProviderOf(rc.Line.Key, domain)
		age = pol.MaxAge(domain, provider, known)
	}
	return wiring.Expires(rc.Start, it.Expires, age)
}

func (o messages) Get(_ context.Context, text string) (api.Item, error) {
	id, err := envelope.ParseID(text)
	if err != nil {
		return api.Item{}, api.Invalid("", "%v", err)
	}
	it, err := o.r.Queue.Get(id)
	if err != nil {
		return api.Item{}, notQueued(id, err)
	}
	out := o.item(&it, o.r.lookOut(it), 0)
	out.User, out.HeloName, out.Protocol, out.Session, out.EnvID = it.User, it.HeloName, it.Protocol, it.Session, it.EnvID
	out.Expires, out.Meta, out.Pool, out.Key = it.Expires, json.RawMessage(it.Meta), it.Pool, it.APIKey
	return out, nil
}

func (o messages) Content(_ context.Context, text string) (io.ReadCloser, error) {
	id, err := envelope.ParseID(text)
	if err != nil {
		return nil, api.Invalid("", "%v", err)
	}
	body, err := o.r.Queue.Body(id)
	return body, notQueued(id, err)
}

const doneWith = "it may be done with: look for it with 'mta log --id'"

func notQueued(id envelope.ID, err error) error {
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

func (o messages) Change(_ context.Context, c api.Change) (api.Changed, error) {
	sel, err := o.selector(c.Filter, c.All)
	if err != nil {
		return api.Changed{}, err
	}
	var done api.Changed
	switch c.Action {
	case api.Retry:
		done, err = o.retry(&sel, c)
	case api.Reroute:
		done.Recipients, err = o.reroute(&sel, c)
	default:
		action := queueActions[c.Action]
		if err = o.expect(&sel, c.Intent, func() (*queue.Counted, error) { return o.r.Queue.Count(sel, action) }); err == nil {
			done.Recipients, err = o.r.Queue.Change(sel, action, c.DryRun)
		}
	}
	if errors.Is(err, queue.ErrUnknown) {
		err = api.NotFound(doneWith, "%v", err)
	}
	if done.Recipients == 0 || c.DryRun || c.Action == api.Release {
		return done, err
	}
	o.out(sel, func(it *queue.Item) {
		done.Later += o.onConnection(it, c.Action)
		if c.Action != api.Retry {
			o.r.Dispatcher.Cancel(it.ID)
		}
	})
	done.Later = min(done.Later, done.Recipients) // others may have been asked before
	return done, err
}

// expect counts what is selected, where a number is expected, and selects exactly what it has counted: what comes into the
// queue meanwhile, or into the state that was asked for, is not touched. If it is another number, that is the error.
func (o messages) expect(sel *queue.Selector, in api.Intent, count func() (*queue.Counted, error)) error {
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
func (o messages) onConnection(it *queue.Item, a api.Action) (n int) {
	for i := range it.Recipients {
		rc := &it.Recipients[i]
		if rc.Asked != 0 && asksFor(a, rc.Asked) && o.r.Delivery.OnConnection(it.ID, rc.Index) {
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
func (o messages) out(sel queue.Selector, each func(*queue.Item)) {
	active := sel.Filter
	if len(active.States) > 0 && !slices.Contains(active.States, queue.StateLeased) {
		return
	}
	active.States = []queue.State{queue.StateLeased}
	if sel.Counted != nil {
		sel.Counted.IDs(func(ids []envelope.ID) {
			for _, it := range o.r.Queue.Pick(ids, active) {
				each(&it)
			}
		})
		return
	}
	if len(sel.IDs) > 0 {
		for _, it := range o.r.Queue.Pick(sel.IDs, active) {
			each(&it)
		}
		return
	}
	for page := (queue.Page{Limit: 1000}); ; {
		l, err := o.r.Queue.List(active, page)
		if err != nil {
			o.r.Log.Warn("taking back what is being delivered", "error", err)
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
func (o messages) selector(f api.Filter, all bool) (queue.Selector, error) {
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
		if !o.r.inState(&sel.Filter, f.State) {
			return sel, api.Invalid("", "there is no state %q", f.State)
		}
	}
	return sel, nil
}
