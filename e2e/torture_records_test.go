package e2e

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
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

// readRecords reads the records of an accounting log as a program would that is not ours.
func readRecords(t *testing.T, dir string) (all []eventRecord) {
	t.Helper()
	for _, line := range logLines(t, dir) {
		var r eventRecord
		if json.Unmarshal([]byte(line), &r) == nil { // else a kill has torn it
			all = append(all, r)
		}
	}
	return all
}

// logLines reads the files of an accounting log, oldest first, of which the finished ones are compressed.
func logLines(t *testing.T, dir string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(dir + "/mta-*.jsonl*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no accounting files in %s (%v)", dir, err)
	}
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for i, name := range files {
		switch {
		case strings.HasSuffix(name, ".part"): // of what is being compressed
			continue
		case i > 0 && name == files[i-1]+".zst": // a kill came before the plain form was removed
			continue
		}
		content, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) { // it was compressed meanwhile
			name += ".zst"
			content, err = os.ReadFile(name)
		}
		if err == nil && strings.HasSuffix(name, ".zst") {
			content, err = d.DecodeAll(content, nil)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = slices.AppendSeq(all, strings.Lines(string(content)))
	}
	return all
}

// tearRecord leaves the newest accounting file as a kill in the middle of a write does. The next start begins another
// file, and compresses this one. It reports whether there is a file.
func tearRecord(t *testing.T, dir string) bool {
	t.Helper()
	files, err := filepath.Glob(dir + "/mta-*.jsonl")
	if err != nil || len(files) == 0 {
		return false
	}
	f, err := os.OpenFile(files[len(files)-1], os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"type":"Delivery","id":"torn`)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}
