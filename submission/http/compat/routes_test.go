package compat

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	nethttp "net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/http"
	"example.org/mta/submission/intake"
	"example.org/mta/submission/request"
)

// kept is a store in memory.
type kept struct {
	mu      sync.Mutex
	ids     envelope.IDs
	all     []*envelope.Message
	content []string
}

type draft struct {
	bytes.Buffer
	k *kept
}

func (k *kept) Begin(intake.Owner, int64) intake.Draft { return &draft{k: k} }
func (d *draft) Abort()                                {}

func (d *draft) Commit(m *envelope.Message) error {
	_, err := d.k.CommitBatch(&intake.Batch{Drafts: []intake.Draft{d}, Messages: []*envelope.Message{m}})
	return err
}

func (k *kept) CommitBatch(b *intake.Batch) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, m := range b.Messages {
		m.ID = k.ids.Next(now)
		k.all, k.content = append(k.all, m), append(k.content, b.Drafts[i].(*draft).String())
	}
	return len(b.Messages), nil
}

// anyKey accepts every key but "wrong".
type anyKey struct{}

func (anyKey) Check(_ context.Context, token string, _ netip.Addr) (auth.Identity, error) {
	if token == "wrong" {
		return auth.Identity{}, auth.ErrRefused
	}
	return auth.Identity{Name: "shop", Tenant: "acme", Scopes: auth.MaySend | auth.MayRead | auth.MayCancel}, nil
}

// mail is what was accepted earlier: one scheduled message, and one that has left.
type mail struct {
	cancelled []http.Cancel
	moved     []time.Time
}

const (
	scheduledID envelope.ID = 1 << 40
	leftID      envelope.ID = 2 << 40
	silentID    envelope.ID = 3 << 40
)

func (m *mail) Get(_ context.Context, tenant string, id envelope.ID) (http.Message, error) {
	if tenant != "acme" || id != scheduledID {
		return http.Message{}, http.ErrNoMessage
	}
	return http.Message{
		ID: id.String(), Status: http.Waiting, From: "a@acme.example", AcceptedAt: now, SendAt: now.Add(time.Hour),
		Recipients: []http.MessageRecipient{{Address: "b@b.example", Status: http.Waiting}},
	}, nil
}

func (m *mail) List(_ context.Context, _ string, q http.MessageQuery) (page http.MessagePage, _ error) {
	for _, c := range m.cancelled {
		if c.Campaign == q.Campaign {
			page.Messages = []http.Message{{Status: http.Canceled}}
		}
	}
	return page, nil
}

func (m *mail) Cancel(_ context.Context, _ string, what http.Cancel) (http.Cancelled, error) {
	switch {
	case what.ID == leftID || strings.HasPrefix(what.Campaign, "L"):
		return http.Cancelled{TooLate: 1}, nil
	case what.ID == silentID || strings.HasPrefix(what.Campaign, "S"):
		return http.Cancelled{Cancelled: 1, Unanswered: []int{2}}, nil
	case what.ID != 0 && what.ID != scheduledID:
		return http.Cancelled{}, http.ErrNoMessage
	}
	m.cancelled = append(m.cancelled, what)
	return http.Cancelled{Cancelled: 1}, nil
}

func (m *mail) Move(_ context.Context, _ string, id envelope.ID, at time.Time) error {
	if id == leftID {
		return http.ErrReleased
	}
	m.moved = append(m.moved, at)
	return nil
}

// services runs a server for the clients of both services.
func services(t *testing.T) (url string, store *kept) {
	t.Helper()
	store = new(kept)
	own, err := auth.ParseSender("acme.example")
	if err != nil {
		t.Fatal(err)
	}
	clock := func() time.Time { return now }
	desk := intake.Config{
		Hostname: "mx.test", Store: store, Batches: store, CheckFrom: true, MaxHold: 24 * time.Hour, Now: clock,
		TenantOf: func(string) (intake.Tenant, bool) { return intake.Tenant{Tier: 3, Senders: auth.Senders{own}}, true },
		Recipients: intake.Recipients{Suppressed: func(_ string, a envelope.Address) (string, bool) {
			return "it bounced", strings.HasPrefix(string(a), "gone")
		}},
	}
	templates, err := request.LoadTemplates("testdata/templates", nil)
	if err != nil {
		t.Fatal(err)
	}
	routes, forms := Services([]string{"sendgrid", "resend"})
	s := http.New(http.Config{
		Keys: anyKey{}, Now: clock, Routes: routes, Forms: forms, Messages: new(mail),
		Mail: http.Mail{Intake: desk, Templates: templates},
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		<-done
	})
	return "http://" + l.Addr().String(), store
}

// ask sends a request and gives the answer, decoded.
func ask(t *testing.T, method, url, body string, header ...string) (*nethttp.Response, map[string]any) {
	t.Helper()
	req, err := nethttp.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer good")
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	transport := &nethttp.Transport{DisableKeepAlives: true}
	answer, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var out map[string]any
	if answer.StatusCode == nethttp.StatusNoContent {
		return answer, nil
	}
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil {
		t.Fatalf("%s %s: %v", answer.Status, answer.Header.Get("Content-Type"), err)
	}
	return answer, out
}

func testdata(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRecordedRequestsAreAnsweredAsTheServicesDo(t *testing.T) {
	for _, tc := range []struct {
		name, path string
		status     int
		messages   int
	}{
		{"sendgrid-python", "/v3/mail/send", 202, 1},
		{"sendgrid-node", "/v3/mail/send", 202, 1},
		{"sendgrid-anymail", "/v3/mail/send", 202, 1},
		{"sendgrid-python-personal", "/v3/mail/send", 202, 2},
		{"sendgrid-anymail-personal", "/v3/mail/send", 202, 2},
		{"resend-python", "/emails", 200, 1},
		{"resend-node", "/emails", 200, 1},
		{"resend-anymail", "/emails", 200, 1},
		{"resend-python-batch", "/emails/batch", 200, 2},
		{"resend-node-batch", "/emails/batch", 200, 2},
		{"resend-anymail-batch", "/emails/batch", 200, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url, store := services(t)
			answer, body := ask(t, "POST", url+tc.path, testdata(t, tc.name))
			if answer.StatusCode != tc.status || len(store.all) != tc.messages {
				t.Fatalf("%d with %v; %d messages were taken", answer.StatusCode, body, len(store.all))
			}
			first := store.all[0].ID.String()
			switch tc.path {
			case "/v3/mail/send":
				if answer.Header.Get("X-Message-Id") != first {
					t.Errorf("X-Message-Id is %q, want %s", answer.Header.Get("X-Message-Id"), first)
				}
			case "/emails":
				if body["id"] != first {
					t.Errorf("the id is %v, want %s", body["id"], first)
				}
			default:
				if data := body["data"].([]any); len(data) != tc.messages || data[0].(map[string]any)["id"] != first {
					t.Errorf("the ids are %v, want %s and another", data, first)
				}
			}
		})
	}
}

// letterWith is a request of each service with something in it.
func letterWith(service, more string) string {
	if service == "sendgrid" {
		return `{"from":{"email":"a@acme.example"},"subject":"s","content":[{"type":"text/plain","value":"x"}],"personalizations":[{"to":[{"email":"b@b.example"}]}]` + more + `}`
	}
	return `{"from":"a@acme.example","to":["b@b.example"],"subject":"s","text":"x"` + more + `}`
}

func TestErrorsHaveTheFormOfTheService(t *testing.T) {
	for _, tc := range []struct {
		name                string
		method, path, body  string
		header              []string
		status              int
		field, nameOfResend string // by service, one of the two
		message             string // a part of it
	}{
		{name: "no key", path: "/v3/mail/send", header: []string{"Authorization", ""}, status: 401, message: "Bearer"},
		{name: "wrong key", path: "/v3/mail/send", header: []string{"Authorization", "Bearer wrong"}, status: 401, message: "not accepted"},
		{name: "no such route", path: "/v3/templates", body: "{}", status: 404, message: "nothing at"},
		{name: "wrong method", method: "PUT", path: "/v3/mail/send", body: "{}", status: 405, message: "POST"},
		{name: "broken", path: "/v3/mail/send", body: `{"from":`, status: 400, field: "from", message: "ends early"},
		{name: "on behalf", path: "/v3/mail/send", body: letterWith("sendgrid", ""), header: []string{"On-Behalf-Of", "sub"}, status: 400, message: "On-Behalf-Of"},
		{name: "field", path: "/v3/mail/send", body: letterWith("sendgrid", `,"asm":{"group_id":1}`), status: 400, field: "asm", message: "does not support this"},
		{name: "category", path: "/v3/mail/send", body: letterWith("sendgrid", `,"categories":["a\nb"]`), status: 400, field: "categories.0", message: "line"},
		{name: "past", path: "/v3/mail/send", body: letterWith("sendgrid", `,"send_at":1000000000`), status: 400, field: "send_at", message: "past"},
		{name: "header", path: "/v3/mail/send", body: letterWith("sendgrid", `,"headers":{"X-A":"b\r\nBcc: c@d.example"}`), status: 400, field: "headers.X-A"},
		{name: "pool", path: "/v3/mail/send", body: letterWith("sendgrid", `,"ip_pool_name":"other"`), status: 400, field: "ip_pool_name"},
		{name: "file", path: "/v3/mail/send", body: letterWith("sendgrid", `,"attachments":[{"content":"eA==","filename":"a\nb"}]`), status: 400, field: "attachments.0.filename"},
		{name: "template", path: "/v3/mail/send", body: letterWith("sendgrid", `,"template_id":"d-1"`), status: 400, field: "template_id"},
		{name: "foreign sender", path: "/v3/mail/send", body: strings.Replace(letterWith("sendgrid", ""), "a@acme", "a@other", 1), status: 403, message: "other.example"},
		{name: "suppressed", path: "/v3/mail/send", body: strings.Replace(letterWith("sendgrid", ""), "b@b", "gone@b", 1), status: 400, field: "personalizations.0", message: "it bounced"},
		{name: "batch", method: "GET", path: "/v3/mail/batch/nope", status: 400, message: "invalid batch id"},

		{name: "no key", path: "/emails", header: []string{"Authorization", ""}, status: 401, nameOfResend: "missing_api_key"},
		{name: "wrong key", path: "/emails", header: []string{"Authorization", "Bearer wrong"}, status: 403, nameOfResend: "invalid_api_key"},
		{name: "no such route", path: "/emails/x/share", body: "{}", status: 404, nameOfResend: "not_found"},
		{name: "field", path: "/emails", body: letterWith("resend", `,"topic_id":"x"`), status: 422, nameOfResend: "validation_error", message: "topic_id"},
		{name: "past", path: "/emails", body: letterWith("resend", `,"scheduled_at":"2001-01-01T00:00:00Z"`), status: 422, nameOfResend: "validation_error", message: "scheduled_at"},
		{name: "file", path: "/emails", body: letterWith("resend", `,"attachments":[{"content":"eA==","filename":"a","content_type":"no type"}]`), status: 422, nameOfResend: "validation_error", message: "attachments.0.content_type"},
		{name: "template", path: "/emails", body: `{"from":"a@acme.example","to":"b@b.example","template":{"id":"t"}}`, status: 422, nameOfResend: "validation_error", message: "template.id"},
		{name: "suppressed", path: "/emails", body: strings.Replace(letterWith("resend", ""), "b@b", "gone@b", 1), status: 422, nameOfResend: "validation_error", message: "it bounced"},
		{name: "batch", path: "/emails/batch", body: "[" + letterWith("resend", "") + "," + letterWith("resend", `,"cc":"x"`) + "]", status: 422, nameOfResend: "validation_error", message: "1.cc"},
		{name: "empty batch", path: "/emails/batch", body: "[]", status: 422, nameOfResend: "validation_error", message: "1 to 100"},
	} {
		t.Run(strings.Split(tc.path, "/")[1]+" "+tc.name, func(t *testing.T) {
			url, store := services(t)
			if tc.method == "" {
				tc.method = "POST"
			}
			answer, body := ask(t, tc.method, url+tc.path, tc.body, tc.header...)
			if answer.StatusCode != tc.status || answer.Header.Get("Content-Type") != "application/json" || len(store.all) > 0 {
				t.Fatalf("%d, %s with %v; %d messages were taken", answer.StatusCode, answer.Header.Get("Content-Type"), body, len(store.all))
			}
			if tc.nameOfResend != "" {
				if body["name"] != tc.nameOfResend || body["statusCode"] != float64(tc.status) || !strings.Contains(body["message"].(string), tc.message) {
					t.Errorf("got %v, want %s and %q", body, tc.nameOfResend, tc.message)
				}
				return
			}
			e := body["errors"].([]any)[0].(map[string]any)
			if field, _ := e["field"].(string); field != tc.field || !strings.Contains(e["message"].(string), tc.message) {
				t.Errorf("got %v, want %q at %q", body, tc.message, tc.field)
			}
		})
	}
}

func TestOneFaultOfAllPersonalizationsIsNamedOnce(t *testing.T) {
	url, _ := services(t)
	var people []string
	for range 1000 {
		people = append(people, `{"to":[{"email":"b@b.example"}],"substitutions":{"-a-":"1"}}`)
	}
	_, body := ask(t, "POST", url+"/v3/mail/send", `{"from":{"email":"a@acme.example"},"subject":"s","content":[{"type":"text/plain","value":"x"}],"headers":{"To":"x"},"personalizations":[`+strings.Join(people, ",")+`]}`)
	if errs := body["errors"].([]any); len(errs) != 1 {
		t.Errorf("got %d errors, want 1: %v", len(errs), errs)
	}
}

func TestMoreRecipientsThanARequestMayHave(t *testing.T) {
	url, store := services(t)
	person := `{"to":[{"email":"b@b.example"},{"email":"c@b.example"}]},`
	answer, body := ask(t, "POST", url+"/v3/mail/send", `{"from":{"email":"a@acme.example"},"subject":"s","content":[{"type":"text/plain","value":"x"}],"personalizations":[`+strings.TrimSuffix(strings.Repeat(person, 501), ",")+`]}`)
	if answer.StatusCode != 400 || len(store.all) > 0 {
		t.Errorf("%d with %v", answer.StatusCode, body)
	}
}

func TestAPermissiveBatchSendsWhatIsValid(t *testing.T) {
	url, store := services(t)
	batch := "[" + letterWith("resend", `,"cc":"nobody"`) + "," + letterWith("resend", "") + "," + letterWith("resend", `,"scheduled_at":"2001-01-01T00:00:00Z"`) +
		"," + letterWith("resend", `,"cc":"gone@b.example"`) + "]"
	answer, body := ask(t, "POST", url+"/emails/batch", batch, "X-Batch-Validation", "permissive")
	data, errs := body["data"].([]any), body["errors"].([]any)
	if answer.StatusCode != 200 || len(store.all) != 2 || len(data) != 2 || len(errs) != 3 {
		t.Fatalf("%d with %v; %d messages were taken", answer.StatusCode, body, len(store.all))
	}
	var at []float64
	for _, e := range errs {
		at = append(at, e.(map[string]any)["index"].(float64))
	}
	if slices.Sort(at); !slices.Equal(at, []float64{0, 2, 3}) {
		t.Errorf("the errors are at %v", at)
	}
}

func TestTheSandboxTakesNothing(t *testing.T) {
	url, store := services(t)
	answer, body := ask(t, "POST", url+"/v3/mail/send", letterWith("sendgrid", `,"mail_settings":{"sandbox_mode":{"enable":true}}`))
	if answer.StatusCode != 200 || len(store.all) > 0 {
		t.Errorf("%d with %v; %d messages were taken", answer.StatusCode, body, len(store.all))
	}
}

func TestPartlyRefusedRecipientsAreNamed(t *testing.T) {
	url, store := services(t)
	answer, body := ask(t, "POST", url+"/emails", `{"from":"a@acme.example","to":["b@b.example","gone@b.example"],"subject":"s","text":"x"}`)
	refused, _ := body["refused"].([]any)
	if answer.StatusCode != 200 || len(store.all) != 1 || len(refused) != 1 || !strings.Contains(refused[0].(string), "gone@b.example: ") {
		t.Errorf("%d with %v", answer.StatusCode, body)
	}
}

func TestIgnoredFieldsAreNamedInTheAnswer(t *testing.T) {
	url, _ := services(t)
	answer, _ := ask(t, "POST", url+"/v3/mail/send", letterWith("sendgrid", `,"tracking_settings":{"click_tracking":{"enable":true},"ganalytics":{"enable":true}}`))
	if got := answer.Header.Get("X-MTA-Ignored"); answer.StatusCode != 202 || got != "tracking_settings.click_tracking, tracking_settings.ganalytics" {
		t.Errorf("%d, ignored %q", answer.StatusCode, got)
	}
}

func TestABatchIdIsOne(t *testing.T) {
	url, _ := services(t)
	answer, body := ask(t, "POST", url+"/v3/mail/batch", "")
	id, _ := body["batch_id"].(string)
	if answer.StatusCode != 201 || len(id) != 32 {
		t.Fatalf("%d with %v", answer.StatusCode, body)
	}
	if answer, body = ask(t, "GET", url+"/v3/mail/batch/"+id, ""); answer.StatusCode != 200 || body["batch_id"] != id {
		t.Errorf("%d with %v", answer.StatusCode, body)
	}
}

func TestScheduledMailIsCancelledAndMoved(t *testing.T) {
	batch, left := strings.Repeat("B", 32), "L"+strings.Repeat("B", 31)
	for _, tc := range []struct {
		method, path, body string
		status             int
		part               string // of the answer
	}{
		{"POST", "/v3/user/scheduled_sends", `{"batch_id":"` + batch + `","status":"cancel"}`, 201, `"status":"cancel"`},
		{"POST", "/v3/user/scheduled_sends", `{"batch_id":"` + batch + `","status":"pause"}`, 400, "can't be paused"},
		{"POST", "/v3/user/scheduled_sends", `{"batch_id":"x","status":"cancel"}`, 400, "invalid batch id"},
		{"POST", "/v3/user/scheduled_sends", `{"batch_id":"` + left + `","status":"cancel"}`, 400, "too late for 1"},
		{"POST", "/v3/user/scheduled_sends", `{"batch_id":"S` + left[1:] + `","status":"cancel"}`, 503, "not all nodes of the cluster"},
		{"PATCH", "/v3/user/scheduled_sends/S" + left[1:], `{"status":"cancel"}`, 503, "not all nodes of the cluster"},
		{"PATCH", "/v3/user/scheduled_sends/" + batch, `{"status":"cancel"}`, 204, ""},
		{"DELETE", "/v3/user/scheduled_sends/" + batch, "", 400, "gone"},
		{"POST", "/emails/" + scheduledID.String() + "/cancel", "", 200, `"id":"` + scheduledID.String()},
		{"POST", "/emails/" + scheduledID.String() + "/cancel", "{}", 200, `"object":"email"`},
		{"POST", "/emails/" + leftID.String() + "/cancel", "", 422, "too late"},
		{"POST", "/emails/" + silentID.String() + "/cancel", "", 503, "not all nodes of the cluster"},
		{"POST", "/emails/" + envelope.ID(3).String() + "/cancel", "", 404, "not_found"},
		{"POST", "/emails/no-id/cancel", "", 404, "not_found"},
		{"GET", "/emails/" + scheduledID.String(), "", 200, `"last_event":"scheduled"`},
		{"GET", "/emails/" + scheduledID.String(), "{}", 200, `"to":["b@b.example"]`},
		{"GET", "/emails/" + envelope.ID(3).String(), "", 404, "not_found"},
		{"PATCH", "/emails/" + scheduledID.String(), `{"id":"x","scheduled_at":"2026-11-22T20:00:00.000Z"}`, 200, `"object":"email"`},
		{"PATCH", "/emails/" + scheduledID.String(), `{}`, 422, "missing"},
		{"PATCH", "/emails/" + scheduledID.String(), `{"scheduled_at":"soon"}`, 422, "not a time"},
		{"PATCH", "/emails/" + scheduledID.String(), `{"scheduled_at":"2001-01-01T00:00:00Z"}`, 422, "in the past"},
		{"PATCH", "/emails/" + scheduledID.String(), `{"scheduled_at":"2099-01-01T00:00:00Z"}`, 422, "ahead at most"},
		{"PATCH", "/emails/" + leftID.String(), `{"scheduled_at":"2026-11-22T20:00:00.000Z"}`, 422, "validation_error"},
	} {
		url, _ := services(t)
		answer, body := ask(t, tc.method, url+tc.path, tc.body)
		if b, _ := json.Marshal(body); answer.StatusCode != tc.status || !strings.Contains(string(b), tc.part) {
			t.Errorf("%s %s %s: %d with %s, want %d and %s", tc.method, tc.path, tc.body, answer.StatusCode, b, tc.status, tc.part)
		}
	}
}

func TestEachStatusHasAnEventOfResends(t *testing.T) {
	for _, s := range http.MessageStatuses {
		if resendEvents[s] == "" {
			t.Errorf("%s has none", s)
		}
	}
}

func TestStoredTemplatesAreFilled(t *testing.T) {
	url, store := services(t)
	answer, body := ask(t, "POST", url+"/v3/mail/send", `{"from":{"email":"a@acme.example"},"template_id":"d-welcome","headers":{"X-A":"{{name}}"},
		"personalizations":[{"to":[{"email":"b@b.example"}],"dynamic_template_data":{"name":"Ann & Co"}}]}`)
	if answer.StatusCode != 202 {
		t.Fatalf("%d with %v", answer.StatusCode, body)
	}
	if answer, body = ask(t, "POST", url+"/emails", `{"from":"a@acme.example","to":"b@b.example","template":{"id":"d-welcome","variables":{"name":"Ann & Co"}}}`); answer.StatusCode != 200 {
		t.Fatalf("%d with %v", answer.StatusCode, body)
	}
	for i, content := range store.content {
		for _, part := range []string{"Subject: Welcome, Ann & Co\r\n", "<p>Hello Ann &amp; Co</p>"} {
			if !strings.Contains(content, part) {
				t.Errorf("message %d lacks %q:\n%s", i, part, content)
			}
		}
	}
	if !strings.Contains(store.content[0], "X-A: {{name}}\r\n") {
		t.Errorf("a header field was taken for a template:\n%s", store.content[0])
	}
	answer, body = ask(t, "POST", url+"/emails", `{"from":"a@acme.example","to":"b@b.example","template":{"id":"d-welcome"}}`)
	if message, _ := body["message"].(string); answer.StatusCode != 422 || !strings.Contains(message, "name") {
		t.Errorf("a variable is missing: %d with %v", answer.StatusCode, body)
	}
}
