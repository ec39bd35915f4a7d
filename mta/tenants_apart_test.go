package mta

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/submission/auth"
	submissionhttp "example.org/mta/submission/http"
	"example.org/mta/suppression"
)

// apart is a relay with two tenants: acme has a scheduled message and a suppressed address, other has nothing.
type apart struct {
	*world
	keys    string // the file
	id      string // of acme's message
	clients atomic.Int32
}

func newApart(t *testing.T) *apart {
	path := filepath.Join(t.TempDir(), "keys")
	w := newWorld(t, sink.Config{}, fmt.Sprintf(`keys { file = %q }
		api "web" {
			address = "127.0.0.1:0"
			trusted_proxies = ["127.0.0.1"]
			compat = ["sendgrid", "resend"]
		}
		tenant "acme" { senders = ["acme.example"] }
		tenant "other" { senders = ["other.example"] }`, path))
	a := &apart{world: w, keys: path}
	status, body := a.ask("POST", "/v1/messages", a.key("acme", auth.Key{Scopes: auth.MayAll}), `{"from":"ann@acme.example","to":"joe@box.example","subject":"x","text":"x",
		"campaign":"spring","send_at":"`+soon()+`"}`)
	var sent struct{ Messages []struct{ ID string } }
	if err := json.Unmarshal([]byte(body), &sent); err != nil || status != 202 || len(sent.Messages) != 1 {
		t.Fatalf("sending: %d %s", status, body)
	}
	a.id = sent.Messages[0].ID
	w.suppression.Add(t.Context(), []suppression.Entry{{Key: suppression.KeyOf("acme", "secret@box.example"), Source: suppression.Tenant}})
	return a
}

func soon() string { return time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339) }

// key adds a key of a tenant.
func (a *apart) key(tenant string, k auth.Key) string {
	a.t.Helper()
	k.Tenant, k.Name = tenant, fmt.Sprint("key", a.clients.Add(1))
	created := time.Now()
	if !k.Expires.IsZero() {
		created = k.Expires.Add(-time.Hour)
	}
	token, _, err := auth.AddKey(a.keys, k, created)
	if err != nil {
		a.t.Fatal(err)
	}
	return token
}

// ask sends a request, each from another address, since guesses are slowed by network.
func (a *apart) ask(method, path, token, body string) (status int, answer string) {
	req, _ := http.NewRequest(method, "http://"+a.Status().HTTP[0]+path, strings.NewReader(body))
	n := a.clients.Add(1)
	req.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.%d.%d", 100+n/250, 1+n%250))
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// routes are those of the relay's api block that need a key.
func (a *apart) routes() (some []submissionhttp.Route) {
	for _, r := range a.apis["web"].server.Routes() {
		if !r.Open {
			some = append(some, r)
		}
	}
	if len(some) < 5 {
		a.t.Fatalf("there are %d routes", len(some))
	}
	return some
}

var inBraces = regexp.MustCompile(`\{[^}]*\}`)

// bodies are what a request brings where that is needed for it to get to the tenant's data.
var bodies = map[string]string{
	"POST /v1/messages":                      `{"from":"ann@acme.example","to":"joe@box.example","text":"x"}`,
	"POST /v1/messages/cancel":               `{"campaign":"spring"}`,
	"PATCH /v1/messages/{id}":                `{"send_at":"SOON"}`,
	"POST /v1/suppressions/add":              `{"suppressions":[{"address":"new@box.example"}]}`,
	"POST /v1/suppressions/remove":           `{"addresses":["secret@box.example"]}`,
	"POST /v1/suppressions/check":            `{"addresses":["secret@box.example"]}`,
	"POST /v3/mail/send":                     `{"from":{"email":"ann@acme.example"},"personalizations":[{"to":[{"email":"joe@box.example"}]}],"subject":"x","content":[{"type":"text/plain","value":"x"}]}`,
	"POST /v3/user/scheduled_sends":          `{"batch_id":"ID","status":"cancel"}`,
	"PATCH /v3/user/scheduled_sends/{batch}": `{"status":"cancel"}`,
	"POST /emails":                           `{"from":"ann@acme.example","to":"joe@box.example","subject":"x","text":"x"}`,
	"POST /emails/batch":                     `[{"from":"ann@acme.example","to":"joe@box.example","subject":"x","text":"x"}]`,
	"PATCH /emails/{id}":                     `{"scheduled_at":"SOON"}`,
}

func (a *apart) askRoute(r *submissionhttp.Route, token, id string) (status int, answer string) {
	name := r.Method + " " + r.Pattern
	body := strings.NewReplacer("SOON", soon(), "ID", id).Replace(bodies[name])
	return a.ask(r.Method, inBraces.ReplaceAllLiteralString(r.Pattern, id), token, body)
}

// Each route refuses a request without a key, with an unknown, expired, removed or malformed one, from a network that
// the key does not allow, all with one answer; and a key that lacks the route's scope.
func TestEachRouteNeedsAKeyWithItsScope(t *testing.T) {
	t.Parallel()
	a := newApart(t)
	scopes := []auth.Scopes{auth.MaySend, auth.MayRead, auth.MayCancel, auth.MayReadEvents, auth.MaySuppress}
	without := make(map[auth.Scopes]string)
	for _, s := range scopes {
		without[s] = a.key("acme", auth.Key{Scopes: auth.MayAll &^ s})
	}
	bad := map[string]string{
		"unknown":   "mta_" + strings.Repeat("A", 43),
		"malformed": "x",
		"expired":   a.key("acme", auth.Key{Scopes: auth.MayAll, Expires: time.Now().Add(-time.Minute)}),
		"elsewhere": a.key("acme", auth.Key{Scopes: auth.MayAll, From: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}),
	}
	requestID := regexp.MustCompile(`"(request|instance)":"[^"]*"`)
	var all sync.WaitGroup
	for _, r := range a.routes() {
		if r.Scope == 0 {
			t.Errorf("%s %s needs no scope", r.Method, r.Pattern)
		}
		if status, body := a.askRoute(&r, "", a.id); status != 401 {
			t.Errorf("%s %s without a key: %d %s", r.Method, r.Pattern, status, body)
		}
		if status, body := a.askRoute(&r, without[r.Scope], a.id); status != 403 {
			t.Errorf("%s %s without the scope %s: %d %s", r.Method, r.Pattern, r.Scope, status, body)
		}
		all.Go(func() { // each is answered late
			answers := make(map[string]string)
			var mu sync.Mutex
			var some sync.WaitGroup
			for what, token := range bad {
				some.Go(func() {
					began := time.Now()
					status, body := a.askRoute(&r, token, a.id)
					if status == 403 && strings.Contains(body, "invalid_api_key") {
						status = 401 // as Resend answers it
					}
					if status != 401 || time.Since(began) < 900*time.Millisecond {
						t.Errorf("%s %s with an %s key: %d after %v: %s", r.Method, r.Pattern, what, status, time.Since(began), body)
					}
					mu.Lock()
					answers[requestID.ReplaceAllString(body, "")] = what
					mu.Unlock()
				})
			}
			some.Wait()
			if len(answers) != 1 {
				t.Errorf("%s %s tells bad keys apart: %v", r.Method, r.Pattern, answers)
			}
		})
	}
	all.Wait()
	if s := a.queue.Stats(); s.Accepted != 1 {
		t.Errorf("%d messages were accepted, want acme's own", s.Accepted)
	}
}

// want is what the key of another tenant gets: a status, and a part of the answer.
type want struct {
	status int
	text   string
}

// others are the routes without an id in their path, as another tenant's key meets them.
var others = map[string]want{
	"POST /v1/messages":             {403, "5.7.1"},
	"GET /v1/messages":              {200, `"messages":[]`},
	"GET /v1/events":                {200, `"events":[]`},
	"POST /v1/messages/cancel":      {0, ""}, // what it does to acme's message is looked at below
	"GET /v1/suppressions":          {200, `{"suppressions":[]}`},
	"POST /v1/suppressions/add":     {200, `"added":1`},
	"POST /v1/suppressions/remove":  {200, `{"removed":0}`},
	"POST /v1/suppressions/check":   {200, `{"suppressions":[]}`},
	"POST /v3/mail/send":            {403, "not"},
	"POST /v3/mail/batch":           {201, "batch_id"},
	"GET /v3/user/scheduled_sends":  {200, "[]"},
	"POST /v3/user/scheduled_sends": {0, ""},
	"POST /emails":                  {403, "not"},
	"POST /emails/batch":            {403, "not"},
}

// The key of another tenant learns and changes nothing: an id of acme's is answered as one that nobody has, and all else
// by what its own tenant has.
func TestTenantsAreKeptApart(t *testing.T) {
	a := newApart(t)
	other := a.key("other", auth.Key{Scopes: auth.MayAll})
	nobodys := a.id[:len(a.id)-1] + "0"
	if nobodys == a.id {
		nobodys = a.id[:len(a.id)-1] + "1"
	}
	for _, r := range a.routes() {
		name := r.Method + " " + r.Pattern
		status, body := a.askRoute(&r, other, a.id)
		if strings.Contains(body, "joe@box") || strings.Contains(body, "secret@box") && r.Pattern != "/v1/suppressions/check" {
			t.Errorf("%s gives away %s", name, body)
		}
		if inBraces.MatchString(r.Pattern) {
			status2, body2 := a.askRoute(&r, other, nobodys)
			if status != status2 || strings.ReplaceAll(body, a.id, "") != strings.ReplaceAll(body2, nobodys, "") {
				t.Errorf("%s: acme's id is answered %d %s, nobody's %d %s", name, status, body, status2, body2)
			}
			if status/100 != 4 && !strings.HasPrefix(r.Pattern, "/v3/") { // SendGrid's batches are known by their messages
				t.Errorf("%s of another tenant: %d %s", name, status, body)
			}
			continue
		}
		want, ok := others[name]
		switch {
		case !ok:
			t.Errorf("%s: write into others what the key of another tenant gets", name)
		case want.status != 0 && status != want.status || !strings.Contains(body, want.text):
			t.Errorf("%s: %d %s, want %d %s", name, status, body, want.status, want.text)
		}
	}
	own := a.key("acme", auth.Key{Scopes: auth.MayAll})
	for _, path := range []string{"/v1/messages/" + a.id, "/v1/messages?campaign=spring", "/v1/events?wait=5"} {
		if status, body := a.ask("GET", path, own, ""); status != 200 || !strings.Contains(body, a.id) {
			t.Errorf("%s with a key of acme's: %d %s", path, status, body)
		}
	}
	if s := a.queue.Stats(); s.Accepted != 1 || s.Queued != 1 || s.Deferred != 1 {
		t.Errorf("acme's message is no longer scheduled: %+v", s)
	}
	if _, found := a.suppression.Match("acme", "secret@box.example"); !found {
		t.Error("acme's suppression is gone")
	}
	if _, found := a.suppression.Match("acme", "new@box.example"); found {
		t.Error("acme has a suppression that another tenant added")
	}
}
