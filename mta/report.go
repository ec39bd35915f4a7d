package mta

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"example.org/mta/internal/dsn"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
)

// reportWriter puts reports to senders into the queue, as messages like any other.
type reportWriter struct {
	queue  *queue.Queue
	events eventLog
	policy func() *wiring.Policy
	sites  *siteProviders
	ids    *envelope.IDs // for Message-IDs and boundaries
	now    func() time.Time
	log    *slog.Logger
}

// write returns when the report is durable, or when there is nobody to tell.
func (w *reportWriter) write(n notification) error {
	attempts := n.wanted()
	if len(attempts) == 0 {
		return nil
	}
	body, err := w.queue.Body(n.message.ID)
	if err != nil {
		// A report without the original is better than none.
		w.log.Error("content of a message can't be read for the report about it", "message", n.message.ID, "error", err)
		return w.commit(n, attempts, nil)
	}
	defer body.Close()
	return w.commit(n, attempts, body)
}

// commit puts the report into the queue. content is the original's, nil when it can't be read.
func (w *reportWriter) commit(n notification, attempts []attempt, content io.Reader) error {
	built, err := w.build(n, attempts, content)
	if err != nil && content != nil {
		w.log.Error("report about a message can't be made with its content, and is made without", "message", n.message.ID, "error", err)
		built, err = w.build(n, attempts, nil)
	}
	if err != nil {
		return fmt.Errorf("report to the sender: %w", err)
	}
	m := &envelope.Message{
		Recipients: []envelope.Recipient{{Address: n.message.Sender, Notify: envelope.NotifyNever}},
		UTF8:       built.UTF8,
		RequireTLS: n.message.RequireTLS, // RFC 8689, 5
		Tenant:     n.message.Tenant,
		Tier:       0,
		Received:   w.now(),
		Protocol:   envelope.LocalProtocol,
	}
	if built.EightBit {
		m.Body = envelope.Body8BitMIME
	}
	draft := w.queue.Begin()
	if _, err := draft.Write(built.Content); err != nil {
		draft.Abort()
		return fmt.Errorf("report to the sender: %w", err)
	}
	w.events.accepting(m)
	if err := draft.Commit(m); err != nil {
		w.events.refused(m)
		return fmt.Errorf("report to the sender: %w", err)
	}
	w.events.received(m)
	return nil
}

var dsnKinds = map[notificationKind]dsn.Kind{
	notifyFailed:    dsn.Failed,
	notifyDelayed:   dsn.Delayed,
	notifyDelivered: dsn.Delivered,
}

func (w *reportWriter) build(n notification, attempts []attempt, content io.Reader) (dsn.Notification, error) {
	cfg := w.policy().Config
	r := dsn.Report{
		Kind:        dsnKinds[n.kind],
		Message:     n.message,
		From:        cfg.DSN.From,
		Hostname:    cfg.Hostname,
		Now:         w.now(),
		ID:          w.ids.Next(w.now()).String(),
		ReturnLimit: int64(cfg.DSN.ReturnLimit),
		Content:     content,
	}
	for _, a := range attempts {
		to := n.message.Recipients[a.pending.Index]
		provider, _ := w.sites.of(a.pending.Key)
		rc := dsn.Recipient{
			Recipient:  to,
			Reply:      a.result.Reply,
			Host:       a.result.Host.Name,
			RetryUntil: n.message.Start().Add(cfg.Traffic(to.Address.Domain(), provider).MaxAge),
			Relayed:    n.kind == notifyDelivered, // who delivers tells of that, see wanted
		}
		if a.result.Attempted {
			rc.LastAttempt = w.now()
		}
		r.Recipients = append(r.Recipients, rc)
	}
	return dsn.Build(r)
}
