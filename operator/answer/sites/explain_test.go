package sites

import (
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/reply"
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
