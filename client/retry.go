package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// queueToken is the field by which a relay under load knows when a request came first.
const queueToken = "X-Queue-Token"

// Waits between attempts, where the relay gives none: from the first up to the longest, twice as long each
// time, of which a random part is waited.
const (
	firstWait   = 500 * time.Millisecond
	longestWait = 30 * time.Second
	patience    = 2 * time.Minute
)

// tries are the attempts of one submission.
type tries struct {
	client *Client
	until  time.Time // no attempt begins later
	wait   time.Duration
	number int
	token  string // X-Queue-Token of the last answer
}

func (c *Client) newTries() *tries {
	most := cmp.Or(c.Patience, patience)
	return &tries{client: c, until: c.time().Add(most), wait: firstWait, number: 1}
}

func (c *Client) time() time.Time {
	if c.now != nil {
		return c.now()
	}
	return time.Now()
}

// canHelp reports whether the same request can succeed later. Without an answer it can: the key makes
// sure that it counts once.
func canHelp(err error) bool {
	var e *Error
	return !errors.As(err, &e) || e.Temporary()
}

// again waits for the next attempt. It reports whether there is one.
func (t *tries) again(ctx context.Context, err error) bool {
	share := rand.Float64
	if t.client.share != nil {
		share = t.client.share
	}
	wait := time.Duration((0.5 + share()/2) * float64(t.wait))
	t.wait = min(2*t.wait, longestWait)
	var e *Error
	if errors.As(err, &e) {
		if e.token != "" {
			t.token = e.token
		}
		if e.RetryAfter > 0 { // and a little more, so that clients don't come back at once
			wait = e.RetryAfter + time.Duration(share()*0.1*float64(e.RetryAfter))
		}
	}
	if t.client.time().Add(wait).After(t.until) {
		return false
	}
	t.number++
	if t.client.sleep != nil {
		return t.client.sleep(ctx, wait) == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// last is the error of the last attempt as the caller gets it.
func (t *tries) last(key string, err error) error {
	if !canHelp(err) {
		return err
	}
	return &Unanswered{Key: key, Attempts: t.number, Err: err}
}

// Unanswered is what is left when patience ends or the context does: the relay may have accepted all, a
// part, or nothing. Sent again with the same key, the request takes what is missing.
type Unanswered struct {
	Key      string // Idempotency-Key
	Attempts int
	Err      error // of the last attempt
}

// Error names the key.
func (u *Unanswered) Error() string {
	return fmt.Sprintf(
		"no final answer after %d attempts, the last with: %v; send it again with the Idempotency-Key %q",
		u.Attempts, u.Err, u.Key)
}

// Unwrap returns the error of the last attempt.
func (u *Unanswered) Unwrap() error { return u.Err }

// retryAfter reads the field (RFC 9110, 10.2.3). 0: there is none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil && seconds > 0 {
		return time.Duration(min(seconds, 86400)) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
