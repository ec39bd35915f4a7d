package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"example.org/mta/operator/audit"
)

// ActionQuery says which lines of the audit log are wanted.
type ActionQuery = audit.Query

// ActionPage is lines of the audit log, newest first. It can have fewer than were asked for, even none, and a next page:
// then there was much to look through.
type ActionPage = audit.Page

var actionParams = []string{"since", "until", "who", "action", "after", "limit"}

func (s *Server) actions(w http.ResponseWriter, r *http.Request, q *query) error {
	aq := ActionQuery{
		Since: q.time("since"), Until: q.time("until"), Who: q.str("who"), Action: q.str("action"), After: q.str("after"),
		Limit: q.number("limit", DefaultLimit, 1, MaxLimit),
	}
	if q.err != nil {
		return q.err
	}
	p, err := s.config.Audit.Read(r.Context(), aq)
	if errors.Is(err, audit.ErrCursor) {
		err = Invalid("give after what the page before ended with", "after: %v", err)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, p)
}

// Actions gives a page of the audit log, newest first. Limit is from 1 to MaxLimit, 0 is DefaultLimit.
func (c *Client) Actions(ctx context.Context, q ActionQuery) (p ActionPage, err error) {
	v := url.Values{}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	if !q.Until.IsZero() {
		v.Set("until", q.Until.Format(time.RFC3339Nano))
	}
	setText(v, "who", q.Who)
	setText(v, "action", q.Action)
	setText(v, "after", q.After)
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return p, c.get(ctx, "/v1/actions", v, &p)
}
