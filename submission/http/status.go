package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/legible"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/request"
)

// Messages answers tenants about the mail that they submitted, and cancels or moves it. A message of another
// tenant is to it as one that never was: ErrNoMessage.
type Messages interface {
	Get(ctx context.Context, tenant string, id envelope.ID) (Message, error)
	// List gives a page of messages, oldest first.
	List(ctx context.Context, tenant string, q MessageQuery) (MessagePage, error)
	// Cancel returns when what it says of the recipients is final and durable.
	Cancel(ctx context.Context, tenant string, what Cancel) (Cancelled, error)
	// Move gives a scheduled message another time of release, and returns when that is durable.
	Move(ctx context.Context, tenant string, id envelope.ID, at time.Time) error
}

// Errors of Messages.
var (
	ErrNoMessage = errors.New("no such message")
	// ErrTwo is returned by Cancel and Move for an id that two relays have given, one of which may have moved its mail
	// to the other.
	ErrTwo = errors.New("the id of two messages")
	// ErrReleased is returned by Move for a message that waits for no release, or not as a whole.
	ErrReleased = errors.New("already released")
	// ErrExpires is returned by Move for a time after which the message has expired.
	ErrExpires = errors.New("the message expires before that time")
	// ErrBusy is returned when too many look for messages that have left.
	ErrBusy = errors.New("too many searches")
	// ErrTooMuch is returned when a search would have to look through more than it may.
	ErrTooMuch = errors.New("too much to look through")
)

// Unanswered is returned for a message that nodes of the cluster may have which have not answered, by their numbers.
type Unanswered []int

func (u Unanswered) Error() string {
	return fmt.Sprintf("no answer of %s %s", legible.Plural(len(u), "node"), strings.Trim(fmt.Sprint([]int(u)), "[]"))
}

// Message is a message that was accepted.
type Message struct {
	ID         string             `json:"id"`
	Status     MessageStatus      `json:"status"`
	From       string             `json:"from"` // the sender of the envelope; empty is the null sender
	Size       int64              `json:"size"` // octets
	AcceptedAt time.Time          `json:"accepted_at"`
	SendAt     time.Time          `json:"send_at,omitzero"`
	ExpiresAt  time.Time          `json:"expires_at,omitzero"`
	Campaign   string             `json:"campaign,omitempty"`
	Tags       []string           `json:"tags,omitempty"`
	Meta       json.RawMessage    `json:"meta,omitempty"`
	Recipients []MessageRecipient `json:"recipients"`
	// the numbers of the cluster's nodes that have not answered, and may have recipients
	Unanswered []int `json:"unanswered,omitempty"`
}

// MessageRecipient is a recipient of a message.
type MessageRecipient struct {
	Address   string        `json:"address"`
	Status    MessageStatus `json:"status"`
	Attempts  int           `json:"attempts"`
	LastReply *Reply        `json:"last_reply,omitempty"`
	NextAt    time.Time     `json:"next_attempt_at,omitzero"` // as far as is known
	EndedAt   time.Time     `json:"ended_at,omitzero"`        // when the status became final
	Detail    string        `json:"detail,omitempty"`         // why it waits
}

// Reply is a remote host's, or this relay's in its place.
type Reply struct {
	Code     int    `json:"code"`
	Enhanced string `json:"enhanced_code,omitempty"` // RFC 3463
	Text     string `json:"text"`
	Command  string `json:"command,omitempty"` // the command that it answers
	Local    bool   `json:"local,omitempty"`   // this relay made it, in place of one that never came
}

// MessageStatus is what a recipient is doing or how it ended; of a message, what its recipients have in common.
type MessageStatus string

// What a recipient can be. From Delivered on it is final.
const (
	Waiting   MessageStatus = Scheduled   // waits for its send_at
	Queued    MessageStatus = "queued"    // waits for its first attempt
	Deferred  MessageStatus = "deferred"  // failed for now, and waits for another attempt
	Held      MessageStatus = "held"      // an operator holds it
	Sending   MessageStatus = "sending"   // an attempt is under way
	Delivered MessageStatus = "delivered" // the recipient's host has taken it
	Bounced   MessageStatus = "bounced"   // refused for good
	Expired   MessageStatus = "expired"   // given up after its time
	Removed   MessageStatus = "removed"   // by an operator
	Moved     MessageStatus = "moved"     // to another relay, which delivers it
	Canceled  MessageStatus = "cancelled" // by its sender
	Unknown   MessageStatus = "unknown"   // has left, and the relay's log lacks how
	Mixed     MessageStatus = "mixed"     // of a message: its recipients differ
)

// MessageStatuses are all of them.
var MessageStatuses = []MessageStatus{Waiting, Queued, Deferred, Held, Sending, Delivered, Bounced, Expired, Removed,
	Moved, Canceled, Unknown, Mixed}

// Final reports whether nothing follows.
func (s MessageStatus) Final() bool {
	switch s {
	case Delivered, Bounced, Expired, Removed, Moved, Canceled:
		return true
	}
	return false
}

// Summarise sets the message's status from those of its recipients.
func (m *Message) Summarise() {
	for i := range m.Recipients {
		switch s := m.Recipients[i].Status; {
		case i == 0:
			m.Status = s
		case s != m.Status:
			m.Status = Mixed
			return
		}
	}
}

// MessageQuery selects messages. All that is set must fit.
type MessageQuery struct {
	Campaign, Tag string
	Recipient     string    // an address, or "@example.com" for all of a domain
	From, Until   time.Time // of their acceptance: not before, and before; zero: no bound
	After         envelope.ID
	Limit         int
}

// MessagePage is a part of a listing.
type MessagePage struct {
	Messages []Message `json:"messages"`
	Next     string    `json:"next,omitempty"` // the cursor of the next page; absent: this is the last
	// nodes of the cluster that have not answered: their messages are missing
	Unanswered []int `json:"unanswered,omitempty"`
}

const (
	messagesShown = 100
	messagesMost  = 1000 // on a page
	// messagesSince is how far back a listing goes that says nothing.
	messagesSince = 7 * 24 * time.Hour
)

// statusRoutes are about mail that was accepted.
func (s *Server) statusRoutes() []Route {
	if s.config.Messages == nil {
		return nil
	}
	return []Route{
		{Method: http.MethodGet, Pattern: "/v1/messages", Scope: auth.MayRead, Handle: s.listMessages},
		{Method: http.MethodGet, Pattern: "/v1/messages/{id}", Scope: auth.MayRead, Handle: s.getMessage},
		{Method: http.MethodPatch, Pattern: "/v1/messages/{id}", Scope: auth.MayCancel, Handle: s.moveMessage},
		{Method: http.MethodPost, Pattern: "/v1/messages/{id}/cancel", Scope: auth.MayCancel, Handle: s.cancelMessage},
		{Method: http.MethodPost, Pattern: "/v1/messages/cancel", Scope: auth.MayCancel, Handle: s.cancelMessages},
	}
}

// Messages answers about the mail that was accepted, for routes of packages above this one; nil without that.
func (c *Call) Messages() Messages { return c.server.config.Messages }

func (s *Server) getMessage(c *Call) error {
	id, err := c.messageID()
	if err != nil {
		return err
	}
	m, err := s.config.Messages.Get(c.Context(), c.Identity.Tenant, id)
	if err != nil {
		return c.MessageTrouble(err)
	}
	return c.JSON(http.StatusOK, &m)
}

// messageID reads the id in the path. One that can't be is answered as one that is not.
func (c *Call) messageID() (envelope.ID, error) {
	id, err := envelope.ParseID(c.Request.PathValue("id"))
	if err != nil {
		return 0, c.MessageTrouble(ErrNoMessage)
	}
	return id, nil
}

// MessageTrouble makes the answer of an error of Messages. Unknown ids and those of other tenants look the same.
func (c *Call) MessageTrouble(err error) error {
	var unanswered Unanswered
	switch {
	case errors.As(err, &unanswered):
		return &Problem{Status: http.StatusServiceUnavailable, RetryAfter: shortPause,
			Detail: "not all nodes of the cluster have answered: try again",
			Extra:  map[string]any{"unanswered": []int(unanswered)}, Cause: err}
	case errors.Is(err, ErrNoMessage):
		return Problemf(http.StatusNotFound, "there is no such message, or the relay has no record of it any more")
	case errors.Is(err, ErrTwo):
		return Problemf(http.StatusConflict, "two relays have both given this id: use the id of the "+
			"message at the relay that has it now, which the list of messages there has")
	case errors.Is(err, ErrReleased):
		return Problemf(http.StatusConflict,
			"the message is not scheduled, or was released already: its time can't be changed")
	case errors.Is(err, ErrBusy):
		return &Problem{Status: http.StatusServiceUnavailable, Detail: "too many searches are under way: try again",
			RetryAfter: shortPause}
	case errors.Is(err, ErrTooMuch):
		return &Problem{Status: http.StatusServiceUnavailable,
			Detail: "the log of the relay has too much to look through: try again", RetryAfter: shortPause}
	case errors.Is(err, context.Canceled):
		return err
	}
	return &Problem{Status: http.StatusServiceUnavailable, Detail: "try again", RetryAfter: shortPause, Cause: err}
}

func (s *Server) listMessages(c *Call) error {
	q, err := s.messageQuery(c)
	if err != nil {
		return err
	}
	page, err := s.config.Messages.List(c.Context(), c.Identity.Tenant, q)
	switch {
	case errors.Is(err, ErrTooMuch):
		return Problemf(http.StatusBadRequest, "the search covers too much: narrow it with from and until")
	case err != nil:
		return c.MessageTrouble(err)
	}
	page.Messages = append([]Message{}, page.Messages...) // never null
	return c.JSON(http.StatusOK, page)
}

// messageQuery reads the parameters of a listing.
func (s *Server) messageQuery(c *Call) (q MessageQuery, err error) {
	values, err := c.parameters("campaign", "tag", "recipient", "from", "until", "limit", "cursor")
	if err != nil {
		return q, err
	}
	q.Limit = messagesShown
	for name, text := range values {
		switch name {
		case "campaign":
			q.Campaign = text
		case "tag":
			q.Tag = text
		case "recipient":
			q.Recipient = text
		case "from":
			q.From, err = queryTime(name, text)
		case "until":
			q.Until, err = queryTime(name, text)
		case "cursor":
			if text == "" {
				continue
			}
			if q.After, err = envelope.ParseID(text); err != nil {
				err = Problemf(http.StatusBadRequest, "cursor: send the next of the page before")
			}
		case "limit":
			if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > messagesMost {
				err = Problemf(http.StatusBadRequest, "limit: send a whole number, 1 to %d", messagesMost)
			}
		}
		if err != nil {
			return q, err
		}
	}
	if q.From.IsZero() {
		q.From = s.config.Now().Add(-messagesSince)
		if !q.Until.IsZero() {
			q.From = q.Until.Add(-messagesSince)
		}
	}
	return q, nil
}

func queryTime(name, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, Problemf(http.StatusBadRequest, "%s: send a time as 2026-11-22T18:00:00Z (RFC 3339)", name)
	}
	return t, nil
}

// CheckMove returns the fault of a time to which a message can't be moved here, for routes of packages above this one.
func (c *Call) CheckMove(pointer string, at time.Time) request.Faults {
	return request.CheckMove(pointer, at, c.server.config.Now(), c.server.config.Mail.Intake.MaxHold)
}

// moveMessage changes when a scheduled message is released.
func (s *Server) moveMessage(c *Call) error {
	id, err := c.messageID()
	if err != nil {
		return err
	}
	body, err := c.ReadBody()
	if err != nil {
		return err
	}
	at, faults := request.DecodeMove(body, s.config.Now(), s.config.Mail.Intake.MaxHold)
	if len(faults) > 0 {
		return faults
	}
	tenant := c.Identity.Tenant
	switch err := s.config.Messages.Move(c.Context(), tenant, id, at); {
	case errors.Is(err, ErrExpires):
		return request.Faults{{Pointer: "/send_at", Detail: "the message expires before that time",
			Remedy: "send an earlier time"}}
	case err != nil:
		return c.MessageTrouble(err)
	}
	c.Log().Info("tenant moves a scheduled message", "tenant", tenant, "key", c.Identity.ID, "message", id, "to", at)
	m, err := s.config.Messages.Get(c.Context(), tenant, id)
	if err != nil {
		return c.MessageTrouble(err)
	}
	return c.JSON(http.StatusOK, &m)
}
