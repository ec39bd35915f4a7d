package compat

import (
	nethttp "net/http"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/http"
	"example.org/mta/submission/request"
)

// document reads a body with the given fields. An empty one is an empty object.
func document(c *http.Call, fields []field) (*request.Node, error) {
	body, err := c.ReadBody()
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		body = []byte("{}")
	}
	root, faults := request.ParseTree(body, limits)
	if root == nil || len(faults) > 0 {
		return nil, request.Faults(faults)
	}
	var r reader
	if root.Kind != request.Object {
		r.fault("", "want an object, not "+root.Kind.String(), "")
	} else {
		r.object(root, fields, "")
	}
	if len(r.faults) > 0 {
		return nil, request.Faults(r.faults)
	}
	return root, nil
}

// cancelFields are those of a request about a scheduled batch.
var cancelFields = []field{{name: "batch_id"}, {name: "status"}}

// sendGridCancel cancels the batch that the body names.
func sendGridCancel(c *http.Call) error {
	root, err := document(c, cancelFields)
	if err != nil {
		return err
	}
	id := textAt(root, "batch_id")
	if err := cancelBatch(c, id, textAt(root, "status")); err != nil {
		return err
	}
	return c.JSON(nethttp.StatusCreated, batchStatus{id, "cancel"})
}

// batchStatus is a batch that was cancelled.
type batchStatus struct {
	ID     string `json:"batch_id"`
	Status string `json:"status"`
}

// sendGridUpdate cancels the batch that the path names.
func sendGridUpdate(c *http.Call) error {
	root, err := document(c, cancelFields[1:])
	if err != nil {
		return err
	}
	if err := cancelBatch(c, c.Request.PathValue("batch"), textAt(root, "status")); err != nil {
		return err
	}
	c.Writer.WriteHeader(nethttp.StatusNoContent)
	return nil
}

// cancelBatch cancels all that a batch has in the queue. It is an error if a part of it has left.
func cancelBatch(c *http.Call, id, status string) error {
	if !isBatch(id) {
		return request.Faults{{Pointer: "/batch_id", Detail: "invalid batch id",
			Remedy: "send one of POST /v3/mail/batch"}}
	}
	if status != "cancel" {
		return request.Faults{{Pointer: "/status", Detail: "want \"cancel\"; a batch can't be paused",
			Remedy: "cancel it, and send it again later"}}
	}
	done, err := c.Messages().Cancel(c.Context(), c.Identity.Tenant, http.Cancel{Campaign: id})
	if err != nil {
		return c.MessageTrouble(err)
	}
	return whole(c, done, nethttp.StatusBadRequest)
}

// whole returns an error, with a status where it was too late, unless all is cancelled.
func whole(c *http.Call, done http.Cancelled, late int) error {
	switch {
	case len(done.Unanswered) > 0:
		return c.MessageTrouble(http.Unanswered(done.Unanswered))
	case done.TooLate > 0:
		return http.Problemf(late,
			"it was too late for %d recipients, to whom the message is on its way or has been sent; %d were cancelled",
			done.TooLate, done.Cancelled)
	}
	return nil
}

// sendGridStatus gives the status of a batch if any of its messages was cancelled.
func sendGridStatus(c *http.Call) error {
	id, all := c.Request.PathValue("batch"), []batchStatus{}
	if !isBatch(id) {
		return http.Problemf(nethttp.StatusBadRequest, "invalid batch id")
	}
	page, err := c.Messages().List(c.Context(), c.Identity.Tenant, http.MessageQuery{Campaign: id, Limit: 1})
	if err == nil && len(page.Messages) == 0 && len(page.Unanswered) > 0 {
		err = http.Unanswered(page.Unanswered)
	}
	if err != nil {
		return c.MessageTrouble(err)
	}
	if slices.ContainsFunc(page.Messages, func(m http.Message) bool { return m.Status == http.Canceled }) {
		all = append(all, batchStatus{id, "cancel"})
	}
	return c.JSON(nethttp.StatusOK, all)
}

// sendGridRevive refuses to undo a cancellation.
func sendGridRevive(*http.Call) error {
	return http.Problemf(nethttp.StatusBadRequest, "a cancelled message is gone: send it again")
}

// emailID is the id in the path.
func emailID(c *http.Call) (envelope.ID, error) {
	id, err := envelope.ParseID(c.Request.PathValue("id"))
	if err != nil {
		return 0, http.Problemf(nethttp.StatusNotFound, "email not found")
	}
	return id, nil
}

// resendEvents are Resend's names for what has become of a message.
var resendEvents = map[http.MessageStatus]string{
	http.Waiting: "scheduled", http.Queued: "queued", http.Deferred: "delivery_delayed", http.Held: "queued",
	http.Sending:   "sent",
	http.Delivered: "delivered", http.Bounced: "bounced", http.Expired: "failed", http.Removed: "failed",
	http.Canceled: "canceled",
	http.Unknown:  "sent", http.Moved: "sent", http.Mixed: "sent",
}

// resendEmail is a message as Resend shows it. What the relay does not keep is null.
type resendEmail struct {
	Object      string     `json:"object"`
	ID          string     `json:"id"`
	From        string     `json:"from"`
	To          []string   `json:"to"`
	Cc          []string   `json:"cc"`
	Bcc         []string   `json:"bcc"`
	ReplyTo     []string   `json:"reply_to"`
	Subject     *string    `json:"subject"`
	Text        *string    `json:"text"`
	HTML        *string    `json:"html"`
	CreatedAt   time.Time  `json:"created_at"`
	ScheduledAt *time.Time `json:"scheduled_at"`
	LastEvent   string     `json:"last_event"`
}

// resendGet shows a message. All its recipients are in "to": the envelope does not distinguish them.
func resendGet(c *http.Call) error {
	id, err := emailID(c)
	if err != nil {
		return err
	}
	m, err := c.Messages().Get(c.Context(), c.Identity.Tenant, id)
	if err != nil {
		return c.MessageTrouble(err)
	}
	e := resendEmail{
		Object: "email", ID: m.ID, From: m.From, To: []string{}, Cc: []string{}, Bcc: []string{}, ReplyTo: []string{},
		CreatedAt: m.AcceptedAt, LastEvent: resendEvents[m.Status],
	}
	for _, r := range m.Recipients {
		e.To = append(e.To, r.Address)
	}
	if !m.SendAt.IsZero() {
		e.ScheduledAt = &m.SendAt
	}
	return c.JSON(nethttp.StatusOK, e)
}

// resendDone is the answer about a message that was moved or cancelled.
type resendDone struct {
	Object string `json:"object"`
	ID     string `json:"id"`
}

// updateFields are those of PATCH /emails/{id}. The Python SDK has the id in the body, too.
var updateFields = []field{{name: "id"}, {name: "scheduled_at"}}

// resendUpdate gives a scheduled message another time.
func resendUpdate(c *http.Call) error {
	id, err := emailID(c)
	if err != nil {
		return err
	}
	root, err := document(c, updateFields)
	if err != nil {
		return err
	}
	var r reader
	at := r.moment(at(root, "scheduled_at"), c.Now())
	switch {
	case len(r.faults) > 0:
		return request.Faults(r.faults)
	case at.IsZero():
		return request.Faults{{Pointer: "/scheduled_at", Detail: "the time is missing",
			Remedy: `send "2026-11-22T17:00:00Z", or "in 5 minutes"`}}
	}
	if faults := c.CheckMove("/scheduled_at", at); len(faults) > 0 {
		return faults
	}
	if err := c.Messages().Move(c.Context(), c.Identity.Tenant, id, at); err != nil {
		return c.MessageTrouble(err)
	}
	return c.JSON(nethttp.StatusOK, resendDone{"email", id.String()})
}

// resendCancel cancels a message.
func resendCancel(c *http.Call) error {
	id, err := emailID(c)
	if err != nil {
		return err
	}
	done, err := c.Messages().Cancel(c.Context(), c.Identity.Tenant, http.Cancel{ID: id})
	if err != nil {
		return c.MessageTrouble(err)
	}
	if err := whole(c, done, nethttp.StatusUnprocessableEntity); err != nil {
		return err
	}
	return c.JSON(nethttp.StatusOK, resendDone{"email", id.String()})
}
