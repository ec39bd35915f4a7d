package mta

import (
	"net/smtp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
)

// The tenant and the user of a message are in all its records, and a reload takes a network away from a
// tenant.
func TestWhoseMailItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte(userLine(t, "ann", "tenant=acme")), 0o600); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	settings := func(network string) string {
		return `
		defaults { smtp_port = PORT }
		users { file = "` + path + `" }
		tenant "acme" {}
		tenant "far" {}
		tenant "near" { networks = ["` + network + `"] }
		listener "users" {
			address = "127.0.0.1:` + port + `"
			tenant_header_from = ["127.0.0.1/32"]
			auth {
				mechanisms = ["PLAIN"]
				clear_on_loopback = true
			}
		}`
	}
	w := newWorld(t, sink.Config{}, settings("127.0.0.0/8"))
	w.send("a@client.example", "X-MTA-Tenant: far\r\n\r\nthe field does not count here\r\n", "one@box.example")
	w.sendTo(w.listeners.Addresses(listen.SMTP)[1], "a@client.example", "X-MTA-Tenant: far\r\n\r\nhere it does\r\n", "two@box.example")
	w.sendAs("ann", w.listeners.Addresses(listen.SMTP)[1], "X-MTA-Tenant: far\r\n\r\nnor as a user of another\r\n", "three@box.example")
	arrived := w.arrived(3)
	for _, m := range arrived {
		if strings.Contains(string(m.Content), "X-MTA-Tenant") {
			t.Errorf("the field goes out:\n%s", m.Content)
		}
	}
	if page := w.scrape(); !strings.Contains(page, "mta_submission_tenant_headers_ignored_total 2") {
		t.Errorf("two fields were ignored; the metrics:\n%s", page)
	}
	for _, c := range []struct{ to, tenant, user string }{
		{"one@box.example", "near", ""}, {"two@box.example", "far", ""}, {"three@box.example", "acme", "ann"},
	} {
		for _, kind := range []string{"Reception", "Delivery"} {
			if r := w.await(c.to, kind); r.Tenant != c.tenant || r.User != c.user {
				t.Errorf("%s of %s: tenant %q, user %q, want %q and %q", kind, c.to, r.Tenant, r.User, c.tenant, c.user)
			}
		}
	}
	w.rewrite("tenants", strings.ReplaceAll(settings("192.0.2.0/24"), "PORT", w.port)+"\nlistener \"smtp\" { address = \"127.0.0.1:0\" }")
	if _, err := w.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.send("a@client.example", "\r\nof nobody now\r\n", "four@box.example")
	if r := w.await("four@box.example", "Delivery"); r.Tenant != "" {
		t.Errorf("after the reload: tenant %q", r.Tenant)
	}
}

// sendAs is sendTo by a user whose password is "secret".
func (w *world) sendAs(user, listener, content string, to string) {
	w.t.Helper()
	err := smtp.SendMail(listener, smtp.PlainAuth("", user, "secret", "127.0.0.1"), "a@client.example", []string{to}, []byte(content))
	if err != nil {
		w.t.Fatal(err)
	}
}
