package api

import (
	"context"

	"example.org/mta/operator/audit"
)

// ActionQuery says which lines of the audit log are wanted.
type ActionQuery = audit.Query

// ActionLine is a line of the audit log.
type ActionLine = audit.Line

// ActionPage is lines of the audit log, newest first. It can have fewer than were asked for, even none, and a next page:
// then there was much to look through.
type ActionPage = audit.Page

// Actions gives a page of the audit log, newest first. Limit is from 1 to MaxLimit, 0 is DefaultLimit.
func (c *Client) Actions(ctx context.Context, q ActionQuery) (ActionPage, error) {
	return opActions.call(ctx, c, q)
}
