package request

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
)

var (
	now   = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	usual = Limits{Recipients: 1000, MaxHold: 30 * 24 * time.Hour, Late: 5 * time.Minute}
)

// fullRequest has every field that a built message can have.
const fullRequest = `{
	"from": "Shop <shop@acme.example>", "sender": "bounces@acme.example",
	"to": ["Jané Doe, Inc. <jane@example.net>", {"address": "bob@bücher.example", "name": "Bob"}], "cc": "c@example.net",
	"bcc": [{"address": "\"x y\"@example.net"}], "reply_to": ["help@acme.example"],
	"subject": "Übung", "text": "Hello", "html": "<p>Hello</p>",
	"headers": {"X-Order": "17", "X-Twice": ["a", "b"]},
	"attachments": [{"name": "a.txt", "type": "text/plain", "content": "aGVs\r\nbG8=", "content_id": "a"}],
	"data": {"n": 1000000, "list": [1, "x", null]}, "strict": true,
	"send_at": "2026-11-22T14:00:00+01:00", "spread": 60, "expires_at": "2026-11-23T12:00:00Z", "timezone": "Europe/Berlin", "pace": "10000/h",
	"campaign": "black friday", "tags": ["a", "b"], "meta": {"order" : {"id": 17}}, "priority": -4, "pool": "bulk",
	"notify": ["failure", "delay"], "envid": "e1", "ret": "headers", "dry_run": true, "template": null
}`

func TestEveryFieldIsRead(t *testing.T) {
	q, faults := Decode([]byte(fullRequest), now, usual)
	if faults != nil {
		t.Fatal(faults)
	}
	low := -4
	want := &Request{
		From: []Mailbox{{"Shop", "shop@acme.example"}}, Sender: &Mailbox{"", "bounces@acme.example"},
		To: []Mailbox{{"Jané Doe, Inc.", "jane@example.net"}, {"Bob", "bob@bücher.example"}},
		Cc: []Mailbox{{"", "c@example.net"}}, Bcc: []Mailbox{{"", `"x y"@example.net`}}, ReplyTo: []Mailbox{{"", "help@acme.example"}},
		Subject: "Übung", Text: "Hello", HTML: "<p>Hello</p>",
		Headers:     []Header{{"X-Order", "17"}, {"X-Twice", "a"}, {"X-Twice", "b"}},
		Attachments: []Attachment{{"a.txt", "text/plain", "a", []byte("hello")}},
		Data:        map[string]any{"n": json.Number("1000000"), "list": []any{json.Number("1"), "x", nil}}, Strict: true,
		SendAt: time.Date(2026, 11, 22, 13, 0, 0, 0, time.UTC), Spread: time.Minute, ExpiresAt: now.Add(24 * time.Hour),
		Timezone: "Europe/Berlin", Pace: "10000/h",
		Campaign: "black friday", Tags: []string{"a", "b"}, Meta: json.RawMessage(`{"order":{"id":17}}`), Priority: &low, Pool: "bulk",
		Notify: envelope.NotifyFailure | envelope.NotifyDelay, EnvID: "e1", Ret: envelope.RetHeaders, DryRun: true,
	}
	q.SendAt = q.SendAt.UTC()
	if !reflect.DeepEqual(q, want) {
		t.Errorf("got  %+v\nwant %+v", q, want)
	}
	// No field is read into nothing: each but null changes the request.
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(fullRequest), &all); err != nil {
		t.Fatal(err)
	}
	for _, f := range requestFields {
		if _, ok := all[f.name]; !ok && f.name != "raw" && f.name != "recipients" {
			t.Errorf("the test lacks the field %s", f.name)
		}
	}
}

func TestPersonal(t *testing.T) {
	q, faults := Decode([]byte(`{"from":"a@b.example","template":"welcome","data":{"shop":"Acme"},"recipients":[
		{"to":"x@example.net","data":{"name":"X"},"meta":{"id":1},"headers":{"X-A":"1"},"send_at":"2026-11-22T13:00:00Z","timezone":"Asia/Tokyo"},{"to":["y@example.net","z@example.net"]}]}`), now, usual)
	want := []Personal{
		{[]Mailbox{{"", "x@example.net"}}, map[string]any{"name": "X"}, json.RawMessage(`{"id":1}`), []Header{{"X-A", "1"}}, now.Add(time.Hour), "Asia/Tokyo"},
		{To: []Mailbox{{"", "y@example.net"}, {"", "z@example.net"}}},
	}
	if faults != nil || !reflect.DeepEqual(q.Recipients, want) {
		t.Errorf("%+v, %v", q, faults)
	}
}

// minimal is a request with some more members.
func minimal(members string) string {
	return `{"from":"a@b.example","to":"c@d.example","text":"x"` + members + `}`
}

func TestFaults(t *testing.T) {
	for _, c := range []struct{ doc, pointer, detail, remedy string }{
		{`[]`, "", "want an object, got an array", "send an object"},
		{`null`, "", "want an object, got null", "send an object"},
		{minimal(`,"subjct":"x"`), "/subjct", `no field "subjct"`, `did you mean "subject"?`},
		{minimal(`,"replyTo":"x"`), "/replyTo", `no field "replyTo"`, `did you mean "reply_to"?`},
		{minimal(`,"` + strings.Repeat("n", 1<<20) + `":1`), "", `no field "nnn`, "remove it"},
		{minimal(`,"text":"y"`), "/text", "twice", "once"},
		{minimal(`,"data":{"a":{"b":1,"b":2}}`), "/data/a/b", "twice", "once"},
		{minimal(`,"meta":{"a":1,"a":2}`), "/meta/a", "twice", "once"},
		{minimal(`,"meta":[1]`), "/meta", "want an object, got an array", "send an object"},
		{minimal(`,"meta":{"a":"` + strings.Repeat("x", 4096) + `"}`), "/meta", "4104 octets", "reference"},
		{minimal(`,"subject":17`), "/subject", "want a string, got a number", "send a string"},
		{minimal(`,"subject":"a\r\nBcc: x@y.example"`), "/subject", "line break", "one line"},
		{minimal(`,"subject":"a\u0000"`), "/subject", "control", "one line"},
		{minimal(`,"subject":"` + strings.Repeat("x", 2001) + `"`), "/subject", "2001 octets", "shorten"},
		{minimal(`,"html":{}`), "/html", "got an object", "send a string"},
		{minimal(`,"cc":["x@example.net", 5]`), "/cc/1", "got a number", "send a string"},
		{minimal(`,"cc":[null]`), "/cc/0", "null in an array", "remove it"},
		{minimal(`,"cc":["x"]`), "/cc/0", "no domain", `"Name <user@example.com>"`},
		{minimal(`,"cc":"x@example.net, y@example.net"`), "/cc", "quoting", "array"},
		{minimal(`,"cc":"<>"`), "/cc/0", "missing", "Name"},
		{minimal(`,"cc":"x@example.net\r\nRCPT TO:<y@example.net>"`), "/cc", "", ""},
		{minimal(`,"cc":"A\nB <x@example.net>"`), "/cc", "control", ""},
		{minimal(`,"cc":{"address":"x@example.net","name":"A\u0000B"}`), "/cc", "control", ""},
		{minimal(`,"cc":{"adress":"x@example.net"}`), "/cc/adress", "no field", `"address"`},
		{minimal(`,"cc":{"name":"x"}`), "/cc", "address is missing", "add"},
		{minimal(`,"cc":{"address":"x@exa mple.net"}`), "/cc", "domain", ""},
		{minimal(`,"sender":["x@example.net"]`), "/sender", "got an array", "send a string"},
		{minimal(`,"attachments":[{"content":"aGVsbG8=!","name":"a"}]`), "/attachments/0/content", "character 9", "base64"},
		{minimal(`,"attachments":[{"content":"aGVsbG8","name":"a"}]`), "/attachments/0/content", "not base64", "padding"},
		{minimal(`,"attachments":[{"content":"data:text/plain;base64,aGk=","name":"a"}]`), "/attachments/0/content", "character 5", "nothing before"},
		{minimal(`,"attachments":[{"name":"a"}]`), "/attachments/0", "content is missing", "base64"},
		{minimal(`,"attachments":[{"content":"","filename":"a"}]`), "/attachments/0/filename", "no field", "content, name, type"},
		{minimal(`,"attachments":{"content":""}`), "/attachments", "want an array", "send an array"},
		{minimal(`,"attachments":[` + strings.Repeat(`{"content":""},`, 100) + `{"content":""}]`), "/attachments", "101 attachments", "100"},
		{minimal(`,"headers":{"X-A":5}`), "/headers/X-A", "got a number", "send a string"},
		{minimal(`,"send_at":"tomorrow"`), "/send_at", `"tomorrow" is not a time`, "RFC 3339"},
		{minimal(`,"send_at":"2026-11-22T11:54:59Z"`), "/send_at", "in the past", "later"},
		{minimal(`,"send_at":"2026-12-22T12:00:01Z"`), "/send_at", "720h0m0s ahead", "before 2026-12-22T12:00:00Z"},
		{minimal(`,"send_at":"2026-12-22T12:00:00Z","spread":1`), "/send_at", "720h0m0s ahead", "before 2026-12-22T11:59:59Z"},
		{minimal(`,"timezone":"Mars"`), "/timezone", `"Mars" is not a time zone`, "Europe/Berlin"},
		{minimal(`,"pace":"fast"`), "/pace", `"fast" is not a rate`, "10000/h"},
		{minimal(`,"spread":86401`), "/spread", "not allowed", "0 to 86400"},
		{minimal(`,"spread":1.5`), "/spread", "not allowed", "whole"},
		{minimal(`,"spread":1e400`), "/spread", "not allowed", "whole"},
		{minimal(`,"expires_at":"2026-11-22T12:00:00Z"`), "/expires_at", "expire before", "later"},
		{minimal(`,"send_at":"2026-11-22T13:00:00Z","spread":60,"expires_at":"2026-11-22T13:01:00Z"`), "/expires_at", "expire before", "later"},
		{minimal(`,"campaign":"a\nb"`), "/campaign", "line break", "one line"},
		{minimal(`,"campaign":"` + strings.Repeat("x", 129) + `"`), "/campaign", "129 octets", "shorten"},
		{minimal(`,"tags":["a","a"]`), "/tags/1", "twice", "once"},
		{minimal(`,"tags":[""]`), "/tags/0", "empty", "remove"},
		{minimal(`,"tags":["` + strings.Repeat("x", 129) + `"]`), "/tags/0", "129 octets", "shorten"},
		{minimal(`,"tags":[` + strings.Repeat(`"a",`, 20) + `"a"]`), "/tags", "21 tags", "20"},
		{minimal(`,"priority":10`), "/priority", "not allowed", "-9 to 9"},
		{minimal(`,"priority":"high"`), "/priority", "want a number", "send a number"},
		{minimal(`,"notify":["never","delay"]`), "/notify", "never", "alone"},
		{minimal(`,"notify":"bounce"`), "/notify", `"bounce"`, "failure"},
		{minimal(`,"envid":"é"`), "/envid", "", "ASCII"},
		{minimal(`,"ret":"all"`), "/ret", `"all"`, "full or headers"},
		{minimal(`,"dry_run":"yes"`), "/dry_run", "want true or false, got a string", "true or false"},
		{minimal(`,"raw":"Subject: x\n\nx"`), "/text", "combined with raw", "leave raw out"},
		{minimal(`,"template":"welcome"`), "/text", "stored template", "leave template out"},
		{minimal(`,"recipients":[{"to":"x@example.net"}]`), "/recipients", "one message each", "leave recipients out"},
		{`{"from":"a@b.example","raw":"x","recipients":[{"to":"x@example.net"}]}`, "/recipients", "personalised", "use to"},
		{`{"from":"a@b.example","text":"x","recipients":[]}`, "/recipients", "no recipients", "add"},
		{`{"from":"a@b.example","text":"x","recipients":[{}]}`, "/recipients/0/to", "missing", "add"},
		{`{"from":"a@b.example","text":"x","recipients":[{"to":"x@example.net","send_at":"2020-01-01T00:00:00Z"}]}`, "/recipients/0/send_at", "past", "later"},
		{`{"from":"a@b.example","text":"x","recipients":[{"email":"x@example.net","to":"x@example.net"}]}`, "/recipients/0/email", "no field", "remove it; the names are to, data"},
		{`{"from":"a@b.example","text":"x","recipients":[` + strings.Repeat(`{"to":"x@example.net"},`, 1000) + `{"to":"x@example.net"}]}`, "/recipients", "1001 recipients", "1000"},
		{`{"from":"a@b.example","text":"x","to":[` + strings.Repeat(`"x@example.net",`, 1000) + `"x@example.net"]}`, "/to", "1001 addresses", "1000"},
		{`{"from":"a@b.example","text":"x","cc":"y@example.net","to":[` + strings.Repeat(`"x@example.net",`, 999) + `"x@example.net"]}`, "/to", "1001 addresses", "1000"},
		{`{"to":"c@d.example","text":"x"}`, "/from", "missing", "add"},
		{`{"from":"a@b.example","text":"x"}`, "/to", "no recipients", "add"},
		{`{"from":"a@b.example","to":"c@d.example"}`, "/text", "no content", "add"},
		{minimal(`,"data":{"x":"` + "\xff" + `"}`), "/data/x", "UTF-8", "UTF-8"},
		{minimal(`,"data":` + strings.Repeat("[", 10000)), "/data" + strings.Repeat("/0", 62), "64 levels", ""},
	} {
		_, faults := Decode([]byte(c.doc), now, usual)
		if len(faults) != 1 || faults[0].Pointer != c.pointer || !strings.Contains(faults[0].Detail, c.detail) || !strings.Contains(faults[0].Remedy, c.remedy) {
			t.Errorf("%.200s\n got %.300q\nwant %q", c.doc, faults, c)
		}
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	_, faults := Decode([]byte(`{"form":"a@b.example","to":["x","y@example.net","z"],"subject":1,"text":"x","send_at":"never","tags":[1]}`), now, usual)
	var got []string
	for _, f := range faults {
		got = append(got, f.Pointer)
	}
	if want := "/form /to/0 /to/2 /subject /send_at /tags/0 /from"; strings.Join(got, " ") != want {
		t.Errorf("%s\n%v", got, faults)
	}
	many := `{"from":"a@b.example","text":"x","to":[` + strings.Repeat(`"x",`, 999) + `"x"]}`
	if _, faults = Decode([]byte(many), now, usual); len(faults) != maxFaults+1 || faults[maxFaults].Detail != "there are more faults than these" {
		t.Errorf("%d faults", len(faults))
	}
}

func TestSchedulingThatIsNotAllowed(t *testing.T) {
	_, faults := Decode([]byte(minimal(`,"send_at":"2026-11-22T13:00:00Z","spread":5`)), now, Limits{Recipients: 10})
	if len(faults) != 2 || !strings.Contains(faults[0].Detail, "not allowed") {
		t.Error(faults)
	}
}

func TestParseMailbox(t *testing.T) {
	for s, want := range map[string]Mailbox{
		"a@b.example":                         {"", "a@b.example"},
		" <a@b.example> ":                     {"", "a@b.example"},
		"A. B, Inc. <a@b.example>":            {"A. B, Inc.", "a@b.example"},
		`"A \"x\" B" <a@b.example>`:           {`A "x" B`, "a@b.example"},
		`Jörg <用户@例え.jp>`:                     {"Jörg", "用户@例え.jp"},
		`"x<y>"@b.example`:                    {"", `"x<y>"@b.example`},
		`A <b> <"x y"@b.example>`:             {"A <b>", `"x y"@b.example`},
		"<>":                                  {},
		"(comment) <a@[192.0.2.1]>":           {"(comment)", "a@[192.0.2.1]"},
		"=?utf-8?q?J=C3=B6rg?= <a@b.example>": {"=?utf-8?q?J=C3=B6rg?=", "a@b.example"},
	} {
		if got, err := ParseMailbox(s); err != nil || got != want {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "a", "<a>", "a@b.example>", "A <a@b.example", "a@b@c d", "A\rB <a@b.example>", "a@b.example\n", "<a@b.example>\x00", "x <a@b.example\r\nX: y>"} {
		if got, err := ParseMailbox(s); err == nil {
			t.Errorf("%q was taken as %+v", s, got)
		}
	}
}

func TestDecodeQuery(t *testing.T) {
	q, faults := DecodeQuery(url.Values{
		"from": {"a@b.example"}, "to": {"c@d.example", "e@f.example"}, "spread": {"60"}, "tags": {"a", "b"},
		"meta": {`{"a": 1}`}, "priority": {"4"}, "notify": {"success", "delay"}, "dry_run": {"true"}, "campaign": {"true"},
	}, now, usual)
	if faults != nil || len(q.To) != 2 || q.Spread != time.Minute || len(q.Tags) != 2 || string(q.Meta) != `{"a":1}` || *q.Priority != 4 ||
		q.Notify != envelope.NotifySuccess|envelope.NotifyDelay || !q.DryRun || q.Campaign != "true" || q.Raw == nil {
		t.Errorf("%+v, %v", q, faults)
	}
	for query, want := range map[string]string{
		"from=a@b.example&to=c":                        "/to/0",
		"from=a@b.example&to=c@d.example&form=x":       "",
		"from=a@b.example&to=c@d.example&from=x":       "/from/1",
		"from=a@b.example":                             "/to",
		"to=c@d.example":                               "/from",
		"from=a@b.example&to=c@d.example&spread=x":     "/spread",
		"from=a@b.example&to=c@d.example&dry_run=yes":  "/dry_run",
		"from=a@b.example&to=c@d.example&campaign=%ff": "/campaign",
		"from=a@b.example&to=c@d.example&subject=x":    "",
		"from=a@b.example&to=c@d.example&to=":          "/to/1",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if _, faults := DecodeQuery(values, now, usual); len(faults) != 1 || faults[0].Pointer != want {
			t.Errorf("%s: %+v", query, faults)
		}
	}
	if q, faults := DecodeQuery(url.Values{"sender": {"<>"}, "to": {"c@d.example"}}, now, usual); faults != nil || q.Sender == nil || !q.Sender.Address.Null() {
		t.Errorf("null sender: %+v, %v", q, faults)
	}
}

// A value of three octets must not cost a hundred times that in memory.
func TestMemoryIsBounded(t *testing.T) {
	doc := []byte(`{"from":"a@b.example","to":"c@d.example","text":"x","data":{"a":[` + strings.Repeat("{},", 5<<20) + `{}]}}`)
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, faults := Decode(doc, now, usual); len(faults) != 1 {
				b.Fatal(faults)
			}
		}
	})
	if n := result.AllocedBytesPerOp(); n > 64<<20 {
		t.Errorf("%d MB for a document of %d MB", n>>20, len(doc)>>20)
	}
}

// FuzzDecode: nothing that is taken can break a line of a header or a command, and pointers are pointers.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(fullRequest))
	f.Add([]byte(minimal(`,"tags":["a","a"],"cc":[{"address":1}]`)))
	f.Add([]byte(`{"from":"a@b.example","template":"t","recipients":[{"to":"x@example.net","data":{"a":[1]},"meta":{}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		q, faults := Decode(body, now, usual)
		if len(faults) > 0 {
			for _, p := range faults {
				if p.Detail == "" || p.Pointer != "" && p.Pointer[0] != '/' {
					t.Fatalf("%+v", p)
				}
			}
			return
		}
		lines := []string{q.Subject, q.Campaign, q.EnvID, strings.Join(q.Tags, "")}
		boxes := append(append(append(append([]Mailbox(nil), q.From...), q.To...), q.Cc...), q.Bcc...)
		for _, p := range q.Recipients {
			boxes = append(boxes, p.To...)
		}
		for _, m := range boxes {
			lines = append(lines, m.Name, string(m.Address))
			if _, err := envelope.ParseAddress(string(m.Address)); err != nil {
				t.Fatalf("%+v: %v", m, err)
			}
		}
		for _, l := range lines {
			if strings.ContainsAny(l, "\r\n\x00") {
				t.Fatalf("%q", l)
			}
		}
		if q.Meta != nil && !json.Valid(q.Meta) {
			t.Fatalf("%s", q.Meta)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	small := []byte(fmt.Sprintf(`{"from":"Shop <shop@acme.example>","to":["a@example.net"],"subject":"Your order","text":%q,"tags":["a"],"meta":{"order":17}}`, strings.Repeat("word ", 400)))
	batch := []byte(`{"from":"Shop <shop@acme.example>","subject":"Your order","text":"x","recipients":[` + strings.Repeat(`{"to":"Ann <a@example.net>","data":{"name":"Ann","order":17}},`, 999) + `{"to":"a@example.net"}]}`)
	for name, doc := range map[string][]byte{"small": small, "batch": batch} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				if _, faults := Decode(doc, now, usual); faults != nil {
					b.Fatal(faults)
				}
			}
		})
	}
}

// TestManyUnknownFieldsAreCheap: what is not listed costs no search for a similar name.
func TestManyUnknownFieldsAreCheap(t *testing.T) {
	const n = 5_000
	var b strings.Builder
	b.WriteString(`{"from":"a@acme.example"`)
	for i := range n {
		fmt.Fprintf(&b, `,"unknown%d":1`, i)
	}
	b.WriteString("}")
	var faults Faults
	allocs := testing.AllocsPerRun(1, func() { _, faults = Decode([]byte(b.String()), now, usual) })
	if len(faults) != maxFaults+1 || allocs > 10*n {
		t.Errorf("%d faults, %.0f allocations for %d fields", len(faults), allocs, n)
	}
}
