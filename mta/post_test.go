package mta

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/mail"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/submission/auth"
	submissionhttp "example.org/mta/submission/http"
)

// poster sends requests with a tenant's key.
type poster struct {
	w     *world
	token string
	keys  string // the file
}

// newPoster makes a relay with an api block, and a key of the tenant acme.
func newPoster(t testing.TB, extra string) *poster {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	token, _, err := auth.AddKey(path, auth.Key{Tenant: "acme", Name: "shop", Scopes: auth.MaySend}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, sink.Config{}, fmt.Sprintf(`
		defaults { smtp_port = PORT }
		keys { file = %q }
		api "web" {
			address           = "127.0.0.1:0"
			verify_recipients = "domain"
		}
		tenant "acme" { senders = ["client.example"] }
		%s`, path, extra))
	return &poster{w, token, path}
}

// post sends a body, and returns the status, the answer, and whether it was given before.
func (p *poster) post(query, kind, body, key string) (int, submissionhttp.Sent, bool) {
	p.w.t.Helper()
	req, err := http.NewRequest("POST", "http://"+p.w.Status().HTTP[0]+"/v1/messages"+query, strings.NewReader(body))
	if err != nil {
		p.w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	var sent submissionhttp.Sent
	if err == nil {
		err = json.Unmarshal(text, &sent)
	}
	if err != nil {
		p.w.t.Fatalf("%d %s: %v", resp.StatusCode, text, err)
	}
	return resp.StatusCode, sent, resp.Header.Get("Idempotent-Replayed") == "true"
}

// What is posted arrives as it was built, from the address and with the content that the request says.
func TestPostedMailArrives(t *testing.T) {
	p := newPoster(t, "")
	code, sent, _ := p.post("", "application/json", `{"from":"Ann <ann@client.example>","to":["Bob <bob@box.example>","x@null.example"],"bcc":"eve@box.example",
		"subject":"Grüße","text":"Hallo\n.\n","attachments":[{"name":"a.bin","content":"AAEC"}],"campaign":"spring","tags":["a"],"meta":{"order":7}}`, "")
	if code != http.StatusAccepted || len(sent.Messages) != 1 || len(sent.Messages[0].Recipients) != 3 ||
		sent.Messages[0].Recipients[1].Status != "refused" || sent.Messages[0].Recipients[1].Code != "5.1.10" {
		t.Fatalf("%d %+v", code, sent)
	}
	m := p.w.arrived(2)[0]
	got, err := mail.ReadMessage(strings.NewReader(string(m.Content)))
	if err != nil {
		t.Fatal(err)
	}
	if m.Sender != "ann@client.example" || !slices.Equal(m.Recipients, []string{"bob@box.example", "eve@box.example"}) || got.Header.Get("Bcc") != "" ||
		!strings.Contains(got.Header.Get("Received"), " with HTTP") || !strings.HasPrefix(got.Header.Get("Content-Type"), "multipart/mixed") {
		t.Errorf("%+v\n%s", m, m.Content)
	}
	rec := p.w.await("bob@box.example", "Reception")
	if rec.ID.String() != sent.Messages[0].ID || rec.Tenant != "acme" || rec.ReceptionProtocol != "HTTP" || rec.Campaign != "spring" || !slices.Equal(rec.Tags, []string{"a"}) || string(rec.Meta) != `{"order":7}` {
		t.Errorf("%+v", rec)
	}
	for _, kind := range []string{"Reception", "Delivery"} {
		if rec := p.w.await("bob@box.example", kind); rec.TraceID != "4bf92f3577b34da6a3ce929d0e0e4736" {
			t.Errorf("the %s has the trace id %q", kind, rec.TraceID)
		}
	}
}

// A message as such arrives octet by octet, below the relay's own fields.
func TestPostedRawMailArrives(t *testing.T) {
	p := newPoster(t, "")
	raw := "Date: Sun, 22 Nov 2026 12:00:00 +0000\r\nMessage-ID: <a@client.example>\r\n" + letter
	code, sent, _ := p.post("?from=ann@client.example&to=bob@box.example", "message/rfc822", raw, "")
	if code != http.StatusAccepted || len(sent.Messages) != 1 {
		t.Fatalf("%d %+v", code, sent)
	}
	if m := p.w.arrived(1)[0]; !strings.HasSuffix(string(m.Content), "\r\n"+raw) || !strings.HasPrefix(string(m.Content), "Received: ") {
		t.Errorf("%s", m.Content)
	}
}

// Each personalised message has an id and a time of its own; a request that is sent again after a restart gets the
// same answer, and sends nothing.
func TestPostedMailIsRepeatedAfterARestart(t *testing.T) {
	t.Parallel()
	p := newPoster(t, "")
	later := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	body := `{"from":"ann@client.example","subject":"{{n}}","text":"{{n}}","recipients":[
		{"to":"bob@box.example","data":{"n":"one"}},{"to":"eve@box.example","data":{"n":"two"},"send_at":"` + later + `"},{"to":"x@null.example","data":{"n":"three"}}]}`
	code, first, replayed := p.post("", "application/json", body, "key-1")
	if code != http.StatusAccepted || replayed || len(first.Messages) != 3 || first.Messages[1].Status != "scheduled" || first.Messages[2].Status != "refused" {
		t.Fatalf("%d %+v", code, first)
	}
	if m := p.w.arrived(1)[0]; !strings.Contains(string(m.Content), "\r\nSubject: one\r\n") || !strings.HasSuffix(string(m.Content), "\r\n\r\none\r\n") {
		t.Errorf("%s", m.Content)
	}
	if err := p.w.stop(); err != nil {
		t.Fatal(err)
	}
	p.w.start()
	code, again, replayed := p.post("", "application/json", body, "key-1")
	a, _ := json.Marshal(first)
	b, _ := json.Marshal(again)
	if code != http.StatusAccepted || !replayed || string(a) != string(b) {
		t.Errorf("%d %v\n%s\n%s", code, replayed, a, b)
	}
	if code, _, _ := p.post("", "application/json", strings.Replace(body, "one", "four", 1), "key-1"); code != http.StatusUnprocessableEntity {
		t.Errorf("another body: %d", code)
	}
	if s := p.w.queue.Stats(); s.Queued != 1 {
		t.Errorf("%+v", s)
	}
}
