package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/smtp"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.org/mta/lab/sink"
)

const contrib = "../contrib/"

// TestPromtool: contrib's rules and their tests are what Prometheus understands.
func TestPromtool(t *testing.T) {
	parallel(t)
	promtool := need(t, "promtool")[0]
	runClient(t, "", promtool, "check", "rules", "--lint=all", "--lint-fatal", contrib+"prometheus/mta.rules.yml")
	if out := runClient(t, "", promtool, "test", "rules", contrib+"prometheus/mta.rules.test.yml"); !strings.Contains(out, "SUCCESS") {
		t.Errorf("promtool says: %s", out)
	}
}

// watched is a relay that a Prometheus watches, each second, with contrib's rules made quick.
type watched struct {
	*relay
	metrics string // URL
	api     string // of Prometheus
}

const metricsToken = "tell-prometheus-only"

// TestPrometheusWatchesARelay: metrics are clean, each expression of the dashboards returns data, each metric of the
// rules is there, and the alert of a pause fires and ends.
func TestPrometheusWatchesARelay(t *testing.T) {
	parallel(t)
	w := newWatched(t)
	w.sendMail(t, 0)
	w.checkMetrics(t)
	last := 0
	for name, expr := range w.expressions(t) {
		eventually(t, patience, func() error {
			if last++; last%20 == 0 { // rates need mail again and again
				w.sendMail(t, last)
			}
			return w.returnsData(expr)
		})
		if t.Failed() {
			t.Fatalf("%s: %s", name, expr)
		}
	}
	w.alertOfAPause(t)
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	need(t, "prometheus", "promtool")
	provider := sink.New(sink.Config{Refusals: []sink.Refusal{sink.UnknownUsers("nobody"), {Phase: sink.Rcpt, Prefix: "later", Reply: "450 4.2.0 later"}}})
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go provider.Serve(socket)
	t.Cleanup(provider.Close)
	zone := sink.MustZone("box.example. MX 10 mx.box.example.\nmx.box.example. A 127.0.0.1\n")
	for i := range 200 { // each has to be looked up
		_ = zone.Add(fmt.Sprintf("d%d.example. MX 10 mx.box.example.", i))
	}
	names := sink.NewDNS(zone)
	at, err := names.Listen(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { names.Close() })
	_, port, _ := net.SplitHostPort(socket.Addr().String())
	web := "127.0.0.1:" + commonPort(t, "127.0.0.1")
	w := &watched{relay: newRelay(t, at.String(), port, `
provider "box" { mx = ["mx.box.example"] }
source "new" { address = "127.0.0.77" }
source "old" { address = "127.0.0.78" }
plan "e2e" {
  stage {
    hourly = 500
    daily  = 5000
  }
}
pool "default" {
  shared   = ["old"]
  patience = "0s" # once tokens were short, no mail was delivered for hours
  dedicated "new" { plan = "e2e" }
}
tenant "acme" {}
`)}
	text, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, w.config, strings.Replace(string(text), `http { address = "127.0.0.1:0" }`, fmt.Sprintf("http {\n  address = %q\n  metrics_token = %q\n}", web, metricsToken), 1))
	w.metrics = "http://" + web + "/metrics"
	w.relay.start(t)
	w.prometheus(t, web)
	return w
}

// prometheus starts one that scrapes the relay. Durations of the rules are seconds in the place of minutes.
func (w *watched) prometheus(t *testing.T, target string) {
	t.Helper()
	dir := scratch(t)
	rules, err := os.ReadFile(contrib + "prometheus/mta.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	quick := regexp.MustCompile(`\[\d+m\]`).ReplaceAllString(string(rules), "[10s]")
	quick = regexp.MustCompile(`for: \d+[mh]`).ReplaceAllString(quick, "for: 1s")
	writeFile(t, dir+"/rules.yml", quick)
	writeFile(t, dir+"/prometheus.yml", fmt.Sprintf(`global:
  scrape_interval: 1s
  evaluation_interval: 1s
rule_files: [%s/rules.yml]
scrape_configs:
  - job_name: mta
    authorization: {credentials: %s}
    static_configs: [{targets: [%q]}]
`, dir, metricsToken, target))
	runClient(t, "", need(t, "promtool")[0], "check", "config", dir+"/prometheus.yml")
	address := "127.0.0.1:" + commonPort(t, "127.0.0.1")
	w.api = "http://" + address + "/api/v1/"
	start(t, "prometheus", need(t, "prometheus")[0], "--config.file="+dir+"/prometheus.yml", "--storage.tsdb.path="+dir+"/data",
		"--web.listen-address="+address, "--log.level=warn", "--enable-feature=exemplar-storage")
}

// sendMail sends mail that is delivered, deferred and refused, to a new domain as well, and some that the relay refuses.
func (w *watched) sendMail(t *testing.T, i int) {
	t.Helper()
	if err := smtp.SendMail(w.addr, nil, "", []string{"no address"}, nil); err == nil {
		t.Error("the relay takes mail to no address")
	}
	for _, to := range []string{"bob@box.example", "nobody@box.example", "later@box.example", fmt.Sprintf("ann@d%d.example", i%200)} {
		if err := smtp.SendMail(w.addr, nil, "", []string{to}, []byte("Subject: hello\r\n\r\nhello\r\n")); err != nil {
			t.Error(err)
		}
	}
}

// checkMetrics has promtool judge the metrics, in both formats' common part.
func (w *watched) checkMetrics(t *testing.T) {
	t.Helper()
	text := w.get(t, w.metrics)
	check := exec.Command(need(t, "promtool")[0], "check", "metrics")
	check.Stdin = bytes.NewReader(text)
	if out, err := check.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

func (w *watched) get(t *testing.T, address string) []byte {
	t.Helper()
	req, err := http.NewRequest("GET", address, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+metricsToken)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v\n%s", address, res.Status, err, text)
	}
	return text
}

// expressions are those of the dashboards, and the metrics of the rules: an alert itself returns nothing as long as all
// is well.
func (w *watched) expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	files, err := filepath.Glob(contrib + "grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d dashboards, %v", len(files), err)
	}
	variables := strings.NewReplacer("$job", "mta", "$instance", ".*", "$provider", ".*", "$source", ".*", "$__rate_interval", "30s")
	for _, path := range files {
		var board struct {
			Panels []struct {
				Title   string
				Targets []struct{ RefID, Expr string }
			}
		}
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &board)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range board.Panels {
			for _, target := range p.Targets {
				all[filepath.Base(path)+" "+p.Title+" "+target.RefID] = variables.Replace(target.Expr)
			}
		}
	}
	rules, err := os.ReadFile(contrib + "prometheus/mta.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\b(mta_[a-z_]+|process_[a-z_]+|up)(\{[^}]*\})?[ \[)]`).FindAllStringSubmatch(string(rules), -1) {
		if strings.Contains(m[2], "SpamBlock") { // no host says that here
			m[2] = ""
		}
		all["rules "+m[1]+m[2]] = m[1] + m[2]
	}
	if len(all) < 100 {
		t.Fatalf("only %d expressions were found", len(all))
	}
	return all
}

// query asks Prometheus.
func (w *watched) query(expr string) (results []struct {
	Metric map[string]string
	Value  []any
}, err error) {
	res, err := http.Get(w.api + "query?" + url.Values{"query": {expr}}.Encode())
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct {
			Result json.RawMessage
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", expr, answer.Error)
	}
	return results, json.Unmarshal(answer.Data.Result, &results)
}

func (w *watched) returnsData(expr string) error {
	results, err := w.query(expr)
	if err == nil && len(results) == 0 {
		err = fmt.Errorf("%s returns nothing", expr)
	}
	return err
}

// alertOfAPause pauses all mail, and resumes it.
func (w *watched) alertOfAPause(t *testing.T) {
	t.Helper()
	const alert = `ALERTS{alertname="MTAPaused", alertstate="firing"}`
	if w.returnsData(alert) == nil {
		t.Error("it fires before the pause")
	}
	w.relay.mta(t, "pause", "everything")
	eventually(t, patience, func() error { return w.returnsData(alert) })
	w.relay.mta(t, "resume", "everything")
	eventually(t, patience, func() error {
		if w.returnsData(alert) == nil {
			return fmt.Errorf("the alert still fires")
		}
		return nil
	})
}
