package report

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// hostile are messages that cost as much as their writers can make them.
func hostile() map[string]string {
	head := "From: MAILER-DAEMON@grey.example\nSubject: failure notice\n"
	status := head + "Content-Type: multipart/report; boundary=b\n\n--b\nContent-Type: message/delivery-status\n\n"
	var recipients, listed, expanded strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&recipients, "Final-Recipient: rfc822;r%d@b.example\nAction: failed\nStatus: 5.1.1\n\n", i)
		fmt.Fprintf(&listed, "<r%d@b.example>: 550 no\n", i)
		fmt.Fprintf(&expanded, "a@b.c (expanded from <a%d@b.c>)\n", i)
	}
	return map[string]string{
		"parts":         head + "Content-Type: multipart/mixed; boundary=b\n\n" + strings.Repeat("--b\n\nRCPT TO:<a@b.example>\n", 10_000),
		"recipients":    status + recipients.String(),
		"listed":        head + "\nThe following addresses failed:\n\n" + listed.String(),
		"expanded":      head + "\nThe following addresses failed:\n\n" + expanded.String(),
		"one line":      head + "\n" + strings.Repeat("a@b.example ", 25_000),
		"at signs":      head + "\n" + strings.Repeat("@", 250_000),
		"local parts":   head + "\n" + strings.Repeat("a", 250_000) + "@b.example",
		"dashes":        head + "Content-Type: multipart/mixed\n\n" + strings.Repeat("--\n--a\n", 40_000),
		"digits":        head + "\n" + strings.Repeat("5.1 550 5.", 25_000),
		"encoded words": "Subject: " + strings.Repeat("=?utf-8?q?a?= ", 18_000) + "\n\n",
		"folds":         "Subject: a\n" + strings.Repeat(" a\n", 80_000) + "\n",
		"html":          head + "Content-Type: text/html\n\n" + strings.Repeat("<p><b>", 40_000),
		"entities":      head + "Content-Type: text/html\n\n" + strings.Repeat("&lt;a@b.example&gt;: 550<br>", 9_000),
		"tokens":        head + "\n" + strings.Repeat("1"+strings.Repeat("a", 42)+" ", 5_000),
		"feedback":      head + "Content-Type: multipart/report; boundary=b\n\n--b\nContent-Type: message/feedback-report\n\nFeedback-Type: abuse\n" + strings.Repeat("Original-Rcpt-To: a@b.example\n", 8_000),
		"xtext":         status + "Final-Recipient: utf-8; " + strings.Repeat(`\x{41}`, 30_000) + "@b.example\n",
		"failed field":  "X-Failed-Recipients: " + strings.Repeat("a@b.example, ", 20_000) + "\nFrom: MAILER-DAEMON@b.example\n\nfailed",
		"paragraphs":    head + "\nThe following addresses failed:\n\n" + strings.Repeat("<a@b.example>:\n\n", 15_000),
		"NUL":           strings.Repeat("\x00", 250_000),
	}
}

// TestHostile: time and memory are bounded, whatever comes.
func TestHostile(t *testing.T) {
	for name, content := range hostile() {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		r := Read([]byte(content), Options{})
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		allocated := after.TotalAlloc - before.TotalAlloc
		t.Logf("%-13s %8v, %6d KiB allocated: %v, %d reports, %d tokens", name, took.Round(time.Microsecond), allocated>>10, r.Kind, len(r.Reports), len(r.Tokens))
		if len(r.Reports) > maxReports || len(r.Tokens) > maxTokens || allocated > 64<<20 {
			t.Errorf("%s: %d reports, %d tokens, %d octets allocated", name, len(r.Reports), len(r.Tokens), allocated)
		}
	}
}

// harmless fails when a text of a result could break a line, a terminal or a reader of JSON.
func harmless(t *testing.T, r *Result) {
	t.Helper()
	texts := append([]string{r.Host, r.Original.MessageID, r.Original.From, r.Original.Subject}, r.Original.To...)
	texts = append(texts, r.Tokens...)
	reports := r.Reports
	if r.Unnamed != nil {
		reports = append(reports, *r.Unnamed)
	}
	for _, p := range reports {
		texts = append(texts, p.Recipient, p.Final, p.Diagnostic, string(p.Action), p.Reply.Text)
		j, err := json.Marshal(p)
		if err != nil || !json.Valid(j) {
			t.Errorf("%s: %v", j, err)
		}
	}
	for name, values := range r.Feedback {
		texts = append(append(texts, name), values...)
	}
	for _, text := range texts {
		if !utf8.ValidString(text) || len(text) > 2*maxDiagnostic || strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
			t.Errorf("%q is not printable, or too long", text)
		}
	}
}

func FuzzRead(f *testing.F) {
	samples, _ := flufl(f)
	for _, content := range samples {
		if len(content) < 8<<10 {
			f.Add(content)
		}
	}
	for _, sample := range hosts(f) {
		f.Add([]byte(sample[1]))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, purpose := range []Purpose{AnyReport, Complaints, Unsubscription} {
			r := Read(content, Options{Purpose: purpose})
			harmless(t, r)
			for _, p := range r.Reports {
				if p.Recipient == "" || p.Hard && p.Action != ActionFailed {
					t.Errorf("%+v", p)
				}
			}
		}
	})
}
