package mta

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/delivery/tlspolicy/tlsrpt"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// A report goes to the domain that has asked for it, through the queue and signed, and is shown.
func TestTLSReportsGoOut(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		tls_reports { from = "tls-reports@client.example" }
		dkim "client" {
			domain = "client.example"
			key "a" { private_key = "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=" }
		}`)
	if err := w.zone.Add(`_smtp._tls.box.example. TXT "v=TLSRPTv1; rua=mailto:tls@box.example"`); err != nil {
		t.Fatal(err)
	}
	host := route.Host{Name: "mx.box.example", Addr: netip.MustParseAddrPort("198.51.100.1:25")}
	for _, domain := range []string{"box.example", "silent.example"} {
		w.tls.Reports.Record(tlspolicy.Result{
			Time: time.Now().Add(-48 * time.Hour), Domain: domain, Policy: tlspolicy.NoPolicy, Host: host, Class: tlspolicy.Expired,
		})
	}
	w.tls.Reports.SendDue(t.Context())
	m := w.arrived(1)[0]
	text := string(m.Content)
	if m.Sender != "tls-reports@client.example" || m.Recipients[0] != "tls@box.example" || !strings.HasPrefix(text, "DKIM-Signature: ") ||
		!strings.Contains(text, "TLS-Report-Submitter: relay.example\r\n") || !strings.Contains(text, "TLS-Report-Domain: box.example\r\n") {
		t.Errorf("from %s to %s:\n%s", m.Sender, m.Recipients, text)
	}
	if page := w.scrape(); !strings.Contains(page, "mta_tls_reports_sent_total 1") {
		t.Error("the metrics have no report")
	}
	l, err := w.api.TLSReports.TLSReports(t.Context(), api.TLSReportQuery{Domain: "BOX.example", Paging: api.Paging{Limit: api.MaxLimit}})
	if err != nil || !l.On || len(l.Days) != 1 || !l.Days[0].Done || !l.Days[0].Reports[0].Sent {
		t.Errorf("shown: %+v, %v", l, err)
	}

	// The report is not sent again after a restart.
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.start()
	if l, err := w.api.TLSReports.TLSReports(t.Context(), api.TLSReportQuery{Domain: "box.example", Paging: api.Paging{Limit: 10}}); err != nil || len(l.Days) != 1 || !l.Days[0].Done {
		t.Errorf("after a restart: %+v, %v", l, err)
	}
}

// Each attempt is counted for the domain whose policy it is measured by, and those of reports aren't.
func TestTLSResultsAreCounted(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		tls_reports { from = "tls-reports@client.example" }`)
	if err := w.mailTLSReport(tlsrpt.Mail{From: "tls-reports@client.example", To: "tls@box.example", Content: []byte("Message-ID: <x@client.example>\r\nSubject: x\r\n\r\nx\r\n")}); err != nil {
		t.Fatal(err)
	}
	w.arrived(1)
	if days, _ := w.tls.Reports.Days("", "", 10); len(days) != 0 {
		t.Errorf("a report is counted: %+v", days)
	}
	w.send("ann@client.example", letter, "bob@box.example")
	w.arrived(2)
	days, _ := w.tls.Reports.Days("box.example", "", 10)
	if len(days) != 1 || len(days[0].Policies) != 1 || days[0].Policies[0].Failure != 1 || days[0].Policies[0].Details[0].Class != tlspolicy.NoSTARTTLS {
		t.Errorf("counted: %+v", days)
	}
}

func TestTLSReportsAreOff(t *testing.T) {
	off := newWorld(t, sink.Config{}, "")
	if l, err := off.api.TLSReports.TLSReports(t.Context(), api.TLSReportQuery{}); err != nil || l.On {
		t.Errorf("switched off: %+v, %v", l, err)
	}
}
