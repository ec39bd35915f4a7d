package http

import (
	"net/http"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/intake"
)

// claim is what a request holds on its Idempotency-Key. A nil claim is that of a request without one.
type claim struct{}

// accepted gives the message that an earlier request with the key has brought at a position.
func (c *claim) accepted(int) (envelope.ID, bool) { return 0, false }

// keyed is what becomes durable with messages.
func (c *claim) keyed([]int, bool, []byte, time.Time) *intake.Keyed { return nil }

// End lets another request with the same key begin.
func (c *claim) End() {}

// repeat looks for an earlier request with the same Idempotency-Key.
func (x *Submission) repeat([16]byte) error {
	if x.call.Request.Header.Get("Idempotency-Key") != "" {
		return Problemf(http.StatusBadRequest, "Idempotency-Key is not available here yet: leave it out")
	}
	return nil
}

// released is when the last of the messages is released.
func (s *sending) released() time.Time { return s.x.Now }
