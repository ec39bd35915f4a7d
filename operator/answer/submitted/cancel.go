package submitted

import (
	"context"
	"errors"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/operator/answer/messages"
	"example.org/mta/queue"
	"example.org/mta/submission/http"
)

const (
	// cancelWait bounds how long a cancel waits for recipients that are on their way back from delivery.
	cancelWait = 2 * time.Second
	cancelPoll = 5 * time.Millisecond
	// tooLateShown bounds the recipients that a cancel of many messages names.
	tooLateShown = 1000
)

// Cancel cancels what is in the queue of a message, a campaign, a tag or a request.
func (s *Submitted) Cancel(ctx context.Context, tenant string, what http.Cancel) (http.Cancelled, error) {
	if what.ID != 0 {
		return s.cancelID(ctx, tenant, what.ID)
	}
	sel := queue.Selector{Filter: queue.Filter{Tenant: tenant, Campaign: what.Campaign, Tag: what.Tag}}
	if what.IdempotencyKey != "" {
		ids, known, err := s.Keyed(tenant, what.IdempotencyKey)
		if err != nil {
			return http.Cancelled{}, err
		}
		if !known {
			return http.Cancelled{}, http.ErrNoMessage
		}
		if len(ids) == 0 { // all of its recipients were refused
			return http.Cancelled{}, nil
		}
		sel.IDs = ids
	}
	c, err := s.cancel(ctx, sel)
	if err != nil {
		return http.Cancelled{}, err
	}
	done := http.Cancelled{Cancelled: c.cancelled, TooLate: len(c.late), Withheld: c.withheld}
	if done.MovedTo, err = (messages.KeyStore{Queue: s.Messages.Queue}).MovedTo(tenant); err != nil {
		s.Messages.Log.Warn("finding out where mail was moved", "tenant", tenant, "error", err)
	}
	for _, l := range c.late[:min(len(c.late), tooLateShown)] {
		done.Recipients = append(done.Recipients,
			http.CancelledRecipient{ID: l.ID.String(), Address: s.address(l.Followed), Status: l.status})
	}
	return done, nil
}

// address gives the address of a recipient; "" when it is not in the queue any more.
func (s *Submitted) address(f queue.Followed) string {
	it, err := s.Messages.Queue.Get(f.ID)
	if err != nil {
		return ""
	}
	for i := range it.Recipients {
		if it.Recipients[i].Index == f.Recipient {
			return string(it.Recipients[i].Address)
		}
	}
	return ""
}

// cancelOne cancels a message, and says of each of its recipients what it is then. With another message that the id
// may mean, it is refused.
func (s *Submitted) cancelOne(ctx context.Context, tenant string, id envelope.ID,
	other bool) (done http.Cancelled, err error) {
	m, err := s.get(ctx, tenant, id)
	if err == nil && other {
		err = http.ErrTwo
	}
	if err != nil {
		return done, err
	}
	before, err := s.Messages.Queue.Get(id)
	if err != nil && !errors.Is(err, queue.ErrUnknown) {
		return done, err
	}
	c, err := s.cancel(ctx, queue.Selector{IDs: []envelope.ID{id}, Filter: queue.Filter{Tenant: tenant}})
	if err != nil {
		return done, err
	}
	done.Withheld = c.withheld
	ended := make(map[string]http.MessageStatus)
	for i := range before.Recipients {
		rc := &before.Recipients[i]
		if status, known := c.of[recipientOf{id, rc.Index}]; known {
			ended[string(rc.Address)] = status
		}
	}
	for _, rc := range m.Recipients {
		status, known := ended[rc.Address]
		if !known {
			status = rc.Status
		}
		if status == http.Canceled { // now or before: asked again, the answer is the same
			done.Cancelled++
		} else {
			done.TooLate++
		}
		out := http.CancelledRecipient{Address: rc.Address, Status: status}
		if status == http.Moved && rc.LastReply != nil {
			out.Detail = rc.LastReply.Text
		}
		done.Recipients = append(done.Recipients, out)
	}
	return done, nil
}

// cancelID cancels a message by its id, or by the one that it had at the relay from which it was moved here.
func (s *Submitted) cancelID(ctx context.Context, tenant string, id envelope.ID) (all http.Cancelled, err error) {
	moved, err := s.movedHere(ctx, tenant, id)
	if err != nil {
		return all, err
	}
	done, err := s.cancelOne(ctx, tenant, id, len(moved) > 0)
	if len(moved) == 0 || !errors.Is(err, http.ErrNoMessage) {
		return done, err
	}
	for i := range moved {
		here, err := envelope.ParseID(moved[i].ID)
		if err != nil {
			return all, err
		}
		done, err := s.cancelOne(ctx, tenant, here, false)
		if err != nil {
			return all, err
		}
		all.Cancelled += done.Cancelled
		all.TooLate += done.TooLate
		all.Withheld += done.Withheld
		for _, rc := range done.Recipients {
			rc.ID = here.String()
			all.Recipients = append(all.Recipients, rc)
		}
	}
	return all, nil
}

// movedHere returns what is here of a tenant's message that had an id at another relay.
func (s *Submitted) movedHere(ctx context.Context, tenant string, id envelope.ID) (own []http.Message, err error) {
	all, err := messages.KeyStore{Queue: s.Messages.Queue}.MovedHere(id)
	for _, here := range all {
		m, failed := s.get(ctx, tenant, here)
		switch {
		case failed == nil:
			own = append(own, m)
		case !errors.Is(failed, http.ErrNoMessage):
			return nil, failed
		}
	}
	return own, err
}

type recipientOf struct {
	id        envelope.ID
	recipient int
}

// cancellation is what became of recipients that were in the queue.
type cancellation struct {
	cancelled int
	withheld  int
	late      []lateRecipient
	// of has what is known of recipients: of single messages all, of others those that were handed out.
	of map[recipientOf]http.MessageStatus
}

type lateRecipient struct {
	queue.Followed
	status http.MessageStatus
}

// cancelInQueue cancels messages by their ids, or finds them in turns with searches. A search that has begun is carried
// out, whatever becomes of its client.
func (s *Submitted) cancelInQueue(ctx context.Context, sel queue.Selector) (*queue.Cancellation, error) {
	if len(sel.IDs) == 0 {
		search, err := s.begin(ctx, sel.Filter.Tenant)
		if err != nil {
			return nil, err
		}
		defer search.End()
		whole := context.WithoutCancel(ctx)
		sel.Pause = func() { _ = search.Next(whole) }
	}
	return s.Messages.Queue.Cancel(sel)
}

// cancel has recipients cancelled in the queue. Those that it had handed out are called back from delivery, and are
// waited for until they are back, or on a connection.
func (s *Submitted) cancel(ctx context.Context, sel queue.Selector) (*cancellation, error) {
	done, err := s.cancelInQueue(ctx, sel)
	if err != nil && !errors.Is(err, queue.ErrUnknown) {
		return nil, err
	}
	c := &cancellation{cancelled: done.Cancelled, withheld: done.Withheld, of: make(map[recipientOf]http.MessageStatus)}
	for _, g := range done.Gone {
		c.of[recipientOf{g.ID, g.Recipient}] = http.Canceled
	}
	last := envelope.ID(0)
	for _, f := range done.Leased {
		if f.ID != last {
			s.Messages.Dispatcher.Cancel(f.ID)
			last = f.ID
		}
	}
	late := time.NewTimer(cancelWait)
	defer late.Stop()
	for out := done.Leased; len(out) > 0; {
		out = s.settled(c, done, out, false)
		if len(out) == 0 {
			break
		}
		select {
		case <-time.After(cancelPoll):
		case <-late.C:
			out = s.settled(c, done, out, true)
		case <-ctx.Done():
			out = s.settled(c, done, out, true)
		}
	}
	return c, nil
}

// settled sorts recipients that were handed out, and returns those that are neither back nor on a connection; at the
// end there are none of them.
func (s *Submitted) settled(c *cancellation, done *queue.Cancellation, out []queue.Followed,
	atEnd bool) (open []queue.Followed) {
	for _, f := range out {
		end, back := done.Outcome(f)
		status := outcomes[end]
		switch {
		case !back && !atEnd && !s.Messages.Delivery.OnConnection(f.ID, f.Recipient):
			open = append(open, f)
			continue
		case !back:
			status = http.Sending
		}
		c.of[recipientOf{f.ID, f.Recipient}] = status
		if status == http.Canceled {
			c.cancelled++
		} else {
			c.late = append(c.late, lateRecipient{f, status})
		}
	}
	return open
}

// outcomes of recipients that were handed out when they were cancelled.
var outcomes = map[queue.Outcome]http.MessageStatus{
	queue.Delivered: http.Delivered, queue.Bounced: http.Bounced, queue.Expired: http.Expired,
	queue.Removed: http.Canceled,
}
