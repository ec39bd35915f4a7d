// Package submitted answers tenants by HTTP: about the mail that they submitted, their events and their part of the
// suppression list.
package submitted

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/fair"
	"example.org/mta/internal/reply"
	"example.org/mta/operator/answer/messages"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/submission/http"
)

// Submitted answers tenants about the mail that they submitted, from the queue and, of what has left it, from the
// accounting log; it implements http.Messages.
type Submitted struct {
	Messages *messages.Messages
	// LogDir returns where the accounting log is; "" when there is none.
	LogDir func() string
	// Flush makes the log show what was recorded so far. It may be nil.
	Flush func(context.Context) error
	// Keyed returns the ids of the messages of a request with an Idempotency-Key; false when the key is unknown.
	Keyed func(tenant, key string) ([]envelope.ID, bool, error)

	// Searches are what tenants take turns at: searches of the log and of the queue, and whatever else looks through
	// much.
	Searches *fair.Turns
}

const (
	// maxSearches bounds the searches at a time, of which a tenant has one.
	maxSearches = 2
	// searchTime is how long one may work, and how long it may wait until it begins.
	searchTime = 10 * time.Second
)

// New completes the settings.
func New(s Submitted) *Submitted {
	s.Searches = fair.New(maxSearches, time.Now)
	return &s
}

// search is a tenant's search, which gives way to those of other tenants.
type search struct {
	*fair.Turn
	ctx context.Context
}

// begin waits for a tenant's turn to search.
func (s *Submitted) begin(ctx context.Context, tenant string) (*search, error) {
	wait, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	turn, err := s.Searches.Begin(wait, tenant)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, http.ErrBusy
	}
	return &search{turn, ctx}, nil
}

// pause gives way, and ends a search that has taken too long: what asks for it is a client's request.
func (s *search) pause() error {
	if s.Worked() > searchTime {
		return http.ErrTooMuch
	}
	return s.Next(s.ctx)
}

// Get returns the state of a message, which may have been moved here from another relay, where it had the id.
func (s *Submitted) Get(ctx context.Context, tenant string, id envelope.ID) (http.Message, error) {
	parts, err := s.Parts(ctx, tenant, id)
	return whole(parts), err
}

// Parts implements Own.
func (s *Submitted) Parts(ctx context.Context, tenant string, id envelope.ID) (parts []http.Message, err error) {
	m, err := s.get(ctx, tenant, id)
	if err == nil {
		return []http.Message{m}, nil
	}
	if !errors.Is(err, http.ErrNoMessage) {
		return nil, err
	}
	moved, failed := s.movedHere(ctx, tenant, id)
	if failed != nil || len(moved) == 0 {
		return nil, cmp.Or(failed, err)
	}
	return moved, nil
}

func (s *Submitted) get(ctx context.Context, tenant string, id envelope.ID) (http.Message, error) {
	it, err := s.Messages.Queue.Get(id)
	here := err == nil && !it.Unreadable && it.Tenant == tenant // another's is looked for as long as one that never was
	if here && len(it.Recipients) == it.Total {
		return s.message(&it, s.Messages.LookOut(it)), nil
	}
	left, err := s.inLog(ctx, logSearch{tenant: tenant, id: id})
	switch {
	case err != nil:
		return http.Message{}, err
	case here:
		m := s.message(&it, s.Messages.LookOut(it))
		left[id].addTo(&m)
		return m, nil
	case left[id] == nil:
		return http.Message{}, http.ErrNoMessage
	}
	return left[id].message(), nil
}

// message puts a message in the queue into the words of the API.
func (s *Submitted) message(it *queue.Item, k *messages.Lookout) http.Message {
	m := http.Message{
		ID: it.ID.String(), From: string(it.Sender), Size: it.Size, AcceptedAt: it.Accepted().UTC(),
		ExpiresAt: it.Expires, Campaign: it.Campaign, Tags: it.Tags, Meta: json.RawMessage(it.Meta),
	}
	if it.Scheduled() {
		m.SendAt = it.Release
	}
	for i := range it.Recipients {
		m.Recipients = append(m.Recipients, s.recipient(it, k, &it.Recipients[i]))
	}
	m.Summarise()
	return m
}

// recipient describes a recipient in the queue to a tenant. What the relay knows of its other mail, and of its
// operator, is not in it.
func (s *Submitted) recipient(it *queue.Item, k *messages.Lookout, rc *queue.ItemRecipient) http.MessageRecipient {
	p := k.Of(it, rc)
	switch {
	case rc.Last.OK():
		return http.MessageRecipient{Address: string(rc.Address), Status: http.Delivered, Attempts: rc.Attempts,
			LastReply: replyFor(rc.Last)}
	case rc.Last.Permanent():
		return http.MessageRecipient{Address: string(rc.Address), Status: http.Bounced, Attempts: rc.Attempts,
			LastReply: replyFor(rc.Last)}
	}
	out := http.MessageRecipient{Address: string(rc.Address), Attempts: rc.Attempts,
		LastReply: replyFor(rc.Last), NextAt: p.Next}
	switch p.State {
	case api.StateHeld:
		out.Status = http.Held
	case api.StateActive:
		out.Status = http.Sending
	case api.StateEnding:
		out.Status, out.Detail = http.Deferred, "given up: the report to the sender is being written"
	case api.StateUnreadable:
		out.Status, out.Detail = http.Held, "its record on the relay's disk is damaged"
	default:
		switch {
		case rc.Scheduled:
			out.Status = http.Waiting
		case rc.Attempts > 0:
			out.Status = http.Deferred
		default:
			out.Status = http.Queued
		}
	}
	return out
}

func replyFor(r reply.Reply) *http.Reply {
	if r.Code == 0 {
		return nil
	}
	return (*http.Reply)(api.ReplyOf(r))
}

// List returns a page of messages: those in the queue, and those that the log has.
func (s *Submitted) List(ctx context.Context, tenant string, q http.MessageQuery) (page http.MessagePage, err error) {
	search, err := s.begin(ctx, tenant)
	if err != nil {
		return page, err
	}
	defer search.End()
	waiting, err := s.waiting(search, tenant, q)
	if err != nil {
		return page, err
	}
	left, err := s.look(search, logSearch{tenant: tenant, MessageQuery: q})
	if err != nil {
		return page, err
	}
	ids := slices.Collect(maps.Keys(left))
	for i := range waiting {
		if left[waiting[i].ID] == nil {
			ids = append(ids, waiting[i].ID)
		}
	}
	slices.Sort(ids)
	if len(ids) > q.Limit {
		ids = ids[:q.Limit]
		page.Next = ids[q.Limit-1].String()
	}
	page.Messages = s.page(ids, left, tenant, q.Recipient)
	return page, nil
}

// page puts messages together from what the queue and what the log has of them.
func (s *Submitted) page(ids []envelope.ID, left map[envelope.ID]*record, tenant, recipient string) []http.Message {
	now := s.Messages.Queue.Pick(ids, queue.Filter{Tenant: tenant, Recipient: recipient})
	byID := make(map[envelope.ID]*queue.Item, len(now))
	for i := range now {
		byID[now[i].ID] = &now[i]
	}
	k := s.Messages.LookOut(now...)
	var page []http.Message
	for _, id := range ids {
		it, rec := byID[id], left[id]
		switch {
		case it == nil && rec != nil:
			page = append(page, rec.message())
		case it == nil: // it has left just now, and the log doesn't have it
		default:
			m := s.message(it, k)
			rec.addTo(&m)
			page = append(page, m)
		}
	}
	return page
}

// waiting gives one message more than the page has space for, if there are so many in the queue.
func (s *Submitted) waiting(search *search, tenant string, q http.MessageQuery) (all []queue.Item, err error) {
	f := queue.Filter{Tenant: tenant, Campaign: q.Campaign, Tag: q.Tag, Recipient: q.Recipient}
	now := s.Messages.Now()
	if age := now.Sub(q.From); !q.From.IsZero() {
		f.NewerThan = max(age, time.Nanosecond)
	}
	if age := now.Sub(q.Until); !q.Until.IsZero() && age > 0 {
		f.OlderThan = age
	}
	page := queue.Page{Limit: q.Limit + 1, Time: searchSlice}
	if q.After != 0 {
		page.Cursor = (q.After + 1).String()
	}
	for {
		l, err := s.Messages.Queue.List(f, page)
		if err != nil {
			return nil, err
		}
		all = append(all, l.Items...)
		if l.Next == "" || len(all) > q.Limit {
			return all, nil
		}
		if err := search.pause(); err != nil {
			return nil, err
		}
		page.Cursor = l.Next
	}
}

// searchSlice is how long a listing looks through the queue at once.
const searchSlice = 5 * time.Millisecond

// Move gives a scheduled message another time.
func (s *Submitted) Move(ctx context.Context, tenant string, id envelope.ID, at time.Time) error {
	it, err := s.Messages.Queue.Get(id)
	switch {
	case errors.Is(err, queue.ErrUnknown):
		return s.unless(ctx, tenant, id)
	case err != nil:
		return err
	case it.Unreadable || it.Tenant != tenant:
		return http.ErrNoMessage
	case !it.Expires.IsZero() && !at.Before(it.Expires):
		return http.ErrExpires
	}
	switch err = s.Messages.Queue.Move(id, at); {
	case errors.Is(err, queue.ErrReleased), errors.Is(err, queue.ErrUnknown):
		return http.ErrReleased
	}
	return err
}

// unless is ErrReleased of a message of the tenant that has left the queue, and ErrNoMessage of all others.
func (s *Submitted) unless(ctx context.Context, tenant string, id envelope.ID) error {
	left, err := s.inLog(ctx, logSearch{tenant: tenant, id: id})
	switch {
	case err != nil:
		return err
	case left[id] == nil:
		return http.ErrNoMessage
	}
	return http.ErrReleased
}
