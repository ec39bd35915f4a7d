package mta

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jhillyerd/enmime/v2"

	"example.org/mta/client"
	"example.org/mta/lab/sink"
	"example.org/mta/submission/auth"
)

// What the Go client sends by a stored template and with files arrives as it was asked, once for a key.
func TestClientSendsThroughARelay(t *testing.T) {
	dir := t.TempDir()
	token, _, err := auth.AddKey(filepath.Join(dir, "keys"), auth.Key{Tenant: "acme", Name: "shop", Scopes: auth.MaySend}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"hello.subject": "Grüße, {{name}}", "hello.text": "Dear {{name}}\n", "hello.html": "<p>Dear {{name}}</p>\n"} {
		if err := os.MkdirAll(filepath.Join(dir, "templates", "acme"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "templates", "acme", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t, sink.Config{}, fmt.Sprintf(`defaults { smtp_port = PORT }
		keys { file = %q }
		templates { path = %q }
		tenant "acme" { senders = ["acme.example"] }
		api "web" { address = "127.0.0.1:0" }`, filepath.Join(dir, "keys"), filepath.Join(dir, "templates")))
	c := client.Client{URL: "http://" + w.Status().HTTP[0], Key: token}
	letter := &client.Message{
		From: "Jörg's Laden <shop@acme.example>", Template: "hello", IdempotencyKey: "order-1",
		Attachments: []client.Attachment{{Name: "Rechnung März.txt", Content: []byte("10 EUR\n")}},
		Recipients:  []client.Recipient{{To: []string{"Ann <ann@box.example>"}, Data: map[string]any{"name": "Ann & Co."}}, {To: []string{"bob@box.example"}, Data: map[string]any{"name": "Bob"}}},
	}
	sent, err := c.Send(t.Context(), letter)
	if err != nil || len(sent.Messages) != 2 || sent.Replayed {
		t.Fatalf("%+v, %v", sent, err)
	}
	again, err := c.Send(t.Context(), letter)
	if err != nil || !again.Replayed || len(again.Messages) != 2 || again.Messages[1].ID != sent.Messages[1].ID {
		t.Errorf("sent again: %+v, %v", again, err)
	}
	for _, m := range w.arrived(2) {
		if m.Recipients[0] == "ann@box.example" {
			checkLetter(t, string(m.Content))
		}
	}
	var e *client.Error
	if _, err := c.Send(t.Context(), &client.Message{From: "shop@acme.example", To: []string{"ann@"}, Text: "x"}); !errors.As(err, &e) || e.Status != 400 || e.Faults[0].Pointer != "/to/0" {
		t.Errorf("a wrong address: %v", err)
	}
	if _, err := c.Send(t.Context(), &client.Message{From: "shop@other.example", To: []string{"ann@box.example"}, Text: "x"}); !errors.As(err, &e) || e.Status != 403 {
		t.Errorf("another's sender: %v", err)
	}
}

func checkLetter(t *testing.T, content string) {
	t.Helper()
	e, err := enmime.ReadEnvelope(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	from, err := e.AddressList("From")
	if err != nil || from[0].Name != "Jörg's Laden" || e.GetHeader("Subject") != "Grüße, Ann & Co." {
		t.Errorf("from %v, subject %q: %v", from, e.GetHeader("Subject"), err)
	}
	if strings.TrimSpace(e.Text) != "Dear Ann & Co." || strings.TrimSpace(e.HTML) != "<p>Dear Ann &amp; Co.</p>" {
		t.Errorf("text %q, HTML %q", e.Text, e.HTML)
	}
	if len(e.Attachments) != 1 || e.Attachments[0].FileName != "Rechnung März.txt" || string(e.Attachments[0].Content) != "10 EUR\n" {
		t.Errorf("attachments %v", e.Attachments)
	}
	if received := e.GetHeader("Received"); !strings.Contains(received, "with HTTP") {
		t.Errorf("Received is %q", received)
	}
}
