package dispatch

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

// ReportWriter puts reports to senders into the queue, as messages like any other.
type ReportWriter struct {
	Queue  *queue.Queue
	Events Events
	Policy func() *wiring.Policy
	Sites  *Sites
	Ids    *envelope.IDs // for Message-IDs and boundaries
	Now    func() time.Time
	Log    *slog.Logger
}

// returnLimit is the size, in octets, above which a message is returned as headers only.
const returnLimit = 64 << 10

// Write returns when the report is durable, or at once if the sender wants none.
func (w *ReportWriter) Write(n Notification) error {
	attempts := n.Wanted()
	if len(attempts) == 0 {
		return nil
	}
	body, err := w.Queue.Body(n.Message.ID)
	if err != nil {
		// A report without the original is better than none.
		w.Log.Error("content of a message can't be read for the report about it", "message", n.Message.ID, "error", err)
		return w.Commit(n, attempts, nil)
	}
	defer body.Close()
	return w.Commit(n, attempts, body)
}

// Commit puts the report into the queue. content is the original's, nil when it can't be read.
func (w *ReportWriter) Commit(n Notification, attempts []Attempt, content io.Reader) error {
	built, err := w.build(n, attempts, content)
	if err != nil && content != nil {
		w.Log.Error("report about a message can't be made with its content, and is made without", "message",
			n.Message.ID, "error", err)
		built, err = w.build(n, attempts, nil)
	}
	if err != nil {
		return fmt.Errorf("report to the sender: %w", err)
	}
	m := &envelope.Message{
		Recipients: []envelope.Recipient{{Address: n.Message.Sender, Notify: envelope.NotifyNever}},
		UTF8:       built.UTF8,
		RequireTLS: n.Message.RequireTLS, // RFC 8689, 5
		Tenant:     n.Message.Tenant,
		Tier:       0,
		Received:   w.Now(),
		Protocol:   envelope.LocalProtocol,
	}
	if built.EightBit {
		m.Body = envelope.Body8BitMIME
	}
	draft := w.Queue.Begin()
	if _, err := draft.Write(built.Content); err != nil {
		draft.Abort()
		return fmt.Errorf("report to the sender: %w", err)
	}
	w.Events.Accepting(m)
	if err := draft.Commit(m); err != nil {
		w.Events.Refused(m)
		return fmt.Errorf("report to the sender: %w", err)
	}
	w.Events.Received(m)
	return nil
}

func (w *ReportWriter) build(n Notification, attempts []Attempt, content io.Reader) (dsn.Notification, error) {
	pol := w.Policy()
	cfg := pol.Config
	r := dsn.Report{
		Kind:        n.Kind,
		Message:     n.Message,
		From:        cfg.DSN.From,
		Hostname:    cfg.Hostname,
		Now:         w.Now(),
		ID:          w.Ids.Next(w.Now()).String(),
		ReturnLimit: returnLimit,
		Content:     content,
	}
	for _, a := range attempts {
		to := n.Message.Recipients[a.Pending.Index]
		rc := dsn.Recipient{
			Recipient:  to,
			Reply:      a.Result.Reply,
			Host:       a.Result.Host.Name,
			RetryUntil: expiresAt(pol, w.Sites, n.Message, a.Pending),
			Relayed:    n.Kind == dsn.Delivered, // the final host may report delivery: see Wanted
		}
		if a.Result.Attempted {
			rc.LastAttempt = w.Now()
		}
		r.Recipients = append(r.Recipients, rc)
	}
	return dsn.Build(r)
}
