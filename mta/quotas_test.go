package mta

import (
	"context"
	"fmt"
	"net/http"
	"net/smtp"
	"strings"
	"testing"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
	"example.org/mta/operator/api"
)

// A quota of messages in the queue holds over a restart, ends when mail leaves, and follows a reload.
func TestQuotaOfQueuedMessages(t *testing.T) {
	settings := func(quota string) string {
		return `
		defaults { smtp_port = 1 } # nobody listens there
		tenant "acme" {
			networks = ["127.0.0.0/8"]
			` + quota + `
		}`
	}
	w := newWorld(t, sink.Config{}, settings(`max_queued_messages = 2`))
	submit := func(from, want string) {
		t.Helper()
		err := smtp.SendMail(w.listeners.Addresses(listen.SMTP)[0], nil, from, []string{"bob@box.example"}, []byte(letter))
		if got := strings.ReplaceAll(fmt.Sprint(err), `"`, ""); !strings.HasPrefix(got, want) {
			t.Errorf("mail of %q: %q, want %q", from, got, want)
		}
	}
	const full = "450 4.7.1 tenant acme has its 2 messages in the queue; try again when some have left it"
	submit("a@client.example", "<nil>")
	submit("a@client.example", "<nil>")
	submit("a@client.example", full)
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.start()
	submit("a@client.example", full)
	submit("postmaster@client.example", "<nil>")

	page := w.scrape()
	for _, want := range []string{
		`mta_tenant_queued_messages{tenant="acme"} 3`, `mta_tenant_refused_total{limit="messages",tenant="acme"} 1`, `mta_tenant_connections{tenant="acme"} `,
		`mta_tenant_lowered_total{limit="rate",tenant="acme"} 0`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	l, err := w.api.Blocks.Tenants(context.Background(), api.TenantFilter{BlockFilter: api.BlockFilter{Names: []string{"acme"}}})
	if err != nil || len(l.Tenants) != 1 {
		t.Fatal(l, err)
	}
	if u := l.Tenants[0].Use; u == nil || u.QueuedMessages != 3 || u.MaxQueuedMessages != 2 || u.Over != "messages" || u.Refused["messages"] != 1 {
		t.Errorf("use of acme: %+v", u)
	}

	if _, err := w.api.Queue.Change(context.Background(), api.Change{Action: api.Remove, All: true}); err != nil {
		t.Fatal(err)
	}
	// A message that is being tried leaves once its attempt has ended.
	w.until("the queue is empty", func() bool { return w.Status().Queue.Queued == 0 })
	submit("a@client.example", "<nil>")
	w.rewrite("quotas", strings.ReplaceAll(settings(`max_submission_rate = "1/h"`), "PORT", w.port)+"\nlistener \"smtp\" { address = \"127.0.0.1:0\" }")
	if _, err := w.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	submit("a@client.example", "<nil>")
	submit("a@client.example", "450 4.7.1 tenant acme may submit 1/h; try again in ")
}

// A tenant's quota holds for what it posts: 429, with the time to wait, until mail has left.
func TestQuotaOfPostedMessages(t *testing.T) {
	p := newPoster(t, "")
	text := func(quota string) string {
		return fmt.Sprintf("keys { file = %q }\napi \"web\" { address = \"127.0.0.1:0\" }\ntenant \"acme\" {\nsenders = [\"client.example\"]\n%s\n}\ndefaults { smtp_port = 1 }\n", p.keys, quota)
	}
	p.w.rewrite("quota", text("max_queued_messages = 2"))
	if _, err := p.w.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	const body = `{"from":"ann@client.example","to":"bob@box.example","subject":"x","text":"x"}`
	for i, want := range []int{http.StatusAccepted, http.StatusAccepted, http.StatusTooManyRequests} {
		if code, sent, _ := p.post("", "application/json", body, ""); code != want {
			t.Errorf("request %d: %d %+v, want %d", i, code, sent, want)
		}
	}
	if _, err := p.w.api.Queue.Change(context.Background(), api.Change{Action: api.Remove, All: true}); err != nil {
		t.Fatal(err)
	}
	// What is on its way when it is removed leaves the queue with the end of its attempt.
	p.w.until("the queue is empty", func() bool { return p.w.Status().Queue.Queued == 0 })
	if code, sent, _ := p.post("", "application/json", body, ""); code != http.StatusAccepted {
		t.Errorf("with room in the queue: %d %+v", code, sent)
	}
}
