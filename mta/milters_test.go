package mta

import (
	"context"
	"net"
	"net/http"
	"net/textproto"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-milter"

	"example.org/mta/mta/alarm"
	"example.org/mta/operator/api"
)

// bySubject is a milter that does what a message's subject says.
type bySubject struct {
	milter.NoOpMilter
	subject string
}

func (s *bySubject) Headers(h textproto.MIMEHeader, _ *milter.Modifier) (milter.Response, error) {
	s.subject = h.Get("Subject")
	return milter.RespContinue, nil
}

func (s *bySubject) Body(m *milter.Modifier) (milter.Response, error) {
	switch s.subject {
	case "refuse":
		return milter.NewResponseStr('y', "550 5.7.1 not this one"), nil
	case "discard":
		return milter.RespDiscard, nil
	case "quarantine":
		m.Quarantine("looks odd")
	case "anonymous":
		m.ChangeHeader(1, "From", "")
	case "change":
		m.AddHeader("X-Scanned", "yes")
		m.ReplaceBody([]byte("another\n"))
	}
	return milter.RespAccept, nil
}

// A milter decides on mail by SMTP and by HTTP, before it is signed; the relay's reports don't go by it.
func TestMilters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "milter")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &milter.Server{NewMilter: func() milter.Milter { return new(bySubject) },
		Actions: milter.OptAddHeader | milter.OptChangeHeader | milter.OptChangeBody | milter.OptQuarantine}
	go srv.Serve(ln)
	defer ln.Close() // srv.Close is not for use beside Serve
	p := newPoster(t, `milter "scan" { address = "unix:`+path+`" }
		`+dkimBlock("client.example", ""))
	w := p.w
	message := func(subject, to string) string {
		return `{"from":"ann@client.example","to":"` + to + `","subject":"` + subject + `","text":"hello"}`
	}

	code, sent, _ := p.post("", "application/json", `{"from":"ann@client.example","recipients":[
		{"to":"one@box.example","data":{"s":"change"}},{"to":"two@box.example","data":{"s":"refuse"}},{"to":"three@box.example","data":{"s":"plain"}}],
		"subject":"{{s}}","text":"hello"}`, "")
	if code != http.StatusAccepted || len(sent.Messages) != 3 || sent.Messages[1].Status != "refused" || sent.Messages[1].Detail != "not this one" ||
		sent.Messages[0].Status != "accepted" || sent.Messages[2].Status != "accepted" {
		t.Errorf("a batch: %d %+v", code, sent)
	}
	w.await("two@box.example", "Rejection")
	if code, _, _ := p.post("", "application/json", message("refuse", "two@box.example"), ""); code != http.StatusForbidden {
		t.Errorf("a refused message is answered %d", code)
	}
	w.send("ann@client.example", "From: ann@client.example\r\nSubject: change\r\n\r\nhello\r\n", "four@box.example")
	for _, m := range w.arrived(3) {
		content := string(m.Content)
		changed := strings.Contains(content, "\r\nX-Scanned: yes\r\n") && strings.HasSuffix(content, "\r\n\r\nanother\r\n")
		if changed != strings.Contains(content, "Subject: change") {
			t.Errorf("arrived:\n%s", content)
		}
		if len(signedBy(t, m.Content)) != 1 {
			t.Errorf("the changes are not signed:\n%s", content)
		}
	}

	w.send("ann@client.example", "From: ann@client.example\r\nSubject: discard\r\n\r\nhello\r\n", "five@box.example")
	w.await("five@box.example", "Reception")
	if rec := w.await("five@box.example", "AdminBounce"); rec.Response.Text != "discarded by milter scan" {
		t.Errorf("a discarded message: %+v", rec.Response)
	}
	if code, sent, _ = p.post("", "application/json", message("quarantine", "six@box.example"), ""); code != http.StatusAccepted {
		t.Fatalf("%d %+v", code, sent)
	}
	m, err := w.queued.Get(context.Background(), sent.Messages[0].ID)
	if err != nil || m.Recipients[0].State != api.StateHeld || !strings.Contains(m.Recipients[0].Why(time.UTC), "quarantined by milter scan: looks odd") {
		t.Errorf("%v %+v", err, m)
	}

	w.send("ann@client.example", "From: ann@client.example\r\nX-Hold-For: 1h\r\nSubject: quarantine\r\n\r\nhello\r\n", "late@box.example")
	late := w.await("late@box.example", "Reception").ID.String()
	if done, err := w.queued.Change(context.Background(), api.Change{Action: api.Release, Filter: api.Filter{State: api.StateHeld}}); err != nil || done.Recipients != 2 {
		t.Fatalf("%v %+v", err, done)
	}
	w.await("six@box.example", "Delivery")
	if m, err = w.queued.Get(context.Background(), late); err != nil || m.Recipients[0].State != api.StateDeferred {
		t.Errorf("a scheduled message that is released is %+v, %v", m.Recipients, err)
	}

	if code, _, _ := p.post("", "application/json", message("anonymous", "seven@box.example"), ""); code != http.StatusServiceUnavailable {
		t.Errorf("a message that has lost its author is answered %d", code)
	}
	if got := w.milters.Trouble(); !strings.Contains(got, "milter scan fails, and mail of tenant acme is answered 451: it makes a message with 0 From fields") {
		t.Errorf("the alarm %s: %q", alarm.Milters, got)
	}
	if rec := w.await("seven@box.example", "Rejection"); rec.Class != "LocalFailure" {
		t.Errorf("the class of a milter's failure is %s", rec.Class)
	}
	srv.Close()
	if code, _, _ := p.post("", "application/json", message("plain", "seven@box.example"), ""); code != http.StatusServiceUnavailable {
		t.Errorf("without the milter a message is answered %d", code)
	}
	if got := w.milters.Trouble(); !strings.Contains(got, "milter scan fails, and mail is answered 451") {
		t.Errorf("the alarm %s: %q", alarm.Milters, got)
	}
	if got := w.scrape(); !strings.Contains(got, `mta_milter_failures_total{milter="scan"} 2`) ||
		!strings.Contains(got, `mta_milter_refusals_total{milter="scan"} 5`) {
		t.Error("the metrics are wrong")
	}
}
