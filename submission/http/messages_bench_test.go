package http

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/intake"
)

// forgetful is a store that keeps nothing.
type forgetful struct{ ids envelope.IDs }

type forgottenDraft struct{ s *forgetful }

func (s *forgetful) Begin(intake.Owner, int64) intake.Draft { return forgottenDraft{s} }

func (s *forgetful) CommitBatch(b *intake.Batch) (int, error) {
	for _, m := range b.Messages {
		m.ID = s.ids.Next(now)
	}
	return len(b.Messages), nil
}

func (d forgottenDraft) Write(p []byte) (int, error) { return len(p), nil }
func (d forgottenDraft) Abort()                      {}
func (d forgottenDraft) Grow(int)                    {}
func (d forgottenDraft) Commit(m *envelope.Message) error {
	m.ID = d.s.ids.Next(now)
	return nil
}

// BenchmarkPost measures the way of a request through handler and intake, without network and disk.
func BenchmarkPost(b *testing.B) {
	text := strings.Repeat("A line of words that is about as long as lines are.\n", 40)
	one := fmt.Sprintf(`{"from":"Shop <shop@acme.example>","to":["Ann <ann@example.net>"],"subject":"Your order","text":%q}`, text)
	var many strings.Builder
	fmt.Fprintf(&many, `{"from":"Shop <shop@acme.example>","subject":"Order {{order}}","text":%q,"html":%q,"recipients":[`,
		"Hello {{name}},\n"+text, "<p>Hello {{name}},</p>\n"+strings.Repeat(text, 2)+"{{#items}}<li>{{name}}</li>{{/items}}")
	for i := range 1000 {
		fmt.Fprintf(&many, `%s{"to":"Ann <u%d@example.net>","data":{"name":"Ann","order":%d,"items":[{"name":"x"},{"name":"y"}]}}`, map[bool]string{false: ","}[i == 0], i, i)
	}
	store := new(forgetful)
	config := Config{Keys: testKeys, Mail: Mail{Templates: noTemplates}}
	config.Mail.Intake = intake.Config{Hostname: "mx.test", Store: store, Batches: store}
	s := New(config)
	for _, c := range []struct {
		name, target, kind, body string
		messages                 int
	}{
		{"one", "/v1/messages", "application/json", one, 1},
		{"raw", "/v1/messages?from=shop@acme.example&to=ann@example.net", "message/rfc822", "From: shop@acme.example\r\nSubject: x\r\n\r\n" + strings.ReplaceAll(text, "\n", "\r\n"), 1},
		{"personal-1000", "/v1/messages", "application/json", many.String() + "]}", 1000},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req := httptest.NewRequest("POST", c.target, strings.NewReader(c.body))
				req.RemoteAddr = "127.0.0.1:999"
				req.Header.Set("Authorization", "Bearer good")
				req.Header.Set("Content-Type", c.kind)
				w := httptest.NewRecorder()
				s.http.Handler.ServeHTTP(w, req)
				if w.Code != 202 {
					b.Fatal(w.Code, w.Body)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*c.messages), "us/message")
		})
	}
}
