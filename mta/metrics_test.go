package mta

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/tally"
	"example.org/mta/operator/answer/metrics"
)

// TestMetricsTellOfMail: a message to two recipients, one of whom the host refuses, and the report about
// that. A third is refused at RCPT.
func TestMetricsTellOfMail(t *testing.T) {
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{sink.UnknownUsers("nobody")}}, `
		defaults { smtp_port = PORT }
		provider "box" { mx = ["mx.box.example"] }
		source "out" { address = "127.0.0.1" }
		pool "default" { shared = ["out"] }
		tenant "acme" {}`)
	w.suppress("gone@box.example")
	w.refusedAtRCPT("ann@client.example", "gone@box.example")
	w.send("ann@client.example", letter, "bob@box.example", "nobody@box.example")
	w.await("ann@client.example", "Delivery")
	w.await("nobody@box.example", "Bounce") // which is told of when the report is durable, and that may be there before
	text := w.scrape()
	for _, line := range []string{
		`mta_attempts_total{provider="box",result="bounced",source="out"} 1`,
		`mta_attempts_total{provider="box",result="delivered",source="out"} 2`,
		`mta_delivery_delay_seconds_count 2`,
		`mta_commit_seconds_count 1`,
		`mta_refusals_total{code="550"} 1`,
		`mta_delivery_ambiguous_total 0`,
		`mta_dkim_signed_total 0`,
		`mta_router_lookups_total 2`,
		`mta_router_waiting 0`,
		`mta_listener_messages_total{listener="smtp"} 1`,
		`mta_listener_recipients_total{listener="smtp"} 2`,
		`mta_listener_bytes_total{listener="smtp"} `,
		`mta_provider_delivery_delay_seconds_count{provider="box"} 2`,
		`mta_provider_queued_recipients{provider="box"} 0`,
		`mta_provider_queued_recipients{provider=""} 0`,
		`mta_site_queued_recipients{site="other"} 0`,
		`mta_source_connect_failures_total{reason="timeout",source="out"} 0`,
		`mta_source_suspensions_total{source="out"} 0`,
		`mta_metrics_omitted_series 0`,
		`mta_listener_refusals_total{listener="smtp"} 1`,
		`mta_tenant_recipients_total{result="accepted",tenant=""} 3`,
		`mta_tenant_recipients_total{result="delivered",tenant=""} 2`,
		`mta_tenant_recipients_total{result="bounced",tenant=""} 1`,
		`mta_tenant_recipients_total{result="accepted",tenant="acme"} 0`,
		`mta_pool_recipients_total{pool="default",result="delivered"} 2`,
		`mta_provider_recipients_total{provider="box",result="bounced"} 1`,
		`mta_provider_recipients_total{provider="google",result="delivered"} 0`,
	} {
		if !strings.Contains(text, line+"\n") && !(strings.HasSuffix(line, " ") && strings.Contains(text, line)) {
			t.Errorf("metrics lack %s", line)
		}
	}
	if want := `mta_build_info{goversion="` + runtime.Version() + `",revision="`; !strings.Contains(text, want) {
		t.Errorf("metrics lack %s", want)
	}
	for _, name := range []string{"mta_dns_queries_total", "mta_dns_answers_total", "mta_delivery_connects_total", `mta_source_connects_total{source="out"}`} {
		if !strings.Contains(text, "\n"+name+" ") || strings.Contains(text, "\n"+name+" 0\n") {
			t.Errorf("%s has counted nothing", name)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "mta_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	if err != nil || t.Failed() {
		t.Errorf("%v; the metrics:\n%s", err, text)
	}
}

// TestRecordsThatCantBeWrittenAreTold: of, by an alarm and a metric, until they can.
func TestRecordsThatCantBeWrittenAreTold(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	dir := w.cfg.Accounting.Path
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	w.send("ann@client.example", letter, "bob@box.example")
	w.arrived(1)
	if err := w.accounting.Flush(t.Context()); err == nil {
		t.Error("records were written into a file in the place of their folder")
	}
	if why := w.recordsTrouble(); !strings.Contains(why, "0 so far") {
		t.Errorf("the alarm's reason is %q", why)
	}
	if err := errors.Join(os.Remove(dir), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	w.await("bob@box.example", "Delivery")
	if why := w.recordsTrouble(); why != "" {
		t.Errorf("the alarm's reason is %q when they are written again", why)
	}
	text := w.scrape()
	if !strings.Contains(text, "\nmta_accounting_records_total 2\n") || !strings.Contains(text, "\nmta_accounting_lost_total 0\n") {
		t.Errorf("the metrics are not of 2 records, none lost:\n%s", text)
	}
}

// scrape gives the relay's metrics.
func (w *world) scrape() string {
	w.t.Helper()
	_, text := w.scrapeWith(nil)
	return text
}

// scrapeWith asks for metrics with fields of a header.
func (w *world) scrapeWith(fields map[string]string) (status int, text string) {
	w.t.Helper()
	req, err := http.NewRequest("GET", fmt.Sprintf("http://%s/metrics", w.http.socket.Addr()), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for name, value := range fields {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, string(all)
}

// TestMetricsToken: with metrics_token, metrics are for those who have it; the health check is for all.
func TestMetricsToken(t *testing.T) {
	w := newWorldWith(t, Options{}, sink.Config{}, "", func(cfg *config.Config) { cfg.HTTP.MetricsToken = "s3cret" })
	for given, want := range map[string]int{"": 401, "Bearer": 401, "Bearer ": 401, "Bearer s3cre": 401, "Bearer s3crets": 401, "s3cret": 401, "Basic s3cret": 401, "Bearer s3cret": 200} {
		if status, text := w.scrapeWith(map[string]string{"Authorization": given}); status != want || strings.Contains(text, "mta_build_info") != (want == 200) {
			t.Errorf("%q: status %d, want %d", given, status, want)
		}
	}
	res, err := http.Get(fmt.Sprintf("http://%s/healthz", w.http.socket.Addr()))
	if err != nil || res.StatusCode != 200 {
		t.Errorf("the health check: %v, %v", res, err)
	}
}

// TestExemplars: a long delay and a long commit name their message in OpenMetrics, and short ones don't.
func TestExemplars(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	openMetrics := map[string]string{"Accept": "application/openmetrics-text; version=1.0.0"}
	const id = envelope.ID(7)
	observe := func(commit, delay time.Duration, provider string) {
		w.meter.Committed(commit, id)
		m := &envelope.Message{ID: id, Received: time.Now().Add(-delay)}
		w.meter.Attempted(&tally.Outcome{Kind: accounting.Delivery, Message: m, Route: &route.Route{Provider: provider}, Result: &delivery.Result{Attempted: true}, Recipients: 1}, time.Now())
	}
	observe(99*time.Millisecond, 0, "")
	if _, text := w.scrapeWith(openMetrics); strings.Contains(text, "# {id=") || !strings.HasSuffix(text, "# EOF\n") {
		t.Errorf("a quick message has an exemplar, or this is not OpenMetrics:\n%s", text)
	}
	observe(101*time.Millisecond, 61*time.Second, "box")
	status, text := w.scrapeWith(openMetrics)
	exemplar := ` # {id="` + id.String() + `"} `
	for _, line := range []string{`mta_commit_seconds_bucket{le="0.25"} 2`, `mta_delivery_delay_seconds_bucket{le="300.0"} 2`, `mta_provider_delivery_delay_seconds_bucket{provider="box",le="300.0"} 1`} {
		if !strings.Contains(text, line+exemplar) {
			t.Errorf("metrics lack %s%s", line, exemplar)
		}
	}
	if n := strings.Count(text, " # {"); n != 3 || status != 200 {
		t.Errorf("%d exemplars, status %d", n, status)
	}
	if strings.Contains(w.scrape(), " # {") {
		t.Error("the classic format has exemplars")
	}
}

// TestEachMetricIsCollected: no row of the tables is forgotten.
func TestEachMetricIsCollected(t *testing.T) {
	w := newWorld(t, sink.Config{}, "")
	ch := make(chan *prometheus.Desc)
	go func() {
		defer close(ch)
		for _, c := range w.collectors() {
			c.Describe(ch)
		}
	}()
	want := metrics.Names()
	delete(want, "mta_metrics_omitted_series")
	for desc := range ch {
		name := regexp.MustCompile(`fqName: "([a-z_]+)"`).FindStringSubmatch(desc.String())[1]
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("nothing collects %v", want)
	}
}
