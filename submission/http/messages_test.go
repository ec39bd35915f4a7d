package http

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/intake"
	"example.org/mta/submission/request"
)

// memoryStore keeps what is committed, in memory.
type memoryStore struct {
	mu      sync.Mutex
	ids     envelope.IDs
	all     []*envelope.Message
	content [][]byte
	groups  []int // messages of each commit
	open    int   // drafts
	full    int   // messages after which the disk is full; 0: never
	known   map[intake.RequestKey]intake.StoredRequest
	during  func() // a commit

	rejected []intake.Rejection
}

type memoryDraft struct {
	s *memoryStore
	bytes.Buffer
}

type diskIsFull struct{ error }

func (diskIsFull) DiskFull() bool { return true }

func (s *memoryStore) Begin(intake.Owner, int64) intake.Draft {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return &memoryDraft{s: s}
}

func (d *memoryDraft) Abort() {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.s.open--
}

func (d *memoryDraft) Commit(m *envelope.Message) error {
	_, err := d.s.CommitBatch(&intake.Batch{Drafts: []intake.Draft{d}, Messages: []*envelope.Message{m}})
	return err
}

func (s *memoryStore) CommitBatch(b *intake.Batch) (int, error) {
	if s.during != nil {
		s.during()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open -= len(b.Drafts)
	for i, m := range b.Messages {
		if s.full > 0 && len(s.all) == s.full {
			return i, diskIsFull{errors.New("no space left")}
		}
		m.ID = s.ids.Next(now)
		m.Size = int64(b.Drafts[i].(*memoryDraft).Len())
		s.all = append(s.all, m)
		s.content = append(s.content, b.Drafts[i].(*memoryDraft).Bytes())
		s.note(b.Keyed, i, m)
	}
	s.groups = append(s.groups, len(b.Drafts))
	if k := b.Keyed; k != nil && k.Last {
		s.note(k, -1, nil)
	}
	return len(b.Drafts), nil
}

// Received implements intake.Events.
func (s *memoryStore) Received(*envelope.Message, intake.Fields) {}

// Rejected implements intake.Events.
func (s *memoryStore) Rejected(r intake.Rejection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rejected = append(s.rejected, r)
}

// note keeps what a key stands for: a message, or the answer.
func (s *memoryStore) note(k *intake.Keyed, i int, m *envelope.Message) {
	if k == nil {
		return
	}
	if s.known == nil {
		s.known = map[intake.RequestKey]intake.StoredRequest{}
	}
	known := s.known[k.Key]
	known.Request, known.Until = k.Request, k.Until
	if known.IDs == nil {
		known.IDs = map[int]envelope.ID{}
	}
	if m != nil {
		known.IDs[k.Positions[i]] = m.ID
	} else {
		known.Whole, known.Answer = true, k.Answer
	}
	s.known[k.Key] = known
}

// Keyed implements intake.RepeatStore.
func (s *memoryStore) Keyed(k intake.RequestKey) (intake.StoredRequest, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.known[k]
	return known, ok, nil
}

// noTemplates has no stored ones.
var noTemplates = (*request.Templates)(nil)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// mailServer takes messages into a store.
func mailServer(t *testing.T, change func(*Config, *intake.Config)) (*Server, *memoryStore) {
	t.Helper()
	store := new(memoryStore)
	own, err := auth.ParseSender("acme.example")
	if err != nil {
		t.Fatal(err)
	}
	desk := intake.Config{
		Hostname: "mx.test", Store: store, Batches: store, Events: store, CheckFrom: true, MaxHold: 24 * time.Hour,
		TenantOf: func(name string) (intake.Tenant, bool) {
			return intake.Tenant{Tier: 3, Senders: auth.Senders{own}}, name == "acme"
		},
		Recipients: intake.Recipients{Suppressed: func(_ string, a envelope.Address) (string, bool) {
			return "bounced", strings.HasPrefix(string(a), "gone")
		}},
		Now: func() time.Time { return now },
	}
	config := Config{Keys: testKeys, Now: desk.Now, Mail: Mail{Templates: noTemplates}}
	if change != nil {
		change(&config, &desk)
	}
	config.Mail.Intake, config.Mail.Repeats = desk, intake.NewRepeats([]byte("secret"), store)
	t.Cleanup(func() {
		if store.open != 0 {
			t.Errorf("%d drafts were left open", store.open)
		}
	})
	return New(config), store
}

// answered is an answer as clients read it.
type answered struct {
	Status   any
	Title    string
	Detail   string
	Code     string
	Messages []SentMessage
	Faults   []struct{ Pointer, Detail, Remedy string }
}

func read(t *testing.T, w *httptest.ResponseRecorder) answered {
	t.Helper()
	var a answered
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return a
}

// post sends JSON.
func post(s *Server, body string, fields ...string) *httptest.ResponseRecorder {
	return ask(s, "POST", "/v1/messages", "good", strings.NewReader(body), append(fields, "Content-Type", "application/json; charset=utf-8")...)
}

const simple = `{"from":"Shop <shop@acme.example>","to":["a@example.net","Bob <b@example.net>"],"bcc":"c@example.net","subject":"Grüße","text":"Hello\n","html":"<p>Hello</p>"}`

func TestOneMessageForAll(t *testing.T) {
	s, store := mailServer(t, nil)
	w := post(s, strings.TrimSuffix(simple, "}")+`,"sender":"bounces@acme.example","campaign":"winter","priority":-4,"envid":"e1","ret":"headers","notify":"failure",
		"tags":["a","b"],"meta":{"order": 7},"expires_at":"2026-11-23T12:00:00Z"}`)
	a := read(t, w)
	if w.Code != http.StatusAccepted || len(a.Messages) != 1 || len(store.all) != 1 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	m := store.all[0]
	if got := a.Messages[0]; got.ID != m.ID.String() || got.Status != Accepted || len(got.Recipients) != 3 || got.Recipients[2] != (SentRecipient{Address: "c@example.net", Status: Accepted}) {
		t.Errorf("%+v", got)
	}
	if m.Sender != "bounces@acme.example" || len(m.Recipients) != 3 || m.Tenant != "acme" || m.APIKey != "shop" || m.Campaign != "winter" || m.Tier != 5 ||
		m.EnvID != "e1" || m.Ret != envelope.RetHeaders || m.Recipients[0].Notify != envelope.NotifyFailure || m.Protocol != "HTTP" || m.Session == "" || m.UTF8 ||
		!slices.Equal(m.Tags, []string{"a", "b"}) || m.Meta != `{"order":7}` || !m.Expires.Equal(now.Add(24*time.Hour)) {
		t.Errorf("%+v", m)
	}
	got, err := mail.ReadMessage(bytes.NewReader(store.content[0]))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"From": `Shop <shop@acme.example>`, "Sender": "bounces@acme.example", "To": "a@example.net, Bob <b@example.net>", "Bcc": "",
		"Subject": "=?utf-8?b?R3LDvMOfZQ==?=", "Date": "Sun, 22 Nov 2026 12:00:00 +0000",
	} {
		value := strings.Trim(strings.NewReplacer("<bounces@acme.example>", "bounces@acme.example", "<a@example.net>", "a@example.net", `"`, "").Replace(got.Header.Get(name)), " ")
		if !strings.EqualFold(value, want) {
			t.Errorf("%s: %q, want %q", name, value, want)
		}
	}
	if !strings.Contains(got.Header.Get("Received"), "with HTTP") || !strings.HasSuffix(got.Header.Get("Message-Id"), "@acme.example>") ||
		!strings.HasPrefix(got.Header.Get("Content-Type"), "multipart/alternative") {
		t.Errorf("%v", got.Header)
	}
}

func TestRefusedRecipientsStandBesideTheOthers(t *testing.T) {
	s, store := mailServer(t, nil)
	w := post(s, `{"from":"shop@acme.example","to":["gone@example.net","a@example.net","a@example.net"],"text":"x"}`)
	a := read(t, w)
	want := []SentRecipient{
		{"gone@example.net", Refused, "5.1.1", "address is suppressed (bounced); if the entry is wrong: POST /v1/suppressions/remove"},
		{Address: "a@example.net", Status: Accepted},
	}
	if w.Code != http.StatusAccepted || !slices.Equal(a.Messages[0].Recipients, want) || len(store.all) != 1 || len(store.all[0].Recipients) != 1 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if len(store.rejected) != 1 || store.rejected[0].Recipient != "gone@example.net" || store.rejected[0].Reply.Command != "RCPT" || store.rejected[0].Tenant != "acme" {
		t.Errorf("in the log: %+v", store.rejected)
	}
	w = post(s, `{"from":"shop@acme.example","to":"gone@example.net","text":"x"}`)
	if a = read(t, w); w.Code != http.StatusUnprocessableEntity || len(a.Messages) != 1 || a.Messages[0].Status != Refused || a.Messages[0].Recipients[0] != want[0] || len(store.all) != 1 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestPersonalised(t *testing.T) {
	s, store := mailServer(t, nil)
	w := post(s, `{"from":"shop@acme.example","subject":"Hello {{name}}","text":"Order {{order}} of {{shop}}","html":"<b>{{name}}</b>","headers":{"X-Order":"{{order}}","X-All":"all"},
		"data":{"shop":"Acme"},"recipients":[
		{"to":"Ann <a@example.net>","data":{"name":"Ann & <Co>","order":1000000}},
		{"to":"gone@example.net","data":{"name":"Gone"}},
		{"to":"b@example.net","data":{"name":"Bob"},"headers":{"X-all":"bob"},"send_at":"2026-11-22T13:00:00Z"}]}`)
	a := read(t, w)
	if w.Code != http.StatusAccepted || len(a.Messages) != 3 || len(store.all) != 2 || len(store.groups) != 1 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if a.Messages[0].ID != store.all[0].ID.String() || a.Messages[0].Status != Accepted || a.Messages[1].Status != Refused || a.Messages[1].ID != "" ||
		a.Messages[2].ID != store.all[1].ID.String() || a.Messages[2].Status != Scheduled || !store.all[1].Release.Equal(now.Add(time.Hour)) {
		t.Errorf("%+v", a.Messages)
	}
	for i, want := range []string{
		"To: \"Ann\" <a@example.net>|Subject: Hello Ann & <Co>|X-Order: 1000000|X-All: all|Order 1000000 of Acme|<b>Ann &amp; &lt;Co&gt;</b>",
		"Subject: Hello Bob|X-Order: |X-all: bob|Order  of Acme|<b>Bob</b>",
	} {
		for _, part := range strings.Split(want, "|") {
			if !bytes.Contains(bytes.ReplaceAll(store.content[i], []byte("Ann <a@"), []byte("\"Ann\" <a@")), []byte(part)) {
				t.Errorf("message %d lacks %q:\n%s", i, part, store.content[i])
			}
		}
	}
	if bytes.Contains(store.content[1], []byte("X-All: all")) {
		t.Error("a recipient's field stands beside the shared one")
	}
}

func TestNothingIsAcceptedWhereATemplateFails(t *testing.T) {
	s, store := mailServer(t, nil)
	w := post(s, `{"from":"shop@acme.example","subject":"x","text":"{{name}} {{order}}","strict":true,"recipients":[
		{"to":"a@example.net","data":{"name":"A","order":1}},{"to":"b@example.net","data":{"name":"B"}},{"to":"c@example.net","data":{"order":1}}]}`)
	a := read(t, w)
	if w.Code != http.StatusBadRequest || len(a.Faults) != 2 || a.Faults[0].Pointer != "/recipients/1/data" || !strings.Contains(a.Faults[0].Detail, "order") ||
		a.Faults[1].Pointer != "/recipients/2/data" || len(store.all) != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = post(s, `{"from":"shop@acme.example","text":"{{#a}}","html":"{{#b}}","data":{},"to":"a@example.net"}`)
	if a = read(t, w); w.Code != http.StatusBadRequest || len(a.Faults) != 2 || a.Faults[0].Pointer != "/text" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w = post(s, `{"from":"shop@acme.example","template":"none","to":"a@example.net"}`); w.Code != http.StatusBadRequest || read(t, w).Faults[0].Pointer != "/template" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestFaultsOfAllPartsComeTogether(t *testing.T) {
	s, store := mailServer(t, nil)
	w := post(s, `{"from":"shop@acme.example","to":"x","txt":"y","text":"x","headers":{"Bcc":"a@example.net","X-A":"1\r\nBcc: a@example.net","X/B~":"1\u0000"},
		"attachments":[{"name":"a\r\nb","content":""}],"pool":"other"}`)
	a := read(t, w)
	var at []string
	for _, f := range a.Faults {
		at = append(at, f.Pointer)
		if f.Remedy == "" {
			t.Errorf("%+v has no remedy", f)
		}
	}
	if want := "/to /txt /headers/Bcc /headers/X-A /headers/X~1B~0 /attachments/0/name /pool"; w.Code != http.StatusBadRequest || strings.Join(at, " ") != want || len(store.all) != 0 {
		t.Errorf("%d %v\n%s", w.Code, at, w.Body)
	}
}

func TestRaw(t *testing.T) {
	s, store := mailServer(t, nil)
	raw := "From: shop@acme.example\r\nTo: all\r\nSubject: x\r\nDate: Sun, 22 Nov 2026 12:00:00 +0000\r\nMessage-ID: <a@b>\r\n\r\n.\r\nbody \xe9\r\n"
	w := ask(s, "POST", "/v1/messages?from=shop@acme.example&to=a@example.net&to=gone@example.net&campaign=c&send_at=2026-11-22T13:00:00Z", "good", strings.NewReader(raw), "Content-Type", "message/rfc822")
	a := read(t, w)
	if w.Code != http.StatusAccepted || len(store.all) != 1 || a.Messages[0].ID != store.all[0].ID.String() || a.Messages[0].Status != Scheduled || a.Messages[0].Recipients[1].Status != Refused {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if _, after, _ := bytes.Cut(store.content[0], []byte("for <")); !bytes.HasSuffix(after, []byte(raw)) || store.all[0].Body != envelope.Body8BitMIME || store.all[0].Campaign != "c" {
		t.Errorf("%+v\n%q", store.all[0], store.content[0])
	}
	quoted, _ := json.Marshal(strings.ReplaceAll(strings.ReplaceAll(raw, "\r\n", "\n"), "\xe9", "é"))
	w = post(s, `{"from":"shop@acme.example","to":"a@example.net","raw":`+string(quoted)+`}`)
	if w.Code != http.StatusAccepted || len(store.all) != 2 || !bytes.HasSuffix(store.content[1], []byte(strings.ReplaceAll(raw, "\xe9", "é"))) {
		t.Errorf("%d %s %q", w.Code, w.Body, store.content[1:])
	}
	for _, c := range []struct {
		query, body string
		status      int
	}{
		{"from=shop@acme.example&to=a@example.net&dry_run=true", raw, 200},
		{"from=shop@acme.example", raw, 400},
		{"from=shop@acme.example&to=a@example.net&form=x", raw, 400},
		{"from=x@other.example&to=a@example.net", raw, 403},
		{"from=shop@acme.example&to=a@example.net", strings.Replace(raw, "shop@", "a@x.", 1), 403},
		{"from=shop@acme.example&to=gone@example.net", raw, 422},
		{"from=shop@acme.example&to=a@example.net", raw + "\x00", 422},
		{"from=shop@acme.example&to=a@example.net", raw + strings.Repeat("x", 70<<10), 422},
	} {
		w := ask(s, "POST", "/v1/messages?"+c.query, "good", strings.NewReader(c.body), "Content-Type", "message/rfc822")
		if w.Code != c.status || len(store.all) != 2 {
			t.Errorf("%s: %d %s", c.query, w.Code, w.Body)
		}
	}
}

// The body of a raw message is not kept.
func TestRawIsStreamed(t *testing.T) {
	s, store := mailServer(t, nil)
	stopped := errors.New("stopped")
	header := "From: shop@acme.example\r\n\r\n"
	w := ask(s, "POST", "/v1/messages?from=shop@acme.example&to=a@example.net", "good",
		io.MultiReader(strings.NewReader(header+strings.Repeat("x\r\n", 1<<20)), failing{stopped}), "Content-Type", "message/rfc822")
	if w.Code != http.StatusBadRequest || len(store.all) != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestSendersOfTheTenant(t *testing.T) {
	s, store := mailServer(t, nil)
	for _, body := range []string{
		`{"from":"shop@other.example","to":"a@example.net","text":"x"}`,
		`{"from":"shop@other.example","sender":"shop@acme.example","to":"a@example.net","text":"x"}`,
		`{"from":["shop@acme.example","shop@other.example"],"to":"a@example.net","text":"x"}`,
		`{"from":"shop@acme.example","sender":"shop@other.example","to":"a@example.net","text":"x"}`,
	} {
		w := post(s, body)
		if a := read(t, w); w.Code != http.StatusForbidden || !strings.Contains(a.Detail, "you may not send as") || a.Code != "5.7.1" || len(store.all) != 0 {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}

// TestATenantIsRemovedWhileItsBodyComes: then nothing bounds its senders, so nothing is taken.
func TestATenantIsRemovedWhileItsBodyComes(t *testing.T) {
	s, store := mailServer(t, func(_ *Config, i *intake.Config) {
		i.TenantOf = func(string) (intake.Tenant, bool) { return intake.Tenant{}, false }
	})
	w := post(s, `{"from":"boss@bank.example","to":"a@example.net","text":"x"}`)
	if w.Code != http.StatusForbidden || len(store.all) != 0 {
		t.Errorf("%d %s, %d messages", w.Code, w.Body, len(store.all))
	}
}

func TestDryRun(t *testing.T) {
	s, store := mailServer(t, nil)
	w := post(s, `{"from":"shop@acme.example","text":"Hello {{name}}","subject":"x","dry_run":true,"recipients":[{"to":"a@example.net","data":{"name":"A"}},{"to":"gone@example.net","data":{"name":"B"}}]}`)
	a := read(t, w)
	if w.Code != http.StatusOK || len(store.all) != 0 || a.Messages[0].Status != DryRun || !strings.Contains(a.Messages[0].Content, "\r\n\r\nHello A\r\n") ||
		a.Messages[1].Status != Refused || a.Messages[1].Content != "" || a.Messages[0].ID != "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = post(s, `{"from":"shop@acme.example","subject":"x","dry_run":true,"text":"`+strings.Repeat("x", 6<<20)+`","recipients":[{"to":"a@example.net"},{"to":"b@example.net"}]}`)
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %.200s", w.Code, w.Body)
	}
}

// Our own trouble is a 503 that names what was accepted.
func TestDiskFull(t *testing.T) {
	many := `{"from":"shop@acme.example","subject":"x","text":"x","recipients":[{"to":"a@example.net"},{"to":"gone@example.net"},{"to":"b@example.net"},{"to":"c@example.net"}]}`
	s, store := mailServer(t, func(_ *Config, c *intake.Config) { c.Store.(*memoryStore).full = 2 })
	w := post(s, many)
	a := read(t, w)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "30" || len(store.all) != 2 || len(a.Messages) != 4 {
		t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	got := ""
	for _, m := range a.Messages {
		got += m.Status + " " + m.Recipients[0].Status + " " + fmt.Sprint(m.ID != "") + "\n"
	}
	if got != "accepted accepted true\nrefused refused false\naccepted accepted true\nfailed failed false\n" {
		t.Error(got)
	}
	w = post(s, simple)
	if a = read(t, w); w.Code != http.StatusServiceUnavailable || a.Messages != nil || a.Code != "4.3.1" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A sender that is refused for good amid a request, since the tenant was changed meanwhile, concerns the rest of the
// messages: those that were accepted stay, and the answer is no error that hides them.
func TestRefusedAmidARequest(t *testing.T) {
	other, err := auth.ParseSender("other.example")
	if err != nil {
		t.Fatal(err)
	}
	s, store := mailServer(t, func(_ *Config, i *intake.Config) {
		before := i.TenantOf
		i.TenantOf = func(name string) (intake.Tenant, bool) {
			of, ok := before(name)
			if len(i.Store.(*memoryStore).all) > 0 {
				of.Senders = auth.Senders{other}
			}
			return of, ok
		}
	})
	w := post(s, thousand()+`]}`)
	a := read(t, w)
	if w.Code != http.StatusAccepted || len(a.Messages) != 1000 || len(store.all) == 0 || len(store.all) == 1000 {
		t.Fatalf("%d %.300s, %d messages accepted", w.Code, w.Body, len(store.all))
	}
	for i, m := range a.Messages {
		want := Refused
		if i < len(store.all) {
			want = Accepted
		}
		if m.Status != want || (m.ID != "") != (want == Accepted) || len(m.Recipients) != 1 || m.Recipients[0].Status != want || want == Refused && m.Recipients[0].Code != "5.7.1" {
			t.Fatalf("message %d of %d accepted: %+v", i, len(store.all), m)
		}
	}
}

func TestTroubleIsNever4xx(t *testing.T) {
	for _, row := range refusals {
		r := &reply.Reply{Code: row.code, Enhanced: row.enhanced}
		p := problemOf(r)
		if r.Temporary() != (p.RetryAfter > 0) || row.reason != "quota" && r.Temporary() != (p.Status >= 500) {
			t.Errorf("%v: %d after %v", r, p.Status, p.RetryAfter)
		}
	}
	if p := problemOf(&reply.Reply{Code: 451}); p.Status != 503 || p.RetryAfter == 0 {
		t.Error(p)
	}
	if p := problemOf(&reply.Reply{Code: 550}); p.Status != 422 {
		t.Error(p)
	}
}

// thousand is a request of 1,000 messages of 20 KB, without its end.
func thousand() string {
	var b strings.Builder
	b.WriteString(`{"from":"shop@acme.example","subject":"{{n}}","text":"` + strings.Repeat("x ", 10<<10) + `","recipients":[`)
	for i := range 1000 {
		fmt.Fprintf(&b, `%s{"to":"u%d@example.net","data":{"n":%d}}`, map[bool]string{true: "", false: ","}[i == 0], i, i)
	}
	return b.String()
}

// A thousand messages are committed in a few groups, in order.
func TestThousand(t *testing.T) {
	s, store := mailServer(t, nil)
	body := thousand()
	w := post(s, body+`]}`)
	a := read(t, w)
	if w.Code != http.StatusAccepted || len(store.all) != 1000 || len(store.groups) != 3 {
		t.Fatalf("%d %.200s %d groups", w.Code, w.Body, len(store.groups))
	}
	for i, m := range store.all {
		if want := fmt.Sprintf("u%d@example.net", i); a.Messages[i].ID != m.ID.String() || string(m.Recipients[0].Address) != want || a.Messages[i].Recipients[0].Address != want ||
			!bytes.Contains(store.content[i], fmt.Appendf(nil, "Subject: %d\r\n", i)) {
			t.Fatalf("message %d: %+v", i, m)
		}
	}
	if w = post(s, strings.Replace(body, `"recipients":[`, `"recipients":[{"to":"x@example.net"},`, 1)+`]}`); w.Code != http.StatusBadRequest || len(store.all) != 1000 {
		t.Errorf("%d %.200s", w.Code, w.Body)
	}
}

// A client that leaves has either nothing in the queue, or all.
func TestClientLeaves(t *testing.T) {
	s, store := mailServer(t, nil)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	req := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(simple)).WithContext(ctx)
	req.RemoteAddr = "127.0.0.1:999"
	req.Header.Set("Authorization", "Bearer good")
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, req)
	if len(store.all) != 0 || w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestUTF8Addresses(t *testing.T) {
	s, store := mailServer(t, nil)
	w := post(s, `{"from":"shop@acme.example","to":["a@bücher.example"],"text":"x"}`)
	if w.Code != http.StatusAccepted || store.all[0].UTF8 || store.all[0].Recipients[0].Address != "a@xn--bcher-kva.example" {
		t.Errorf("%d %s %+v", w.Code, w.Body, store.all)
	}
	w = post(s, `{"from":"shop@acme.example","to":["用户@bücher.example"],"text":"x"}`)
	if w.Code != http.StatusAccepted || !store.all[1].UTF8 || store.all[1].Recipients[0].Address != "用户@bücher.example" {
		t.Errorf("%d %s %+v", w.Code, w.Body, store.all)
	}
}

func TestForms(t *testing.T) {
	s, store := mailServer(t, func(c *Config, _ *intake.Config) { c.MaxRequest = 1 << 20 })
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, simple)
	z.Close()
	var part bytes.Buffer
	z = gzip.NewWriter(&part)
	z.Write(bytes.Repeat([]byte("X: x\n"), 1<<20))
	z.Close()
	bomb := strings.Repeat(part.String(), 10)
	for _, c := range []struct {
		target, kind, encoding, body string
		status                       int
	}{
		{"/v1/messages", "application/json", "gzip", zipped.String(), 202},
		{"/v1/messages", "application/json", "gzip", bomb, 413},
		{"/v1/messages", "application/json", "gzip", simple, 400},
		{"/v1/messages", "text/plain", "", simple, 415},
		{"/v1/messages", "", "", simple, 415},
		{"/v1/messages?dry_run=true", "application/json", "", simple, 400},
		{"/v1/messages", "application/json", "", "", 400},
		{"/v1/messages", "application/json", "", strings.Repeat("[", 10000), 400},
		{"/v1/messages?from=shop@acme.example&to=a@example.net", "message/rfc822", "gzip", bomb, 413},
	} {
		fields := []string{"Content-Type", c.kind}
		if c.encoding != "" {
			fields = append(fields, "Content-Encoding", c.encoding)
		}
		before := len(store.all)
		w := ask(s, "POST", c.target, "good", strings.NewReader(c.body), fields...)
		if w.Code != c.status || (len(store.all) > before) != (c.status == 202) {
			t.Errorf("%s %s %s: %d %s", c.target, c.kind, c.encoding, w.Code, w.Body)
		}
	}
}

// lines are the octets of a message without an end.
type lines struct{}

func (lines) Read(p []byte) (int, error) {
	const line = "0123456789012345678901234567890123456789012345678901234567890123456789\r\n"
	n := 0
	for n+len(line) <= len(p) {
		n += copy(p[n:], line)
	}
	return n, nil
}

// A message of 50 MB costs less than 1 MiB of memory.
func TestRawMessagesTakeBoundedMemory(t *testing.T) {
	store := new(forgetful)
	s := New(Config{Keys: testKeys, Mail: Mail{Intake: intake.Config{Hostname: "mx.test", Store: store, Batches: store}}})
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			header := strings.NewReader("From: shop@acme.example\r\nSubject: x\r\n\r\n")
			w := ask(s, "POST", "/v1/messages?from=shop@acme.example&to=a@example.net", "good", io.MultiReader(header, io.LimitReader(lines{}, 49<<20/72*72)), "Content-Type", "message/rfc822")
			if w.Code != http.StatusAccepted {
				b.Fatal(w.Code, w.Body)
			}
		}
	})
	if n := result.AllocedBytesPerOp(); n > 1<<20 {
		t.Errorf("%d octets were allocated in the course of it", n)
	}
}

// TestWhatARequestMakesIsBounded: a small request can't fill the disk by the number of its messages.
func TestWhatARequestMakesIsBounded(t *testing.T) {
	s, store := mailServer(t, func(c *Config, _ *intake.Config) { c.MaxRequest = 10_000 }) // so 200,000 octets
	file := `"attachments":[{"content":"` + strings.Repeat("AAAA", 1000) + `"}]`           // 3,000 octets, 4,000 in a message
	for _, tc := range []struct {
		content string
		n       int
		status  int
	}{
		{file, 49, http.StatusAccepted}, {file, 51, http.StatusRequestEntityTooLarge},
		{`"text":"` + strings.Repeat("x", 2000) + `"`, 101, http.StatusRequestEntityTooLarge},
		{`"text":"{{#a}}{{#a}}{{b}}{{/a}}{{/a}}","data":{"a":[1,1,1,1,1,1,1,1,1,1],"b":"` + strings.Repeat("x", 100) + `"}`, 21, http.StatusRequestEntityTooLarge},
	} {
		to := strings.Repeat(`,{"to":"a@example.net"}`, tc.n)[1:]
		before := len(store.all)
		w := post(s, `{"from":"shop@acme.example",`+tc.content+`,"recipients":[`+to+`]}`)
		if w.Code != tc.status || tc.status != http.StatusAccepted && len(store.all) != before {
			t.Errorf("%d messages of %.40s: %d %.300s", tc.n, tc.content, w.Code, w.Body)
		}
	}
}

// deciding is a filter that knows how many messages it is asked about at a time. Each waits until there are so many.
type deciding struct {
	mu         sync.Mutex
	open, most int
	enough     chan struct{}
	late       context.Context
}

func (*deciding) For(string) bool { return true }

func (d *deciding) Filter(_ context.Context, m *intake.Filtered) (v intake.Verdict) {
	d.mu.Lock()
	d.open++
	if d.open > d.most {
		if d.most = d.open; d.most == atOnce {
			close(d.enough)
		}
	}
	d.mu.Unlock()
	select {
	case <-d.enough:
	case <-d.late.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
	if m.Recipients[0].Address == "7@example.net" {
		v.Refused = intake.FilterRefuses.Refusal("scan")
	}
	return v
}

// A filter is asked about several messages of a request at a time, which stay in order.
func TestFilterIsAskedAtOnce(t *testing.T) {
	late, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	d := &deciding{enough: make(chan struct{}), late: late}
	s, store := mailServer(t, func(_ *Config, c *intake.Config) { c.Filtering = intake.Filtering{Filter: d} })
	var to []string
	for i := range 2 * atOnce {
		to = append(to, fmt.Sprintf(`{"to":"%d@example.net"}`, i))
	}
	w := post(s, `{"from":"shop@acme.example","subject":"x","text":"x","recipients":[`+strings.Join(to, ",")+`]}`)
	a := read(t, w)
	if w.Code != http.StatusAccepted || d.most != atOnce || len(store.all) != 2*atOnce-1 {
		t.Fatalf("%d, %d at a time, %d stored: %s", w.Code, d.most, len(store.all), w.Body)
	}
	for i, m := range a.Messages {
		if (m.Status == Refused) != (i == 7) || m.Recipients[0].Address != fmt.Sprintf("%d@example.net", i) {
			t.Errorf("%d: %+v", i, m)
		}
	}
}
