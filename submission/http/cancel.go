package http

import (
	"net/http"
	"slices"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/request"
)

// Cancel says what is to be cancelled: one message, or all that a campaign, a tag (both, where both are set) or a
// request with an Idempotency-Key has in the queue.
type Cancel struct {
	ID             envelope.ID
	Campaign, Tag  string
	IdempotencyKey string
}

// Cancelled is what became of it. It is final: of the recipients that count as cancelled nothing leaves.
type Cancelled struct {
	Cancelled int // recipients
	// TooLate counts those that an attempt is under way for, and those that it has reached.
	TooLate int
	// Recipients has each recipient of a single message; of more, only those that are too late, and not all
	// of many.
	Recipients []CancelledRecipient
	// MovedTo are the relays and archives to which mail of the tenant was moved lately, which is not cancelled.
	MovedTo []string
	// Unanswered are the nodes of the cluster that have not answered: there, nothing may be cancelled.
	Unanswered []int
	// Withheld counts recipients that are on their way to another node of the cluster, which are not cancelled.
	Withheld int
}

// Join adds what became of a single message at another relay: that counts for recipients that were moved.
func (c *Cancelled) Join(other Cancelled) {
	for _, r := range other.Recipients {
		same := func(mine CancelledRecipient) bool { return mine.Address == r.Address }
		if i := slices.IndexFunc(c.Recipients, same); i < 0 {
			c.Recipients = append(c.Recipients, r)
		} else if c.Recipients[i].Status == Moved {
			c.Recipients[i] = r
		}
	}
	c.Cancelled, c.TooLate = 0, 0
	for i := range c.Recipients {
		if c.Recipients[i].Status == Canceled {
			c.Cancelled++
		} else {
			c.TooLate++
		}
	}
}

// CancelledRecipient is the outcome for a recipient.
type CancelledRecipient struct {
	ID      string `json:"id,omitempty"` // of its message, where there are several
	Address string `json:"address"`
	// cancelled, or the state that makes it too late: sending is an attempt under way, with none after it
	Status MessageStatus `json:"status"`
	// of moved ones: where to, with the id by which the message can be cancelled there
	Detail string `json:"detail,omitempty"`
}

// messageCancelled is the answer to the cancelling of one message.
type messageCancelled struct {
	ID         string               `json:"id"`
	Recipients []CancelledRecipient `json:"recipients"`
	// the numbers of the cluster's nodes that have not answered, if recipients have moved: send the request again
	Unanswered []int `json:"unanswered,omitempty"`
}

// messagesCancelled is the answer to the cancelling of several messages.
type messagesCancelled struct {
	Cancelled int `json:"cancelled"` // recipients
	// recipients that an attempt was under way for
	TooLate    int                  `json:"too_late"`
	Recipients []CancelledRecipient `json:"too_late_recipients,omitempty"` // up to 1,000 of them
	// relays and archives to which an operator has moved mail of the tenant within the last 30 days, which this
	// request does not reach: send it to them, too
	MovedTo []string `json:"moved_to,omitempty"`
	// the numbers of the cluster's nodes that have not answered: send the request again
	Unanswered []int `json:"unanswered,omitempty"`
}

// cancelMessage cancels what is left of a message. It is done, 200, if anything was or had been; with nothing but
// recipients for which it is too late it is a conflict.
func (s *Server) cancelMessage(c *Call) error {
	id, err := c.messageID()
	if err != nil {
		return err
	}
	done, err := s.config.Messages.Cancel(c.Context(), c.Identity.Tenant, Cancel{ID: id})
	if err != nil {
		return c.MessageTrouble(err)
	}
	c.Log().Info("tenant cancels a message", "tenant", c.Identity.Tenant, "key", c.Identity.ID, "message", id,
		"cancelled", done.Cancelled, "too late", done.TooLate)
	if done.Cancelled == 0 {
		p := Problemf(http.StatusConflict,
			"it is too late: for each recipient an attempt is under way, or the message has arrived, was given up or "+
				"has moved to another relay, by which it can be cancelled under its id there")
		p.Extra = map[string]any{"id": id.String(), "recipients": done.Recipients}
		if len(done.Unanswered) > 0 {
			p.Extra["unanswered"] = done.Unanswered
		}
		return p
	}
	return c.JSON(http.StatusOK, messageCancelled{id.String(), done.Recipients, done.Unanswered})
}

// cancelMessages cancels what a campaign, a tag or an Idempotency-Key has in the queue.
func (s *Server) cancelMessages(c *Call) error {
	body, err := c.ReadBody()
	if err != nil {
		return err
	}
	q, faults := request.DecodeCancel(body)
	if len(faults) > 0 {
		return faults
	}
	what := Cancel{Campaign: q.Campaign, Tag: q.Tag, IdempotencyKey: q.IdempotencyKey}
	done, err := s.config.Messages.Cancel(c.Context(), c.Identity.Tenant, what)
	if err != nil {
		return c.MessageTrouble(err)
	}
	c.Log().Info("tenant cancels messages", "tenant", c.Identity.Tenant, "key", c.Identity.ID, "campaign", q.Campaign,
		"tag", q.Tag, "cancelled", done.Cancelled, "too late", done.TooLate)
	return c.JSON(http.StatusOK, messagesCancelled{done.Cancelled, done.TooLate, done.Recipients, done.MovedTo,
		done.Unanswered})
}
