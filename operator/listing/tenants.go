package listing

import (
	"slices"

	"example.org/mta/internal/legible"
	"example.org/mta/operator/api"
)

type tenant = api.Tenant

// Tenants lists the tenants of the configuration, and the mail without a tenant.
var Tenants = Listing[tenant]{
	Name:  "tenants",
	Noun:  "tenant",
	Empty: "those on whose behalf mail is sent would stand here",
	Columns: slices.Concat([]Column[tenant]{
		{Title: "TENANT", Shrink: true,
			Cell: func(t *tenant) Cell { return orRest(Name(ToTenant, t.Name), Nothing, "nobody's") }},
		{Title: "POOL", Spare: 6, Cell: func(t *tenant) Cell { return Name(ToPool, t.Pool) }},
		{Title: "TIER", Right: true, In: CLI, Cell: func(t *tenant) Cell { return tier(t.Tier) }},
		{Title: "QUEUED", Right: true, Cell: func(t *tenant) Cell { return Count(t.Queued).to(ToQueue, t.Name) }},
		waits(2, func(t *tenant) []api.WaitsFor { return t.WaitsFor }),
		{Title: "ACCEPTED", Right: true, In: CLI, Cell: func(t *tenant) Cell { return Count(t.Tally.Accepted) }},
		{Title: "ACC/s", Right: true, In: Top | Console,
			Cell: func(t *tenant) Cell { return Rate(t.Rates.Accepted) }},
		rate[tenant]("REFUSED/s", 4, "refused"),
		{Title: "DELIV/s", Right: true, In: Top | Console,
			Cell: func(t *tenant) Cell { return Rate(t.Rates.Delivered) }},
		{Title: "FAIL/s", Right: true, Spare: 3, In: Top, Cell: func(t *tenant) Cell {
			return Rate(t.Rates.Deferred + t.Rates.Bounced)
		}},
		{Title: "CONNS", Right: true, Spare: 5, In: Top | Console, Cell: usedConnections},
		{Title: "STATE", In: Top | Console, Cell: func(t *tenant) Cell { return State(tenantState(t)) }},
		{Title: "MESSAGES", Right: true, In: Console, Cell: usedMessages},
		{Title: "SIZE", Right: true, In: Console, Cell: usedSize},
		{Title: "REFUSED", Right: true, In: Console, Cell: refused},
	}, tally(CLI|Console, func(t *tenant) *api.Tally { return &t.Tally })),
	Note: func(t *tenant, l Look) string { return Join(t.Paused, overLimit(t), l.LastError(&t.Tally)) },
	Key:  func(t *tenant) string { return t.Name },
	Compare: byMail(func(t *tenant) int { return int(t.Queued) }, func(t *tenant) []api.WaitsFor { return t.WaitsFor },
		func(t *tenant) string { return t.Name }),
}

// TenantLimits lists what tenants use of their limits.
var TenantLimits = Listing[tenant]{
	Name: "tenants",
	Noun: "tenant",
	Columns: []Column[tenant]{
		Tenants.Columns[0],
		{Title: "CONNS", Right: true, Cell: usedConnections},
		{Title: "RATE", Right: true, Cell: func(t *tenant) Cell { return Word(t.Use.MaxSubmissionRate) }},
		{Title: "MESSAGES", Right: true, Cell: usedMessages},
		{Title: "SIZE", Right: true, Cell: usedSize},
		{Title: "IF OVER", Spare: 1, Cell: func(t *tenant) Cell { return Word(t.Use.OverQuota) }},
		{Title: "OVER", Cell: func(t *tenant) Cell { return Word(t.Use.Over) }},
		{Title: "REFUSED", Right: true, Cell: refused},
		{Title: "LOWERED", Right: true, Cell: func(t *tenant) Cell { return sum(t.Use.Lowered) }},
	},
	Note: func(*tenant, Look) string { return "" },
	Key:  Tenants.Key, Compare: Tenants.Compare,
}

func tier(n *int) Cell {
	if n == nil {
		return Unknown()
	}
	return Count(*n)
}

func usedConnections(t *tenant) Cell {
	if t.Use == nil {
		return Unknown()
	}
	return OfLimit(t.Use.Connections, t.Use.MaxConnections)
}

func usedMessages(t *tenant) Cell {
	if t.Use == nil {
		return Unknown()
	}
	return OfLimit(t.Use.QueuedMessages, t.Use.MaxQueuedMessages)
}

func usedSize(t *tenant) Cell {
	if t.Use == nil {
		return Unknown()
	}
	c := Size(t.Use.QueuedBytes)
	if most := t.Use.MaxQueuedBytes; most > 0 {
		c.Long = c.Text + " of " + legible.Size(most)
		c.Text += "/" + legible.Size(most)
	}
	return c
}

func refused(t *tenant) Cell {
	if t.Use == nil {
		return Unknown()
	}
	return sum(t.Use.Refused)
}

func sum(counts map[string]int64) Cell {
	var n int64
	for _, c := range counts {
		n += c
	}
	return Count(n)
}

// tenantState is what keeps mail of a tenant back or out, "" without it.
func tenantState(t *tenant) string {
	switch {
	case t.Paused != "":
		return "paused"
	case t.Use != nil && t.Use.Over != "":
		return "over quota"
	}
	return ""
}

func overLimit(t *tenant) string {
	if t.Use == nil || t.Use.Over == "" {
		return ""
	}
	return "the next message would be over the limit of " + t.Use.Over
}
