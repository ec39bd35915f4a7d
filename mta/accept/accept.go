// Package accept is what submission knows of the parts behind it: the queue, which it logs when that refuses mail, the
// inbox of reports about the relay's mail, or that of another node, and the list from which links to unsubscribe take
// effect.
package accept

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/fair"
	"example.org/mta/internal/faultlog"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/tally"
	"example.org/mta/queue"
	"example.org/mta/submission/intake"
	"example.org/mta/suppression"
)

// Events records messages on their way into the queue, which may hand one out before Commit returns.
type Events interface {
	Accepting(*envelope.Message)
	Received(*envelope.Message)
	Refused(*envelope.Message)
}

// Store is the queue, as submission knows it.
type Store struct {
	q        *queue.Queue
	events   Events
	meter    *tally.Meter
	now      func() time.Time
	refusing *faultlog.Kind
}

// New makes the store of a queue.
func New(q *queue.Queue, events Events, m *tally.Meter, now func() time.Time, log *slog.Logger) *Store {
	return &Store{q, events, m, now,
		faultlog.New(log, now, slog.LevelError, "mail is refused with 4xx", "mail is no longer refused")}
}

// Begin opens a place for a message of about so many octets, 0 when that is not known.
func (s *Store) Begin(owner intake.Owner, size int64) intake.Draft {
	d := s.q.Begin()
	d.Expect(owner, size)
	return draft{d, s}
}

// Ready returns why an owner's message of so many octets would be refused just now.
func (s *Store) Ready(owner intake.Owner, size int64) error {
	return s.noted(s.q.Ready(owner, size))
}

// noted notes how it went, and puts an error into submission's words.
func (s *Store) noted(err error) error {
	switch {
	case err == nil:
		s.refusing.Well()
	case errors.Is(err, queue.ErrClosed): // by ourselves
	case errors.Is(err, queue.ErrSharedOut): // others are not refused
		return diskFull{err}
	case errors.Is(err, queue.ErrDiskFull):
		s.refusing.Failed("disk full", "error", err)
		return diskFull{err}
	case errors.Is(err, queue.ErrStorage):
		s.refusing.Failed("storage", "error", err)
	default:
		s.refusing.Failed(err.Error(), "error", err)
	}
	return err
}

type draft struct {
	*queue.Draft
	s *Store
}

// Write adds to the content.
func (d draft) Write(p []byte) (int, error) {
	n, err := d.Draft.Write(p)
	if err != nil {
		err = d.s.noted(err)
	}
	return n, err
}

// Commit accepts the message.
func (d draft) Commit(m *envelope.Message) error {
	d.s.events.Accepting(m)
	began := d.s.now()
	err := d.s.noted(d.Draft.Commit(m))
	if err != nil {
		d.s.events.Refused(m)
		return err
	}
	d.s.meter.Committed(d.s.now().Sub(began), m.ID)
	return nil
}

// Hold has the message enter the queue held.
func (d draft) Hold(recipients int, due time.Time, why reply.Reply) {
	d.Continue(slices.Repeat([]queue.Standing{{Held: true, Due: due, Tried: true,
		Last: queue.Attempt{Reply: why, Untried: true}}}, recipients))
}

// CommitBatch accepts messages of one request together.
func (s *Store) CommitBatch(b *intake.Batch) (committed int, err error) {
	qb := &queue.Batch{Messages: b.Messages}
	if k := b.Keyed; k != nil {
		qb.Key, qb.Request, qb.Positions = k.Key, k.Request, k.Positions
		qb.Last, qb.Answer, qb.Until = k.Last, k.Answer, k.Until
	}
	for i, d := range b.Drafts {
		qb.Drafts = append(qb.Drafts, d.(draft).Draft)
		s.events.Accepting(b.Messages[i])
	}
	began := s.now()
	committed, err = s.q.CommitBatch(qb)
	if err = s.noted(err); err == nil {
		s.meter.Committed(s.now().Sub(began), b.Messages[0].ID)
	}
	for _, m := range b.Messages[committed:] {
		s.events.Refused(m)
	}
	return committed, err
}

// Own puts a message of the relay itself into the queue.
func (s *Store) Own(m *envelope.Message, content []byte) error {
	d := s.Begin(intake.Owner{}, int64(len(content)))
	if _, err := d.Write(content); err != nil {
		d.Abort()
		return err
	}
	if err := d.Commit(m); err != nil {
		return err
	}
	s.events.Received(m)
	return nil
}

// diskFull makes submission answer 452 4.3.1.
type diskFull struct{ error }

func (e diskFull) Unwrap() error { return e.error }

// DiskFull is what submission asks of an error.
func (diskFull) DiskFull() bool { return true }

// Refusing returns why mail is refused just now, "" when it is not. To ask is no mail that was refused, and isn't
// counted as such.
func (s *Store) Refusing() string {
	err := s.q.Ready(fair.Party{}, 0)
	switch {
	case err == nil:
		s.refusing.Well()
		return ""
	case errors.Is(err, queue.ErrDiskFull):
		return fmt.Sprintf("%v: clients get a 452 until space is free", err)
	}
	return fmt.Sprintf("the queue can't be written: mail is answered 451 until it can: %v", err)
}

// Unsubscribes are the links by which recipients unsubscribe: they put them on the suppression list.
type Unsubscribes struct {
	Links  *suppression.Links
	List   *suppression.List
	Events interface {
		Unsubscribed(s *suppression.Subscription, request string)
	}
	Log *slog.Logger
}

// Subscription implements http.Unsubscribes.
func (u *Unsubscribes) Subscription(token string) (tenant string, a envelope.Address, ok bool) {
	s, ok := u.Links.Read(token)
	return s.Tenant, s.Address, ok
}

// Unsubscribe implements http.Unsubscribes. It goes on when the client leaves: the recipient has asked for it.
func (u *Unsubscribes) Unsubscribe(ctx context.Context, token, request string) error {
	s, ok := u.Links.Read(token)
	if !ok {
		return errors.New("the token is not valid")
	}
	fresh, err := u.End(context.WithoutCancel(ctx), &s, request)
	if err == nil && fresh {
		u.Events.Unsubscribed(&s, request)
	}
	return err
}

// End puts the recipient on the suppression list for good. It reports false when the recipient was there. An entry that
// the tenant added does not count, since the tenant can change it.
func (u *Unsubscribes) End(ctx context.Context, s *suppression.Subscription, request string) (fresh bool, err error) {
	key := suppression.KeyOf(s.Tenant, s.Address)
	there, err := u.List.Get(ctx, []suppression.Key{key})
	if err != nil {
		return false, err
	}
	if len(there) > 0 && there[0].Expires.IsZero() && !there[0].Source.ByHost() &&
		there[0].Source != suppression.Tenant {
		return false, nil
	}
	reason := "the recipient unsubscribed"
	if s.Campaign != "" {
		reason += " from " + s.Campaign
	}
	entry := suppression.Entry{Key: key, Reason: reason, Source: suppression.Unsubscribe}
	if _, err := u.List.Add(ctx, []suppression.Entry{entry}); err != nil {
		return false, err
	}
	u.Log.Info("recipient unsubscribed", "tenant", s.Tenant, "recipient", s.Address, "campaign", s.Campaign,
		"request", request)
	return true, nil
}
