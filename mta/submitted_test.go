package mta

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/config"
	"example.org/mta/submission/auth"
	submissionhttp "example.org/mta/submission/http"
)

// shops is a relay with an api listener, and what tenants ask of it.
type shops struct {
	*world
	base   string
	tokens map[string]string // by the name of a key
}

func newShops(t *testing.T, sc sink.Config, change ...func(*config.Config)) *shops {
	t.Helper()
	path, port := filepath.Join(t.TempDir(), "keys"), freePort(t)
	s := &shops{base: "http://127.0.0.1:" + port, tokens: map[string]string{}}
	for _, k := range []auth.Key{
		{Name: "acme", Tenant: "acme", Scopes: auth.MayAll}, {Name: "other", Tenant: "other", Scopes: auth.MayAll},
		{Name: "reader", Tenant: "acme", Scopes: auth.MayRead}, {Name: "sender", Tenant: "acme", Scopes: auth.MaySend},
	} {
		token, _, err := auth.AddKey(path, k, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		s.tokens[k.Name] = token
	}
	s.world = newWorldWith(t, Options{}, sc, fmt.Sprintf(`
		defaults { smtp_port = PORT }
		keys { file = %q }
		api "web" { address = "127.0.0.1:%s" }
		tenant "acme" {}
		tenant "other" {}
	`, path, port), change...)
	return s
}

// ask sends a request with a key, and decodes the answer unless into is nil.
func (s *shops) ask(key, method, path, body string, into any, fields ...string) (status int, text string) {
	s.t.Helper()
	req, err := http.NewRequest(method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.tokens[key])
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(b, into); err != nil {
			s.t.Fatalf("%s %s: %d %s: %v", method, path, resp.StatusCode, b, err)
		}
	}
	return resp.StatusCode, string(b)
}

// post submits a message of acme's and gives its id.
func (s *shops) post(more string, fields ...string) string {
	s.t.Helper()
	var sent submissionhttp.Sent
	body := `{"from":"ann@client.example","subject":"s","text":"t"` + more + `}`
	if status, text := s.ask("acme", "POST", "/v1/messages", body, &sent, fields...); status != 202 {
		s.t.Fatalf("%d %s", status, text)
	}
	return sent.Messages[0].ID
}

func (s *shops) get(id string) (m submissionhttp.Message) {
	s.t.Helper()
	if status, text := s.ask("acme", "GET", "/v1/messages/"+id, "", &m); status != 200 {
		s.t.Fatalf("%d %s", status, text)
	}
	return m
}

// states gives the recipients of a message and what they are.
func states(m submissionhttp.Message) string {
	all := []string{string(m.Status)}
	for _, r := range m.Recipients {
		all = append(all, r.Address+" "+string(r.Status))
	}
	return strings.Join(all, ", ")
}

func (s *shops) want(id, want string) submissionhttp.Message {
	s.t.Helper()
	m := s.get(id)
	if got := states(m); got != want {
		s.t.Errorf("message is %q, want %q", got, want)
	}
	return m
}

// cancelled is an answer to a cancel.
type cancelled struct {
	Cancelled  int
	TooLate    int                                 `json:"too_late"`
	Late       []submissionhttp.CancelledRecipient `json:"too_late_recipients"`
	Recipients []submissionhttp.CancelledRecipient
}

// A scheduled message can be seen, moved and cancelled by its tenant; after that it is in the log, and asked again the
// answer is the same. Nothing of it arrives.
func TestScheduledMessageIsMovedAndCancelled(t *testing.T) {
	s := newShops(t, sink.Config{})
	at := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	id := s.post(fmt.Sprintf(`,"to":["a@box.example","b@box.example"],"send_at":%q,"expires_at":%q,"campaign":"spring","tags":["x","y"],"meta":{"order":17}`,
		at.Format(time.RFC3339), at.Add(5*time.Hour).Format(time.RFC3339)))
	m := s.want(id, "scheduled, a@box.example scheduled, b@box.example scheduled")
	if !m.SendAt.Equal(at) || m.Campaign != "spring" || strings.Join(m.Tags, " ") != "x y" || string(m.Meta) != `{"order":17}` || m.From != "ann@client.example" || !m.Recipients[0].NextAt.Equal(at) {
		t.Errorf("%+v", m)
	}
	move := func(to time.Time) (int, string) {
		return s.ask("acme", "PATCH", "/v1/messages/"+id, fmt.Sprintf(`{"send_at":%q}`, to.Format(time.RFC3339)), nil)
	}
	if status, text := move(at.Add(time.Hour)); status != 200 || !s.get(id).SendAt.Equal(at.Add(time.Hour)) {
		t.Errorf("moved: %d %s", status, text)
	}
	for _, to := range []time.Time{at.Add(-2 * time.Hour), at.Add(1000 * time.Hour), at.Add(5 * time.Hour)} {
		if status, text := move(to); status != 400 || !strings.Contains(text, `"/send_at"`) {
			t.Errorf("moved to %v: %d %s", to, status, text)
		}
	}
	for range 2 {
		var c cancelled
		if status, text := s.ask("acme", "POST", "/v1/messages/"+id+"/cancel", "", &c); status != 200 || len(c.Recipients) != 2 || c.Recipients[1].Status != submissionhttp.Canceled {
			t.Fatalf("%d %s", status, text)
		}
	}
	m = s.want(id, "cancelled, a@box.example cancelled, b@box.example cancelled")
	if !m.SendAt.Equal(at) || string(m.Meta) != `{"order":17}` || m.Recipients[0].EndedAt.IsZero() {
		t.Errorf("from the log: %+v", m)
	}
	if status, text := move(at.Add(2 * time.Hour)); status != 409 {
		t.Errorf("moved after all: %d %s", status, text)
	}
	if rec := s.await("a@box.example", "Cancellation"); rec.Campaign != "spring" || rec.Key != "acme" || rec.Meta != `{"order":17}` || rec.Response.Text != "cancelled by its sender" {
		t.Errorf("written down as %+v", rec)
	}
	if n := s.Status().Queue.Queued; n != 0 {
		t.Errorf("%d recipients are left", n)
	}
}

// What is on a connection is too late, and what waits behind it is not; the answer says so for each recipient, and
// what is told comes true.
func TestCancelDuringDelivery(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s := newShops(t, sink.Config{Hook: func(c sink.Command) sink.Answer {
		if c.Phase == sink.Rcpt && strings.Contains(c.Line, "slow@") {
			once.Do(func() { close(asked) })
			<-answer
		}
		return sink.Answer{}
	}})
	done := s.post(`,"to":"done@box.example"`)
	s.await("done@box.example", "Delivery")
	m := s.want(done, "delivered, done@box.example delivered")
	if r := m.Recipients[0]; r.Attempts != 1 || r.LastReply == nil || r.LastReply.Code != 250 || r.EndedAt.IsZero() {
		t.Errorf("%+v", r)
	}
	if status, text := s.ask("acme", "POST", "/v1/messages/"+done+"/cancel", "", nil); status != 409 || !strings.Contains(text, `"status":"delivered"`) {
		t.Errorf("cancelled after all: %d %s", status, text)
	}
	slow := s.post(`,"to":["slow@box.example"]`)
	<-asked
	s.want(slow, "sending, slow@box.example sending")
	if status, text := s.ask("acme", "POST", "/v1/messages/"+slow+"/cancel", "", nil); status != 409 || !strings.Contains(text, `"status":"sending"`) {
		t.Errorf("cancelled on its connection: %d %s", status, text)
	}
	close(answer)
	s.await("slow@box.example", "Delivery")
	s.want(slow, "delivered, slow@box.example delivered")
	s.arrived(2)
}

// Campaigns, tags and keys of requests cancel what their tenant has of them, and nothing else.
func TestCancelOfMany(t *testing.T) {
	s := newShops(t, sink.Config{})
	later := fmt.Sprintf(`,"send_at":%q`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	for i := range 6 {
		s.post(fmt.Sprintf(`,"to":"r%d@box.example","campaign":"c%d","tags":["t%d"]`, i, i%2, i%3) + later)
	}
	var keyed submissionhttp.Sent
	body := `{"from":"ann@client.example","subject":"s","text":"t","recipients":[{"to":"k1@box.example"},{"to":"k2@box.example"}]` + later + `}`
	if status, text := s.ask("acme", "POST", "/v1/messages", body, &keyed, "Idempotency-Key", "order-17"); status != 202 {
		t.Fatal(status, text)
	}
	s.ask("other", "POST", "/v1/messages", `{"from":"ann@client.example","to":"o@box.example","subject":"s","text":"t","campaign":"c0","tags":["t1"]`+later+`}`, nil)
	for _, x := range []struct {
		body string
		want int
	}{
		{`{"campaign":"none"}`, 0}, {`{"campaign":"c0","tag":"t1"}`, 1}, {`{"campaign":"c0"}`, 2}, {`{"tag":"t1"}`, 1}, {`{"idempotency_key":"order-17"}`, 2}, {`{"idempotency_key":"order-17"}`, 0},
	} {
		var c cancelled
		if status, text := s.ask("acme", "POST", "/v1/messages/cancel", x.body, &c); status != 200 || c.Cancelled != x.want || c.TooLate != 0 {
			t.Errorf("%s: %d %s, want %d cancelled", x.body, status, text, x.want)
		}
	}
	for body, want := range map[string]int{`{}`: 400, `{"campaign":""}`: 400, `{"campain":"c0"}`: 400, `{"campaign":"c0","idempotency_key":"x"}`: 400, `[]`: 400, `{"idempotency_key":"unknown"}`: 404} {
		if status, text := s.ask("acme", "POST", "/v1/messages/cancel", body, nil); status != want {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	if n := s.Status().Queue.Queued; n != 3 { // r3 and r5 of c1, the other tenant's
		t.Errorf("%d recipients are left", n)
	}
	if status, text := s.ask("other", "POST", "/v1/messages/cancel", `{"idempotency_key":"order-17"}`, nil); status != 404 {
		t.Errorf("another tenant's key of a request: %d %s", status, text)
	}
}

// A listing has what waits and what has left, page by page, and what is asked for only.
func TestListOfMessages(t *testing.T) {
	s := newShops(t, sink.Config{})
	later := fmt.Sprintf(`,"send_at":%q`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	var want []string
	for i := range 5 {
		more := ""
		if i%2 == 1 {
			more = later
		}
		want = append(want, s.post(fmt.Sprintf(`,"to":["r%d@box.example","s@box.example"],"campaign":"c%d","tags":["t","u%d"]`, i, i%2, i)+more))
	}
	for i := range 5 {
		if i%2 == 0 {
			s.await(fmt.Sprintf("r%d@box.example", i), "Delivery")
		}
	}
	list := func(key, query string) (ids string, next string, page []submissionhttp.Message) {
		t.Helper()
		var answer struct {
			Messages []submissionhttp.Message
			Next     string
		}
		if status, text := s.ask(key, "GET", "/v1/messages"+query, "", &answer); status != 200 {
			t.Fatalf("%s: %d %s", query, status, text)
		}
		for _, m := range answer.Messages {
			for i := range want {
				if want[i] == m.ID {
					ids += fmt.Sprint(i)
				}
			}
		}
		return ids, answer.Next, answer.Messages
	}
	for query, want := range map[string]string{
		"": "01234", "?campaign=c1": "13", "?campaign=none": "", "?tag=u2": "2", "?tag=t&campaign=c0": "024", "?recipient=r3@box.example": "3", "?recipient=@box.example": "01234",
		"?from=2020-01-01T00:00:00Z&until=2021-01-01T00:00:00Z": "", "?until=2099-01-01T00:00:00Z&from=2020-01-01T00:00:00Z": "01234",
	} {
		if got, next, _ := list("acme", query); got != want || next != "" {
			t.Errorf("%q: messages %q, want %q; next %q", query, got, want, next)
		}
	}
	got, cursor := "", ""
	for range 4 {
		ids, next, page := list("acme", "?limit=2&cursor="+cursor)
		got += ids + "."
		if ids == "01" && (page[0].Status != submissionhttp.Delivered || page[1].Status != submissionhttp.Waiting || len(page[0].Recipients) != 2) {
			t.Errorf("%+v", page)
		}
		if cursor = next; next == "" {
			break
		}
	}
	if got != "01.23.4." {
		t.Errorf("pages %q", got)
	}
	if got, _, page := list("other", ""); got != "" || len(page) != 0 {
		t.Errorf("another tenant sees %v", page)
	}
	for _, query := range []string{"?limit=0", "?limit=1001", "?cursor=x", "?from=yesterday", "?tenant=other"} {
		if status, text := s.ask("acme", "GET", "/v1/messages"+query, "", nil); status != 400 {
			t.Errorf("%s: %d %s", query, status, text)
		}
	}
}

// To another tenant a message is one that never was, and scopes count.
func TestNobodyLearnsOfAnothersMessages(t *testing.T) {
	s := newShops(t, sink.Config{})
	id := s.post(fmt.Sprintf(`,"to":"a@box.example","send_at":%q`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
	move := fmt.Sprintf(`{"send_at":%q}`, time.Now().Add(2*time.Hour).UTC().Format(time.RFC3339))
	for _, r := range []struct{ method, suffix, body string }{{"GET", "", ""}, {"PATCH", "", move}, {"POST", "/cancel", ""}} {
		_, unknown := s.ask("other", r.method, "/v1/messages/0000000000001"+r.suffix, r.body, nil)
		if status, text := s.ask("other", r.method, "/v1/messages/"+id+r.suffix, r.body, nil); status != 404 || text != unknown {
			t.Errorf("%s: %d %s, and of one that never was: %s", r.method, status, text, unknown)
		}
		if status, text := s.ask("other", r.method, "/v1/messages/x"+r.suffix, r.body, nil); status != 404 || text != unknown {
			t.Errorf("%s: %d %s", r.method, status, text)
		}
		key := map[string]string{"GET": "sender"}[r.method]
		if key == "" {
			key = "reader"
		}
		if status, text := s.ask(key, r.method, "/v1/messages/"+id+r.suffix, r.body, nil); status != 403 {
			t.Errorf("%s without its scope: %d %s", r.method, status, text)
		}
	}
	s.want(id, "scheduled, a@box.example scheduled")
}
