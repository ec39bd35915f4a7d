package relaytest

import (
	"fmt"
	"io"
	"net/smtp"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
)

// submitBy sends a message with parameters of MAIL and RCPT.
func (r *Relay) submitBy(mail, rcpt, to string) {
	r.t.Helper()
	pipe, err := r.doors[SMTP].Dial(r.t.Context())
	r.must(err)
	c, err := smtp.NewClient(pipe, "relay.example")
	r.must(err)
	r.must(c.Hello("app1.acme.example"))
	for _, line := range []string{"MAIL FROM:<ann@client.example> " + mail, "RCPT TO:<" + to + "> " + rcpt} {
		id, err := c.Text.Cmd("%s", line)
		r.must(err)
		c.Text.StartResponse(id)
		_, _, err = c.Text.ReadResponse(250)
		c.Text.EndResponse(id)
		r.must(err)
	}
	w, err := c.Data()
	r.must(err)
	_, err = io.WriteString(w, "Subject: x\r\n\r\nx\r\n")
	r.must(err)
	r.must(w.Close())
	r.must(c.Quit())
}

// TestDeliverBy: mail with BY is given up, or its sender notified, at the time, over a restart too; hosts with DELIVERBY
// get it with what is left, others only if it need not be given up (RFC 2852).
func TestDeliverBy(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := New(t, `
			timely.example. 60 IN MX 10 mx.timely.example.
			mx.timely.example. 60 IN A 192.0.2.50
			plain.example. 60 IN MX 10 mx.plain.example.
			mx.plain.example. 60 IN A 192.0.2.51
			client.example. 60 IN MX 10 mx.client.example.
			mx.client.example. 60 IN A 192.0.2.52
		`, `
			defaults {
				max_age       = "40m"
				delay_warning = "0"
			}
			domain "busy.example" { route = ["fail 451 4.3.0 try again"] }
			domain "brief.example" {
				route   = ["fail 451 4.3.0 try again"]
				max_age = "5m"
			}
		`)
		recorder := sink.NewRecorder(sink.Contents, 100)
		reports := sink.NewRecorder(sink.Contents, 100)
		r.Host("mx.timely.example", sink.Config{DeliverBy: 30, Recorder: recorder}, "192.0.2.50:25")
		r.Host("mx.plain.example", sink.Config{Recorder: recorder}, "192.0.2.51:25")
		r.Host("mx.client.example", sink.Config{Recorder: reports}, "192.0.2.52:25")
		r.Start()
		began := time.Now()

		r.submitBy("BY=600;R", "", "r@busy.example")
		r.submitBy("BY=600;N", "", "n@busy.example")
		r.submitBy("BY=600;N", "NOTIFY=FAILURE", "quiet@busy.example")
		r.submitBy("BY=-5;N", "", "late@busy.example")
		r.submitBy("BY=600;R", "", "r@brief.example") // max_age is shorter
		r.submitBy("BY=600;R", "", "r@timely.example")
		r.submitBy("BY=600;NT", "NOTIFY=FAILURE", "nt@timely.example")
		r.submitBy("BY=600;NT", "NOTIFY=NEVER", "never@timely.example")
		r.submitBy("BY=-5;N", "", "late@timely.example")
		r.submitBy("BY=20;R", "", "short@timely.example") // the host wants 30
		r.submitBy("BY=600;R", "", "r@plain.example")
		r.submitBy("BY=600;N", "", "n@plain.example")
		time.Sleep(8 * time.Minute)
		r.Stop()
		r.Start()
		time.Sleep(7 * time.Minute)

		sent := make(map[string]string)
		for _, m := range recorder.Messages() {
			sent[m.Recipients[0]] = m.MailParams
		}
		by := func(to string) string {
			_, value, _ := strings.Cut(sent[to], "BY=")
			return strings.Fields(value + " -")[0]
		}
		for to, want := range map[string]string{"r@timely.example": "600;R", "nt@timely.example": "600;NT",
			"never@timely.example": "600;NT", "late@timely.example": "-5;N", "n@plain.example": "-"} {
			if got := by(to); got != want {
				t.Errorf("%s: sent with BY=%s, want %s", to, got, want)
			}
		}
		if len(sent) != 5 {
			t.Errorf("sent: %v", sent)
		}

		got := make(map[string]string) // by recipient: action, status, after
		for _, m := range reports.Messages() {
			field := func(name string) string {
				_, rest, _ := strings.Cut(string(m.Content), "\r\n"+name+": ")
				line, _, _ := strings.Cut(rest, "\r\n")
				return line
			}
			to := strings.TrimPrefix(field("Final-Recipient"), "rfc822; ")
			got[to] += fmt.Sprintf("%s %s after %s; ", field("Action"), field("Status"), m.At.Sub(began).Round(time.Minute))
			if field("Deliver-By-Date") == "" {
				t.Errorf("no Deliver-By-Date in the report about %s", to)
			}
		}
		want := map[string]string{
			"r@busy.example":       "failed 5.4.7 after 10m0s; ",
			"n@busy.example":       "delayed 4.3.0 after 10m0s; ",
			"r@brief.example":      "failed 4.3.0 after 5m0s; ",
			"nt@timely.example":    "relayed 2.0.0 after 0s; ",
			"short@timely.example": "failed 5.4.7 after 0s; ",
			"r@plain.example":      "failed 5.4.7 after 0s; ",
			"n@plain.example":      "relayed 2.0.0 after 0s; ",
		}
		for to := range want {
			if got[to] != want[to] {
				t.Errorf("reports about %s: %q, want %q", to, got[to], want[to])
			}
		}
		if len(got) != len(want) {
			t.Errorf("reports: %q", got)
		}
		time.Sleep(30 * time.Minute) // what is only to be notified goes on
		n := 0
		for _, e := range r.records(accounting.Expiration) {
			if to := string(e.Recipient); e.Time.Sub(began) > 38*time.Minute && strings.HasSuffix(to, "@busy.example") {
				n++
			}
		}
		if n != 3 {
			t.Errorf("%d recipients with mode N expired by max_age, want 3", n)
		}
	})
}
