package web

import (
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// actionsPage is a page of the audit log.
type actionsPage struct {
	Who, Action, Within string
	Table               *table
	Paging              paging
}

var actionsParams = []string{"who", "action", "within", "after"}

func actions(r *request) (any, error) {
	p := actionsPage{Who: r.get("who"), Action: r.get("action"), Within: r.get("within")}
	within, err := r.age("within")
	if err != nil {
		return nil, err
	}
	q := api.ActionQuery{Who: p.Who, Action: p.Action, After: r.get("after"), Limit: api.DefaultLimit}
	if within > 0 {
		q.Since = r.now.Add(-time.Duration(within))
	}
	l, err := r.relay.Actions(r.ctx, q)
	p.Table, p.Paging = newTable(r, listing.Actions, l.Actions), r.paging(l.Next)
	return p, err
}
