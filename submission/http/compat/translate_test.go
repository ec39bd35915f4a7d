package compat

import (
	"encoding/base64"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/request"
)

var now = time.Date(2026, 11, 22, 17, 0, 0, 0, time.UTC)

func parse(t *testing.T, doc string) *request.Node {
	t.Helper()
	root, faults := request.ParseTree([]byte(doc), limits)
	if root == nil || len(faults) > 0 {
		t.Fatal(faults)
	}
	return root
}

// recorded gives a body that an SDK has sent: see e2e/sdk.
func recorded(t *testing.T, name string) *request.Node {
	t.Helper()
	doc, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(doc))
}

func mailbox(name, address string) request.Mailbox {
	return request.Mailbox{Name: name, Address: envelope.Address(address)}
}

// letter is what each SDK was given.
func letter(t *testing.T) request.Request {
	t.Helper()
	picture, err := base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
	if err != nil {
		t.Fatal(err)
	}
	return request.Request{
		From:    []request.Mailbox{mailbox(`Acme, "the" shop`, "shop@acme.example")},
		To:      []request.Mailbox{mailbox("Zoë Ünal", "a@b.example"), mailbox("", "b@b.example")},
		Cc:      []request.Mailbox{mailbox("C", "c@b.example")},
		Bcc:     []request.Mailbox{mailbox("", "d@b.example")},
		ReplyTo: []request.Mailbox{mailbox("Help", "help@acme.example")},
		Subject: "Grüße – 日本語",
		Text:    "Hello\n.\nbye ü",
		HTML:    `<p>Hello <b>ü</b> <img src="cid:pic"></p>`,
		Headers: []request.Header{{Name: "X-Order", Value: "77"}},
		Attachments: []request.Attachment{
			{Name: "pic.png", Type: "image/png", ContentID: "pic", Content: picture},
			{Name: "Übersicht 1.pdf", Type: "application/pdf", Content: []byte("%PDF-1.4\n")},
		},
	}
}

// sorted puts in order what an SDK may send in any.
func sorted(q *request.Request) {
	slices.SortFunc(q.Attachments, func(a, b request.Attachment) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(q.Tags)
}

func TestEachSDKsLetterIsWhatItWasGiven(t *testing.T) {
	for name, want := range map[string]func(*request.Request){
		"sendgrid-python": func(q *request.Request) { q.Tags, q.Meta = []string{"eu", "order"}, []byte(`{"order":"77"}`) },
		"sendgrid-node":   func(q *request.Request) { q.Tags, q.Meta = []string{"eu", "order"}, []byte(`{"order":"77"}`) },
		"sendgrid-anymail": func(q *request.Request) {
			q.Tags, q.Meta = []string{"eu", "order"}, []byte(`{"anymail_id":"97d2282f-f0a6-4638-8ab5-1006b61ff3a5","order":"77"}`)
		},
		"resend-python": func(q *request.Request) { q.Tags = []string{"eu:1", "order:1"} },
		"resend-node":   func(q *request.Request) { q.Tags = []string{"eu:1", "order:1"} },
		"resend-anymail": func(q *request.Request) {
			q.Headers = append(q.Headers, request.Header{Name: "X-Metadata", Value: `{"order": "77"}`}, request.Header{Name: "X-Tags", Value: `["order", "eu"]`})
		},
	} {
		t.Run(name, func(t *testing.T) {
			expected := letter(t)
			want(&expected)
			var got *request.Request
			var r *reader
			if root := recorded(t, name); strings.HasPrefix(name, "resend") {
				got, r = resend(root, now)
			} else {
				var all []*request.Request
				if all, r = sendGrid(root); len(all) == 1 {
					got = all[0]
				}
			}
			if len(r.faults) > 0 || len(r.ignored) > 0 || got == nil {
				t.Fatalf("faults %v, ignored %v", r.faults, r.ignored)
			}
			sorted(got)
			if !reflect.DeepEqual(*got, expected) {
				t.Errorf("got\n%+v, want\n%+v", *got, expected)
			}
		})
	}
}

func TestSubstitutionsOfTheSDKsBecomeOneTemplate(t *testing.T) {
	for _, name := range []string{"sendgrid-python-personal", "sendgrid-node-personal", "sendgrid-anymail-personal"} {
		t.Run(name, func(t *testing.T) {
			all, r := sendGrid(recorded(t, name))
			if len(r.faults) > 0 || len(all) != 2 {
				t.Fatalf("faults %v, %d requests", r.faults, len(all))
			}
			slices.SortFunc(all, func(a, b *request.Request) int {
				return strings.Compare(string(a.To[0].Address), string(b.To[0].Address))
			})
			a, b := all[0], all[1]
			if a.Text != b.Text || a.HTML != b.HTML {
				t.Error("the personalizations have different templates")
			}
			if got := render(t, a.Subject+"|"+a.Text+"|"+a.HTML, a.Data); got != "Hi Zoë|Dear Zoë, code <1>.|<p>Dear Zoë</p>" {
				t.Errorf("the first: %q", got)
			}
			if got := render(t, b.Subject+"|"+b.Text+"|"+b.HTML, b.Data); got != "Hi Bob|Dear Bob, code 2.|<p>Dear Bob</p>" {
				t.Errorf("the second: %q", got)
			}
		})
	}
}

// render gives what a template becomes with data.
func render(t *testing.T, text string, data map[string]any) string {
	t.Helper()
	if data == nil {
		return text
	}
	var none *request.Templates
	compiled, faults := none.Compile("acme", request.Mail{HTML: text})
	if len(faults) > 0 {
		t.Fatalf("%q: %v", text, faults)
	}
	m, err := compiled.Render(t.Context(), false, request.NewData(data))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return m.HTML
}

func personal(substitutions, text, more string) string {
	return `{"from":{"email":"a@acme.example"},"subject":"s","content":[{"type":"text/plain","value":` + text + `}],` + more +
		`"personalizations":[{"to":[{"email":"b@b.example"}],"substitutions":` + substitutions + `}]}`
}

func TestSubstitutionsAreExact(t *testing.T) {
	for _, tc := range []struct{ name, substitutions, text, want string }{
		{"of any form", `{"%n%":"N","{{m}}":"M",":k:":"K"}`, `"%n% {{m}} :k:"`, "N M K"},
		{"the longest tag first", `{"-a":"1","-a-b-":"2"}`, `"-a-b- -a"`, "2 1"},
		{"values are not read again", `{"-a-":"-b-","-b-":"-a-"}`, `"-a--b-"`, "-b--a-"},
		{"braces stay", `{"-a-":"1"}`, `"{{#x}}{{{y}}}{-a-}{{!z"`, "{{#x}}{{{y}}}{1}{{!z"},
		{"a tag within braces", `{"a":"1"}`, `"{{a}} {a"`, "{{1}} {1"},
		{"null is empty", `{"-a-":null}`, `"<-a->"`, "<>"},
		{"a number", `{"-a-":1000000}`, `"-a-"`, "1000000"},
		{"no tag at all", `{"-a-":"1"}`, `"\n\nno tag"`, "\n\nno tag"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all, r := sendGrid(parse(t, personal(tc.substitutions, tc.text, "")))
			if len(r.faults) > 0 {
				t.Fatal(r.faults)
			}
			if got := render(t, all[0].Text, all[0].Data); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPersonalizationsOverrideTheMessage(t *testing.T) {
	all, r := sendGrid(parse(t, `{"from":{"email":"a@acme.example","name":"A"},"subject":"all {{x}}","content":[{"type":"text/plain","value":"-n- {{x}}"}],
		"headers":{"X-A":"{{1}}","x-b":"2"},"custom_args":{"k":"1","l":"1"},"send_at":1900000000,"batch_id":"b1","ip_pool_name":"bulk","reply_to":{"email":"-n-@acme.example","name":"-n-"},
		"personalizations":[
			{"to":[{"email":"x@b.example"}],"cc":[{"email":"y@b.example"}],"from":{"email":"other@acme.example"},"subject":"for -n-","headers":{"X-B":"3"},"custom_args":{"k":"2"},"send_at":1900000600,"substitutions":{"-n-":"xx"}},
			{"to":[{"email":"z@b.example"}]}]}`))
	if len(r.faults) > 0 || len(all) != 2 {
		t.Fatal(r.faults)
	}
	first, second := all[0], all[1]
	if first.From[0].Address != "other@acme.example" || second.From[0].Address != "a@acme.example" {
		t.Errorf("senders are %v and %v", first.From, second.From)
	}
	for i, want := range []string{"for xx|xx {{x}}|xx@acme.example|xx", "all {{x}}|-n- {{x}}|-n-@acme.example|-n-"} {
		q := all[i]
		if got := render(t, q.Subject+"|"+q.Text, q.Data) + "|" + string(q.ReplyTo[0].Address) + "|" + q.ReplyTo[0].Name; got != want {
			t.Errorf("message %d: %q, want %q", i, got, want)
		}
		if got := render(t, q.Headers[0].Value, q.Data); got != "{{1}}" {
			t.Errorf("message %d: the header field is %q", i, got)
		}
	}
	if len(first.Headers) != 2 || first.Headers[1].Value != "3" || second.Headers[1].Value != "2" {
		t.Errorf("header fields are %v and %v", first.Headers, second.Headers)
	}
	if string(first.Meta) != `{"k":"2","l":"1"}` || string(second.Meta) != `{"k":"1","l":"1"}` {
		t.Errorf("meta is %s and %s", first.Meta, second.Meta)
	}
	if first.SendAt.Unix() != 1900000600 || second.SendAt.Unix() != 1900000000 {
		t.Errorf("times are %v and %v", first.SendAt, second.SendAt)
	}
	if first.Campaign != "b1" || first.Pool != "bulk" {
		t.Errorf("campaign %q, pool %q", first.Campaign, first.Pool)
	}
}

func TestAStoredTemplateTakesThePlaceOfTheContent(t *testing.T) {
	all, r := sendGrid(parse(t, `{"from":{"email":"a@acme.example"},"subject":"s","content":[{"type":"text/html","value":"x"}],"template_id":"d-1","headers":{"X-A":"{{n}}"},
		"personalizations":[{"to":[{"email":"x@b.example"}],"dynamic_template_data":{"n":"N","list":[1,{"a":true}]}},{"to":[{"email":"y@b.example"}]}]}`))
	if len(r.faults) > 0 || !slices.Equal(r.ignored, []string{"subject", "content"}) {
		t.Fatalf("faults %v, ignored %v", r.faults, r.ignored)
	}
	q := all[0]
	if q.Template != "d-1" || q.HTML != "" || q.Data["n"] != "N" || render(t, q.Headers[0].Value, q.Data) != "{{n}}" {
		t.Errorf("got %+v", q)
	}
	if all[1].Data == nil {
		t.Error("a personalization without data has a template that is not rendered")
	}
	q, r = resend(parse(t, `{"from":"a@acme.example","to":"b@b.example","template":{"id":"welcome","variables":{"n":"N"}}}`), now)
	if len(r.faults) > 0 || q.Template != "welcome" || q.Data["n"] != "N" || !q.Strict {
		t.Errorf("faults %v, got %+v", r.faults, q)
	}
}

func TestWhatWouldSendOtherThanAskedIsRefused(t *testing.T) {
	const sg = `{"from":{"email":"a@acme.example"},"subject":"s","content":[{"type":"text/plain","value":"x"}],"personalizations":[{"to":[{"email":"b@b.example"}]}],`
	const re = `{"from":"a@acme.example","to":["b@b.example"],"subject":"s","text":"x",`
	for _, tc := range []struct{ doc, pointer string }{
		{sg + `"sections":{"-a-":"b"}}`, "/sections"},
		{sg + `"asm":{"group_id":1}}`, "/asm"},
		{sg + `"mail_settings":{"footer":{"enable":true,"text":"f"}}}`, "/mail_settings/footer"},
		{sg + `"mail_settings":{"bcc":{"enable":true,"email":"f@b.example"}}}`, "/mail_settings/bcc"},
		{sg + `"mail_settings":{"bypass_list_management":{"enable":true}}}`, "/mail_settings/bypass_list_management"},
		{sg + `"tracking_settings":{"subscription_tracking":{"enable":true}}}`, "/tracking_settings/subscription_tracking"},
		{sg + `"tracking_settings":{"open_tracking":{"enable":true,"substitution_tag":"%o%"}}}`, "/tracking_settings/open_tracking/substitution_tag"},
		{sg + `"attachments":[{"content":"eA==","filename":"a","disposition":"inline"}]}`, "/attachments/0/content_id"},
		{sg + `"attachments":[{"content":"eA==x","filename":"a"}]}`, "/attachments/0/content"},
		{sg + `"atachments":[]}`, "/atachments"},
		{sg + `"send_at":1.5}`, "/send_at"},
		{sg + `"send_at":99999999999999999999}`, "/send_at"},
		{sg + `"categories":"one"}`, "/categories"},
		{sg + `"reply_to":{"email":"nobody"}}`, "/reply_to/email"},
		{personal(`{"":"x"}`, `"x"`, ""), "/personalizations/0/substitutions/"},
		{personal(`{"-a-":{}}`, `"x"`, ""), "/personalizations/0/substitutions/-a-"},
		{personal(`{"-a-":"1"}`, `"x"`, `"template_id":"d-1",`), "/personalizations/0/substitutions"},
		{`{"from":{"email":"a@acme.example"},"personalizations":[]}`, "/personalizations"},
		{`{"from":{"email":"a@acme.example"},"content":[{"type":"text/calendar","value":"x"}],"personalizations":[{"to":[{"email":"b@b.example"}]}]}`, "/content/0/type"},
		{`{"from":{"email":"a@acme.example"},"personalizations":[{"to":[{"email":"b@b.example"}],"dynamic_template_data":{"a":1}}]}`, "/personalizations/0/dynamic_template_data"},
		{`[]`, ""},
		{re + `"topic_id":"t"}`, "/topic_id"},
		{re + `"attachments":[{"path":"https://x.example/a","filename":"a"}]}`, "/attachments/0/path"},
		{re + `"attachments":[{"filename":"a"}]}`, "/attachments/0/content"},
		{re + `"attachments":[{"content":[1,256]}]}`, "/attachments/0/content"},
		{re + `"attachments":[{"content":[1,[2]]}]}`, "/attachments/0/content"},
		{re + `"scheduled_at":"tomorrow at 9am"}`, "/scheduled_at"},
		{re + `"template":{"id":"t"}}`, "/template"},
		{re + `"cc":"nobody"}`, "/cc"},
		{re + `"bcc":["a@b.example",1]}`, "/bcc"},
	} {
		root := parse(t, tc.doc)
		var r *reader
		if strings.HasPrefix(tc.doc, re) {
			_, r = resend(root, now)
		} else {
			_, r = sendGrid(root)
		}
		if len(r.faults) != 1 || r.faults[0].Pointer != tc.pointer {
			t.Errorf("%s: got %v, want one fault at %s", tc.doc, r.faults, tc.pointer)
		}
	}
}

func TestTrackingIsNamedAndSettingsThatAreOffAreNot(t *testing.T) {
	const start = `{"from":{"email":"a@acme.example"},"subject":"s","content":[{"type":"text/plain","value":"x"}],"personalizations":[{"to":[{"email":"b@b.example"}]}],`
	for doc, want := range map[string][]string{
		`"tracking_settings":{"click_tracking":{"enable":true,"enable_text":false},"open_tracking":{"enable":true},"ganalytics":{"enable":true,"utm_source":"x"}}}`: {"tracking_settings.click_tracking", "tracking_settings.ganalytics", "tracking_settings.open_tracking.enable"},
		`"tracking_settings":{"click_tracking":{"enable":false},"open_tracking":{"enable":false,"substitution_tag":""},"subscription_tracking":{"enable":false}}}`:  nil,
		`"mail_settings":{"footer":{"enable":false},"bypass_list_management":{"enable":false},"sandbox_mode":{"enable":false}},"asm":null,"sections":{}}`:           nil,
	} {
		all, r := sendGrid(parse(t, start+doc))
		slices.Sort(r.ignored)
		if len(r.faults) > 0 || !slices.Equal(r.ignored, want) || all[0].DryRun {
			t.Errorf("%s: faults %v, ignored %v, want %v", doc, r.faults, r.ignored, want)
		}
	}
	if all, _ := sendGrid(parse(t, start+`"mail_settings":{"sandbox_mode":{"enable":true}}}`)); !all[0].DryRun {
		t.Error("a message in the sandbox is sent")
	}
}

func TestMoments(t *testing.T) {
	for given, want := range map[string]time.Time{
		"2026-11-22T18:00:00Z":             now.Add(time.Hour),
		"2026-11-22T19:00:00.250+01:00":    now.Add(time.Hour + 250*time.Millisecond),
		"2026-11-22 18:00:00.000000+00:00": now.Add(time.Hour),
		"in 1 min":                         now.Add(time.Minute),
		"in 90 minutes":                    now.Add(90 * time.Minute),
		"in an hour":                       now.Add(time.Hour),
		"In 2 days":                        now.Add(48 * time.Hour),
		"2026-11-22T18:00:00":              {},
		"in 100000 days":                   {},
		"":                                 {},
	} {
		r := new(reader)
		got := r.moment(parse(t, `"`+given+`"`), now)
		if !got.Equal(want) || want.IsZero() != (len(r.faults) == 1) {
			t.Errorf("%q: got %v and %v, want %v", given, got, r.faults, want)
		}
	}
}

func TestNamesOfResendNeedNoQuotes(t *testing.T) {
	for given, want := range map[string]request.Mailbox{
		"a@b.example":                    mailbox("", "a@b.example"),
		"<a@b.example>":                  mailbox("", "a@b.example"),
		"Anna <a@b.example>":             mailbox("Anna", "a@b.example"),
		`Acme, "the" shop <a@b.example>`: mailbox(`Acme, "the" shop`, "a@b.example"),
		`"Acme, \"the\"" <a@b.example>`:  mailbox(`Acme, "the"`, "a@b.example"),
		`"a" and "b" <a@b.example>`:      mailbox(`"a" and "b"`, "a@b.example"),
		`A <b> <a@b.example>`:            mailbox(`A <b>`, "a@b.example"),
		`"unfinished\" <a@b.example>`:    mailbox(`unfinished\`, "a@b.example"),
	} {
		if name, address := split(given); name != want.Name || address != string(want.Address) {
			t.Errorf("%s: got %q and %q, want %+v", given, name, address, want)
		}
	}
}
