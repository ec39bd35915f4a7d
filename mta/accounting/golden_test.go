package accounting

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.org/mta/internal/linelog"
	"example.org/mta/internal/reply"
)

// TestGoldenRecordOfEachType: a record with all that there can be in it is written, for each type, as its first version
// was, octet for octet.
func TestGoldenRecordOfEachType(t *testing.T) {
	full := delivery()
	full.Response = reply.Reply{Code: 451, Enhanced: reply.Enhanced{4, 7, 1}, Text: "try\n\"later\"", Command: "RCPT", Local: true}
	full.Class, full.Event, full.Stage, full.Count = "Greylisted", "advanced", 3, 12
	full.User, full.Key, full.Tags, full.Meta = "ann", "shop", []string{"news", "sh\"oes"}, `{"order": 17}`
	full.TraceID, full.Headers = "4bf92f3577b34da6a3ce929d0e0e4736", `{"Subject":"Grüße"}`
	full.Report, full.MatchedBy = `{"feedback_type":"abuse"}`, ByToken
	full.Release = accepted.Add(90 * time.Minute)
	var got []byte
	for _, kind := range Types {
		full.Type = kind
		line := appendRecord(nil, &full, `"node1"`)
		linelog.Stamp(Position{File: accepted.Unix(), Offset: int64(len(got))}, line)
		got = append(got, line...)
	}
	golden := filepath.Join("testdata", "types.jsonl")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("records are not as in %s (UPDATE_GOLDEN=1 writes it anew):\n%s", golden, got)
	}
}
