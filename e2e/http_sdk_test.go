package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// webField is a field whose relay takes mail by HTTP, too.
type webField struct {
	*field
	url string
	key string // of the tenant acme
}

// newWebField starts servers, and a relay that understands SendGrid's and Resend's clients. more is further lines of
// the block api.
func newWebField(t *testing.T, more, config string, run ...runServer) *webField {
	t.Helper()
	dir := scratch(t)
	addr := "127.0.0.1:" + commonPort(t, "127.0.0.1")
	f := &webField{url: "http://" + addr}
	f.field = newFieldWith(t, "", fmt.Sprintf(`
tenant "acme" {
  senders = ["acme.example"]
}
keys { file = "%s/keys" }
api "web" {
  address = ["%s"]
  compat  = ["sendgrid", "resend"]
  %s
}
%s`, dir, addr, more, config), run...)
	f.key = newKey(t, f.relay)
	return f
}

// newKey adds a key of the tenant acme. It stands in the first line; the rest is for people.
func newKey(t *testing.T, r *relay) string {
	t.Helper()
	out := runClient(t, "", binary, "--config", r.config, "key", "add", "--tenant", "acme", "--name", "shop")
	key, _, _ := strings.Cut(out, "\n")
	return key
}

func (f *webField) job(do string, l *webLetter) webJob {
	return webJob{URL: f.url, Key: f.key, Do: do, Letter: l}
}

// TestSDKsSendWhatTheyWereGiven has each SDK send each letter to two servers, and reads what arrived.
func TestSDKsSendWhatTheyWereGiven(t *testing.T) {
	parallel(t)
	clients := sdks(t)
	f := newWebField(t, "", "", postfix, exim)
	a, b := f.servers[0], f.servers[1]
	for i, c := range clients {
		to, cc := a, b
		if i%2 == 1 {
			to, cc = b, a
		}
		for name, l := range webLetters("ann@"+to.domain, "cc@"+cc.domain) {
			if c.anymail && c.esp == "resend" && len(l.Meta) > 0 {
				l.Headers["X-Metadata"], l.Headers["X-Tags"] = `{"order": "77"}`, `["order", "eu"]`
			}
			t.Run(c.name+" sends "+name, func(t *testing.T) {
				id := strings.ReplaceAll(c.name+"-"+name, " ", "-")
				l := l.tagged(id)
				r := c.do(t, f.job("send", &l))
				if r.Error != "" {
					t.Fatalf("%s: %s", r.Error, r.Shown)
				}
				if got := r.header("X-MTA-Ignored"); got != "" {
					t.Errorf("ignored %s", got)
				}
				l.same(t, read(t, to.letter(t, id)))
				if len(l.Cc) > 0 {
					l.same(t, read(t, cc.letter(t, id)))
				}
			})
		}
	}
	f.relay.drained(t, patience)
}

// TestSDKsPersonalise has each SDK send a letter of their own to each of two people.
func TestSDKsPersonalise(t *testing.T) {
	t.Parallel() // the parts take turns
	clients := sdks(t)
	f := newWebField(t, "", "", postfix)
	s := f.servers[0]
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			parallel(t)
			id := strings.ReplaceAll(c.name, " ", "-")
			l := personalLetter(s.domain)
			want := []webLetter{l.of(l.Recipients[0]), l.of(l.Recipients[1])}
			var r webResult
			switch {
			case c.esp == "sendgrid":
				tagged := l.tagged(id)
				r = c.do(t, f.job("send", &tagged))
			case c.anymail: // Resend replaces nothing: Anymail sends the same letter to each
				tagged := l.tagged(id)
				r = c.do(t, f.job("send", &tagged))
				for i := range want {
					want[i].Subject, want[i].Text, want[i].HTML = l.Subject, l.Text, l.HTML
				}
			default:
				job := f.job("batch", nil)
				job.Letters = []webLetter{want[0].tagged(id), want[1].tagged(id)}
				r = c.do(t, job)
			}
			if r.Error != "" {
				t.Fatalf("%s: %s", r.Error, r.Shown)
			}
			eventually(t, patience, func() error {
				if n := s.copies(t, id); n != 2 {
					return fmt.Errorf("%d messages have arrived, want 2", n)
				}
				return nil
			})
			for _, m := range s.messages(t) {
				if m.field(testField) != id {
					continue
				}
				got := read(t, m)
				for _, w := range want {
					if len(got.To) > 0 && got.To[0].Email == w.To[0].Email {
						w.same(t, got)
					}
				}
			}
		})
	}
}

// TestSDKsShowErrors has each SDK make mistakes, whose errors it must show to its user.
func TestSDKsShowErrors(t *testing.T) {
	parallel(t)
	clients := sdks(t)
	f := newWebField(t, "", "", smtpSink)
	good := func() *webLetter {
		return &webLetter{From: person{Email: "shop@acme.example"}, To: []person{{Email: "a@smtp-sink.example"}}, Subject: "x", Text: "x"}
	}
	for _, tc := range []struct {
		name  string
		job   func() webJob
		shown map[string]string // by ESP: a part of what the SDK shows
		class map[string]string // of errors, in Python
	}{
		{
			name:  "wrong key",
			job:   func() webJob { j := f.job("send", good()); j.Key = "mta_wrong"; return j },
			shown: map[string]string{"sendgrid": "key", "resend": "key"},
			class: map[string]string{"sendgrid for Python": "UnauthorizedError", "resend for Python": "InvalidApiKeyError"},
		},
		{
			name:  "foreign sender",
			job:   func() webJob { l := good(); l.From.Email = "boss@other.example"; return f.job("send", l) },
			shown: map[string]string{"sendgrid": "other.example", "resend": "other.example"},
		},
		{
			name:  "time in the past",
			job:   func() webJob { l := good(); l.SendAt = time.Now().Add(-time.Hour).Unix(); return f.job("send", l) },
			shown: map[string]string{"sendgrid": "past", "resend": "past"},
			class: map[string]string{"sendgrid for Python": "BadRequestsError", "resend for Python": "ValidationError"},
		},
		{
			name: "reserved header field",
			job: func() webJob {
				l := good()
				l.Headers = map[string]string{"DKIM-Signature": "x"}
				return f.job("send", l)
			},
			shown: map[string]string{"sendgrid": "DKIM-Signature", "resend": "DKIM-Signature"},
		},
	} {
		for _, c := range clients {
			t.Run(tc.name+" by "+c.name, func(t *testing.T) {
				r := c.do(t, tc.job())
				if r.Error == "" || r.Status < 400 || r.Status >= 500 {
					t.Fatalf("no error is shown: %+v", r)
				}
				if !strings.Contains(r.Shown, tc.shown[c.esp]) {
					t.Errorf("the SDK shows %q, want %q in it", r.Shown, tc.shown[c.esp])
				}
				if want := tc.class[c.name]; want != "" && r.Error != want {
					t.Errorf("the error is a %s, want %s", r.Error, want)
				}
			})
		}
	}
	if n := len(f.servers[0].messages(t)); n != 0 {
		t.Errorf("%d messages were sent", n)
	}
}

// idOf is the id in an answer of Resend's form.
func idOf(t *testing.T, r webResult) string {
	t.Helper()
	var answer struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(r.Body), &answer); err != nil || answer.ID == "" {
		t.Fatalf("no id: %+v", r)
	}
	return answer.ID
}

// TestSDKsRetryWithAKey sends twice with one Idempotency-Key.
func TestSDKsRetryWithAKey(t *testing.T) {
	parallel(t)
	clients := sdks(t)
	f := newWebField(t, "", "", postfix)
	s := f.servers[0]
	for _, c := range clients {
		if c.esp != "resend" || c.anymail {
			continue // has no option for it
		}
		t.Run(c.name, func(t *testing.T) {
			id := strings.ReplaceAll(c.name, " ", "-")
			l := webLetter{From: person{Email: "shop@acme.example"}, To: []person{{Email: "a@" + s.domain}}, Subject: "once", Text: "x"}.tagged(id)
			job := f.job("send", &l)
			job.IdempotencyKey = "order/77 of " + c.name
			first, second := c.do(t, job), c.do(t, job)
			if first.Error != "" || idOf(t, first) != idOf(t, second) || second.header("Idempotent-Replayed") != "true" {
				t.Fatalf("got %+v, then %+v", first, second)
			}
			other := l
			other.Text = "y"
			job.Letter = &other
			if third := c.do(t, job); third.Status != 409 || third.Body != "invalid_idempotent_request" {
				t.Errorf("another letter with the key: %+v", third)
			}
			s.letter(t, id)
			f.relay.drained(t, patience)
			if n := s.copies(t, id); n != 1 {
				t.Errorf("%d messages have arrived, want 1", n)
			}
		})
	}
}
