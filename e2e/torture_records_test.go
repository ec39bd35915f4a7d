package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// recorded reads the relay's accounting log, and fails the test for an accepted recipient without a Reception,
// for a delivery or a bounce without a record, and for records that share an event_id.
func (b *battlefield) recorded(t *testing.T) {
	t.Helper()
	records := make(map[string]map[string]int) // by type and recipient, whose addresses are used once
	again, delivered := 0, make(map[eventRecord]bool)
	ids := make(map[string]bool)
	total := 0
	for _, r := range readRecords(t, b.relay.dir+"/data/log") {
		total++
		if records[r.Type] == nil {
			records[r.Type] = make(map[string]int)
		}
		records[r.Type][r.Recipient]++
		if r.Type == "Delivery" { // of reports too, many of which go to one recipient
			d := eventRecord{ID: r.ID, Recipient: r.Recipient}
			if delivered[d] {
				again++
			}
			delivered[d] = true
		}
		if r.EventID == "" || ids[r.EventID] {
			t.Errorf("the event_id %q of a %s is empty or not unique", r.EventID, r.Type)
		}
		ids[r.EventID] = true
	}
	missing := map[string]int{}
	lack := func(kind, recipient string) {
		if records[kind][recipient] == 0 {
			if missing[kind]++; missing[kind] <= 5 {
				t.Errorf("%s has no record of the type %s", recipient, kind)
			}
		}
	}
	for _, d := range b.taken.Deliveries() {
		lack("Delivery", d.Recipient)
	}
	bounced := b.bounced()
	for _, to := range b.accepted {
		for rcpt := range to {
			lack("Reception", rcpt)
			if bounced[rcpt] > 0 {
				lack("Bounce", rcpt)
			}
		}
	}
	t.Logf("%d records, %d of them second Deliveries; missing: %v", total, again, missing)
}

type eventRecord struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	Recipient string `json:"recipient"`
	EventID   string `json:"event_id"`
}

// readRecords reads the files of an accounting log as a program would that is not ours.
func readRecords(t *testing.T, dir string) (all []eventRecord) {
	t.Helper()
	files, err := filepath.Glob(dir + "/mta-*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no accounting files in %s (%v)", dir, err)
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(content) {
			var r eventRecord
			if json.Unmarshal(line, &r) == nil { // else a kill has torn it
				all = append(all, r)
			}
		}
	}
	return all
}
