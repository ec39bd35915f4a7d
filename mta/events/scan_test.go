package events

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/accounting"
)

// lines gives records of all kinds as the log has them.
func lines(t testing.TB) [][]byte {
	dir := t.TempDir()
	w, err := accounting.Open(accounting.Config{Dir: dir, NodeID: "node1"})
	if err != nil {
		t.Fatal(err)
	}
	for i, kind := range accounting.Types {
		for _, tenant := range []string{"", "acme", `a"c\me`, "ünï"} {
			w.Add(&accounting.Record{
				Type: kind, Message: accounting.Message{ID: envelope.ID(i * 1000), Sender: `"a,b}"@example.com`, Tenant: tenant, Size: 1234, Created: time.Unix(1, 0),
					Tags: []string{"a", `b"]`}, Meta: `{"tenant":"evil","type":["x",{"id":"}"}]}`, Headers: `{"Subject":"\"tenant\":\"evil\""}`,
				}, Recipient: "r@example.net", Queue: "x", Attempt: accounting.Attempt{Site: "y", Provider: "big", EgressPool: "p", EgressSource: "s",
					Local: netip.MustParseAddrPort("[2001:db8::1]:25"), Queued: time.Second, Phases: accounting.Phases{Wait: 1, Send: 20000},
				},
				Time:     time.Date(2026, 3, 1, 12, 0, i, 123456000*(i%3), time.UTC),
				Response: reply.Reply{Code: 550, Enhanced: reply.Enhanced{5, 1, 1}, Text: "no \"such\\\" user\n}],{\"tenant\":\"evil\"\x1b[0m", Command: "RCPT"},
				Peer:     accounting.Peer{Name: "mx.example", Addr: netip.MustParseAddr("192.0.2.1")}, Session: "1234", Class: "InvalidRecipient",
			})
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	if _, err := accounting.ReadFrom(t.Context(), dir, Position{}, Position{}, func(_, _ Position, line []byte) error {
		all = append(all, append([]byte(nil), line...))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// sameAsParsed fails unless a scan finds what a parser does.
func sameAsParsed(t *testing.T, line []byte) {
	t.Helper()
	var want struct {
		ID     string    `json:"event_id"`
		Type   string    `json:"type"`
		Msg    string    `json:"id"`
		Tenant string    `json:"tenant"`
		Class  string    `json:"bounce_classification"`
		Stamp  int64     `json:"timestamp"`
		Time   time.Time `json:"event_time"`
	}
	if err := json.Unmarshal(line, &want); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	got, ok := scan(line)
	if !ok || string(got.id) != want.ID || string(got.kind) != want.Type || string(got.message) != want.Msg || string(got.tenant) != want.Tenant ||
		string(got.class) != want.Class || !got.time().Equal(want.Time) {
		t.Errorf("%s\nis scanned as id %q, type %q, message %q, tenant %q, class %q, time %s", line, got.id, got.kind, got.message, got.tenant, got.class, got.time())
	}
}

func TestScanFindsWhatAParserFinds(t *testing.T) {
	all := lines(t)
	if len(all) != 4*len(accounting.Types) {
		t.Fatalf("%d records", len(all))
	}
	quick := 0
	for _, line := range all {
		sameAsParsed(t, line)
		var f fields
		if f.step(line) {
			quick++
		}
	}
	if quick < len(all)*2/3 {
		t.Errorf("%d of %d records were left to the parser", len(all)-quick, len(all))
	}
	for _, line := range []string{`{"type": "Delivery", "id":"x"}`, `{"type":"Del\u0069very","tenant":"a\"b"}`, `{"id":"x","type":"T","timestamp":1,"event_time":"1970-01-01T00:00:01.5Z"}`} {
		if r, ok := scan([]byte(line)); !ok || len(r.kind) == 0 {
			t.Errorf("%s is no record", line)
		}
	}
	for _, line := range []string{"", "{", "{}", "x", `{"type":"Deli`, `{"type":""}`, `[1]`, `{"type":"x"`, `{"type":"x",}`, `{"a":"\"}`, `{"a":[}`, `{"a"}`, `{"a":`, `{"type":1}`} {
		if r, ok := scan([]byte(line)); ok {
			t.Errorf("%q is scanned as %q", line, r.kind)
		}
	}
}

func TestOlderRecordsGetAnID(t *testing.T) {
	r, ok := scan([]byte(`{"type":"Delivery","id":"x","timestamp":1772366400,"event_time":"2026-03-01T12:00:00Z","nodeid":"node1"}`))
	if id := eventID(&r, Position{File: 1772366400, Offset: 4711}, "node1"); !ok || id != "node1-20260301T120000-000000004711" {
		t.Error(id)
	}
}

// FuzzScan: whatever scan accepts in the quick way, a parser reads in the same way.
func FuzzScan(f *testing.F) {
	for _, line := range lines(f) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, ok := scan(line)
		if !ok || !json.Valid(line) {
			return // the writer writes no such line; what is torn is not read
		}
		var twice map[string]json.RawMessage
		if json.Unmarshal(line, &twice) != nil || string(r.kind) == "" {
			t.Fatalf("%q is no object with a type", line)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	all := lines(b)
	for _, way := range []struct {
		name string
		scan func([]byte) (fields, bool)
	}{{"step", scan}, {"parse", parse}} {
		b.Run(way.name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				way.scan(all[i%len(all)&^3+1])
			}
		})
	}
}
