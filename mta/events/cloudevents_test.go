package events

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

var batch = &Batch{ID: "b", Events: []Event{
	{
		ID: "node1-mta-20260301T120000-42", Type: "Delivery", Message: "1kjmma2g00007", Tenant: "acme",
		Time: time.Date(2026, 3, 1, 12, 0, 1, 234567000, time.UTC),
		Line: []byte(`{"type":"Delivery","recipient":"joe@gmail.com"}` + "\n"),
	},
	{ID: "x\"\xff", Type: "Lost", Line: []byte(`{"type":"Lost","count":3}`)},
}}

func TestBatch(t *testing.T) {
	f := NewCloudEvents("node 1")
	body, err := f.Encode(nil, batch)
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	want := []map[string]any{
		{
			"specversion": "1.0", "id": "node1-mta-20260301T120000-42", "source": "/mta/node%201", "type": "mta.Delivery",
			"subject": "1kjmma2g00007", "partitionkey": "1kjmma2g00007", "time": "2026-03-01T12:00:01.234567Z", "tenant": "acme",
			"datacontenttype": "application/json", "data": map[string]any{"type": "Delivery", "recipient": "joe@gmail.com"},
		},
		{
			"specversion": "1.0", "id": "x\"\ufffd", "source": "/mta/node%201", "type": "mta.Lost",
			"datacontenttype": "application/json", "data": map[string]any{"type": "Lost", "count": 3.0},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestSingle(t *testing.T) {
	body, err := NewCloudEvents("n").EncodeOne(nil, &batch.Events[1])
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(body, &got); err != nil || got["type"] != "mta.Lost" {
		t.Errorf("%v: %s", err, body)
	}
}

func BenchmarkEncode(b *testing.B) {
	f := NewCloudEvents("node1")
	var to []byte
	b.ReportAllocs()
	for b.Loop() {
		to, _ = f.Encode(to[:0], batch)
	}
}
