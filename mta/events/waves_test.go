package events

import (
	"fmt"
	"strings"
	"testing"
)

// TestWaves: each event once, those of a recipient in different waves and in order, others together.
func TestWaves(t *testing.T) {
	b := &Batch{}
	add := func(message, recipient, kind string) {
		b.Events = append(b.Events, Event{
			ID: fmt.Sprint(len(b.Events)), Message: message, Type: kind,
			Line: fmt.Appendf(nil, `{"type":%q,"id":%q,"sender":"a\",\"recipient\":\"x","recipient":%q}`, kind, message, recipient),
		})
	}
	add("m1", "a@b.example", "Reception")
	add("m1", "c@b.example", "Reception")
	add("m2", "a@b.example", "Reception")
	add("m1", "a@b.example", "Delivery")
	add("", "", "Warmup")
	add("m1", "c@b.example", "TransientFailure")
	add("m1", "c@b.example", "Delivery")
	var got []string
	for _, wave := range b.Waves() {
		var ids []string
		for _, e := range wave {
			ids = append(ids, e.ID)
		}
		got = append(got, strings.Join(ids, ","))
	}
	if want := "0,1,2,4 3,5 6"; strings.Join(got, " ") != want {
		t.Errorf("waves are %q, want %q", got, want)
	}
	if len((&Batch{}).Waves()) != 0 {
		t.Error("an empty batch has waves")
	}
}

func BenchmarkWaves(b *testing.B) {
	batch := &Batch{}
	for i := range 500 {
		batch.Events = append(batch.Events, Event{Message: fmt.Sprint(i / 2), Line: []byte(`{"type":"Delivery","id":"1kjmma2g00007","sender":"news@acme.example","recipient":"joe@gmail.com"}`)})
	}
	for b.Loop() {
		batch.Waves()
	}
}
