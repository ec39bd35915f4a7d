package bounce

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/reply"
)

func TestUnknownRepliesAreCountedByWhatTheyHaveInCommon(t *testing.T) {
	var u Unknown
	now := time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)
	for i := range 3 {
		u.Add("acme", reply.Parse(fmt.Sprintf("550 <u%d@x.example> frobnicated (id %d)", i, i)), fmt.Sprint("m", i), now.Add(time.Duration(i)*time.Minute))
	}
	u.Add("acme", reply.Parse("550 other"), "", now)
	u.Add("", reply.Parse("550 third"), "", now)
	all := u.List(nil)
	if len(all) != 2 || all[0].Provider != "acme" || all[0].Count != 4 || len(all[0].Samples) != 2 {
		t.Fatalf("%+v", all)
	}
	if s := all[0].Samples[0]; s.Count != 3 || s.Message != "m2" || s.Reply.Text != "<u2@x.example> frobnicated (id 2)" || !s.First.Equal(now) || !s.Last.Equal(now.Add(2*time.Minute)) {
		t.Errorf("%+v", s)
	}
	none := ""
	if of := u.List(&none); len(of) != 1 || of[0].Count != 1 {
		t.Errorf("of sites without a provider: %+v", of)
	}
}

// TestUnknownRepliesAreBounded: whatever hosts answer, and however many providers there are.
func TestUnknownRepliesAreBounded(t *testing.T) {
	var u Unknown
	now := time.Now()
	for p := range 2 * maxUnknownProviders {
		for i := range 2 * maxSamples {
			u.Add(fmt.Sprint("p", p), reply.Reply{Code: 550, Text: strings.Repeat(string(rune('a'+i%26)), i+1) + strings.Repeat(" long", 1000)}, "", now.Add(time.Duration(i)))
		}
	}
	all, sum := u.List(nil), int64(0)
	if len(all) > maxUnknownProviders+1 {
		t.Errorf("%d providers", len(all))
	}
	for _, l := range all {
		sum += l.Count
		if len(l.Samples) > maxSamples || len(l.Samples[0].Reply.Text) > maxSampleText {
			t.Fatalf("%q: %d samples of %d octets", l.Provider, len(l.Samples), len(l.Samples[0].Reply.Text))
		}
	}
	if want := int64(4 * maxUnknownProviders * maxSamples); sum != want {
		t.Errorf("%d are counted, want %d", sum, want)
	}
}
