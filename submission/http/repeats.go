package http

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/intake"
)

const keyField = "Idempotency-Key"

// tornLate is how long ago the release of a request may be that was cut off half way: its rest is sent at once.
const tornLate = 48 * time.Hour

// idempotencyKey is the key that a request has, "" for none.
func idempotencyKey(r *http.Request) (string, error) {
	switch values := r.Header.Values(keyField); len(values) {
	case 0:
		return "", nil
	case 1:
		key, err := intake.ParseKey(values[0])
		if err != nil {
			err = Problemf(http.StatusBadRequest, "%s: %v", keyField, err)
		}
		return key, err
	}
	return "", Problemf(http.StatusBadRequest, "%s: send the field once", keyField)
}

// sum begins the sum by which a request is known again: the book's, with what is beside the body. Nil where the
// request has no key.
func (x *Submission) sum() (*intake.RequestSum, error) {
	if key, err := idempotencyKey(x.call.Request); err != nil || key == "" {
		return nil, err
	}
	if x.mail.Repeats == nil {
		return nil, Problemf(http.StatusBadRequest,
			"%s: this address does not support the field: leave it out", keyField)
	}
	h := x.mail.Repeats.Sum()
	for _, part := range []string{x.call.Request.URL.Path, mediaType(x.call.Request),
		x.call.Request.URL.Query().Encode()} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		io.WriteString(h, part)
	}
	return h, nil
}

// repeat looks for an earlier request with the same key and the sum in h. Its errors are Problems.
func (x *Submission) repeat(h *intake.RequestSum) error {
	if h == nil {
		return nil
	}
	key, err := idempotencyKey(x.call.Request)
	if err != nil {
		return err
	}
	claim, outcome, err := x.mail.Repeats.Begin(x.call.Context(), x.call.Identity.Tenant, key, h)
	x.claim = claim
	elsewhere := (*intake.Elsewhere)(nil)
	switch {
	case errors.As(err, &elsewhere):
		p := &Problem{Status: http.StatusServiceUnavailable, Detail: elsewhere.Detail, RetryAfter: shortPause,
			Reason: "idempotency"}
		if elsewhere.Begun {
			p.Status, p.Title = http.StatusConflict, "Another relay has the request"
		}
		return p
	case err != nil:
		return keysUnreadable(err)
	case outcome == intake.Other:
		return &Problem{Status: http.StatusUnprocessableEntity, Title: "The Idempotency-Key has been used",
			Detail: "another request had this key: use a new one for each request", Reason: "key_reused"}
	case outcome == intake.UnderWay:
		return &Problem{Status: http.StatusConflict, Title: "The request is under way",
			Detail: "the same request with this key has not been answered yet: try again", RetryAfter: time.Second,
			Reason: "under_way"}
	case outcome == intake.Replay:
		x.Earlier, err = replayed(claim)
	case outcome == intake.Continue:
		x.Limits.Late = tornLate
	}
	return err
}

func keysUnreadable(err error) error {
	return &Problem{Status: http.StatusServiceUnavailable,
		Detail: "keys of earlier requests can't be read at present: try again", RetryAfter: shortPause, Cause: err,
		Reason: "idempotency"}
}

// repeatAnswered is repeat for a body that is not read yet, if its key was answered before; else h stays as it is.
// Such a request takes nothing, so it must not count against limits, and its message must not be begun.
func (x *Submission) repeatAnswered(h *intake.RequestSum, body io.Reader) error {
	if h == nil {
		return nil
	}
	key, err := idempotencyKey(x.call.Request)
	if err != nil {
		return err
	}
	answered, err := x.mail.Repeats.Answered(x.call.Identity.Tenant, key)
	if err != nil {
		return keysUnreadable(err)
	}
	if !answered {
		return nil
	}
	if _, err := io.Copy(h, body); err != nil {
		return err
	}
	if err := x.repeat(h); err != nil || x.Earlier != nil {
		return err
	}
	return &Problem{Status: http.StatusServiceUnavailable,
		Detail: "the Idempotency-Key has just expired: send the request again", RetryAfter: time.Second,
		Reason: "idempotency"}
}

// encode gives the answer without ids, from which replayed makes it again.
func (s *Sent) encode() ([]byte, error) {
	bare := Sent{Messages: make([]SentMessage, len(s.Messages))}
	for i, m := range s.Messages {
		m.ID = ""
		bare.Messages[i] = m
	}
	return json.Marshal(bare)
}

// replayed is the answer that the request had.
func replayed(c *intake.Claim) (*Sent, error) {
	s := &Sent{Replayed: true}
	if err := json.Unmarshal(c.Stored.Answer, s); err != nil {
		return nil, fmt.Errorf("the answer to an earlier request: %w", err)
	}
	for i := range s.Messages {
		if id := c.Accepted(i); id != 0 {
			s.Messages[i].ID = id.String()
		}
	}
	return s, nil
}

// acceptedEarlier gives the message that an earlier request with the key has brought at a position.
func (x *Submission) acceptedEarlier(position int) (envelope.ID, bool) {
	if x.claim == nil {
		return 0, false
	}
	id := x.claim.Accepted(position)
	return id, id != 0
}

// keyed is what becomes durable with the messages that are ready, nil for a request without a key.
func (s *sending) keyed(last bool) (*intake.Keyed, error) {
	c := s.x.claim
	if c == nil {
		return nil, nil
	}
	k := &intake.Keyed{Key: c.Key, Request: c.Request, Positions: s.ready, Last: last,
		Until: intake.KeptUntil(s.x.Now, s.released())}
	var err error
	if last {
		k.Answer, err = s.sent.encode()
	}
	return k, err
}

// released is when the last of the messages is released.
func (s *sending) released() time.Time {
	last := s.x.Now
	for i := range s.jobs {
		x := s.jobs[i].extras()
		if x.Release.IsZero() {
			x.Release = s.x.Now
		}
		if at := x.Release.Add(x.Spread); at.After(last) {
			last = at
		}
	}
	return last
}
