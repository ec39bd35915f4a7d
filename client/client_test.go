package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// answer is what a relay answers to one request; status 0 cuts the connection.
type answer struct {
	status int
	header map[string]string
	body   string
}

// relay answers in order, and notes what it was asked.
type relay struct {
	answers []answer
	asked   []*http.Request
	bodies  []string
}

func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.asked, r.bodies = append(r.asked, req), append(r.bodies, string(body))
	a := r.answers[min(len(r.asked), len(r.answers))-1]
	if a.status == 0 {
		panic(http.ErrAbortHandler)
	}
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(a.status)
	io.WriteString(w, a.body)
}

const accepted = `{"messages":[{"id":"1","status":"accepted","recipients":[{"address":"ann@example.com","status":"accepted"}]}]}`

// start serves answers to a client for which time passes in waits only. waits has those.
func start(t *testing.T, answers ...answer) (*Client, *relay, *[]time.Duration) {
	t.Helper()
	r := &relay{answers: answers}
	s := httptest.NewServer(r)
	s.Config.SetKeepAlivesEnabled(false) // net/http repeats a request with a key by itself on a kept connection
	t.Cleanup(s.Close)
	waits := new([]time.Duration)
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	c := &Client{
		URL: s.URL, Key: "mta_secret", now: func() time.Time { return now }, share: func() float64 { return 1 },
		sleep: func(ctx context.Context, d time.Duration) error {
			*waits = append(*waits, d)
			now = now.Add(d)
			return ctx.Err()
		},
	}
	return c, r, waits
}

var letter = &Message{From: "Shop <shop@acme.example>", To: []string{"ann@example.com"}, Subject: "Hi", Text: "Hi", Attachments: []Attachment{{Name: "a", Content: []byte{0, 1}}}}

func TestSend(t *testing.T) {
	c, r, _ := start(t, answer{202, map[string]string{"Idempotent-Replayed": "true"}, accepted})
	sent, err := c.Send(t.Context(), letter)
	if err != nil {
		t.Fatal(err)
	}
	if !sent.Replayed || len(sent.Messages) != 1 || sent.Messages[0].ID != "1" || sent.Messages[0].Recipients[0].Address != "ann@example.com" {
		t.Errorf("the answer is %+v", sent)
	}
	req := r.asked[0]
	if req.URL.String() != "/v1/messages" || req.Header.Get("Authorization") != "Bearer mta_secret" || req.Header.Get("Content-Type") != "application/json" {
		t.Errorf("asked %s with %v", req.URL, req.Header)
	}
	const want = `{"from":"Shop \u003cshop@acme.example\u003e","to":["ann@example.com"],"subject":"Hi","text":"Hi","attachments":[{"name":"a","content":"AAE="}]}`
	if r.bodies[0] != want {
		t.Errorf("sent %s, want %s", r.bodies[0], want)
	}
}

// TestTriesAgain: trouble and lost answers are tried again with the same key and body, after the wait that
// the relay asks for, or one that doubles.
func TestTriesAgain(t *testing.T) {
	c, r, waits := start(t,
		answer{503, map[string]string{"Retry-After": "10"}, `{"status":503,"detail":"the disk is full"}`},
		answer{status: 0},
		answer{429, map[string]string{"Retry-After": "1", "X-Queue-Token": "token-1"}, ""},
		answer{502, nil, "<html>nginx</html>"},
		answer{409, nil, ""},
		answer{202, nil, accepted})
	if _, err := c.Send(t.Context(), letter); err != nil {
		t.Fatal(err)
	}
	want := []time.Duration{11 * time.Second, time.Second, 1100 * time.Millisecond, 4 * time.Second, 8 * time.Second}
	if len(*waits) != len(want) {
		t.Fatalf("waited %v, want %v", *waits, want)
	}
	for i, w := range want {
		if (*waits)[i] != w {
			t.Errorf("wait %d is %v, want %v", i, (*waits)[i], w)
		}
	}
	for i, req := range r.asked {
		if req.Header.Get("Idempotency-Key") != r.asked[0].Header.Get("Idempotency-Key") || r.bodies[i] != r.bodies[0] {
			t.Errorf("attempt %d has another key or body", i)
		}
		if token := req.Header.Get("X-Queue-Token"); (token == "token-1") != (i >= 3) {
			t.Errorf("attempt %d has the token %q", i, token)
		}
	}
	if key := r.asked[0].Header.Get("Idempotency-Key"); len(key) != 34 {
		t.Errorf("the key is %s", key)
	}
}

func TestKeysDiffer(t *testing.T) {
	c, r, _ := start(t, answer{202, nil, accepted})
	for range 2 {
		if _, err := c.Send(t.Context(), letter); err != nil {
			t.Fatal(err)
		}
	}
	own := *letter
	own.IdempotencyKey = `order "4711"`
	if _, err := c.Send(t.Context(), &own); err != nil {
		t.Fatal(err)
	}
	if a, b := r.asked[0].Header.Get("Idempotency-Key"), r.asked[1].Header.Get("Idempotency-Key"); a == b {
		t.Errorf("two messages with the key %s", a)
	}
	if got := r.asked[2].Header.Get("Idempotency-Key"); got != `"order \"4711\""` {
		t.Errorf("the own key arrives as %s", got)
	}
}

// TestFaultsAreFinal: what the request can't get better by is returned at once, with all that the relay found.
func TestFaultsAreFinal(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 413, 415, 422, 501} {
		c, r, _ := start(t, answer{status, map[string]string{"X-Request-Id": "r1"}, `{"title":"The request is not valid","detail":"nothing was accepted","faults":[{"pointer":"/to","detail":"there is no recipient","remedy":"add one"}]}`})
		_, err := c.Send(t.Context(), letter)
		var e *Error
		if !errors.As(err, &e) || e.Status != status || len(e.Faults) != 1 || e.RequestID != "r1" || len(r.asked) != 1 {
			t.Errorf("%d: %v after %d requests", status, err, len(r.asked))
			continue
		}
		if want := " The request is not valid: nothing was accepted; /to: there is no recipient (add one)"; !strings.HasSuffix(err.Error(), want) {
			t.Errorf("the error is %q", err)
		}
	}
}

func TestPatienceEnds(t *testing.T) {
	c, r, waits := start(t, answer{503, nil, `{"detail":"busy","messages":[{"id":"1","status":"accepted"}]}`})
	_, err := c.Send(t.Context(), letter)
	var u *Unanswered
	var e *Error
	if !errors.As(err, &u) || !errors.As(err, &e) || u.Attempts != len(r.asked) || len(e.Messages) != 1 || u.Key == "" {
		t.Fatalf("the error is %v", err)
	}
	total := time.Duration(0)
	for _, w := range *waits {
		total += w
	}
	if total > patience || total < patience/2 {
		t.Errorf("waited %v", total)
	}
	c, r, _ = start(t, answer{503, nil, ""})
	c.Patience = -1
	if _, err := c.Send(t.Context(), letter); err == nil || len(r.asked) != 1 {
		t.Errorf("without patience: %d requests, %v", len(r.asked), err)
	}
}

func TestTheEndOfTheContextEndsTrying(t *testing.T) {
	c, r, _ := start(t, answer{503, nil, ""})
	ctx, cancel := context.WithCancel(t.Context())
	c.sleep = func(context.Context, time.Duration) error { cancel(); return ctx.Err() }
	var u *Unanswered
	if _, err := c.Send(ctx, letter); !errors.As(err, &u) || len(r.asked) != 1 {
		t.Errorf("%d requests, %v", len(r.asked), err)
	}
}

func TestSendRaw(t *testing.T) {
	c, r, _ := start(t, answer{202, nil, accepted})
	priority := -3
	_, err := c.SendRaw(t.Context(), Envelope{
		From: "b@acme.example", To: []string{"a@x.example", "b@x.example"}, Tags: []string{"t"}, Meta: json.RawMessage(`{"a":1}`),
		SendAt: time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC), Priority: &priority, DryRun: true,
	}, []byte("Subject: x\r\n\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "dry_run=true&from=b%40acme.example&meta=%7B%22a%22%3A1%7D&priority=-3&send_at=2026-11-23T00%3A00%3A00Z&tags=t&to=a%40x.example&to=b%40x.example"
	if got := r.asked[0].URL.RawQuery; got != want || r.asked[0].Header.Get("Content-Type") != "message/rfc822" || r.bodies[0] != "Subject: x\r\n\r\n" {
		t.Errorf("the query is %s, want %s", got, want)
	}
}

func TestTheKeyIsNotGivenAway(t *testing.T) {
	for _, url := range []string{"http://relay.example.com", "ftp://127.0.0.1", "https://user:pw@relay.example.com", "relay.example.com", "https://relay.example.com/?key=x"} {
		c := Client{URL: url, Key: "mta_secret", HTTP: &http.Client{Transport: refuse{t}}}
		if _, err := c.Send(t.Context(), letter); err == nil || strings.Contains(err.Error(), "mta_secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	c, r, _ := start(t, answer{307, map[string]string{"Location": "http://127.0.0.1:9/"}, ""})
	if _, err := c.Send(t.Context(), letter); err == nil || len(r.asked) != 1 {
		t.Errorf("a redirect: %v", err)
	}
}

type refuse struct{ t *testing.T }

func (r refuse) RoundTrip(req *http.Request) (*http.Response, error) {
	r.t.Errorf("a request to %s", req.URL)
	return nil, errors.New("refused")
}

// TestStandardLibraryAlone: whoever takes the client takes nothing else.
func TestStandardLibraryAlone(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(out)); got != "example.org/mta/client" {
		t.Errorf("the client needs %s", got)
	}
}
