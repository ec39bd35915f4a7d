package books

import (
	"context"
	"errors"
	"slices"

	"example.org/mta/bounce"
	"example.org/mta/bounce/inbox"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/accounting"
	"example.org/mta/suppression"
)

// Reports are the accounting log and the suppression list, as the inbox knows them (inbox.Books).
type Reports struct {
	Log     *accounting.Writer // nil: switched off
	Unknown *bounce.Unknown
	Feeder  *suppression.Feeder
	// End ends a subscription durably.
	End func(ctx context.Context, s *suppression.Subscription, session string) (fresh bool, err error)
}

// Message implements inbox.Books.
func (b *Reports) Message(ctx context.Context, id envelope.ID) (*inbox.Message, error) {
	if b.Log == nil {
		return nil, nil
	}
	m, delivered, err := b.find(ctx, id)
	if err != nil || delivered {
		return m, err
	}
	// The report can be here before the record of the delivery is in its file.
	if err := b.Log.Flush(ctx); err != nil {
		return nil, err
	}
	m, _, err = b.find(ctx, id)
	return m, err
}

func (b *Reports) find(ctx context.Context, id envelope.ID) (m *inbox.Message, delivered bool, err error) {
	var records []*accounting.Record
	q := accounting.Query{ID: id.String(),
		Types: []accounting.Type{accounting.Reception, accounting.Delivery, accounting.Bounce,
			accounting.TransientFailure}}
	err = b.Log.Read(ctx, q, func(line []byte) error {
		rec, err := accounting.Parse(line)
		if err == nil {
			records = append(records, rec)
		}
		return nil
	}, nil)
	// What is damaged stays so: to ask for the report again and again would not help.
	if damaged := (*accounting.DamagedError)(nil); err != nil && !errors.As(err, &damaged) {
		return nil, false, err
	}
	m = sentMessage(records)
	delivered = m != nil && !slices.ContainsFunc(m.Recipients, func(rc inbox.Recipient) bool {
		return rc.Delivered.IsZero()
	})
	return m, delivered, nil
}

// sentMessage makes a message of its records, nil when there is no Reception. The order of recipients is that of their
// Receptions, which a crash can have caused to be written twice.
func sentMessage(records []*accounting.Record) *inbox.Message {
	var m *inbox.Message
	at := make(map[envelope.Address]int)
	for _, rec := range records {
		if rec.Type != accounting.Reception {
			continue
		}
		if m == nil {
			m = &inbox.Message{
				ID: rec.ID, Sender: rec.Sender, Created: rec.Created, Size: rec.Size, User: rec.User, Key: rec.Key,
				Tenant: rec.Tenant, Campaign: rec.Campaign, Tags: rec.Tags, Meta: string(rec.Meta),
				Headers: string(rec.Headers),
			}
		}
		if _, known := at[rec.Recipient]; !known {
			at[rec.Recipient] = len(m.Recipients)
			m.Recipients = append(m.Recipients, inbox.Recipient{Address: rec.Recipient})
		}
	}
	for _, rec := range records {
		i, known := at[rec.Recipient]
		if !known || rec.Type != accounting.Delivery && rec.Type != accounting.Bounce &&
			rec.Type != accounting.TransientFailure {
			continue
		}
		rc := &m.Recipients[i]
		rc.Provider, rc.Site, rc.Pool, rc.Source = rec.Provider, rec.Site, rec.EgressPool, rec.EgressSource
		if rec.Type == accounting.Delivery {
			rc.Delivered = rec.Time
		}
	}
	return m
}

var reportTypes = map[inbox.RecordKind]accounting.Type{
	inbox.OutOfBand: accounting.OOB, inbox.Complaint: accounting.Feedback, inbox.Unsubscription: accounting.Unsubscribe,
}

// accountingRecord puts a report into the log's words: what is known of the message, and who brought the report.
func accountingRecord(r *inbox.Record) *accounting.Record {
	m := r.Message
	if m == nil {
		m = new(inbox.Message)
	}
	out := &accounting.Record{
		Type: reportTypes[r.Kind], Recipient: r.Recipient, Response: r.Reply, Class: r.Class.String(),
		Peer: accounting.Peer{Name: r.Mail.Helo, Addr: r.Mail.Peer.Addr()}, Time: r.Mail.Time, Session: r.Mail.Session,
		ReceptionProtocol: r.Mail.Protocol, Report: accounting.Object(r.Feedback), MatchedBy: string(r.About),
		Message: accounting.Message{
			ID: r.ID, Sender: m.Sender, Created: m.Created, Size: m.Size, User: m.User, Key: m.Key, Tenant: m.Tenant,
			Campaign: m.Campaign, Tags: m.Tags, Meta: accounting.Object(m.Meta), Headers: accounting.Object(m.Headers),
		},
	}
	if r.Recipient != "" {
		out.Queue = queueName(m.Tenant, r.Recipient)
	}
	if k := r.Known; k != nil {
		out.Provider, out.Site, out.EgressPool, out.EgressSource = k.Provider, k.Site, k.Pool, k.Source
	}
	return out
}

// Write implements inbox.Books. An entry on the suppression list is durable, too; what is set aside or counted is
// within a second.
func (b *Reports) Write(ctx context.Context, records []*inbox.Record) error {
	if err := b.durable(ctx, records); err != nil {
		return err
	}
	follows := false
	for _, r := range records {
		if r.Class == bounce.Uncategorized && r.Known != nil {
			b.Unknown.Add(r.Known.Provider, r.Reply, r.ID.String(), r.Mail.Time)
		}
		if r.Follows {
			b.Feeder.Report(followed(r))
			follows = true
		}
	}
	if !follows {
		return nil
	}
	return b.Feeder.List.Sync(ctx) // after the 250 nobody brings the report again
}

func (b *Reports) durable(ctx context.Context, records []*inbox.Record) error {
	if b.Log == nil {
		return nil
	}
	all := make([]*accounting.Record, len(records))
	for i, r := range records {
		all[i] = accountingRecord(r)
	}
	return b.Log.Durable(ctx, all...)
}

// followed is a record as the suppression list's feeder knows it. The message and the recipient are known.
func followed(r *inbox.Record) suppression.Event {
	e := suppression.Event{
		Kind: suppression.Report, Tenant: r.Message.Tenant, Address: r.Known.Address, Class: r.Class,
		Provider: r.Known.Provider, Site: r.Known.Site,
		Reason: r.Reply.String(), At: r.Mail.Time, Message: r.ID, Source: r.Known.Source, Sent: r.Known.Delivered,
	}
	if r.Kind == inbox.Complaint {
		e.Kind, e.Reason = suppression.Complaint, "the recipient complained"
	}
	return e
}

// Unsubscribe implements inbox.Books.
func (b *Reports) Unsubscribe(ctx context.Context, r *inbox.Record) error {
	s := &suppression.Subscription{Tenant: r.Message.Tenant, Address: r.Known.Address, Campaign: r.Message.Campaign,
		Sent: r.Message.Created}
	if _, err := b.End(ctx, s, r.Mail.Session); err != nil {
		return err
	}
	return b.durable(ctx, []*inbox.Record{r})
}
