package warming

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"example.org/mta/mta/accounting"
	"example.org/mta/warmup"
)

// TestTheOperatorHearsOfABlock: a provider that refuses by policy is in the log, in the accounting
// records, in the metrics, and an alarm until it takes mail again.
func TestTheOperatorHearsOfABlock(t *testing.T) {
	w := newWarmupAlone(t, acmeWarms)
	var log bytes.Buffer
	var records []accounting.Record
	w.c.Log = slog.New(slog.NewTextHandler(&log, nil))
	w.c.Records = func(r *accounting.Record) { records = append(records, *r) }
	counted := make(map[string]int)
	w.c.Count = func(source, event string) { counted[source+" "+event]++ }
	const key, source = "192.0.2.20", "acme-1"
	w.pass(1e9)
	if why := w.Health(); why != "" {
		t.Fatal(why)
	}
	w.ctl.ReportSome(key, "big", warmup.PolicyRefusal, 20)
	w.pass(10e9)
	if len(records) != 2 || records[0].Event != "begun" || records[1].Event != "provider_paused" || records[1].Provider != "big" || records[1].EgressSource != source {
		t.Errorf("records: %+v", records)
	}
	if !strings.Contains(log.String(), `level=WARN msg=warm-up event=provider_paused source=`+source) {
		t.Errorf("log: %s", log.String())
	}
	if n := counted[source+" provider_paused"]; n != 1 {
		t.Errorf("counted %d times", n)
	}
	if why := w.Health(); why != "big refuses the mail of "+source+" by policy (paused)" {
		t.Errorf("alarm: %q", why)
	}
}
