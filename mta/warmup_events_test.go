package mta

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"example.org/mta/mta/accounting"
	"example.org/mta/warmup"
	"example.org/mta/warmup/memstore"
)

// TestTheOperatorHearsOfABlock: a provider that refuses by policy is in the log, in the accounting
// records, in the metrics, and an alarm until it takes mail again.
func TestTheOperatorHearsOfABlock(t *testing.T) {
	w := newWarmStage(t, holding)
	var log bytes.Buffer
	var records []accounting.Record
	w.warming.log, w.warming.now = slog.New(slog.NewTextHandler(&log, nil)), w.now
	w.warming.records = func(r *accounting.Record) { records = append(records, *r) }
	counted := make(map[string]int)
	w.warming.count = func(source, event string) { counted[source+" "+event]++ }
	key := w.warming.ctl.IPs()[0]
	source := w.warming.sourceOf(key)
	w.warming.ctl = warmup.New(warmup.Config{Node: "other", OnRoom: w.warming.room, OnEvent: w.warming.tell, Now: w.now, Store: memstore.New(func() warmup.Instant { return warmup.Instant(w.clock.UnixMilli()) })})
	if err := w.warming.assign(w.warming.cfg); err != nil {
		t.Fatal(err)
	}
	w.pass(1e9)
	if why := w.warming.shortOfHealth(); why != "" {
		t.Fatal(why)
	}
	w.warming.ctl.ReportSome(key, "big", warmup.PolicyRefusal, 20)
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
	if why := w.warming.shortOfHealth(); why != "big refuses the mail of "+source+" by policy (paused)" {
		t.Errorf("alarm: %q", why)
	}
}
