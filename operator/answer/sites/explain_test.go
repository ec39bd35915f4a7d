package sites

import (
	"strings"
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/reply"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// TestEndedAndNotReported: what waits for the report to its sender only has no more attempts.
func TestEndedAndNotReported(t *testing.T) {
	next := time.Unix(1e9, 0)
	for code, want := range map[int]string{250: "it was delivered: the report", 550: "it was refused for good: the report"} {
		rc := &queue.ItemRecipient{State: queue.StateDeferred, Attempts: 1, Next: next, Last: reply.Reply{Code: code}}
		c := recipientCase{rc: rc}
		if why, until := c.why(); !strings.HasPrefix(why, want) || !until.Equal(next) {
			t.Errorf("explained as %q, until %v", why, until)
		}
	}
}

// While nothing can give a relay a part of a limit, no rate is the ceiling, and the reason comes last.
func TestNobodyGivesAPart(t *testing.T) {
	const limit = "max_message_rate 20/s of site a, of all relays together"
	for why, want := range map[string][2]string{
		delivery.PartOf + limit: {delivery.PartOf + limit + ", set by provider x", "20"},
		limit + ": it is away":  {limit + ", set by provider x: it is away", limit + ", set by provider x: it is away"},
		"rule 1 of ann: slow a to 3/s, of all relays together: t": {"rule 1 of ann: slow a to 3/s, of all relays together: t", "20"},
	} {
		c := &domainCase{origins: map[string]string{"max_message_rate of site a": "provider x"}}
		c.Ceiling = api.Ceiling{PerSecond: 20, Binds: "20"}
		c.sources = []sourceCase{{Source: delivery.Source{Name: "s"}}}
		c.Lanes = []api.Lane{{Source: "s", Waiting: 1, Why: why}}
		c.finishLanes()
		if c.stop(); c.Lanes[0].Why != want[0] || c.Ceiling.Binds != want[1] {
			t.Errorf("it waits: %q; the ceiling is %+v", c.Lanes[0].Why, c.Ceiling)
		}
	}
}
