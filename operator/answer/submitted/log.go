package submitted

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/accounting"
	"example.org/mta/submission/http"
)

// logSearch says which messages of a tenant the log is searched for: one, or those of a page.
type logSearch struct {
	tenant string
	id     envelope.ID
	http.MessageQuery
}

// record is what the log has of a message.
type record struct {
	http.Message
	byAddress map[string]int // index in Recipients
	open      int            // recipients without a final record
}

// ends are the types of records that end a recipient.
var ends = map[accounting.Type]http.MessageStatus{
	accounting.Delivery: http.Delivered, accounting.Bounce: http.Bounced, accounting.Expiration: http.Expired,
	accounting.AdminBounce: http.Removed, accounting.Cancellation: http.Canceled, accounting.Transfer: http.Moved,
}

// logSlack is how far before its id's time a message may have been accepted.
const logSlack = 24 * time.Hour

var errEnough = errors.New("all that was asked for is there")

// inLog goes through the log in a separate search.
func (s *Submitted) inLog(ctx context.Context, h logSearch) (map[envelope.ID]*record, error) {
	search, err := s.begin(ctx, h.tenant)
	if err != nil {
		return nil, err
	}
	defer search.End()
	return s.look(search, h)
}

// look goes through the log.
func (s *Submitted) look(search *search, h logSearch) (map[envelope.ID]*record, error) {
	dir, ctx := s.LogDir(), search.ctx
	if dir == "" {
		return map[envelope.ID]*record{}, nil
	}
	if s.Flush != nil {
		flush, cancel := context.WithTimeout(ctx, searchTime)
		err := s.Flush(flush)
		cancel()
		if err != nil && ctx.Err() == nil {
			s.Messages.Log.Warn("the latest accounting records are not in the log yet", "error", err)
		}
	}
	f := finder{logSearch: h, found: make(map[envelope.ID]*record)}
	q := f.query(s.Messages.Now())
	q.Pause = search.pause
	err := accounting.Read(ctx, dir, q, f.line, nil)
	var damaged *accounting.DamagedError
	switch {
	case errors.As(err, &damaged):
		s.Messages.Log.Error("a search of the accounting log has passed over damage", "error", err)
		return f.found, nil
	case err == nil, errors.Is(err, errEnough):
		return f.found, nil
	}
	return nil, err
}

// finder collects the messages of a search, the first ones of a listing in the order of their ids.
type finder struct {
	logSearch
	found map[envelope.ID]*record
	ids   []envelope.ID // of found, ascending
	open  int           // of all that was found
}

func (f *finder) query(now time.Time) accounting.Query {
	q := accounting.Query{Tenant: f.tenant, Campaign: f.Campaign, Tag: f.Tag, Recipient: f.Recipient, Since: f.From}
	if f.id != 0 {
		at := f.id.Time()
		if at.After(now) { // the clock was ahead once
			at = now
		}
		q.ID, q.Since = f.id.String(), at.Add(-logSlack)
	}
	return q
}

// line takes a record of the log.
func (f *finder) line(text []byte) error {
	r, err := accounting.Parse(text)
	if err != nil || r.ID == 0 || r.Tenant != f.tenant { // a tenant without a name asks for its own, too
		return nil
	}
	if f.id == 0 && !f.selects(r) {
		return f.enough(r.Time)
	}
	m := f.found[r.ID]
	if m == nil {
		if m = f.begin(r); m == nil {
			return f.enough(r.Time)
		}
	}
	before := m.open
	m.take(r)
	f.open += m.open - before
	return f.enough(r.Time)
}

// selects reports whether the message of a record is on the page, or on a later one.
func (f *finder) selects(r *accounting.Record) bool {
	return r.ID > f.After && !r.Created.Before(f.From) && (f.Until.IsZero() || r.Created.Before(f.Until))
}

// begin adds a message, unless the page is full of earlier ones. Of a full page it drops the last one.
func (f *finder) begin(r *accounting.Record) *record {
	at, _ := slices.BinarySearch(f.ids, r.ID)
	if f.id == 0 && len(f.ids) > f.Limit {
		if at == len(f.ids) {
			return nil
		}
		last := f.ids[len(f.ids)-1]
		f.open -= f.found[last].open
		delete(f.found, last)
		f.ids = f.ids[:len(f.ids)-1]
	}
	m := &record{byAddress: make(map[string]int), Message: http.Message{
		ID: r.ID.String(), From: string(r.Sender), Size: r.Size, AcceptedAt: r.Created,
		Campaign: r.Campaign, Tags: r.Tags, Meta: json.RawMessage(r.Meta),
	}}
	f.found[r.ID] = m
	f.ids = slices.Insert(f.ids, at, r.ID)
	return m
}

// enough ends the search for a page when nothing that follows can change it. A single message's ends with the log:
// its recipients could be more than were seen so far.
func (f *finder) enough(at time.Time) error {
	over := len(f.ids) > f.Limit || !f.Until.IsZero() && at.After(f.Until.Add(logSlack))
	if f.id == 0 && over && f.open == 0 {
		return errEnough
	}
	return nil
}

// take brings a message forward by a record.
func (m *record) take(r *accounting.Record) {
	address := string(r.Recipient)
	i, known := m.byAddress[address]
	if !known {
		i = len(m.Recipients)
		m.byAddress[address] = i
		m.Recipients = append(m.Recipients, http.MessageRecipient{Address: address, Status: http.Unknown})
		m.open++
	}
	rc := &m.Recipients[i]
	rc.Attempts = max(rc.Attempts, r.Attempts)
	if r.Type == accounting.Reception {
		if !r.Release.IsZero() && (m.SendAt.IsZero() || r.Release.Before(m.SendAt)) {
			m.SendAt = r.Release
		}
		return
	}
	rc.LastReply = replyFor(r.Response)
	end, final := ends[r.Type]
	if !final {
		return
	}
	if !rc.Status.Final() {
		m.open--
	}
	rc.Status, rc.EndedAt = end, r.Time
}

// message gives what the log has of a message that is not in the queue.
func (m *record) message() http.Message {
	m.Summarise()
	return m.Message
}

// addTo adds the recipients that have left to a message that is in the queue with the others.
func (m *record) addTo(to *http.Message) {
	if m == nil {
		return
	}
	here := make(map[string]bool, len(to.Recipients))
	for i := range to.Recipients {
		here[to.Recipients[i].Address] = true
	}
	for _, rc := range m.Recipients {
		if !here[rc.Address] {
			to.Recipients = append(to.Recipients, rc)
		}
	}
	to.Summarise()
}
