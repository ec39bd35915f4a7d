package events

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

// line makes the record of a type, with the fields that most have.
func line(kind, more string) Event {
	return Event{
		ID: "node1-20260301T120000-42", Type: kind, Message: "1kjmma2g00007",
		Line: []byte(`{"type":"` + kind + `","id":"1kjmma2g00007","sender":"news@acme.example","recipient":"joe@gmail.com","num_attempts":3,` +
			more + `,"timestamp":1772366401,"event_time":"2026-03-01T12:00:01.234567Z","nodeid":"node1"}`),
	}
}

const (
	accepted = `"response":{"code":250,"enhanced_code":{"class":2,"subject":0,"detail":0},"content":"OK  1772366400\nsecond","command":"content"}`
	unknown  = `"response":{"code":550,"enhanced_code":{"class":5,"subject":1,"detail":1},"content":"no such user","command":"RCPT"}`
	slow     = `"response":{"code":421,"content":"slow down","command":"MAIL"}`
	source   = `"source_address":{"address":"192.0.2.10:40312"},"tls_protocol_version":"TLSv1.3"`
)

func suppressedBy(why string) string {
	return `"response":{"code":550,"enhanced_code":{"class":5,"subject":1,"detail":1},"content":"address is suppressed since 2026-02-01: ` + why + `","command":"queue","local":true}`
}

// TestEvents: each type of record as SendGrid would write it.
func TestEvents(t *testing.T) {
	common := map[string]any{"email": "joe@gmail.com", "timestamp": 1772366401.0, "sg_event_id": "node1-20260301T120000-42", "sg_message_id": "1kjmma2g00007"}
	for name, c := range map[string]struct {
		event Event
		want  map[string]any
	}{
		"processed": {
			line("Reception", `"tags":["a","b"],"campaign":"march","meta":{"anymail_id":"7","event":"open","n":1},"headers":{"message-id":"<m@acme.example>"},"scheduled":1772366500,"scheduled_time":"2026-03-01T12:01:40Z"`),
			map[string]any{
				"event": "processed", "category": []any{"a", "b"}, "marketing_campaign_name": "march", "anymail_id": "7", "n": 1.0,
				"smtp-id": "<m@acme.example>", "send_at": 1772366500.0,
			},
		},
		"delivered": {
			line("Delivery", accepted+`,"tags":["a"],`+source),
			map[string]any{"event": "delivered", "category": "a", "response": "250 2.0.0 OK  1772366400 second", "ip": "192.0.2.10", "tls": 1.0},
		},
		"deferred": {
			line("TransientFailure", slow+`,"source_address":{"address":"2001:db8::1"}`),
			map[string]any{"event": "deferred", "response": "421 slow down", "attempt": "3", "ip": "2001:db8::1", "tls": 0.0},
		},
		"bounce": {
			line("Bounce", unknown+`,"bounce_classification":"InvalidRecipient",`+source),
			map[string]any{
				"event": "bounce", "type": "bounce", "reason": "550 5.1.1 no such user", "status": "5.1.1",
				"bounce_classification": "Invalid Address", "ip": "192.0.2.10", "tls": 1.0,
			},
		},
		"bounce without a class": {
			line("Bounce", unknown),
			map[string]any{"event": "bounce", "type": "bounce", "reason": "550 5.1.1 no such user", "status": "5.1.1", "bounce_classification": "Unclassified", "tls": 0.0},
		},
		"blocked": {
			line("Bounce", unknown+`,"bounce_classification":"SpamBlock"`),
			map[string]any{"event": "bounce", "type": "blocked", "reason": "550 5.1.1 no such user", "status": "5.1.1", "bounce_classification": "Reputation", "tls": 0.0},
		},
		"expired": {
			line("Expiration", slow),
			map[string]any{"event": "bounce", "type": "expired", "reason": "421 slow down", "status": "421", "bounce_classification": "Unclassified", "tls": 0.0},
		},
		"late bounce": {
			line("OOB", unknown+`,"bounce_classification":"QuotaIssues"`),
			map[string]any{"event": "bounce", "type": "blocked", "reason": "550 5.1.1 no such user", "status": "5.1.1", "bounce_classification": "Mailbox Unavailable", "tls": 0.0},
		},
		"dropped, bounced before":       {line("Bounce", suppressedBy("550 5.1.1 no such user")), map[string]any{"event": "dropped", "reason": "Bounced Address"}},
		"dropped, unsubscribed before":  {line("Bounce", suppressedBy("by unsubscribe")), map[string]any{"event": "dropped", "reason": "Unsubscribed Address"}},
		"dropped, complained before":    {line("Bounce", suppressedBy("by complaint")), map[string]any{"event": "dropped", "reason": "Spam Reporting Address"}},
		"dropped, for another reason":   {line("Bounce", suppressedBy("a friend")), map[string]any{"event": "dropped", "reason": "550 5.1.1 address is suppressed since 2026-02-01: a friend"}},
		"dropped by an operator":        {line("AdminBounce", `"response":{"code":554,"content":"removed","local":true}`), map[string]any{"event": "dropped", "reason": "554 removed"}},
		"dropped by its sender":         {line("Cancellation", `"response":{"code":554,"content":"cancelled","local":true}`), map[string]any{"event": "dropped", "reason": "554 cancelled"}},
		"complaint":                     {line("Feedback", `"feedback_report":{}`), map[string]any{"event": "spamreport"}},
		"unsubscribed":                  {line("Unsubscribe", `"session_id":"x"`), map[string]any{"event": "unsubscribe"}},
		"text that is not Unicode":      {line("Unsubscribe", `"campaign":"`+"\xff"+`"`), map[string]any{"event": "unsubscribe", "marketing_campaign_name": "\ufffd"}},
		"meta with the names of events": {line("Unsubscribe", `"meta":{"email":"x","sg_event_id":"y","ok":"z"}`), map[string]any{"event": "unsubscribe", "ok": "z"}},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := SendGrid{}.Encode(nil, &Batch{Events: []Event{c.event}})
			if err != nil {
				t.Fatal(err)
			}
			var got []map[string]any
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			for k, v := range common {
				c.want[k] = v
			}
			if len(got) != 1 || !reflect.DeepEqual(got[0], c.want) {
				t.Errorf("got  %v\nwant %v", got, c.want)
			}
		})
	}
}

// TestOthers: what SendGrid has no event for is left out, and a batch of nothing else is empty.
func TestOthers(t *testing.T) {
	const moved = `"moved_from":"one/1kjmma2g00001"` // the other relay has sent that it was processed
	warmup, lost := line("Warmup", `"stage":2`), line("Lost", `"count":2`)
	body, err := SendGrid{}.Encode([]byte("x"), &Batch{Events: []Event{warmup, lost, line("Reception", moved)}})
	if err != nil || string(body) != "x" {
		t.Errorf("%q, %v", body, err)
	}
	body, err = SendGrid{}.Encode(nil, &Batch{Events: []Event{warmup, line("Delivery", accepted), lost, line("Delivery", accepted+","+moved)}})
	var got []map[string]any
	if err != nil || json.Unmarshal(body, &got) != nil || len(got) != 2 || got[1]["sg_message_id"] != "1kjmma2g00001" {
		t.Errorf("%q, %v", body, err)
	}
}

// TestDamage: a record that can't be read is set aside by the stream, and its neighbours go on.
// Strangers write reports about whom they like. What proves nothing must not reach a program that stops mail to the
// address.
func TestUncertainReports(t *testing.T) {
	good := line("OOB", unknown+`,"matched_by":"returned_token"`)
	b := &Batch{Events: []Event{
		line("Feedback", `"matched_by":"fields","feedback_report":{"feedback_type":"abuse"}`),
		line("OOB", unknown+`,"matched_by":"message_id"`),
		good,
		line("Feedback", `"matched_by":"token","feedback_report":{"feedback_type":"not-spam"}`),
		line("Feedback", `"matched_by":"token","feedback_report":{"feedback_type":"auth-failure"}`),
		line("Unsubscribe", `"matched_by":"fields"`),
		{ID: "x", Type: "OOB", Line: []byte(`{"type":"OOB","recipient":"","matched_by":"token"}`)},
	}}
	got, err := SendGrid{}.Encode(nil, b)
	want, _ := SendGrid{}.Encode(nil, &Batch{Events: []Event{good}})
	if err != nil || string(got) != string(want) || !strings.Contains(string(want), `"bounce"`) {
		t.Errorf("%s, %v", got, err)
	}
	b.Events = b.Events[:2]
	if got, err := (SendGrid{}).Encode(nil, b); err != nil || len(got) != 0 {
		t.Errorf("of uncertain ones alone: %s, %v", got, err)
	}
}

func TestDamage(t *testing.T) {
	for _, bad := range []string{`{"type":`, `[]`, `{"recipient":7}`, ``, `{"recipient":"a@b","meta":[1]}`} {
		_, err := SendGrid{}.Encode(nil, &Batch{Events: []Event{{Type: "Delivery", Line: []byte(bad)}}})
		if rejected := (*Rejected)(nil); !errors.As(err, &rejected) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestSigner(t *testing.T) {
	text, err := NewSendGridKey()
	if err != nil {
		t.Fatal(err)
	}
	der, _ := base64.StdEncoding.DecodeString(text)
	for form, key := range map[string]string{
		"one line": text,
		"PEM":      string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	} {
		signer, err := ParseSendGridKey(key)
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		header := make(http.Header)
		body := []byte(`[{"event":"delivered"}]`)
		if err := signer.Sign(header, "id", time.Unix(1600000000, 0), body); err != nil {
			t.Fatal(err)
		}
		publicDER, err := base64.StdEncoding.DecodeString(signer.Public())
		if err != nil {
			t.Fatal(err)
		}
		public, err := x509.ParsePKIXPublicKey(publicDER)
		if err != nil {
			t.Fatal(err)
		}
		signature, err := base64.StdEncoding.DecodeString(header.Get(SendGridSignature))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(append([]byte(header.Get(SendGridTimestamp)), body...))
		if !ecdsa.VerifyASN1(public.(*ecdsa.PublicKey), sum[:], signature) || header.Get(SendGridTimestamp) != "1600000000" {
			t.Errorf("%s: the signature doesn't verify", form)
		}
	}
}

func TestBadKeys(t *testing.T) {
	for _, bad := range []string{"", "%%", "AAAA", strings.Repeat("A", 64), "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		if _, err := ParseSendGridKey(bad); err == nil {
			t.Errorf("%q is a key", bad)
		}
	}
}

func BenchmarkSendGrid(b *testing.B) {
	batch := &Batch{Events: []Event{line("Delivery", accepted+`,"tags":["a"],"meta":{"user":"7"},`+source+
		`,"peer_address":{"name":"gmail-smtp-in.l.google.com","addr":"142.251.2.27"},"provider_name":"google","egress_pool":"acme","session_id":"0g3k7v6a9c0de","reception_protocol":"ESMTPS","delivery_protocol":"ESMTPS","tls_cipher":"TLS_AES_128_GCM_SHA256","tls_trust":"verified","queue_time":0.01204,"attempt_time":{"wait":0.00031,"connect":0.098123,"handshake":0.301,"turn":0.000012,"send":0.102,"reply":0.72}`)}}
	var to []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if to, err = (SendGrid{}).Encode(to[:0], batch); err != nil {
			b.Fatal(err)
		}
	}
}
