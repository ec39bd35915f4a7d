package mta

import (
	"strings"
	"testing"

	"example.org/mta/bounce"
	"example.org/mta/internal/reply"
	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// TestRecordsHaveTheClassOfTheReply: of a host's reply and of this relay's own, by a block of the
// configuration before the built-in rules, which a reload replaces.
func TestRecordsHaveTheClassOfTheReply(t *testing.T) {
	refusals := []sink.Refusal{
		{Phase: sink.Rcpt, Prefix: "gone@", Reply: "550 5.1.1 no such user"},
		{Phase: sink.Rcpt, Prefix: "team@", Reply: "550 5.7.1 Quota of the team is used up"},
		{Phase: sink.Rcpt, Prefix: "odd@", Reply: "550 Frobnicated"},
	}
	const delivery = `defaults { smtp_port = PORT }`
	const block = `
		classify "team" {
			class = "QuotaIssues"
			words = ["quota of the TEAM"]
		}`
	w := newWorld(t, sink.Config{Refusals: refusals}, delivery+block)
	for to, want := range map[string]bounce.Class{"gone@box.example": bounce.InvalidRecipient, "team@box.example": bounce.QuotaIssues, "odd@box.example": bounce.Uncategorized} {
		w.send("ann@client.example", "Subject: x\r\n\r\nx\r\n", to)
		if rec := w.await(to, "Bounce"); rec.Class != want.String() {
			t.Errorf("%s: %q, want %v", to, rec.Class, want)
		}
	}
	unknown, err := w.api.Bounces.UnknownReplies(t.Context(), api.UnknownQuery{})
	if err != nil || len(unknown.Unknown) != 1 || unknown.Unknown[0].Count != 1 || unknown.Unknown[0].Samples[0].Reply.Text != "Frobnicated" || unknown.Unknown[0].Samples[0].Message == "" {
		t.Errorf("unknown replies: %+v, %v", unknown, err)
	}
	if page := w.scrape(); !strings.Contains(page, `mta_attempts_refused_total{class="QuotaIssues",provider=""} 1`) {
		t.Error("the metrics lack refusals by class")
	}
	w.send("ann@client.example", "Subject: x\r\n\r\nx\r\n", "bob@box.example")
	if rec := w.await("bob@box.example", "Delivery"); rec.Class != "" {
		t.Errorf("a delivery has the class %q", rec.Class)
	}
	w.rewrite("other", strings.Replace(block, "QuotaIssues", "MailboxBusy", 1))
	if _, err := w.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := reply.Parse("550 5.7.1 Quota of the team is used up")
	if got := w.classes.Of(&r, ""); got != bounce.MailboxBusy {
		t.Errorf("after the reload: %v", got)
	}
}
