package http

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/intake"
)

const batch = `{"from":"shop@acme.example","subject":"x","text":"{{n}}","recipients":[{"to":"a@example.net","data":{"n":1}},{"to":"gone@example.net","data":{"n":2}},{"to":"b@example.net","data":{"n":3}},{"to":"c@example.net","data":{"n":4}}]}`

func TestRepeated(t *testing.T) {
	s, store := mailServer(t, nil)
	first := post(s, batch, "Idempotency-Key", "k1")
	if first.Code != http.StatusAccepted || len(store.all) != 3 || first.Header().Get("Idempotent-Replayed") != "" {
		t.Fatal(first.Code, first.Body)
	}
	for _, key := range []string{"k1", `"k1"`} {
		again := post(s, batch, "Idempotency-Key", key)
		if again.Code != http.StatusAccepted || again.Body.String() != first.Body.String() || again.Header().Get("Idempotent-Replayed") != "true" || len(store.all) != 3 {
			t.Errorf("%d %v %s", again.Code, again.Header(), again.Body)
		}
	}
	if w := post(s, simple, "Idempotency-Key", "k1"); w.Code != http.StatusUnprocessableEntity || len(store.all) != 3 {
		t.Errorf("another body: %d %s", w.Code, w.Body)
	}
	if w := post(s, batch, "Idempotency-Key", "k2"); w.Code != http.StatusAccepted || len(store.all) != 6 {
		t.Errorf("another key: %d %s", w.Code, w.Body)
	}
	for _, key := range []string{"", `""`, strings.Repeat("k", 256), "é", "a\x01", `"a`, `"a" b`, "a, b"} {
		if w := post(s, batch, "Idempotency-Key", key); w.Code != http.StatusBadRequest {
			t.Errorf("%q: %d %s", key, w.Code, w.Body)
		}
	}
	if w := post(s, batch, "Idempotency-Key", "a", "Idempotency-Key", "b"); w.Code != http.StatusBadRequest || len(store.all) != 6 {
		t.Errorf("two keys: %d %s", w.Code, w.Body)
	}
}

// Whatever becomes of a request with a key, its admission is used up or given back.
func TestRepeatedRequestsGiveTheirAdmissionBack(t *testing.T) {
	gate := &shedding{now: time.Now}
	s, store := mailServer(t, func(c *Config, _ *intake.Config) { c.Admission = gate })
	for i, tc := range []struct {
		body, key string
		code      int
		dropped   int // of all so far
	}{
		{simple, "k", http.StatusAccepted, 0},
		{simple, "k", http.StatusAccepted, 1},
		{batch, "k", http.StatusUnprocessableEntity, 2},
		{simple, `"`, http.StatusBadRequest, 3},
		{`{}`, "", http.StatusBadRequest, 4},
	} {
		field := []string{"Idempotency-Key", tc.key}
		if tc.key == "" {
			field = nil
		}
		if w := post(s, tc.body, field...); w.Code != tc.code || gate.dropped != tc.dropped || len(store.all) != 1 {
			t.Errorf("%d: %d %s, %d admissions given back, want %d", i, w.Code, w.Body, gate.dropped, tc.dropped)
		}
	}
}

// The key of raw mail covers the body and the envelope.
func TestRepeatedRaw(t *testing.T) {
	s, store := mailServer(t, nil)
	send := func(query, body string) (int, string, string) {
		w := ask(s, "POST", "/v1/messages?"+query, "good", strings.NewReader(body), "Content-Type", "message/rfc822", "Idempotency-Key", "k")
		return w.Code, w.Body.String(), w.Header().Get("Idempotent-Replayed")
	}
	const query, raw = "from=shop@acme.example&to=a@example.net", "From: shop@acme.example\n\nx\n"
	code, body, _ := send(query, raw)
	if code != 202 || len(store.all) != 1 {
		t.Fatal(code, body)
	}
	if c, b, replayed := send(query, raw); c != 202 || b != body || replayed != "true" || len(store.all) != 1 {
		t.Error(c, b, replayed)
	}
	if c, b, _ := send(query, raw+"y"); c != 422 {
		t.Error(c, b)
	}
	if c, b, _ := send(query+"&to=b@example.net", raw); c != 422 || len(store.all) != 1 {
		t.Error(c, b)
	}
	// Its sum covers what is behind the place that refuses it.
	if c, b, _ := send(query, raw+"\x00"+strings.Repeat("x", 1<<20)); c != 422 || !strings.Contains(b, "Idempotency-Key") {
		t.Error(c, b)
	}
}

// The sum covers what is beside the body: the path, the media type and the query.
func TestSumOfARequest(t *testing.T) {
	s, _ := mailServer(t, nil)
	seen := map[[16]byte]string{}
	for _, x := range [][2]string{{"/v1/messages", jsonType}, {"/v1/messages", rawType}, {"/v1/message", jsonType}, {"/v1/messages?a=b", jsonType}} {
		r := httptest.NewRequest("POST", x[0], nil)
		r.Header.Set("Content-Type", x[1])
		r.Header.Set(keyField, "k")
		h, err := (&Submission{call: &Call{Request: r}, mail: &s.config.Mail}).sum()
		if err != nil {
			t.Fatal(err)
		}
		sum := h.Own()
		if other := seen[sum]; other != "" {
			t.Errorf("%v has the sum of %s", x, other)
		}
		seen[sum] = x[0] + " with " + x[1]
	}
}

// A raw message that was accepted is answered again although the tenant's quota is used up, or its sender is no longer
// the tenant's: it takes nothing.
func TestRepeatedRawNeedsNoQuota(t *testing.T) {
	var gone atomic.Bool
	other, err := auth.ParseSender("other.example")
	if err != nil {
		t.Fatal(err)
	}
	s, store := mailServer(t, func(_ *Config, i *intake.Config) {
		before := i.TenantOf
		i.TenantOf = func(name string) (intake.Tenant, bool) {
			of, ok := before(name)
			if gone.Load() {
				of.Senders = auth.Senders{other}
			}
			return of, ok
		}
	})
	send := func(key string) *httptest.ResponseRecorder {
		return ask(s, "POST", "/v1/messages?from=shop@acme.example&to=a@example.net", "good", strings.NewReader("From: shop@acme.example\n\nx\n"), "Content-Type", "message/rfc822", "Idempotency-Key", key)
	}
	first := send("k")
	gone.Store(true)
	if w := send("k"); w.Code != http.StatusAccepted || w.Body.String() != first.Body.String() || len(store.all) != 1 || len(store.rejected) != 0 {
		t.Errorf("%d %s, %d messages, %d refusals", w.Code, w.Body, len(store.all), len(store.rejected))
	}
	if w := send("l"); w.Code != http.StatusForbidden || len(store.all) != 1 {
		t.Errorf("another request: %d %s", w.Code, w.Body)
	}
}

// What was cut off half way is continued, with the ids that there are.
func TestRestIsTaken(t *testing.T) {
	at := now
	s, store := mailServer(t, func(c *Config, d *intake.Config) {
		d.Store.(*memoryStore).full = 2
		c.Now = func() time.Time { return at }
		d.Now = c.Now
	})
	scheduled := strings.Replace(batch, `"subject"`, `"send_at":"2026-11-22T12:10:00Z","subject"`, 1)
	w := post(s, scheduled, "Idempotency-Key", "k")
	if w.Code != http.StatusServiceUnavailable || len(store.all) != 2 {
		t.Fatal(w.Code, w.Body)
	}
	before := read(t, w).Messages
	store.full = 0
	at = at.Add(time.Hour) // the time of release is past
	w = post(s, scheduled, "Idempotency-Key", "k")
	after := read(t, w).Messages
	if w.Code != http.StatusAccepted || len(store.all) != 3 || after[0].ID != before[0].ID || after[2].ID != before[2].ID ||
		after[1].Status != Refused || after[3].ID != store.all[2].ID.String() || !bytes.Contains(store.content[2], []byte("\r\n4\r\n")) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	again := post(s, scheduled, "Idempotency-Key", "k")
	if again.Code != http.StatusAccepted || again.Body.String() != w.Body.String() || len(store.all) != 3 {
		t.Errorf("%d %s", again.Code, again.Body)
	}
	if w = post(s, scheduled, "Idempotency-Key", "new"); w.Code != http.StatusBadRequest {
		t.Errorf("a new request into the past: %d %s", w.Code, w.Body)
	}
	for _, k := range store.known {
		if want := now.Add(24*time.Hour + 10*time.Minute); k.Until.Before(want) {
			t.Errorf("forgotten at %v, want %v", k.Until, want)
		}
	}
}

// What was refused leaves no trace of its key, and can be corrected.
func TestRefusedRequestsCanBeRepeated(t *testing.T) {
	suppressed := true
	s, store := mailServer(t, func(_ *Config, d *intake.Config) {
		d.Recipients.Suppressed = func(string, envelope.Address) (string, bool) { return "", suppressed }
	})
	for _, body := range []string{simple, strings.Replace(simple, "acme", "other", 1), `{}`} {
		if w := post(s, body, "Idempotency-Key", "k"); w.Code/100 != 4 || len(store.known) != 0 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	suppressed = false
	if w := post(s, strings.Replace(simple, `{`, `{"dry_run":true,`, 1), "Idempotency-Key", "k"); w.Code != http.StatusOK || len(store.known) != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := post(s, simple, "Idempotency-Key", "k"); w.Code != http.StatusAccepted || len(store.all) != 1 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestTwoHundredWithOneKey(t *testing.T) {
	s, store := mailServer(t, nil)
	stall := make(chan struct{})
	store.during = func() { <-stall }
	var underWay, accepted, other atomic.Int32
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			switch w := post(s, simple, "Idempotency-Key", "k"); w.Code {
			case http.StatusConflict:
				if w.Header().Get("Retry-After") != "1" {
					t.Error("no Retry-After")
				}
				if underWay.Add(1) == 199 {
					close(stall)
				}
			case http.StatusAccepted:
				accepted.Add(1)
			default:
				other.Add(1)
				t.Error(w.Code, w.Body)
			}
		})
	}
	all.Wait()
	if len(store.all) != 1 || accepted.Load() != 1 {
		t.Errorf("%d messages, %d accepted, %d under way", len(store.all), accepted.Load(), underWay.Load())
	}
}

// A client that leaves while its messages are being stored has all of them in the queue, those too whose group has
// not come yet, and its key gets their ids.
func TestClientLeavesAmidTheCommit(t *testing.T) {
	for body, messages := range map[string]int{batch: 3, thousand() + "]}": 1000} {
		s, store := mailServer(t, func(_ *Config, d *intake.Config) { d.Recipients.Verify, d.Recipients.Verifier = true, impatient{} })
		ctx, leave := context.WithCancel(t.Context())
		store.during = leave
		req := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(body)).WithContext(ctx)
		req.RemoteAddr = "127.0.0.1:999"
		for name, value := range map[string]string{"Authorization": "Bearer good", "Content-Type": "application/json", "Idempotency-Key": "k"} {
			req.Header.Set(name, value)
		}
		s.http.Handler.ServeHTTP(httptest.NewRecorder(), req)
		w := post(s, body, "Idempotency-Key", "k")
		if w.Code != http.StatusAccepted || w.Header().Get("Idempotent-Replayed") != "true" || len(store.all) != messages || read(t, w).Messages[0].ID != store.all[0].ID.String() {
			t.Errorf("%d %v, %d messages, %.200s", w.Code, w.Header(), len(store.all), w.Body)
		}
	}
}

// impatient refuses all domains as soon as its client is gone.
type impatient struct{}

func (impatient) Verify(ctx context.Context, _ string) *reply.Reply {
	if ctx.Err() != nil {
		return &reply.Reply{Code: 550}
	}
	return nil
}

// TestDrain: while the relay takes no new mail, requests with messages are refused, but not those that were sent
// before, and not questions.
func TestDrain(t *testing.T) {
	var on atomic.Bool
	s, store := mailServer(t, func(c *Config, _ *intake.Config) { c.Draining = on.Load })
	first := post(s, batch, "Idempotency-Key", "k1")
	on.Store(true)
	if w := post(s, batch, "Idempotency-Key", "k1"); w.Body.String() != first.Body.String() || w.Header().Get("Connection") != "close" {
		t.Errorf("a request that is repeated: %d %v", w.Code, w.Header())
	}
	for _, key := range []string{"k2", ""} {
		field := []string{"Idempotency-Key", key}
		if key == "" {
			field = nil
		}
		w := post(s, simple, field...)
		if h := w.Header(); w.Code != 503 || h.Get("Retry-After") != "5" || h.Get("Connection") != "close" || !strings.Contains(w.Body.String(), "takes no new mail") {
			t.Errorf("key %q: %d %v %s", key, w.Code, w.Header(), w.Body)
		}
	}
	if len(store.all) != 3 {
		t.Errorf("%d messages", len(store.all))
	}
	if w := ask(s, "GET", "/v1/messages", "good", nil); w.Code == 503 || w.Header().Get("Connection") != "close" {
		t.Errorf("a question: %d %v", w.Code, w.Header())
	}
	on.Store(false)
	if w := post(s, simple, "Idempotency-Key", "k2"); w.Code != http.StatusAccepted || w.Header().Get("Connection") != "" {
		t.Errorf("afterwards: %d %v", w.Code, w.Header())
	}
}

// A request that is under way is known to its repetition, whatever the relay is about to do.
func TestKnownWhileUnderWay(t *testing.T) {
	s, _ := mailServer(t, nil)
	b := s.config.Mail.Repeats
	claim, _, err := b.Begin(t.Context(), "acme", "k", b.Sum())
	if err != nil {
		t.Fatal(err)
	}
	if known, err := b.Known("acme", "k"); err != nil || !known {
		t.Error(known, err)
	}
	claim.Drop()
	if known, err := b.Known("acme", "k"); err != nil || known {
		t.Error(known, err)
	}
}

// fixed is what a cluster has of any request.
type fixed struct {
	intake.Claimed
	err error
}

func (f fixed) Claim(context.Context, string, string) (intake.Claimed, error) {
	return f.Claimed, f.err
}

// TestRequestsThatOtherRelaysHave are not taken.
func TestRequestsThatOtherRelaysHave(t *testing.T) {
	s, store := mailServer(t, nil)
	for _, x := range []struct {
		fixed
		code   int
		reason string
		retry  string
	}{
		{fixed{err: errors.New("the database is away")}, 503, "the relays of this cluster", "5"},
		{fixed{Claimed: intake.Claimed{By: "node 2", Away: true}}, 503, "node 2, which has the request, does not answer", "5"},
		{fixed{Claimed: intake.Claimed{By: "node 2", Settled: true}}, 409, "node 2 has accepted some messages", "5"},
		{fixed{Claimed: intake.Claimed{By: "node 2"}}, 409, "has not been answered yet", "1"},
		{fixed{Claimed: intake.Claimed{Note: `{"request":"b3RoZXI="}`}}, 422, "another request had this key", ""},
	} {
		s.config.Mail.Repeats.Join(x.fixed, time.Now)
		for _, w := range []*httptest.ResponseRecorder{
			post(s, simple, "Idempotency-Key", "k"),
			ask(s, "POST", "/v1/messages?from=shop@acme.example&to=a@example.net", "good", strings.NewReader("From: shop@acme.example\n\nx\n"),
				"Content-Type", "message/rfc822", "Idempotency-Key", "k"),
		} {
			if w.Code != x.code || w.Header().Get("Retry-After") != x.retry || !strings.Contains(w.Body.String(), x.reason) || len(store.all) > 0 {
				t.Errorf("%+v: %d %v %s, %d messages", x.Claimed, w.Code, w.Header(), w.Body, len(store.all))
			}
		}
	}
	if w := post(s, simple); w.Code != http.StatusAccepted {
		t.Errorf("without a key: %d %s", w.Code, w.Body)
	}
}
